#!/usr/bin/env python3
"""The mesh does not change the bits: trains on meshes of data, pipeline and tensor ranks, sharded or not, and
compares every line, and the hash of weights and optimiser state, with those of one rank.

Usage: meshes.py --lockstep BINARY --case NAME [--seed N] [--table FILE]

--table appends a line of Markdown for every layout: ranks, bits, peak memory of a rank, bytes sent.
"""
import argparse
import itertools
import json
import random
import sys
import tempfile
import time

import runs
from layouts import data_of
from runs import Failure, Program, compare, expect

BASE = {"log.interval": 1, "log.tensorboard": False, "log.progress": False, "checkpoint.interval": 0,
        "checkpoint.async": False, "lr_schedule.warmup_steps": 2, "run.seed": 7, "run.threads": 1,
        # Seven micro-batches over four virtual ranks; the last one is smaller than the others.
        "train.steps": 3, "train.global_batch_size": 13, "train.micro_batch_size": 2, "train.eval_interval": 2,
        "parallel.virtual_data": 4, "parallel.virtual_tensor": 4}
# Odd sizes on purpose: nothing divides evenly.
MODELS = {
    "gpt2": {"model.architecture": "gpt2", "model.num_layers": 7, "model.hidden_size": 72, "model.num_heads": 8,
             "model.seq_length": 16, "model.vocab_size": runs.VOCABULARY, "model.ffn_hidden_size": 101},
    "llama": {"model.architecture": "llama", "model.num_layers": 7, "model.hidden_size": 72, "model.num_heads": 6,
              "model.num_kv_heads": 2, "model.seq_length": 16, "model.vocab_size": runs.VOCABULARY,
              "model.tie_embeddings": False, "model.ffn_hidden_size": 99},
    # One kv head for all; its 18 columns are 5, 5, 5 and 3 on four blocks.
    "llama-one": {"model.architecture": "llama", "model.num_layers": 3, "model.hidden_size": 72, "model.num_heads": 4,
                  "model.num_kv_heads": 1, "model.seq_length": 16, "model.vocab_size": runs.VOCABULARY,
                  "model.ffn_hidden_size": 99},
    "mlp": {"model.architecture": "mlp", "model.layer_sizes": "[64, 37, 29, 23, 10]"},
}
DEGREES = {"gpt2": (1, 2, 4), "llama": (1, 2, 4), "llama-one": (1, 2, 4), "mlp": (1, 2, 4)}  # tensor: every rank has a query head


class Layout:
    def __init__(self, data=1, pipeline=1, tensor=1, sequence=False, zero=0, schedule="1f1b", chunks=1,
                 recompute="none", bucket=25, threads=1, overlap=True):
        self.ranks = data * pipeline * tensor
        self.words = f"{data} x {pipeline} x {tensor}"
        self.settings = {"parallel.data": data, "parallel.pipeline": pipeline, "parallel.tensor": tensor,
                         "parallel.sequence": sequence, "parallel.zero_stage": zero, "parallel.schedule": schedule,
                         "parallel.virtual_stages": chunks, "train.recompute": recompute,
                         "parallel.bucket_mib": bucket, "run.threads": threads, "parallel.overlap": overlap}
        more = {"sequence": sequence, f"zero {zero}": zero, f"{schedule}{f' ({chunks} chunks)' if chunks > 1 else ''}":
                pipeline > 1, f"recompute {recompute}": recompute != "none", "no overlap": not overlap}
        self.words += "".join(f", {word}" for word, is_set in more.items() if is_set)


def settings_of(program, model, precision):
    return {**BASE, **MODELS[model], **data_of(program, model), "run.precision": precision}


def all_equal(program, model, precision, layouts, table=None, more=None, first=None):
    """Compares with the layout `first`, one rank unless given."""
    settings = {**settings_of(program, model, precision), **(more or {})}
    first = first or Layout()
    reference = program.train({**settings, **first.settings}, first.ranks).result()
    for layout in layouts:
        begin = time.monotonic()
        run = program.train({**settings, **layout.settings}, layout.ranks)
        compare(reference, run.result(), f"{model} {precision} {layout.words}")
        last = [json.loads(line) for line in run.lines if '"kind":"train"' in line][-1]
        print(f"  {model} {precision} {layout.words}: equal ({time.monotonic() - begin:.1f} s)", flush=True)
        if table:
            sent = last.get("bytes_sent")
            table.write(f"| {model} {precision} | {layout.words} | {layout.ranks} | 0 | equal | "
                        f"{last['memory_bytes']:,} | {'' if sent is None else format(sent, ',')} |\n")


