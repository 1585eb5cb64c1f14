"""A session's box on Linux: what it sees of the machine, built from namespaces with the standard library alone.

Inside, ``/kaggle/input`` and everything of the machine are read-only, ``/kaggle/working`` is the session's folder, HOME
and ``/tmp`` are fresh and empty, and no process of the session outlives its first one. It keeps a script from seeing
credentials and from breaking its inputs; it isn't meant to hold an attacker.
"""

import ctypes
import errno
import fcntl
import os
import platform
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

from kaggle_orchestrator.localkaggle.spec import SessionFolder, Spec

HOME = "/root"
"""HOME inside, as on Kaggle."""

_CLONE_NEWNS = 0x0002_0000
_CLONE_NEWUTS = 0x0400_0000
_CLONE_NEWIPC = 0x0800_0000
_CLONE_NEWUSER = 0x1000_0000
_CLONE_NEWPID = 0x2000_0000
_CLONE_NEWNET = 0x4000_0000
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x4_0000
_MNT_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_MOUNT_ATTR_RDONLY = 1
_SYS_MOUNT_SETATTR = 442  # the same on every architecture
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
_CAPABILITY_VERSION_3 = 0x2008_0522
_SIOCGIFFLAGS, _SIOCSIFFLAGS, _IFF_UP = 0x8913, 0x8914, 1

