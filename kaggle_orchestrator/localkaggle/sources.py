"""Sources of a kernel: which of them Kaggle accepts, and what a session then finds below ``/kaggle/input``."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from kaggle_orchestrator.localkaggle.knobs import Knobs
from kaggle_orchestrator.localkaggle.outputs import mounted_output
from kaggle_orchestrator.localkaggle.records import Kernel, Settings
from kaggle_orchestrator.localkaggle.spec import Mount, SessionFolder
from kaggle_orchestrator.localkaggle.wire import is_name
from kaggle_orchestrator.localkaggle.world import World
from kaggle_orchestrator.models import KernelRef
from kaggle_orchestrator.profile import FirstMount, MountLayout, QuickSave, SelfMount

COMPETITIONS = "competitions"
"""Owner of competitions' data among the datasets."""
_FOLDERS = {"datasets", "notebooks", COMPETITIONS, "models"}


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources sorted into those that are accepted and those that aren't."""

    datasets: tuple[str, ...]
    kernels: tuple[str, ...]
    competitions: tuple[str, ...]
    invalid_datasets: tuple[str, ...]
    invalid_kernels: tuple[str, ...]
    invalid_competitions: tuple[str, ...]


def sort_sources(
    world: World,
    user: str,
    target: KernelRef,
    datasets: Iterable[str],
    kernels: Iterable[str],
    competitions: Iterable[str],
    self_mount: SelfMount,
) -> Sources:
    """Look each source up. The kernel itself is dropped without a word, as a rule."""

    def is_dataset(name: str) -> bool:
        parts = _split(name)
        if parts is None or parts[0] == COMPETITIONS or world.latest_version(parts[0], parts[1]) < (parts[2] or 1):
            return False
        collection = world.collection(parts[0], parts[1])
        return collection is None or not collection.private or collection.owner == user

    def is_readable(name: str) -> bool:
        kernel = _kernel(world, name)
        return kernel is not None and (kernel.ref.owner == user or not kernel.private)

    def is_itself(name: str) -> bool:
        parts = _split(name)  # also in its very first push, when there is no such kernel yet
        named = parts and KernelRef(parts[0], parts[1].lower())
        return self_mount is SelfMount.DROP and named == target

    def is_competition(name: str) -> bool:
        return is_name(name) and world.latest_version(COMPETITIONS, name) > 0

    known_datasets, invalid_datasets = _parted(datasets, is_dataset)
    known_kernels, invalid_kernels = _parted((name for name in kernels if not is_itself(name)), is_readable)
    known_competitions, invalid_competitions = _parted(competitions, is_competition)
    return Sources(
        datasets=known_datasets,
        kernels=known_kernels,
        competitions=known_competitions,
        invalid_datasets=invalid_datasets,
        invalid_kernels=invalid_kernels,
        invalid_competitions=invalid_competitions,
    )


def _parted(names: Iterable[str], is_known: Callable[[str], bool]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    each = {name: is_known(name) for name in names}
    return tuple(name for name in each if each[name]), tuple(name for name in each if not each[name])


def mounts(world: World, settings: Settings, knobs: Knobs, *, before: Settings | None, now: float) -> tuple[Mount, ...]:
    """What a session gets if it starts now: of kernels, the last version that ended well.

    Args:
        world: Where sources are looked up.
        settings: The session's.
        knobs: How Kaggle mounts.
        before: Settings of the kernel's session before, which knew some of the sources already.
        now: The world's time.
    """
    found: dict[str, Mount] = {}
    known = _places(before) if before else frozenset()
    for source, slug, place in _folders(world, settings, knobs, now):
        if knobs.first_mount is FirstMount.EMPTY and place not in known:
            continue
        targets = []
        if knobs.mount_layout is not MountLayout.OWNER and slug not in _FOLDERS:
            targets.append(slug)
        if knobs.mount_layout is not MountLayout.FLAT:
            targets.append(place)
        for target in targets:
            found.setdefault(target, Mount(str(source), target))
    return tuple(found.values())


def _places(settings: Settings) -> frozenset[str]:
    """The places below the owner of all sources, whichever version is asked for."""
    datasets = (f"datasets/{parts[0]}/{parts[1]}" for parts in map(_split, settings.datasets) if parts)
    kernels = (f"notebooks/{parts[0]}/{parts[1].lower()}" for parts in map(_split, settings.kernels) if parts)
    competitions = (f"{COMPETITIONS}/{slug}" for slug in settings.competitions)
    return frozenset((*datasets, *kernels, *competitions))


def _folders(world: World, settings: Settings, knobs: Knobs, now: float) -> Iterator[tuple[Path, str, str]]:
    """Folder, slug and place below the owner of each source that has something to mount."""
    root = world.root
    for name in settings.datasets:
        parts = _split(name)
        dataset = world.dataset(*parts, now=now) if parts else None
        if dataset:
            folder = dataset_folder(root, dataset.owner, dataset.slug, dataset.version)
            yield folder, dataset.slug, f"datasets/{dataset.owner}/{dataset.slug}"
    for slug in settings.competitions:
        dataset = world.dataset(COMPETITIONS, slug, now=now)
        if dataset:
            yield dataset_folder(root, COMPETITIONS, slug, dataset.version), slug, f"{COMPETITIONS}/{slug}"
    for name in settings.kernels:
        kernel = _kernel(world, name)
        session = world.last_complete(kernel) if kernel else None
        if kernel is None or session is None:
            continue
        if knobs.quick_save is QuickSave.MASK and _saved_since(world, kernel, session.version):
            continue
        ref = kernel.ref
        yield mounted_output(session_folder(root, session.id)), ref.slug, f"notebooks/{ref.owner}/{ref.slug}"


def _saved_since(world: World, kernel: Kernel, version: int) -> bool:
    """Whether the kernel's latest version was saved without running, after that one."""
    return kernel.current > version and world.session_of(kernel, kernel.current) is None


def session_folder(root: Path, session: int) -> SessionFolder:
    """Where a session's files lie."""
    return SessionFolder(root / "sessions" / str(session))


def dataset_folder(root: Path, owner: str, slug: str, version: int) -> Path:
    """Where a dataset version's files lie."""
    return root / "datasets" / owner / slug / str(version)


def _kernel(world: World, name: str) -> Kernel | None:
    parts = _split(name)
    return world.kernel(KernelRef(parts[0], parts[1].lower())) if parts else None


def _split(name: str) -> tuple[str, str, int | None] | None:
    """``owner/slug`` or ``owner/slug/version``."""
    parts = name.split("/")
    if len(parts) not in (2, 3) or not is_name(parts[0]) or not is_name(parts[1]):
        return None
    if len(parts) == 2:
        return parts[0], parts[1], None
    version = parts[2]
    return (parts[0], parts[1], int(version)) if version.isascii() and version.isdigit() and len(version) < 9 else None
