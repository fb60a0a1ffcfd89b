#!/usr/bin/env python3
"""Stopped, killed and resumed runs end with the bits of one that never stopped, each step once.

Usage: resume.py --lockstep BINARY --case NAME [--seed N]
"""
import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time

import layouts
import runs
from runs import Failure, Program, Run, compare, expect

STEPS = 40
STOPPED = 75


def settings_of(program, model="gpt2", precision="f32", **more):
    return layouts.settings_of(program, model, precision, **{"train__steps": STEPS, "train__eval_interval": 10, **more})


def check_files(run, last_step):
    """metrics.jsonl has every step up to the last once, in order; its checkpoint is the newest."""
    expect(run.steps() == list(range(1, last_step + 1)), f"train lines of steps {run.steps()}, not 1 .. {last_step}")
    newest = (run.folder / "checkpoints" / "latest").resolve()
    expect(json.loads((newest / "state.json").read_text())["step"] == last_step, f"newest checkpoint {newest}")
    expect((newest / "COMPLETE").exists(), f"{newest} is not complete")


def equal_after_resume(program, settings, folder, ranks, reference):
    run = program.train({**settings, "train.output_dir": str(folder)}, ranks)
    check_files(run, STEPS)
    compare(reference, run.result(), f"resumed on {ranks} ranks")
    return run


def stop_at(program, settings, step, ranks, stop):
    """Trains until `step` is written, calls stop(process), and returns (status, Run)."""
    folder = program.folder()
    process = program.start(program.command({**settings, "train.output_dir": str(folder)}, ranks))
    try:
        Run(folder).wait_for_step(step, process)
        stop(process)
        status, output = program.finish(process)
    except BaseException:
        runs.kill_tree(process.pid)
        raise
    return status, Run(folder, output)


