"""A small convolutional network for 8 × 8 images."""

from torch import nn


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def build() -> nn.Module:
    """Images (n, 1, 8, 8) to logits (n, 10)."""
    return nn.Sequential(
        block(1, 32),
        block(32, 32),
        nn.MaxPool2d(2),
        block(32, 64),
        block(64, 64),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.4),
        nn.Linear(64 * 2 * 2, 10),
    )
