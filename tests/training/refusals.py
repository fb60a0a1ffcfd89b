#!/usr/bin/env python3
"""A request that cannot be met is refused by all ranks alike, once, before anything is written.

Usage: refusals.py --lockstep BINARY --case NAME [--cuda TEXT]     TEXT: what CMake said about CUDA
"""
import argparse
import re
import subprocess
import sys
import tempfile

import layouts
import runs
from runs import Failure, Program, expect

REFUSED = 2


def refused(program, settings, changes, expected):
    """Starts training with `changes`; checks status, a single message and that nothing was written."""
    folder = program.folder()
    command = program.command({**settings, "train.output_dir": str(folder), **changes}, 2)
    check_refusal(program, command, expected, folder)


def check_refusal(program, command, expected, folder):
    status, output = program.finish(program.start(command))
    expect(status == REFUSED, f"status {status}, expected {REFUSED}: {' '.join(command)}\n{output}")
    errors = [line for line in output.splitlines() if " error " in line]
    expect(len(errors) == 1 and expected in errors[0], f"expected one message with {expected!r}:\n{output}")
    expect(folder is None or not folder.exists(), f"{folder} was created")
    print("  " + errors[0].split("error ", 1)[1])


def configurations(program):
    """Ranks that were given different flags."""
    for key, values in (("run.seed", (1, 2)), ("optimizer.lr", ("1e-3", "2e-3")), ("train.steps", (4, 5))):
        folder = program.folder()
        settings = {**layouts.settings_of(program, "gpt2"), "train.output_dir": str(folder)}
        command = list(runs.MPIRUN)
        for value in values:
            command += (["-np", "1"] + program.command({**settings, key: value}) + [":"])
        check_refusal(program, command[:-1],
                      "rank 1 was started with another configuration than rank 0", folder)


def keys(program):
    """Misspelt keys, wrong types and impossible values."""
    settings = layouts.settings_of(program, "gpt2")
    refused(program, settings, {"train.stepz": 10}, "--train.stepz; the nearest known flag is --train.steps")
    refused(program, settings, {"train.steps": "many"}, "--train.steps")
    refused(program, settings, {"parallel.data": 3}, "parallel.data = 3, parallel.pipeline = 1, parallel.tensor = 1 do not make 2 ranks")
    refused(program, settings, {"prune.sparsity": 0.25}, "--prune.sparsity = 0.25 is not yet available")
    for architecture in ("llama", "mlp"):
        refused(program, layouts.settings_of(program, architecture), {"model.dropout": 0.5},
                f'--model.dropout = 0.5: --model.architecture = "{architecture}" has no dropout')
    refused(program, settings, {"parallel.tensor": 4}, "possible (data x pipeline x tensor): 2 x 1 x 1, 1 x 2 x 1, 1 x 1 x 2")
    refused(program, settings, {"model.num_heads": 7}, "--model.num_heads = 7 does not divide")
    split = {"parallel.pipeline": 2, "parallel.schedule": "zero-bubble"}
    refused(program, settings, {**split, "train.recompute": "full"}, '--train.recompute = "full" does not go with')
    refused(program, settings, {**split, "parallel.virtual_stages": 2}, "parallel.virtual_stages = 2 does not fit")


def data(program):
    """Files that are missing, damaged or do not fit the model."""
    settings = layouts.settings_of(program, "gpt2")
    good = (program.scratch / "train.bin").read_bytes()
    outside = bytearray(good)
    outside[1024 + 2 * 1000] = runs.VOCABULARY  # the id at position 1000
    bad = program.scratch / "bad.bin"
    for content, text in ((good[:-3], "bad.bin"), (b"", "bad.bin"), (bytes(outside), "position 1000")):
        bad.write_bytes(content)
        refused(program, settings, {"data.train": bad}, text)
    refused(program, settings, {"data.train": program.scratch / "missing.bin"}, "missing.bin")
    refused(program, settings, {"data.train": program.scratch}, str(program.scratch))
    refused(program, settings, {"model.seq_length": 5000}, "train.bin")

    images = layouts.settings_of(program, "mlp")
    refused(program, images, {"data.train": program.scratch / "none"}, "none")
    labels = program.scratch / "images" / "t10k-labels-idx1-ubyte"
    labels.write_bytes(labels.read_bytes()[:-1])
    refused(program, images, {}, "t10k-labels-idx1-ubyte")


