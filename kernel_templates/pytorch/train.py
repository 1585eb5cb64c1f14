"""An image classifier, whole: data, network, mixed precision, several GPUs, checkpoints, a checked export.

Its settings are `[train] params` in kgo.toml; what is left out is as in DEFAULTS. To change more than settings, copy
this file beside kgo.toml and name it: `entry = "train.py"`.
"""

import json
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import Dataset

import kaggle_orchestrator as kgo

DEFAULTS = {
    "data": "",  # a dataset with a folder of images for each class, perhaps below train/ and val/; "": drawn shapes
    "size": 64,  # pixels
    "width": 32,  # channels of the first layers
    "epochs": 10,
    "batch_size": 64,  # of each GPU
    "lr": 3e-3,
    "weight_decay": 0.05,
    "label_smoothing": 0.1,
    "workers": 2,
    "samples": 2000,  # drawn shapes
}
IMAGES = {".jpg", ".jpeg", ".png", ".bmp", ".webp"}


class Pictures(Dataset[tuple[Tensor, int]]):
    """Image files, read when they are asked for; a training set's are moved, mirrored and shaded a little."""

    def __init__(self, files: list[tuple[Path, int]], size: int, *, augment: bool) -> None:
        self.files, self.size, self.augment = files, size, augment

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        from PIL import Image

        path, label = self.files[index]
        with Image.open(path) as image:
            data = bytearray(image.convert("RGB").resize((self.size, self.size)).tobytes())
        picture = torch.frombuffer(data, dtype=torch.uint8).view(self.size, self.size, 3).permute(2, 0, 1) / 255
        return augmented(picture) if self.augment else picture - 0.5, label


class Shapes(Dataset[tuple[Tensor, int]]):
    """Discs, squares and rings, drawn when they are asked for: something to learn without any data."""

    names = ("disc", "ring", "square")

    def __init__(self, samples: int, size: int, *, first: int, augment: bool) -> None:
        self.samples, self.size, self.first, self.augment = samples, size, first, augment

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        generator = torch.Generator().manual_seed(self.first + index)
        label = index % len(self.names)
        x, y = (torch.rand(2, generator=generator) * 0.6 + 0.2).tolist()
        radius = torch.rand(1, generator=generator).item() * 0.1 + 0.1
        line = torch.linspace(0, 1, self.size)
        across, down = (line - x).abs()[None, :], (line - y).abs()[:, None]
        far = torch.maximum(across, down) if label == 2 else (across**2 + down**2).sqrt()
        inside = (far < radius) & (far > radius * 0.6 if label == 1 else far >= 0)
        picture = inside * torch.rand(3, 1, 1, generator=generator) + torch.rand(3, 1, 1, generator=generator) * 0.3
        return augmented(picture) if self.augment else picture - 0.5, label


def augmented(picture: Tensor) -> Tensor:
    """kgo seeds these random numbers for each batch, so they are the same however often training is cut."""
    if torch.rand(()) < 0.5:
        picture = picture.flip(2)
    left, top = torch.randint(0, 9, (2,)).tolist()
    side = picture.shape[1]
    picture = F.pad(picture, (4, 4, 4, 4))[:, top : top + side, left : left + side]
    return (picture - 0.5) * (0.8 + 0.4 * torch.rand(())) + 0.02 * torch.randn(())


def load(run: kgo.Run, params: dict) -> tuple[Dataset, Dataset, list[str]]:
    """Training data, data held out, and the names of the classes."""
    size = params["size"]
    if not params["data"]:
        few = max(1, params["samples"] // 5)
        training = Shapes(params["samples"], size, first=few, augment=True)
        return training, Shapes(few, size, first=0, augment=False), list(Shapes.names)
    root = run.mount(params["data"])
    parts = [root / "train", root / "val"] if (root / "train").is_dir() else [root]
    classes = sorted(p.name for p in parts[0].iterdir() if p.is_dir())
    found = [images(part, classes) for part in parts]
    training, held_out = found if len(parts) == 2 else ([f for i, f in enumerate(found[0]) if i % 5], found[0][::5])
    if len(classes) < 2 or not training or not held_out:
        raise SystemExit(f"{root} holds no images in a folder for each class (found: {', '.join(classes) or 'none'})")
    return Pictures(training, size, augment=True), Pictures(held_out, size, augment=False), classes


def images(folder: Path, classes: list[str]) -> list[tuple[Path, int]]:
    """The image files of each class, with its number."""
    files = [(file, label) for label, name in enumerate(classes) for file in sorted((folder / name).rglob("*"))]
    return [(file, label) for file, label in files if file.suffix.lower() in IMAGES]


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        same = inputs == outputs and stride == 1
        self.around = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.body(x) + self.around(x))


