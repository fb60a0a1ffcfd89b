#!/usr/bin/env python3
"""The command plan, started as users start it: alone, without mpirun.

Usage: plan.py --lockstep BINARY --case NAME
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

from runs import Failure, expect

REFUSED = 2


def plan(binary, scratch, *arguments):
    return subprocess.run([binary, "plan", *arguments], cwd=scratch, text=True, capture_output=True,
                          timeout=60, check=False)


def drawing(binary, scratch):
    """Says what it took, draws every rank, and leaves nothing behind."""
    (scratch / "run.toml").write_text("[parallel]\npipeline = 2\ndata = 2\n[train]\nglobal_batch_size = 9\n"
                                      "micro_batch_size = 2\n")
    result = plan(binary, scratch, "--draw-schedule", "--config", "run.toml")
    expect(result.returncode == 0, result.stderr)
    for text in ("run.toml:2: parallel.pipeline = 2\n", 'parallel.schedule = "1f1b" (default)\n',
                 "run.toml:3: parallel.data = 2\n",
                 "5 micro-batches a step, 3 a data rank at most (drawn), one less on others\n",
                 "rank 0    01..aa2bb.cc\n", "rank 1    .0aa1bb2cc..\n"):
        expect(text in result.stdout, f"expected {text!r}:\n{result.stdout}")

    for kind, chunks in (("gpipe", 1), ("interleaved", 3), ("zero-bubble", 1)):
        result = plan(binary, scratch, "--draw-schedule", "--parallel.pipeline", "8", "--parallel.schedule", kind,
                      "--parallel.virtual_stages", str(chunks))
        expect(result.returncode == 0, result.stderr)
        expect(f"{kind}: 8 ranks, {chunks} chunk" in result.stdout, result.stdout)
        expect("parallel.data = 0 (default), taken as 1\n" in result.stdout, result.stdout)
        expect("\nrank 7 " in result.stdout and max(map(len, result.stdout.splitlines())) <= 200, result.stdout)
    expect(sorted(path.name for path in scratch.iterdir()) == ["run.toml"], "plan wrote files")


def refusals(binary, scratch):
    """What does not fit, and what is not there yet."""
    draw = ("--draw-schedule", "--parallel.pipeline", "2")
    for arguments, expected in (((), "plan without --draw-schedule is not yet available"),
                                ((*draw, "--parallel.virtual_stages", "2"), "parallel.virtual_stages = 2"),
                                ((*draw, "--parallel.schedule", "interleaved"), "parallel.virtual_stages = 1"),
                                ((*draw, "--train.global_batch_size", "2000000000"), "micro-batches"),
                                ((*draw, "--parallel.zero_stage", "3"), "--parallel.zero_stage = 3 is not yet available")):
        result = plan(binary, scratch, *arguments)
        expect(result.returncode == REFUSED, f"status {result.returncode}: {arguments}\n{result.stderr}")
        expect(expected in result.stderr and not result.stdout, f"expected {expected!r}:\n{result.stderr}{result.stdout}")


CASES = {"drawing": drawing, "refusals": refusals}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-plan-") as scratch:
        try:
            CASES[options.case](options.lockstep, pathlib.Path(scratch))
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")


if __name__ == "__main__":
    main()
