"""The digits: 8 × 8 images of 1,797 handwritten digits, every fifth of them held out for testing."""

import csv
import gzip
import random
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

FILE = Path(__file__).parent / "data" / "digits.csv.gz"


def load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Training images (n, 1, 8, 8) and labels (n,), then the same for testing; grey values from 0 to 1."""
    with gzip.open(FILE, "rt") as file:
        rows = torch.tensor([[float(value) for value in row] for row in csv.reader(file)])
    images, labels = rows[:, :64].reshape(-1, 1, 8, 8) / 16, rows[:, 64].long()
    held_out = torch.arange(len(rows)) % 5 == 4
    return images[~held_out], labels[~held_out], images[held_out], labels[held_out]


class Digits(Dataset[tuple[Tensor, Tensor]]):
    """Images that are turned, scaled, moved and blotted a little differently each time they are asked for."""

    def __init__(self, images: Tensor, labels: Tensor) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        angle, scale = random.gauss(0, 0.12), random.gauss(1, 0.08)
        turn = torch.tensor([[scale, -angle, 0.0], [angle, scale, 0.0]])
        turn[:, 2] = torch.randn(2) * 0.1
        grid = F.affine_grid(turn[None], [1, 1, 8, 8], align_corners=False)
        image = F.grid_sample(self.images[index][None], grid, align_corners=False)[0]
        return image + torch.randn(1, 8, 8) * 0.05, self.labels[index]