def both(program, layouts, table, models=("gpt2", "llama"), more=None):
    for model, precision in zip(models, ("f32", "bf16")):
        fitting = [layout for layout in layouts if layout.settings["parallel.tensor"] in DEGREES[model]]
        all_equal(program, model, precision, fitting, table, more)


def tensor(program, table):
    layouts = [Layout(tensor=2), Layout(tensor=4, threads=2), Layout(tensor=2, sequence=True),
               Layout(tensor=4, sequence=True), Layout(data=2, tensor=2, bucket=1),
               Layout(data=2, tensor=2, sequence=True, overlap=False), Layout(data=4, tensor=2)]
    both(program, layouts, table)
    both(program, layouts[:3], table, ("llama", "gpt2"))
    all_equal(program, "mlp", "f32", [Layout(tensor=2), Layout(tensor=4), Layout(data=2, tensor=2)], table)


def heads(program, table):
    """Tensor ranks that share kv heads: two, three, four or six of them, with one block or two."""
    all_equal(program, "llama-one", "f32", [
        Layout(tensor=2), Layout(tensor=4, sequence=True, recompute="selective"),
        Layout(pipeline=2, tensor=4, recompute="full"), Layout(data=2, tensor=4, sequence=True, zero=3)], table)
    all_equal(program, "llama-one", "bf16", [Layout(tensor=4)], table)
    all_equal(program, "llama", "f32", [Layout(tensor=4, sequence=True, recompute="full"),
                                        Layout(data=2, tensor=4, zero=3)], table)
    all_equal(program, "llama", "bf16", [Layout(pipeline=2, tensor=4, schedule="zero-bubble", recompute="selective")], table)
    all_equal(program, "llama", "bf16", [Layout(tensor=4, sequence=True)], table, {"parallel.virtual_tensor": 8})
    # One rank does not fit six blocks.
    all_equal(program, "llama-one", "f32", [Layout(tensor=6)], table,
              {"parallel.virtual_tensor": 6, "model.num_heads": 6}, Layout(tensor=3, sequence=True))
    resumed_elsewhere(program)


def resumed_elsewhere(program):
    settings = {**settings_of(program, "llama", "f32"), "checkpoint.interval": 1}
    reference = program.train(settings, 1).result()
    for before, after in ((Layout(tensor=4), Layout(data=2, tensor=2)), (Layout(), Layout(pipeline=2, tensor=4))):
        run = program.train({**settings, **before.settings}, before.ranks)
        for step in (2, 3):
            (run.folder / f"checkpoints/step-{step:08d}/COMPLETE").unlink()
        again = program.train({**settings, **after.settings, "train.output_dir": str(run.folder)}, after.ranks)
        expect("going on from step 1" in again.output, again.output)
        compare(reference, again.result(), f"from {before.words} to {after.words}")
        print(f"  llama f32 from {before.words} to {after.words}: equal", flush=True)


def recompute(program, table):
    both(program, [Layout(recompute="selective"), Layout(recompute="full"),
                   Layout(tensor=2, sequence=True, recompute="full"),
                   Layout(data=2, pipeline=2, recompute="selective")], table)


def sharded(program, table):
    layouts = [Layout(data=2, zero=1), Layout(data=4, zero=1, bucket=1), Layout(data=2, tensor=2, zero=1),
               Layout(data=2, zero=1, overlap=False),
               Layout(data=2, zero=2), Layout(data=4, zero=2, bucket=1), Layout(data=4, zero=3),
               Layout(data=2, pipeline=2, zero=3), Layout(data=2, tensor=2, sequence=True, zero=3, recompute="full")]
    both(program, layouts, table)
    all_equal(program, "mlp", "bf16", [Layout(data=2, zero=zero) for zero in (1, 2, 3)], table)


def rounds(program, table):
    """parallel.accumulate = tree-fold: gradients really sharded under accumulation."""
    layouts = [Layout(data=2), Layout(data=4), Layout(data=2, zero=1), Layout(data=4, zero=2, bucket=1),
               Layout(data=4, zero=3), Layout(data=4, pipeline=2, zero=2), Layout(data=2, pipeline=2, zero=3),
               Layout(data=4, tensor=2, zero=3), Layout(data=4, pipeline=2, zero=2, schedule="interleaved", chunks=2),
               Layout(data=4, pipeline=2, zero=3, schedule="gpipe", overlap=False)]
    both(program, layouts, table, more={"parallel.accumulate": "tree-fold"})
    # Two micro-batches for four virtual ranks: some have none in any round.
    both(program, [Layout(data=4, zero=3), Layout(data=4, zero=2)], table,
         more={"parallel.accumulate": "tree-fold", "train.global_batch_size": 4})
    # One micro-batch a virtual rank: the same in both orders, so gradients are sharded without rounds, too.
    for accumulate in ("fold-tree", "tree-fold"):
        both(program, [Layout(data=4, zero=2), Layout(data=4, zero=3)], table,
             more={"parallel.accumulate": accumulate, "train.global_batch_size": 8})