_OWN = ("dev", "proc", "kaggle", "lost+found")
"""What is not taken over from the machine's root."""
_DEVICES = (
    *("null", "zero", "full", "random", "urandom", "tty"),
    *("nvidia*", "nvhost*", "nvmap", "dri", "dxg", "kfd"),  # accelerators
)
"""What a session sees below ``/dev``. Of a disk or the kernel's log, a mount can't be made read-only for root."""
_KERNEL = ("sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "mtrr")
"""What root may write below ``/proc`` without any capability; one letter to sysrq-trigger restarts the machine."""
_EMPTY = ("/tmp", "/var/tmp", "/run", "/home", HOME)
"""What is fresh and empty inside, besides what the spec hides."""


def supported() -> str | None:
    """Why a box can't even be tried here, or None."""
    if platform.system() != "Linux":
        return f"{platform.system()} has no namespaces"
    if platform.machine() not in _SYS_PIVOT_ROOT:
        return f"not known on {platform.machine()}"
    return None


def isolate_processes() -> None:
    """Give the children of this process PIDs of their own, as root of their own where the caller isn't root.

    Raises:
        OSError: It isn't allowed here.
    """
    try:
        _call("unshare", _CLONE_NEWPID)
        return
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
    uid, gid = os.geteuid(), os.getegid()
    _call("unshare", _CLONE_NEWUSER | _CLONE_NEWPID)
    Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"0 {uid} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"0 {gid} 1", encoding="ascii")


def build(spec: Spec, folder: SessionFolder) -> None:
    """Turn this process's view of the machine into the session's. Called as PID 1 of its namespace.

    Raises:
        OSError: A step isn't allowed here; the message names it.
    """
    net = 0 if spec.internet else _CLONE_NEWNET
    _call("unshare", _CLONE_NEWNS | _CLONE_NEWIPC | _CLONE_NEWUTS | net)
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    root = folder.box
    root.mkdir(exist_ok=True)
    _mount("tmpfs", root, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    _take_over(root)
    _hide(root, [*_EMPTY, *spec.hidden])
    for prefix in spec.prefixes:
        _show(root, Path(prefix))
    _show_links(root, Path(spec.python))
    _system_mounts(root)
    _kaggle(root, spec, folder)
    if not spec.internet:
        _raise_loopback()
        socket.sethostname("kaggle")
        _own_hosts(root)
    os.chdir(root)
    _pivot()


def drop_privileges() -> None:
    """Give up every capability for good: a root session could otherwise remount its input writable."""
    for capability in range(64):
        try:
            _call("prctl", _PR_CAPBSET_DROP, capability, 0, 0, 0)
        except OSError as error:
            if error.errno == errno.EINVAL:  # beyond the last one
                break
            raise
    _call("prctl", _PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    _call("capset", header, bytes(24))


def _take_over(root: Path) -> None:
    """The machine's root folder, read-only."""
    for entry in os.scandir("/"):
        place = root / entry.name
        if entry.name in _OWN:
            continue
        if entry.is_symlink():
            place.symlink_to(Path(entry.path).readlink())
        else:
            _bind(Path(entry.path), place)


def _hide(root: Path, folders: Iterable[str]) -> None:
    """Put an empty folder over each; those that a hidden one holds are gone with it."""
    for folder in sorted({os.path.realpath(f) for f in folders}, key=len):
        place = _inside(root, Path(folder))
        if folder != "/" and place.is_dir():
            mode = "1777" if folder in ("/tmp", "/var/tmp") else "755"
            _mount("tmpfs", place, "tmpfs", _MS_NOSUID | _MS_NODEV, f"mode={mode}")


def _show(root: Path, folder: Path) -> None:
    """Bring back a folder that was hidden, read-only, under its name and under its real one."""
    real = Path(os.path.realpath(folder))
    for name in dict.fromkeys((real, folder)):
        place = _inside(root, name)
        if real.is_dir() and not place.exists():
            _bind(real, place)


def _show_links(root: Path, path: Path) -> None:
    """Bring back every link on the way to an interpreter, where it was hidden."""
    for _ in range(40):
        link = next((p for p in reversed((path, *path.parents)) if p.is_symlink()), None)
        if link is None:
            return
        place, target = _inside(root, link), link.readlink()
        if not os.path.lexists(place):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)
        path = Path(os.path.normpath(link.parent / target / path.relative_to(link)))


def _system_mounts(root: Path) -> None:
    _mount_new("proc", root / "proc", "proc", _MS_NOSUID | _MS_NODEV | _MS_NOEXEC)
    for name in _KERNEL:
        place = root / "proc" / name
        if place.exists():
            _mount(str(place), place, None, _MS_BIND | _MS_REC)
            _read_only(place)
    _devices(root / "dev")
    resolver = Path(os.path.realpath("/etc/resolv.conf"))  # often a link into /run, which is hidden
    if resolver.is_file() and not _inside(root, resolver).exists():
        _bind(resolver, _inside(root, resolver))


def _devices(dev: Path) -> None:
    _mount_new("tmpfs", dev, "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    for pattern in _DEVICES:
        for device in Path("/dev").glob(pattern):
            _bind(device, dev / device.name)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        (dev / name).symlink_to(f"/proc/self/fd{target}")
    (dev / "ptmx").symlink_to("pts/ptmx")
    (dev / "shm").mkdir()
    (dev / "pts").mkdir()
    _read_only(dev)
    _mount("tmpfs", dev / "shm", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=1777")
    _mount("devpts", dev / "pts", "devpts", _MS_NOSUID | _MS_NOEXEC, "newinstance,ptmxmode=0666,mode=620")


def _kaggle(root: Path, spec: Spec, folder: SessionFolder) -> None:
    kaggle = root / "kaggle"
    _bind(folder.source, kaggle / "src")
    working = kaggle / "working"
    working.mkdir()
    _mount(str(folder.working), working, None, _MS_BIND | _MS_REC)
    _mount_new("tmpfs", kaggle / "input", "tmpfs", _MS_NOSUID | _MS_NODEV, "mode=755")
    for mount in spec.mounts:
        place = kaggle / "input" / mount.target
        if not place.exists():
            _bind(Path(mount.source), place)
    _read_only(kaggle / "input")


def _own_hosts(root: Path) -> None:
    """The machine's own name resolves to an address that only the outside has."""
    hosts = root / "etc" / "hosts"
    if hosts.is_file():
        own = root / "kaggle" / ".hosts"
        own.write_text("127.0.0.1 localhost kaggle\n::1 localhost\n", encoding="ascii")
        _mount(str(own), hosts, None, _MS_BIND)
        own.unlink()


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        request = struct.pack("16sH14x", b"lo", 0)
        flags = struct.unpack("16sH14x", fcntl.ioctl(probe, _SIOCGIFFLAGS, request))[1]
        fcntl.ioctl(probe, _SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", flags | _IFF_UP))


def _pivot() -> None:
    number = _SYS_PIVOT_ROOT[platform.machine()]
    _call("syscall", number, b".", b".")  # the old root ends up over the new one
    _call("umount2", b".", _MNT_DETACH)
    os.chdir("/")


def _inside(root: Path, path: Path) -> Path:
    return root / path.relative_to("/")


def _bind(source: Path, place: Path) -> None:
    """Show ``source`` at ``place``, read-only, with all that is mounted below it."""
    if source.is_dir():
        place.mkdir(parents=True, exist_ok=True)
    else:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.touch()
    _mount(str(source), place, None, _MS_BIND | _MS_REC)
    _read_only(place)


def _read_only(place: Path) -> None:
    attributes = struct.pack("QQQQ", _MOUNT_ATTR_RDONLY, 0, 0, 0)
    path = os.fsencode(place)
    _call("syscall", _SYS_MOUNT_SETATTR, _AT_FDCWD, path, _AT_RECURSIVE, attributes, len(attributes), what=str(place))


def _mount_new(source: str, place: Path, kind: str, flags: int, data: str = "") -> None:
    place.mkdir(parents=True)
    _mount(source, place, kind, flags, data)


def _mount(source: str | None, place: Path | str, kind: str | None, flags: int, data: str = "") -> None:
    encoded = (os.fsencode(source) if source else None, os.fsencode(place), kind.encode() if kind else None)
    _call("mount", *encoded, flags, data.encode() or None, what=f"{kind or source or 'private'} at {place}")


def _call(function: str, *arguments: int | bytes | None, what: str = "") -> None:
    """Call into the C library; longs are passed at full width, as variadic functions want them."""
    converted = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    if getattr(_libc(), function)(*converted) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), f"{function} {what}".strip())


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
