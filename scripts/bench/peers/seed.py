"""Trains the model of configs/seed-classifier.toml with PyTorch and prints seconds and steps as JSON.

Linear(784, 10) on 10,000 random images, batches of 64 (all ranks together), SGD. The whole training is run once
before the one that is timed. With WORLD_SIZE set it is one rank of DistributedDataParallel over gloo.
"""
import argparse
import json
import os
import time

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, TensorDataset

SAMPLES = 10_000
INPUTS = 784
CLASSES = 10
BATCH = 64


def batches(feed, dataset, sampler, size):
    """One epoch: DataLoader's batches, or rows picked from the tensors in the sampler's order, which saves most of
    DataLoader's time."""
    if feed == "loader":
        yield from DataLoader(dataset, batch_size=size, sampler=sampler)
        return
    images, labels = dataset.tensors
    for rows in torch.tensor(list(sampler)).split(size):
        yield images.index_select(0, rows), labels.index_select(0, rows)


def train(arguments, dataset, ranks):
    """Returns (seconds, steps, last loss)."""
    torch.manual_seed(1)
    model = nn.Linear(INPUTS, CLASSES)
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    sampler = DistributedSampler(dataset) if ranks > 1 else RandomSampler(dataset)
    if ranks > 1:
        distributed.barrier()
    steps, loss = 0, None
    start = time.perf_counter()
    for epoch in range(arguments.epochs):
        if ranks > 1:
            sampler.set_epoch(epoch)
        for images, labels in batches(arguments.feed, dataset, sampler, BATCH // ranks):
            optimizer.zero_grad(set_to_none=True)
            loss = functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            steps += 1
    if ranks > 1:
        distributed.barrier()
    return time.perf_counter() - start, steps, loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--epochs", type=int, required=True)
    parser.add_argument("--feed", choices=("loader", "index"), required=True)
    arguments = parser.parse_args()
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(arguments.threads)
    if ranks > 1:
        distributed.init_process_group("gloo")
    random = torch.Generator().manual_seed(0)
    dataset = TensorDataset(torch.rand(SAMPLES, INPUTS, generator=random),
                            torch.randint(CLASSES, (SAMPLES,), generator=random))
    train(arguments, dataset, ranks)
    seconds, steps, loss = train(arguments, dataset, ranks)
    if int(os.environ.get("RANK", "0")) == 0:
        print(json.dumps({"seconds": seconds, "steps": steps, "last_loss": loss}))
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
