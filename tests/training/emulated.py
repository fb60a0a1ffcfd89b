#!/usr/bin/env python3
"""The CUDA backend on the emulated device: the mesh does not change its bits, and its losses are the CPU's within the
bound that is derived for two orders of sums (meshes.Bounds).

Usage: emulated.py --lockstep BINARY --emulated BINARY --case NAME

Rank i of n has emulated GPU i of n and NCCL, or all of them one GPU and MPI.
"""
import argparse
import os
import sys
import tempfile
import time

import meshes
import runs
from meshes import Bounds, Layout, check_bounds, losses_of, settings_of
from runs import Failure, Program, compare, expect

SIZES = {
    "gpt2": {"model.num_layers": 2, "model.hidden_size": 20, "model.num_heads": 2, "model.ffn_hidden_size": 26,
             "model.seq_length": 10},
    "llama": {"model.num_layers": 2, "model.hidden_size": 24, "model.num_heads": 4, "model.num_kv_heads": 2,
              "model.ffn_hidden_size": 26, "model.seq_length": 10},
    "llama-one": {"model.num_layers": 2, "model.hidden_size": 24, "model.num_heads": 2, "model.num_kv_heads": 1,
                  "model.ffn_hidden_size": 26, "model.seq_length": 10},
    "mlp": {},
}


class Emulated(Program):
    """Trains on emulated GPUs. `checks`: every access to memory is looked at, which takes ten times as long."""

    def __init__(self, binary, scratch, checks=False):
        super().__init__(binary, scratch)
        self.checks = checks

    def folder(self, label="emulated"):
        return super().folder(label)

    def train(self, settings, ranks=1, hosts=None, extra=None, status=0):
        backend = settings.get("parallel.backend", "nccl")
        extra = {"LOCKSTEP_EMULATED_GPUS": str(ranks if backend == "nccl" else 1),
                 "LOCKSTEP_EMULATED_CHECKS": "1" if self.checks else "0",
                 "LOCKSTEP_EMULATED_SEED": str(self.num_runs), **(extra or {})}
        return super().train({"run.device": "cuda", "parallel.backend": backend, **settings}, ranks, hosts, extra, status)


def settings_for(program, model, precision):
    return {**settings_of(program, model, precision), **SIZES[model], "train.global_batch_size": 5, "train.steps": 2,
            "parallel.virtual_data": 2, "parallel.virtual_tensor": 2, "train.eval_interval": 2}


def equal_bits(emulated, model, precision, layouts, more=None):
    settings = {**settings_for(emulated, model, precision), **(more or {})}
    reference = emulated.train({**settings, **Layout().settings}, 1)
    for layout, backend in layouts:
        begin = time.monotonic()
        run = emulated.train({**settings, **layout.settings, "parallel.backend": backend}, layout.ranks)
        label = f"{model} {precision} {layout.words} {backend}"
        compare(reference.result(), run.result(), label)
        print(f"  {label}: equal ({time.monotonic() - begin:.1f} s)", flush=True)


def near_cpu(cpu, emulated):
    """One rank, no choice of the order of sums in common."""
    for model, precision in (("gpt2", "f32"), ("gpt2", "bf16"), ("llama", "f32"), ("llama", "bf16")):
        settings = {**settings_for(cpu, model, precision), **Bounds.SETTINGS, "train.steps": 3,
                    "parallel.virtual_data": 1, "parallel.virtual_tensor": 1}
        on_cpu = cpu.train({**settings, "run.device": "cpu"}, 1)
        on_gpu = emulated.train(settings, 1)
        check_bounds(Bounds(model, precision, on_cpu), on_cpu, on_gpu, f"{model} {precision}")
    settings = settings_for(cpu, "mlp", "f32")
    on_cpu = cpu.train({**settings, "run.device": "cpu"}, 1)
    on_gpu = emulated.train(settings, 1)
    for one, other in zip(losses_of(on_cpu), losses_of(on_gpu)):
        expect(abs(one - other) <= 1e-5 * one, f"mlp: {one} on the CPU, {other} on the device")
    expect(on_cpu.value("accuracy", "eval") == on_gpu.value("accuracy", "eval"), "mlp: accuracy")