def checkpoints(program):
    """What a run's own checkpoints contradict; the run stays as it was."""
    settings = layouts.settings_of(program, "gpt2")
    run = program.train(settings, 1)
    before = contents(run.folder)
    for changes, text in (({"run.seed": 8}, "run.seed = 8"), ({"parallel.virtual_data": 2}, "virtual_data = 2"),
                          ({"model.hidden_size": 72}, "the model of this configuration needs"), ({"train.steps": 3}, "train.steps")):
        command = program.command({**settings, "train.output_dir": str(run.folder), **changes}, 2)
        check_refusal(program, command, text, None)
        expect(before == contents(run.folder), f"{changes}: the run's folder changed")


def devices(program):
    """--version says which devices there are and what was found of others, which are refused."""
    settings = layouts.settings_of(program, "gpt2")
    refused(program, settings, {"run.device": "cuda"}, "run.device = cuda")
    refused(program, {**settings, "run.device": "cpu"}, {"parallel.backend": "nccl"}, "parallel.backend = nccl: ")
    status, output = program.finish(program.start([program.binary, "--version"]))
    lines = output.splitlines()
    expect(status == 0, output)
    with_cuda = program.cuda.startswith("found ")
    expect(any(re.fullmatch(r"devices: cpu, cuda \(CUDA .*, cuBLASLt .*, NCCL .*\)" if with_cuda else "devices: cpu", line)
               for line in lines), output)
    expect(f"CUDA at build: {program.cuda}" in lines, f"expected {program.cuda!r}:\n{output}")
    # Where there is no driver there is no libcuda, and the program starts all the same.
    linked = subprocess.run(["ldd", program.binary], capture_output=True, text=True, check=True).stdout
    expect("libcuda.so" not in linked, linked)


# Slurm's srun -n TASKS where Open MPI cannot find its peers: every task is alone.
SRUN = """#!/usr/bin/env bash
export SLURM_NTASKS=$2 SLURM_NPROCS=$2 SLURM_STEP_NUM_TASKS=$2 SLURM_STEP_ID=0
shift 2
for ((task = 0; task < SLURM_NTASKS; ++task)); do
  SLURM_PROCID=$task SLURM_LOCALID=$task "$@" &
  tasks+=($!)
done
for task in "${tasks[@]}"; do wait "$task" || status=$?; done
exit "${status:-0}"
"""


def slurm(program):
    """Tasks of a Slurm step that do not find each other must not train; what needs no other ranks may be asked for."""
    settings = layouts.settings_of(program, "gpt2")
    srun = program.scratch / "srun"
    srun.write_text(SRUN)
    srun.chmod(0o755)
    step = [str(srun), "-n", "4"]

    folder = program.folder()
    train = program.command({**settings, "train.output_dir": str(folder)})
    status, output = program.finish(program.start(step + train))
    expect(status == REFUSED and not folder.exists(), f"status {status}:\n{output}")
    expect(output.count("this Slurm step has 4 tasks") == output.count("srun --mpi=pmix") == 4, output)

    model = runs.flags({key: value for key, value in settings.items() if key.startswith("model.")})
    for words, text in ((["plan", *model], "mesh: 1 x data"), (["plan", "--json", *model], '"largest_host":'),
                        (["plan", "--draw-schedule", "--parallel.pipeline", "2"], "\nrank 1    .0aa1"),
                        (["--help"], "[parallel]"), (["--version"], "devices: cpu"),
                        (["train", "--print-config", *model], "num_layers = 4")):
        status, output = program.finish(program.start(step + [program.binary, *words]))
        expect(status == 0 and output.count(text) == 4 and " error " not in output, f"{words}: status {status}:\n{output}")

    # A shell of an allocation for several tasks is no step; mpirun says how many ranks there are.
    allocation = {"SLURM_NTASKS": "4", "SLURM_PROCID": "0"}
    program.train({**settings, "train.steps": 1}, extra=allocation)
    one_rank = runs.MPIRUN + ["-np", "1"] + train
    status, output = program.finish(program.start(one_rank, {**allocation, "SLURM_STEP_NUM_TASKS": "4"}))
    expect(status == 0 and folder.exists(), f"status {status}:\n{output}")


def contents(folder):
    return sorted((path, path.read_bytes()) for path in folder.rglob("*") if path.is_file())


CASES = {"configurations": configurations, "keys": keys, "data": data, "checkpoints": checkpoints,
         "devices": devices, "slurm": slurm}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    parser.add_argument("--cuda")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-refusals-") as scratch:
        program = Program(options.lockstep, scratch)
        program.cuda = options.cuda
        try:
            CASES[options.case](program)
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")


if __name__ == "__main__":
    main()
