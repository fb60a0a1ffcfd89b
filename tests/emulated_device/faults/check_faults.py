#!/usr/bin/env python3
"""Runs faults of tests/emulated_device/faults under several seeds, and their twins without the fault.

Usage: check_faults.py PROGRAM [--seeds N] [--mpiexec COMMAND] [NAME...]     default: all, with a table at the end

Each fault has to be found in every seed, with the message that the list says; each twin has to pass in every seed.
"""
import argparse
import os
import shlex
import subprocess
import sys


def run(arguments, fault, mode, seed):
    command = [arguments.program, fault["name"], mode]
    if fault["ranks"] > 1:
        command = [*shlex.split(arguments.mpiexec), "-n", str(fault["ranks"]), "--bind-to", "none", *command]
    environment = dict(os.environ, LOCKSTEP_EMULATED_SEED=str(seed), LOCKSTEP_EMULATED_GPUS="2",
                       LOCKSTEP_EMULATED_GPU_MIB="64")
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def is_found(fault, result):
    return result.returncode != 0 and fault["message"] in result.stderr


def check(arguments, fault):
    """In how many seeds it was found, and in how many the twin passed."""
    found = passed = 0
    for seed in range(1, arguments.seeds + 1):
        wrong = run(arguments, fault, "wrong", seed)
        found += is_found(fault, wrong)
        if not is_found(fault, wrong):
            print(f"{fault['name']}, seed {seed}: NOT FOUND (status {wrong.returncode})\n{wrong.stderr}")
        right = run(arguments, fault, "right", seed)
        passed += right.returncode == 0
        if right.returncode != 0:
            print(f"{fault['name']}, seed {seed}: the twin without the fault fails ({right.returncode})\n{right.stderr}")
    return found, passed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--mpiexec", default="mpirun")
    parser.add_argument("names", nargs="*")
    arguments = parser.parse_args()
    listed = subprocess.run([arguments.program, "--list"], capture_output=True, text=True, check=True).stdout
    faults = []
    for line in listed.splitlines():
        name, ranks, message, description = line.split("|")
        if not arguments.names or name in arguments.names:
            faults.append({"name": name, "ranks": int(ranks), "message": message, "description": description})
    if len(faults) < len(arguments.names) or not faults:
        sys.exit(f"not all of these are in the list: {' '.join(arguments.names)}")
    bad = 0
    print(f"| fault | what is wrong | found by | seeds of {arguments.seeds} | twins that pass |\n|---|---|---|---|---|")
    for fault in faults:
        found, passed = check(arguments, fault)
        bad += found < arguments.seeds or passed < arguments.seeds
        print(f"| {fault['name']} | {fault['description']} | \"{fault['message']}\" | {found} | {passed} |", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
