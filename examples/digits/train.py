"""Reads handwritten digits. Runs on a laptop as it is, and on Kaggle over any number of sessions."""

import json
from pathlib import Path

import data
import model
import torch
from torch import nn

import kaggle_orchestrator as kgo

torch.set_num_threads(1)  # so small a network is fastest with one

with kgo.start(seed=0) as run:
    epochs, batch_size = run.params["epochs"], run.params["batch_size"]
    images, labels, test_images, test_labels = data.load()
    test_images, test_labels = test_images.to(run.device), test_labels.to(run.device)

    net = model.build().to(run.device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.05)
    train = run.loader(data.Digits(images, labels), batch_size=batch_size, drop_last=True)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=run.params["lr"], total_steps=epochs * len(train))
    run.track(model=net, optimizer=optimizer, scheduler=scheduler)

    def accuracy() -> float:
        net.eval()
        with torch.no_grad():
            return (net(test_images).argmax(dim=1) == test_labels).float().mean().item()

    for epoch in run.epochs(epochs):
        net.train()
        for x, y in train:
            loss = nn.functional.cross_entropy(net(x.to(run.device)), y.to(run.device), label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            run.step(loss=loss)
        test_accuracy = accuracy()
        run.best(test_accuracy=test_accuracy, mode="max")
        print(f"epoch {epoch + 1}/{epochs}, step {run.global_step}: test accuracy {test_accuracy:.3f}", flush=True)

    final = Path("final")
    final.mkdir(exist_ok=True)
    torch.save({name: value.cpu() for name, value in net.state_dict().items()}, final / "model.pt")
    (final / "metrics.json").write_text(json.dumps({"test_accuracy": accuracy(), "steps": run.global_step}) + "\n")