def data(cpu, emulated):
    equal_bits(emulated, "gpt2", "f32", [(Layout(data=2), "nccl"), (Layout(data=2), "mpi"), (Layout(data=2, zero=1), "nccl"),
                                         (Layout(data=2, zero=2), "mpi"), (Layout(data=2, zero=3), "nccl")])
    equal_bits(emulated, "llama", "bf16", [(Layout(data=2, zero=3, recompute="full"), "nccl"), (Layout(data=2, zero=1), "mpi")])
    equal_bits(emulated, "mlp", "bf16", [(Layout(data=2), "nccl"), (Layout(tensor=2), "mpi")])
    equal_bits(emulated, "gpt2", "f32", [(Layout(data=2, zero=2), "nccl"), (Layout(data=2, zero=3), "nccl")],
               {"parallel.accumulate": "tree-fold"})


def tensor(cpu, emulated):
    equal_bits(emulated, "gpt2", "bf16", [(Layout(tensor=2), "nccl"), (Layout(tensor=2, sequence=True, recompute="selective"), "mpi")])
    equal_bits(emulated, "llama", "f32", [(Layout(tensor=2, sequence=True), "nccl"), (Layout(data=2, tensor=2, zero=1), "nccl")])
    equal_bits(emulated, "llama-one", "f32", [(Layout(tensor=2, sequence=True), "nccl")])


def pipeline(cpu, emulated):
    equal_bits(emulated, "gpt2", "f32", [(Layout(pipeline=2), "nccl"), (Layout(data=2, pipeline=2), "nccl"),
                                         (Layout(pipeline=2, schedule="zero-bubble"), "nccl")])
    equal_bits(emulated, "llama", "bf16", [(Layout(pipeline=2), "mpi"),
                                           (Layout(pipeline=2, schedule="gpipe"), "mpi"),
                                           (Layout(pipeline=2, tensor=2, sequence=True, recompute="full"), "nccl")])
    equal_bits(emulated, "llama", "f32", [(Layout(pipeline=2, schedule="interleaved", chunks=2), "nccl")],
               {"model.num_layers": 4})


def resume(cpu, emulated):
    """A checkpoint of the device goes on where there is none, and back."""
    settings = {**settings_for(cpu, "gpt2", "f32"), "checkpoint.interval": 1, "train.steps": 3}
    run = emulated.train({**settings, **Layout(data=2, zero=1).settings}, 2)
    first = run.result()
    for step in (2, 3):
        (run.folder / f"checkpoints/step-{step:08d}/COMPLETE").unlink()
    again = emulated.train({**settings, **Layout(pipeline=2).settings, "train.output_dir": str(run.folder)}, 2)
    expect("going on from step 1" in again.output, again.output)
    compare(first, again.result(), "from 2 x 1 x 1 to 1 x 2 x 1")
    (run.folder / "checkpoints/step-00000003/COMPLETE").unlink()
    on_cpu = cpu.train({**settings, "run.device": "cpu", "train.output_dir": str(run.folder)}, 1)
    expect("bits may change here" in on_cpu.output and "going on from step 2" in on_cpu.output, on_cpu.output)


def refused(cpu, emulated):
    """Two ranks on one GPU do not go with NCCL; a GPU that is too small is seen before anything is taken."""
    settings = {**settings_for(emulated, "gpt2", "f32"), "train.output_dir": str(emulated.folder())}
    command = emulated.command({**settings, "run.device": "cuda"}, 2)
    status, output = emulated.finish(emulated.start(command, {"LOCKSTEP_EMULATED_GPUS": "1"}))
    expect(status == 2 and output.count("have the same GPU") == 1 and not os.path.exists(settings["train.output_dir"]), output)
    command = emulated.command({**settings, "run.device": "cuda"}, 1)
    status, output = emulated.finish(emulated.start(command, {"LOCKSTEP_EMULATED_GPU_MIB": "2"}))
    expect(status == 2 and "a rank needs " in output and not os.path.exists(settings["train.output_dir"]), output)
    command = emulated.command({**settings, "run.device": "cuda"}, 1)
    status, output = emulated.finish(emulated.start(command, {"CUDA_VISIBLE_DEVICES": ""}))
    expect(status == 2 and "run.device = cuda is impossible on rank 0" in output, output)


CASES = {case.__name__: case for case in (near_cpu, data, tensor, pipeline, resume, refused)}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--emulated", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    parser.add_argument("--checks", action="store_true")
    arguments = parser.parse_args()
    runs.SECONDS_A_RUN = 300
    with tempfile.TemporaryDirectory(prefix="lockstep-emulated-") as scratch:
        try:
            CASES[arguments.case](Program(arguments.lockstep, scratch), Emulated(arguments.emulated, scratch, arguments.checks))
        except Failure as failure:
            sys.exit(f"{arguments.case}: {failure}")


if __name__ == "__main__":
    main()