def pipeline(program, table):
    layouts = [Layout(pipeline=2), Layout(pipeline=3), Layout(pipeline=4, threads=2),
               Layout(pipeline=2, schedule="gpipe"), Layout(pipeline=7, schedule="gpipe"),
               Layout(pipeline=2, schedule="interleaved", chunks=2), Layout(pipeline=3, schedule="interleaved", chunks=2),
               Layout(pipeline=2, schedule="interleaved", chunks=3), Layout(data=2, pipeline=2),
               Layout(data=4, pipeline=2), Layout(data=2, pipeline=2, schedule="interleaved", chunks=2, bucket=1)]
    both(program, layouts, table)


def zero_bubble(program, table):
    """Backward passes in two parts."""
    def layout(depth, **more):
        return Layout(pipeline=depth, schedule="zero-bubble", **more)

    both(program, [layout(2), layout(3, recompute="selective"), layout(4), layout(2, data=2, zero=1, bucket=1),
                   layout(2, tensor=2, sequence=True, recompute="selective")], table)
    rounds = {"parallel.accumulate": "tree-fold"}
    both(program, [layout(2, data=2, zero=2), layout(2, data=4, zero=3)], table, ("gpt2",), rounds)
    all_equal(program, "llama", "bf16", [layout(2, data=2, tensor=2, zero=3)], table, rounds)
    # Three micro-batches, the last one smaller: fewer than stages, and one or none a data rank.
    few = {"train.global_batch_size": 5}
    both(program, [layout(4)], table, more=few)
    both(program, [layout(2, data=4, zero=3)], table, ("gpt2",), {**few, **rounds})


def all_axes(program, table):
    layouts = [Layout(data=2, pipeline=2, tensor=2), Layout(data=2, pipeline=2, tensor=2, zero=1),
               Layout(data=2, pipeline=2, tensor=2, sequence=True, zero=1, schedule="interleaved", chunks=2,
                      recompute="full"), Layout(pipeline=4, tensor=2, sequence=True, schedule="gpipe")]
    both(program, layouts, table)


def drawn(program, table, seed):
    """Layouts that the seed draws, of all that are legal on at most eight ranks."""
    print(f"  seed {seed}")
    numbers = random.Random(seed)
    legal = []
    for data, depth, width in itertools.product((1, 2, 4), (1, 2, 3, 4), (1, 2, 4)):
        if data * depth * width > 8:
            continue
        for zero, schedule, again in itertools.product((0, 1, 2, 3), ("gpipe", "1f1b", "interleaved", "zero-bubble"),
                                                       ("none", "selective", "full")):
            if (depth == 1 and schedule != "1f1b") or (zero and data == 1) or (schedule, again) == ("zero-bubble", "full"):
                continue
            chunks = numbers.choice([2, 3]) if schedule == "interleaved" else 1
            if depth * chunks <= 7:
                legal.append(Layout(data, depth, width, numbers.random() < 0.5 and width > 1, zero, schedule, chunks,
                                    again, numbers.choice([1, 25]), numbers.choice([1, 2]), numbers.random() < 0.8))
    both(program, numbers.sample(legal, 6), table, more={"parallel.accumulate": numbers.choice(["fold-tree", "tree-fold"])})


CASES = {"tensor": tensor, "heads": heads, "recompute": recompute, "sharded": sharded, "rounds": rounds, "pipeline": pipeline,
         "zero_bubble": zero_bubble, "all_axes": all_axes}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=[*CASES, "drawn"])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--table")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    with tempfile.TemporaryDirectory(prefix="lockstep-meshes-") as scratch:
        program = Program(options.lockstep, scratch)
        table = open(options.table, "a", encoding="utf-8") if options.table else None
        try:
            if options.case == "drawn":
                drawn(program, table, seed)
            else:
                CASES[options.case](program, table)
        except Failure as failure:
            sys.exit(f"{options.case} (seed {seed}): {failure}")
        print(f"{options.case}: {program.num_runs} runs")


if __name__ == "__main__":
    main()
