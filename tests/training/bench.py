#!/usr/bin/env python3
"""The command bench, started as users start it.

Usage: bench.py --lockstep BINARY --case NAME
"""
import argparse
import json
import subprocess
import sys

import runs
from runs import Failure, expect

SIZES = {"model.num_layers": 1, "model.hidden_size": 64, "model.num_heads": 4, "model.seq_length": 32,
         "model.vocab_size": 300, "train.micro_batch_size": 3, "run.device": "cpu", "run.threads": 1}


def bench(binary, settings, *arguments, start=()):
    flags = [str(word) for key, value in settings.items() for word in (f"--{key}", value)]
    return subprocess.run([*start, binary, "bench", "kernels", *flags, *arguments], text=True, capture_output=True,
                          env=runs.environment(), timeout=150, check=False)


def kernels(binary):
    """One of two ranks prints one object, with the sizes and the precision that were asked for."""
    result = bench(binary, {**SIZES, "run.precision": "f32"}, "--json", start=(*runs.MPIRUN, "-np", "2"))
    expect(result.returncode == 0, result.stderr)
    report = json.loads(result.stdout)
    expect(report["micro_batch_size"] == 3 and report["precision"] == "f32", report)
    expect(report["model"]["seq_length"] == 32 and report["model"]["vocab_size"] == 300, report["model"])
    expect(report["device"].startswith("CPU, 1 thread,"), report["device"])
    expect(report["limits"]["copied_bytes"] == 1 << 28 and report["limits"]["product_size"] == 2048, report["limits"])
    shapes = {(row["kernel"], row["role"]): row["shape"] for row in report["kernels"]}
    expect(shapes["matmul", "qkv, forward"] == "96 x 192 x 64 f32", shapes)
    for row in report["kernels"]:
        expect(row["least_seconds"] <= row["median_seconds"] <= row["most_seconds"], row)
        expect(row["fraction_of_limit"] > 0, row)


def refusals(binary):
    for changes, text in (({"model.architecture": "mlp", "data.kind": "synthetic"}, "takes the sizes of a transformer; valid: gpt2 | llama"),
                          ({"model.num_heads": 16, "model.architecture": "llama", "model.hidden_size": 48},
                           "rotary positions need an even head size"),
                          ({"model.num_heads": 5}, "--model.num_heads = 5 does not divide")):
        result = bench(binary, {**SIZES, **changes})
        expect(result.returncode == 2 and text in result.stderr, f"{changes}: {result.returncode}\n{result.stderr}")
        expect(result.stdout == "", result.stdout)


CASES = {"kernels": kernels, "refusals": refusals}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", choices=CASES, required=True)
    options = parser.parse_args()
    try:
        CASES[options.case](options.lockstep)
    except Failure as failure:
        sys.exit(f"{options.case}: {failure}")


if __name__ == "__main__":
    main()