def stopped(program, numbers):
    """SIGUSR1 to mpirun (or to a process alone) is answered with a checkpoint and status 75."""
    for model, precision, before, after in (("gpt2", "f32", 2, 4), ("llama", "bf16", 4, 1), ("mlp", "f32", 1, 2)):
        settings = settings_of(program, model, precision)
        reference = program.train(settings, 1).result()
        step = numbers.randrange(1, STEPS // 2)
        status, run = stop_at(program, settings, step, before, lambda process: process.send_signal(signal.SIGUSR1))
        expect(status == STOPPED, f"status {status} after SIGUSR1:\n{run.output}")
        reached = run.steps()[-1]
        expect(step <= reached < STEPS, f"signal at step {step}, stopped at {reached}")
        check_files(run, reached)
        expect(f"stopped by a signal after step {reached}" in run.output, run.output)
        print(f"  {model}: signal at step {step} on {before} ranks, stopped at {reached}, resumed on {after}")
        run = equal_after_resume(program, settings, run.folder, after, reference)
        complete_is_left_alone(program, settings, run)


def stopped_at_an_evaluation(program, numbers):
    """The evaluation that is due at the step of a stop is not lost. Every step has one, so the stop meets one."""
    settings = settings_of(program, train__eval_interval=1)
    reference = program.train(settings, 1).result()
    status, run = stop_at(program, settings, numbers.randrange(1, STEPS // 2), 2,
                          lambda process: process.send_signal(signal.SIGUSR1))
    expect(status == STOPPED, f"status {status} after SIGUSR1:\n{run.output}")
    equal_after_resume(program, settings, run.folder, 1, reference)


def complete_is_left_alone(program, settings, run):
    """Started once more, a complete run does nothing and says so."""
    before = {path: path.read_bytes() for path in run.folder.rglob("*.safetensors")}
    metrics = (run.folder / "metrics.jsonl").read_bytes()
    again = program.train({**settings, "train.output_dir": str(run.folder)}, 2)
    expect("already complete" in again.output, again.output)
    expect((run.folder / "metrics.jsonl").read_bytes() == metrics, "metrics.jsonl changed")
    expect(before == {path: path.read_bytes() for path in run.folder.rglob("*.safetensors")}, "a checkpoint changed")


def stopped_in_one_rank(program, numbers):
    """A signal that only rank 1 gets stops all ranks at the same step; so do SIGTERM and SIGINT."""
    settings = settings_of(program)
    reference = program.train(settings, 1).result()
    for sent in (signal.SIGUSR1, signal.SIGTERM, signal.SIGINT):
        step = numbers.randrange(1, STEPS // 2)

        def stop(process, number=sent):
            os.kill(runs.ranks_of(process.pid, program.binary)[-1], number)

        status, run = stop_at(program, settings, step, 2, stop)
        expect(status == STOPPED, f"status {status} after {sent.name} to one rank:\n{run.output}")
        check_files(run, run.steps()[-1])
        print(f"  {sent.name} to the last rank at step {step}, stopped at {run.steps()[-1]}")
        equal_after_resume(program, settings, run.folder, numbers.choice((1, 2, 4)), reference)


def killed(program, numbers):
    """kill -9 of everything: the run goes on from the newest checkpoint of the interval."""
    for asynchronous in (False, True):
        settings = settings_of(program, checkpoint__interval=7)
        settings["checkpoint.async"] = asynchronous
        reference = program.train(settings, 1).result()
        step = numbers.randrange(15, 25)
        status, run = stop_at(program, settings, step, 2, lambda process: runs.kill_tree(process.pid))
        expect(status == -signal.SIGKILL, f"status {status} of a killed mpirun:\n{run.output}")
        wait_until_unused(run)
        reached = run.steps()[-1]
        expect(step <= reached < STEPS, f"killed at step {step}, lines up to {reached}")
        resumed = equal_after_resume(program, settings, run.folder, 4, reference)
        expect("going on from step" in resumed.output, resumed.output)
        line = next(line for line in resumed.output.splitlines() if "going on from step" in line)
        print(f"  killed at step {reached} of {STEPS}: {line.split('info ')[-1].split(' (')[0]}")


def wait_until_unused(run):
    """Until the ranks of a killed job are gone, as far as its files show."""
    size = -1
    while size != (size := (run.folder / "metrics.jsonl").stat().st_size):
        time.sleep(0.1)


def damaged(program, numbers):
    """A damaged newest checkpoint is named, and the one before it is used."""
    settings = settings_of(program, checkpoint__interval=10)
    reference = program.train(settings, 1).result()

    def flip_a_byte(folder):
        file = numbers.choice(sorted(folder.glob("*.safetensors")))
        data = bytearray(file.read_bytes())
        data[numbers.randrange(len(data))] ^= 0x10
        file.write_bytes(data)

    def truncate(folder):
        file = numbers.choice(sorted(folder.glob("*.safetensors")))
        os.truncate(file, file.stat().st_size // 2)

    def remove_mark(folder):
        (folder / "COMPLETE").unlink()

    for damage in (flip_a_byte, truncate, remove_mark):
        run = program.train(settings, 2)
        damage(run.folder / "checkpoints" / f"step-{STEPS:08d}")
        resumed = equal_after_resume(program, settings, run.folder, 4, reference)
        expect(f"step-{STEPS:08d}" in resumed.output, f"{damage.__name__}: not named:\n{resumed.output}")
        expect(f"going on from step {STEPS - 10}" in resumed.output, f"{damage.__name__}:\n{resumed.output}")
        named = next(line for line in resumed.output.splitlines() if f"step-{STEPS:08d}" in line)
        print(f"  {damage.__name__}: {named.split('] ')[-1]}")


def rank_killed(program, numbers):
    """kill -9 of one of two ranks ends the job soon, says which rank and how, and is no success."""
    settings = settings_of(program, train__steps=100000)
    began = 0.0

    def stop(process):
        nonlocal began
        began = time.monotonic()
        os.kill(runs.ranks_of(process.pid, program.binary)[-1], signal.SIGKILL)

    status, run = stop_at(program, settings, numbers.randrange(1, 10), 2, stop)
    seconds = time.monotonic() - began
    expect(status == 128 + signal.SIGKILL, f"status {status}:\n{run.output}")
    expect(seconds < 10, f"the job took {seconds:.1f} s to end:\n{run.output}")
    expect("rank 1" in run.output and "signal 9 (Killed)" in run.output, run.output)
    print(f"  ended after {seconds:.2f} s with status {status}; the last lines:")
    print("\n".join("    " + line for line in run.output.splitlines()[-6:]))


CASES = {"stopped": stopped, "stopped_in_one_rank": stopped_in_one_rank, "killed": killed, "damaged": damaged,
         "stopped_at_an_evaluation": stopped_at_an_evaluation, "rank_killed": rank_killed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 32))
    options = parser.parse_args()
    print(f"{options.case}: --seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="lockstep-resume-") as scratch:
        program = Program(options.lockstep, scratch)
        try:
            CASES[options.case](program, random.Random(options.seed))
        except Failure as failure:
            sys.exit(f"{options.case} (--seed {options.seed}): {failure}")


if __name__ == "__main__":
    main()
