#!/usr/bin/env python3
"""Reads a run's event files with TensorBoard's own reader and compares them with its metrics.jsonl.

Usage: read_tensorboard.py RUN    (the folder with metrics.jsonl and tensorboard/)

Prints a line per tag. Fails when a tag has a step twice or out of order, or when the event files and
metrics.jsonl differ in a step or in a value (as float, TensorBoard's type). Needs: pip install tensorboard.
"""
import json
import math
import pathlib
import struct
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

NOT_SCALARS = {"kind", "step", "epoch", "samples", "tokens", "seconds"}


def as_float32(value):
    return math.nan if value is None else struct.unpack("<f", struct.pack("<f", value))[0]


def expected_curves(path):
    """tag -> [(step, value)] of metrics.jsonl; an mfu that is null was not written as a scalar."""
    curves = {}
    for line in path.read_text().splitlines():
        record = json.loads(line)
        for key, value in record.items():
            if key not in NOT_SCALARS and not (key == "mfu" and value is None):
                curves.setdefault(f"{record['kind']}/{key}", []).append((record["step"], as_float32(value)))
    return curves


def read_curves(folder):
    """tag -> [(step, value)] as TensorBoard shows them, every point kept."""
    accumulator = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    accumulator.Reload()
    return {tag: [(event.step, event.value) for event in accumulator.Scalars(tag)]
            for tag in accumulator.Tags()["scalars"]}


def same(a, b):
    """Values that are not finite are null in metrics.jsonl, whatever they were."""
    return a == b or (not math.isfinite(a) and math.isnan(b))


def main():
    run = pathlib.Path(sys.argv[1])
    found, expected = read_curves(run / "tensorboard"), expected_curves(run / "metrics.jsonl")
    bad = 0
    for tag in sorted(found.keys() | expected.keys()):
        points, wanted = found.get(tag, []), expected.get(tag, [])
        steps = [step for step, _ in points]
        ordered = all(a < b for a, b in zip(steps, steps[1:]))
        equal = len(points) == len(wanted) and all(
            p[0] == w[0] and same(p[1], w[1]) for p, w in zip(points, wanted))
        print(f"{tag}: {len(points)} points, {len(wanted)} in metrics.jsonl, "
              f"{'in order' if ordered else 'NOT IN ORDER'}, {'equal' if equal else 'DIFFERENT'}")
        bad += not (ordered and equal)
    return 1 if bad or not found else 0


if __name__ == "__main__":
    sys.exit(main())