def build(width: int, classes: int) -> nn.Module:
    """A small residual network: images (n, 3, size, size) to logits (n, classes)."""
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
        Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes),
    )  # fmt: skip


def half_type(device: torch.device) -> torch.dtype | None:
    """What the device computes fast: bfloat16 from Ampere on, float16 on a T4, neither on a CPU."""
    if device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.get_device_capability(device)[0] >= 8 else torch.float16


@torch.no_grad()
def accuracy(model: nn.Module, batches, device: torch.device) -> float:
    model.eval()
    right = [(model(x.to(device)).argmax(dim=1).cpu() == y).float() for x, y in batches]
    model.train()
    return torch.cat(right).mean().item()


def export(model: nn.Module, width: int, classes: list[str], sample: Tensor) -> None:
    """Write final/, and see that what was written can be loaded and answers as it should."""
    final = Path("final")
    final.mkdir(exist_ok=True)
    torch.save({name: value.cpu() for name, value in model.state_dict().items()}, final / "model.pt")
    (final / "model.json").write_text(json.dumps({"width": width, "classes": classes, "input": list(sample.shape[1:])}))
    again = build(width, len(classes)).eval()
    again.load_state_dict(torch.load(final / "model.pt", weights_only=True))
    with torch.no_grad():
        answer, expected = again(sample), model.cpu().eval()(sample)
    if answer.shape != (len(sample), len(classes)) or not torch.allclose(answer, expected, atol=1e-4):
        raise SystemExit(f"the exported model answers {tuple(answer.shape)}, not as the trained one does")


with kgo.start(seed=0) as run:
    params = DEFAULTS | dict(run.params)
    if unknown := sorted(params.keys() - DEFAULTS.keys()):
        raise SystemExit(f"[train] params has no {', '.join(unknown)} here; there are {', '.join(DEFAULTS)}")
    training, held_out, classes = load(run, params)

    model = build(params["width"], len(classes)).to(run.device)
    half = half_type(run.device)
    scaler = torch.amp.GradScaler(run.device.type, enabled=half is torch.float16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=params["lr"], weight_decay=params["weight_decay"])
    train = run.loader(
        training,
        batch_size=params["batch_size"],
        drop_last=True,
        num_workers=params["workers"],
        persistent_workers=params["workers"] > 0,
        pin_memory=run.device.type == "cuda",
    )
    check = run.loader(held_out, batch_size=params["batch_size"], shuffle=False)
    steps = params["epochs"] * len(train)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, params["lr"], total_steps=steps)
    run.track(model=model, optimizer=optimizer, scheduler=scheduler, scaler=scaler)
    several = dist.is_available() and dist.is_initialized()
    learner = DistributedDataParallel(model) if several else model

    for epoch in run.epochs(params["epochs"]):
        for x, y in train:
            x, y = x.to(run.device, non_blocking=True), y.to(run.device, non_blocking=True)
            with torch.autocast(run.device.type, dtype=half, enabled=half is not None):
                loss = F.cross_entropy(learner(x), y, label_smoothing=params["label_smoothing"])
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            scheduler.step()
            run.step(loss=loss, lr=scheduler.get_last_lr()[0])
        score = accuracy(model, check, run.device)
        run.best(accuracy=score, mode="max")
        if run.rank == 0:
            print(f"epoch {epoch + 1}/{params['epochs']}: accuracy {score:.3f}", flush=True)

    if run.rank == 0:
        export(model, params["width"], classes, torch.stack([held_out[i][0] for i in range(min(8, len(held_out)))]))
