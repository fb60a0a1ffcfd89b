#!/usr/bin/env python3
"""A run whose last checkpoint cannot be written fails, names the file, and leaves what was there before.

Usage: unwritten.py --lockstep BINARY --case NAME
"""
import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import time

import layouts
import runs
from runs import Failure, Program, Run, compare, expect

FAILED = 3
STEPS = 100
INTERVAL = 10
FULL = 1 << 20  # bytes that a file may have: less than the weights, more than everything else


def settings_of(program, asynchronous, **more):
    settings = layouts.settings_of(program, "gpt2", train__steps=STEPS, train__eval_interval=50, **more)
    return {**settings, "checkpoint.interval": INTERVAL, "checkpoint.async": asynchronous}


def processes_of(process, binary):
    return runs.ranks_of(process.pid, binary) or [process.pid]


def fill_disk(process, program, _):
    """No file of the run can grow beyond FULL from now on."""
    for pid in processes_of(process, program.binary):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (FULL, resource.RLIM_INFINITY))


def take_folder(process, program, run):
    """A file lies where the folder of the checkpoints was."""
    (run.folder / "checkpoints").rename(run.folder / "taken")
    (run.folder / "checkpoints").write_text("not a folder")


def give_folder_back(run):
    (run.folder / "checkpoints").unlink()
    (run.folder / "taken").rename(run.folder / "checkpoints")


def wait_for_checkpoint(run, process):
    end = time.monotonic() + runs.SECONDS_A_RUN
    while not (run.folder / "checkpoints" / "latest" / "COMPLETE").exists():
        expect(process.poll() is None and time.monotonic() < end, f"no checkpoint (status {process.poll()})")
        time.sleep(0.002)


def failed(program, settings, ranks, obstacle, stop=None):
    """Trains until the first checkpoint is there, puts the obstacle in the way, and returns the Run that failed."""
    folder = program.folder()
    run = Run(folder)
    process = program.start(program.command({**settings, "train.output_dir": str(folder)}, ranks))
    try:
        wait_for_checkpoint(run, process)
        obstacle(process, program, run)
        if stop:
            os.kill(processes_of(process, program.binary)[-1], stop)
        status, run.output = program.finish(process)
    except BaseException:
        runs.kill_tree(process.pid)
        raise
    expect(status == FAILED, f"status {status}, expected {FAILED}:\n{run.output}")
    return run


def check_message(run, step, text):
    """One rank says once which file of the last checkpoint was not written; earlier ones are told as not written."""
    errors = [line for line in run.output.splitlines() if " error " in line]
    last = [line for line in errors if "checkpoint not written" not in line]
    expect(len(last) == 1 and text in last[0] and f"step-{step:08d}" in last[0],
           f"expected one message with {text!r} of step {step}:\n{run.output}")
    print("  " + last[0].split("error ", 1)[1])
    return len(errors) - 1


def check_remains(program, settings, run, ranks, reference):
    """Every step has its line, the newest checkpoint is whole, and the run goes on from it to the same bits."""
    steps = run.steps()
    expect(steps == list(range(1, len(steps) + 1)), f"lines of steps {steps}")
    newest = (run.folder / "checkpoints" / "latest").resolve()
    names = sorted(path.name for path in (run.folder / "checkpoints").iterdir())
    expect(not any(name.startswith(".writing") for name in names), names)
    status, output = program.finish(program.start([program.binary, "checkpoint", "verify", str(run.folder)]))
    expect(status == 0, output)
    step = json.loads((newest / "state.json").read_text())["step"]
    expect(step % INTERVAL == 0 and step < len(steps), f"newest checkpoint {newest} of {len(steps)} steps")
    resumed = program.train({**settings, "train.output_dir": str(run.folder)}, ranks)
    expect(resumed.steps() == list(range(1, STEPS + 1)), f"lines of steps {resumed.steps()}")
    compare(reference, resumed.result(), "resumed")
    expect(f"going on from step {step}" in resumed.output, resumed.output)


def final(program):
    """The checkpoint at the end, on a disk that is full."""
    reference = program.train(settings_of(program, False), 2).result()
    # Written from memory, from a copy, and tensor by tensor as the other rank sends its share.
    for asynchronous, ranks, stage in ((False, 1, 0), (True, 2, 0), (False, 2, 1)):
        settings = {**settings_of(program, asynchronous), "parallel.zero_stage": stage}
        run = failed(program, settings, ranks, fill_disk)
        expect(run.steps()[-1] == STEPS, f"ended at step {run.steps()[-1]}")
        between = check_message(run, STEPS, "/model-00000.safetensors")
        expect(between > 0, f"no checkpoint in between failed, or none was told:\n{run.output}")
        check_remains(program, settings, run, 2, reference)


def stopped(program):
    """The checkpoint of a stop signal, on a disk that is full."""
    reference = program.train(settings_of(program, False), 2).result()
    for asynchronous, ranks, number in ((False, 2, signal.SIGTERM), (True, 1, signal.SIGUSR1)):
        settings = settings_of(program, asynchronous)
        run = failed(program, settings, ranks, fill_disk, number)
        expect(run.steps()[-1] < STEPS, "the signal came too late")
        check_message(run, run.steps()[-1], "/model-00000.safetensors")
        check_remains(program, settings, run, 2, reference)


def folder(program):
    """A file in the place of the checkpoints' folder: training goes on, the end fails."""
    reference = program.train(settings_of(program, False), 2).result()
    for asynchronous, ranks in ((False, 2), (True, 1)):
        settings = settings_of(program, asynchronous)
        run = failed(program, settings, ranks, take_folder)
        expect(run.steps()[-1] == STEPS, f"ended at step {run.steps()[-1]}")
        expect(check_message(run, STEPS, "/checkpoints/") > 0, run.output)
        give_folder_back(run)
        check_remains(program, settings, run, 2, reference)


CASES = {"final": final, "stopped": stopped, "folder": folder}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-unwritten-") as scratch:
        program = Program(options.lockstep, scratch)
        try:
            CASES[options.case](program)
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")


if __name__ == "__main__":
    main()
