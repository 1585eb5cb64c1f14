"""examples/digits as a plain PyTorch loop that imports nothing of kgo, with the seeding of docs/exactness.md.

Prints the sha256 of the final weights. That it equals the library's shows that the library agrees with something
besides itself. Run it in its own process: ``python plain_digits.py EPOCHS THREADS``.
"""

import hashlib
import random
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

DIGITS = Path(__file__).parents[3] / "examples" / "digits"
SEED, LOADER, RANK = 0, 0, 0
BATCH_SIZE, MAX_LR = 64, 0.01


def seed_of(kind: str, *numbers: int) -> int:
    """``sha256("kgo <kind> <numbers…>")``, its first eight bytes."""
    text = f"kgo {kind} {' '.join(map(str, numbers))}"
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest()[:8], byteorder="big")


def batches(dataset: Any, pass_: int) -> Any:
    """One pass in the documented order, each batch with the documented random numbers."""
    order = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(seed_of("order", SEED, LOADER, pass_)))
    threads = torch.get_num_threads()
    for number in range(len(dataset) // BATCH_SIZE):
        indices = order[number * BATCH_SIZE : (number + 1) * BATCH_SIZE].tolist()
        python_state, torch_state = random.getstate(), torch.get_rng_state()
        seed = seed_of("batch", SEED, LOADER, pass_, number, RANK)
        random.seed(seed)
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        batch = default_collate([dataset[index] for index in indices])
        torch.set_num_threads(threads)
        random.setstate(python_state)
        torch.set_rng_state(torch_state)
        yield batch


def digest(state: dict[str, torch.Tensor]) -> str:
    """sha256 over sorted (name, dtype, shape, bytes)."""
    total = hashlib.sha256()
    for name in sorted(state):
        tensor = state[name]
        total.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        total.update(bytes(tensor.reshape(-1).view(torch.uint8).tolist()))
    return total.hexdigest()


def main(epochs: int, threads: int) -> str:
    """Train; returns the digest of the final weights."""
    sys.path.insert(0, str(DIGITS))
    import data  # type: ignore[import-not-found]
    import model  # type: ignore[import-not-found]

    torch.set_num_threads(threads)
    random.seed(SEED)
    torch.manual_seed(SEED)
    images, labels, test_images, _ = data.load()
    net: nn.Module = model.build()
    dataset = data.Digits(images, labels)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
    total = epochs * (len(dataset) // BATCH_SIZE)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=MAX_LR, total_steps=total)
    for epoch in range(epochs):
        net.train()
        for x, y in batches(dataset, epoch):
            loss = nn.functional.cross_entropy(net(x), y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            scheduler.step()
        net.eval()
        with torch.no_grad():
            net(test_images)
    return digest(net.state_dict())


if __name__ == "__main__":
    print(main(int(sys.argv[1]), int(sys.argv[2])))
    assert not [name for name in sys.modules if name.startswith("kaggle_orchestrator")]
