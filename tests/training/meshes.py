#!/usr/bin/env python3
"""The mesh does not change the bits: trains on meshes of data, pipeline and tensor ranks, sharded or not, and
compares every line, and the hash of weights and optimiser state, with those of one rank.

Usage: meshes.py --lockstep BINARY --case NAME [--seed N] [--table FILE]

--table puts a line for every layout into a table of Markdown that all cases share: difference of the loss, bits, peak
memory, bytes sent.
"""
import argparse
import itertools
import json
import math
import random
import re
import sys
import tempfile
import time

import runs
from layouts import data_of, token_data
from runs import Failure, Program, compare, expect
from table import Table

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
    "mlp": {"model.architecture": "mlp", "model.layer_sizes": "[64, 37, 5, 23, 10]"},
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
                pipeline > 1, f"recompute {recompute}": recompute != "none", "no overlap": not overlap,
                f"{threads} threads": threads > 1, f"buckets of {bucket} MiB": bucket != 25}
        self.words += "".join(f", {word}" for word, is_set in more.items() if is_set)


def settings_of(program, model, precision):
    return {**BASE, **MODELS[model], **data_of(program, model), "run.precision": precision}


class Listing:
    """Stands in for the program where layouts are counted and not run."""

    def __init__(self):
        self.layouts = []  # model, parallel.accumulate, layout


def losses_of(run):
    return [float(loss) for loss in run.value("loss")]


def bytes_sent(run, ranks):
    """A step, by all ranks together."""
    total = 0
    for rank in range(ranks):
        text = (run.folder / "logs" / f"rank-{rank:05d}.log").read_text()
        [(steps, sent)] = re.findall(r"work of this rank in (\d+) steps: \d+ operations, (\d+) bytes sent", text)
        total += int(sent) / int(steps)
    return round(total)


def add_row(table, model, layout, settings, run, reference, bits):
    words = layout.words
    if settings.get("parallel.accumulate") == "tree-fold":
        words += ", tree-fold"
    if "model.dropout" in settings:
        words += f", dropout {settings['model.dropout']}"
    if settings["train.global_batch_size"] != BASE["train.global_batch_size"]:
        words += f", {settings['train.global_batch_size']} samples"
    difference = max(abs(a - b) / abs(b) for a, b in zip(losses_of(run), losses_of(reference)))
    last = [json.loads(line) for line in run.lines if '"kind":"train"' in line][-1]
    table.add(model, words, f"{settings['parallel.virtual_data']} x {settings['parallel.virtual_tensor']}", layout.ranks,
              difference, bits, last["memory_bytes"], bytes_sent(run, layout.ranks))


def all_equal(program, model, precision, layouts, table=None, more=None, first=None):
    """Compares with the layout `first`, one rank unless given."""
    if isinstance(program, Listing):
        program.layouts += [(model, (more or {}).get("parallel.accumulate", "fold-tree"), layout) for layout in layouts]
        return
    settings = {**settings_of(program, model, precision), **(more or {})}
    first = first or Layout()
    reference = program.train({**settings, **first.settings}, first.ranks)
    for layout in layouts:
        begin = time.monotonic()
        run = program.train({**settings, **layout.settings}, layout.ranks)
        is_equal = run.result() == reference.result()
        add_row(table, f"{model} {precision}", layout, settings, run, reference, "equal" if is_equal else "DIFFERENT")
        compare(reference.result(), run.result(), f"{model} {precision} {layout.words}")
        print(f"  {model} {precision} {layout.words}: equal ({time.monotonic() - begin:.1f} s)", flush=True)


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
    # Blocks of one and two tokens: a rank's own four, cut alone, would be cut elsewhere.
    all_equal(program, "gpt2", "f32", [Layout(tensor=4, sequence=True)], table,
              {"parallel.virtual_tensor": 8, "model.seq_length": 11})


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
    if not isinstance(program, Listing):
        resumed_elsewhere(program)


def resumed_elsewhere(program, model="llama", more=None):
    settings = {**settings_of(program, model, "f32"), "checkpoint.interval": 1, **(more or {})}
    reference = program.train(settings, 1).result()
    for before, after in ((Layout(tensor=4), Layout(data=2, tensor=2)), (Layout(), Layout(pipeline=2, tensor=4))):
        run = program.train({**settings, **before.settings}, before.ranks)
        for step in (2, 3):
            (run.folder / f"checkpoints/step-{step:08d}/COMPLETE").unlink()
        again = program.train({**settings, **after.settings, "train.output_dir": str(run.folder)}, after.ranks)
        expect("going on from step 1" in again.output, again.output)
        compare(reference, again.result(), f"from {before.words} to {after.words}")
        print(f"  {model} f32 from {before.words} to {after.words}: equal", flush=True)


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


def dropout(program, table):
    """Masks are a function of the place in the model and in the training, not of ranks."""
    drops = {"model.dropout": 0.2}
    all_equal(program, "gpt2", "f32", [
        Layout(recompute="selective"), Layout(recompute="full", threads=2), Layout(data=2), Layout(tensor=2),
        Layout(tensor=4, sequence=True), Layout(pipeline=2), Layout(pipeline=2, schedule="zero-bubble"),
        Layout(pipeline=2, schedule="zero-bubble", tensor=2, sequence=True, recompute="selective"),
        Layout(pipeline=3, tensor=2, schedule="interleaved", chunks=2), Layout(data=4, zero=3),
        Layout(data=2, tensor=2, sequence=True, zero=3, recompute="full")], table, drops)
    all_equal(program, "gpt2", "bf16", [
        Layout(tensor=2, recompute="full"), Layout(data=2, tensor=4, sequence=True, zero=1),
        Layout(data=2, pipeline=2, tensor=2, schedule="zero-bubble", recompute="selective"),
        Layout(pipeline=7, schedule="gpipe")], table, drops)
    # Two blocks share a head, one of which has none of the queries.
    all_equal(program, "gpt2", "f32", [Layout(tensor=2), Layout(tensor=2, sequence=True, recompute="full")], table,
              {**drops, "model.num_heads": 2})
    all_equal(program, "gpt2", "f32", [Layout(data=2, zero=3), Layout(data=4, pipeline=2, zero=2)], table,
              {**drops, "parallel.accumulate": "tree-fold", "train.micro_batch_size": 3})
    if not isinstance(program, Listing):
        resumed_elsewhere(program, "gpt2", drops)
        dropout_is_of_training(program, drops)


def dropout_is_of_training(program, drops):
    """Evaluation drops nothing, and the masks of a step do not depend on the size of micro-batches."""
    settings = settings_of(program, "gpt2", "f32")
    runs_of = {size: program.train({**settings, **drops, "train.micro_batch_size": size}, 1) for size in (1, 2, 5, 13)}
    first, plain = runs_of[2], program.train(settings, 1)
    losses = {size: losses_of(run)[0] for size, run in runs_of.items()}
    # Losses are f64 sums of what f32 kernels find for each row, in products of other heights.
    for size, loss in losses.items():
        expect(abs(loss - losses[2]) <= 1e-6 * losses[2], f"other masks with other micro-batches? {losses}")
    expect(abs(losses[2] - losses_of(plain)[0]) > 1e-4 * losses[2], f"nothing was dropped: {losses}")
    expect(first.hash() != plain.hash(), "dropout changed nothing")
    # Weights that stay, and the same batch in every step.
    still = {"optimizer.lr": 0, "lr_schedule.min_lr": 0, "lr_schedule.warmup_steps": 0, "train.eval_interval": 1,
             **token_data(program, count=16 * 13 + 1), "data.shuffle": False}
    dropping, keeping = (program.train({**settings, **more, **still}, 1) for more in (drops, {}))
    evaluations = [[json.loads(line)["loss"] for line in run.lines if '"kind":"eval"' in line]
                   for run in (dropping, keeping)]
    expect(len(evaluations[0]) == 3 and evaluations[0] == evaluations[1], f"evaluation drops: {evaluations}")
    expect(len(set(losses_of(keeping))) == 1, f"the steps should be alike: {losses_of(keeping)}")
    expect(len(set(losses_of(dropping))) == 3, f"steps share masks: {losses_of(dropping)}")


def all_axes(program, table):
    layouts = [Layout(data=2, pipeline=2, tensor=2), Layout(data=2, pipeline=2, tensor=2, zero=1),
               Layout(data=2, pipeline=2, tensor=2, sequence=True, zero=1, schedule="interleaved", chunks=2,
                      recompute="full"), Layout(pipeline=4, tensor=2, sequence=True, schedule="gpipe")]
    both(program, layouts, table)


def pairs(program, table):
    """What the other cases leave out of all pairs of two axes' values; `coverage` checks that none is missing."""
    rounds = {"parallel.accumulate": "tree-fold"}
    all_equal(program, "gpt2", "bf16", [
        Layout(data=4, zero=1, recompute="selective"),
        Layout(data=4, tensor=2, sequence=True, zero=2, recompute="full"),
        Layout(pipeline=3, tensor=2, sequence=True, schedule="interleaved", chunks=2),
        Layout(pipeline=2, tensor=4, sequence=True, schedule="interleaved", chunks=2)], table)
    all_equal(program, "gpt2", "f32", [
        Layout(data=2, tensor=4, zero=1), Layout(data=2, tensor=4, sequence=True, zero=2, recompute="selective"),
        Layout(data=2, tensor=4, sequence=True, zero=3, recompute="full"),
        Layout(pipeline=2, tensor=4, sequence=True, recompute="full"),
        Layout(pipeline=2, tensor=4, schedule="gpipe", recompute="full"),
        Layout(pipeline=2, tensor=4, sequence=True, schedule="zero-bubble")], table, rounds)
    all_equal(program, "llama", "f32", [
        Layout(data=2, pipeline=3, zero=1, schedule="gpipe", recompute="selective"),
        Layout(data=2, pipeline=3, zero=2, schedule="gpipe", recompute="full"),
        Layout(data=2, pipeline=3, zero=3, schedule="interleaved", chunks=2, recompute="selective"),
        Layout(data=2, pipeline=4, zero=1, schedule="gpipe", recompute="selective"),
        Layout(data=2, pipeline=4, zero=2, recompute="selective"),
        Layout(data=2, pipeline=4, zero=3, schedule="gpipe", recompute="full")], table, rounds)


class Bounds:
    """How far two virtual layouts may be apart: twice the variance of what tests/oracle/training_against_torch.py
    derives for one of them and exact sums (eta, SAFETY: there), with what metrics.jsonl says.

    SGD moves the weights in a step by lr times the norm of the clipped gradient, so that the way they have gone is
    known. A logit is at most the product of the norms of a row of the head, normal numbers of deviation 0.02 at the
    start, and of the last norm's output, `hidden` numbers with a mean square of 1 times gains that start at 1.
    """

    SAFETY = 4.0
    ROUNDOFF = {"f32": 2.0 ** -24, "bf16": 2.0 ** -8}
    PROMISED = 1e-5  # in f32, whatever is derived
    SETTINGS = {"optimizer.name": "sgd", "optimizer.lr": 0.1, "optimizer.weight_decay": 0.0, "optimizer.grad_clip": 1.0,
                "train.steps": 6}

    def __init__(self, model, precision, run):
        sizes = MODELS[model]
        self.width = sizes["model.hidden_size"]
        layers = sizes["model.num_layers"]
        sums = layers * (6 * self.width + sizes["model.seq_length"] + sizes["model.ffn_hidden_size"]) + 2 * self.width
        square = (12 * layers + 3) * 2 * self.ROUNDOFF[precision] ** 2 + sums * self.ROUNDOFF["f32"] ** 2
        self.eta_logit, self.eta = math.sqrt(square), math.sqrt(2 * square)
        self.most = self.PROMISED if precision == "f32" else math.inf
        self.losses = losses_of(run)
        self.norms = [float(norm) for norm in run.value("grad_norm")]
        self.moved = [0.0]
        for norm, lr in zip(self.norms, map(float, run.value("lr"))):
            self.moved.append(self.moved[-1] + lr * min(norm, self.SETTINGS["optimizer.grad_clip"]))

    def largest_logit(self, moved):
        row = 0.02 * (math.sqrt(self.width) + self.SAFETY) + moved
        return row * (math.sqrt(self.width) * (1 + moved) + moved)

    def of_loss(self, step):
        """Relative."""
        moved = self.moved[step]
        one = self.eta_logit * self.largest_logit(moved) / math.sqrt(self.width) + self.eta * moved * self.norms[step]
        return min(self.most, math.sqrt(2) * self.SAFETY * one / self.losses[step])

    def of_norm(self, step):
        share = self.moved[step] / self.moved[-2] * (1 + self.norms[0] / self.norms[step])
        return min(self.most, math.sqrt(2) * self.SAFETY * self.eta * (1 / math.sqrt(self.width) + share))


def virtual(program, table):
    """Another virtual layout, or order of sums, changes the bits, and losses and norms within their bounds."""
    if isinstance(program, Listing):
        return
    layouts = [(1, 2, Layout(tensor=2, sequence=True)), (1, 4, Layout(tensor=2)), (1, 4, Layout(tensor=4, pipeline=2)),
               (2, 1, Layout(data=2)), (3, 1, Layout(data=3, zero=3)), (4, 1, Layout(data=4, pipeline=2, zero=1)),
               (2, 2, Layout(data=2, pipeline=2, tensor=2)), (4, 4, Layout(recompute="selective"))]
    for model, precision in (("gpt2", "f32"), ("llama", "f32"), ("llama", "bf16")):
        common = {**settings_of(program, model, precision), **Bounds.SETTINGS}
        first = program.train({**common, "parallel.virtual_data": 1, "parallel.virtual_tensor": 1}, 1)
        bounds = Bounds(model, precision, first)
        hashes = {(1, 1, "fold-tree"): {first.hash()}}
        for data, width, layout in layouts:
            if layout.settings["parallel.tensor"] not in DEGREES[model]:
                continue
            for accumulate in ("fold-tree", "tree-fold")[:1 if data == 1 or precision == "bf16" else 2]:
                settings = {**common, "parallel.virtual_data": data, "parallel.virtual_tensor": width,
                            "parallel.accumulate": accumulate}
                run = program.train({**settings, **layout.settings}, layout.ranks)
                bound = max(map(bounds.of_loss, range(len(bounds.losses))))
                add_row(table, f"{model} {precision}", layout, settings, run, first, f"other (bound {bound:.1e})")
                label = f"{model} {precision}, virtual {data} x {width}, {accumulate}"
                check_bounds(bounds, first, run, label)
                hashes.setdefault((data, width, accumulate), set()).add(run.hash())
        expect(all(len(found) == 1 for found in hashes.values()), f"one virtual layout, other bits: {hashes}")
        expect(len(set.union(*hashes.values())) == len(hashes), f"other virtual layouts, equal bits: were they used? {hashes}")


def check_bounds(bounds, first, run, label):
    for kind, key, bound_of in (("loss", "loss", bounds.of_loss), ("norm", "grad_norm", bounds.of_norm)):
        worst = 0.0
        for step, (one, other) in enumerate(zip(map(float, first.value(key)), map(float, run.value(key)))):
            difference, bound = abs(one - other) / one, bound_of(step)
            expect(difference <= bound, f"{label}: {kind} of step {step + 1} is {difference:.1e} apart, bound {bound:.1e}")
            worst = max(worst, difference / bound)
        print(f"  {label}: {kind} at {worst:.3f} of the bound", flush=True)


def legal_meshes():
    """Data, pipeline and tensor degree, stage of ZeRO, schedule, recomputation: all on up to eight ranks."""
    for data, depth, width in itertools.product((1, 2, 4), (1, 2, 3, 4), (1, 2, 4)):
        for zero, schedule, again in itertools.product((0, 1, 2, 3), ("gpipe", "1f1b", "interleaved", "zero-bubble"),
                                                       ("none", "selective", "full")):
            if (data * depth * width <= 8 and (depth > 1 or schedule == "1f1b") and (data > 1 or zero == 0) and
                    (schedule, again) != ("zero-bubble", "full") and (schedule, depth) != ("interleaved", 4)):
                yield data, depth, width, zero, schedule, again


def axes_of(model, accumulate, layout):
    settings = layout.settings
    depth = settings["parallel.pipeline"]
    return {"model": model, "accumulate": accumulate, "data": settings["parallel.data"], "pipeline": depth,
            "tensor": settings["parallel.tensor"], "sequence": settings["parallel.sequence"],
            "zero": settings["parallel.zero_stage"], "recompute": settings["train.recompute"],
            "schedule": settings["parallel.schedule"] if depth > 1 else "none"}


def pairs_of(axes):
    return set(itertools.combinations(sorted(axes.items()), 2))


def coverage():
    """Every value of an axis meets every value of every other one, where that is legal, in a layout of a run of the
    cases whose layouts are fixed. Trains nothing."""
    listing = Listing()
    for case in CASES.values():
        case(listing, None)
    transformers = [entry for entry in listing.layouts if entry[0] != "mlp"]
    covered, legal = set(), set()
    for entry in transformers:
        covered |= pairs_of(axes_of(*entry))
    for (data, depth, width, zero, schedule, again), model, accumulate, sequence in itertools.product(
            legal_meshes(), ("gpt2", "llama"), ("fold-tree", "tree-fold"), (False, True)):
        if width in DEGREES[model] and (width > 1 or not sequence):
            legal |= pairs_of(axes_of(model, accumulate, Layout(data, depth, width, sequence, zero, schedule, 1, again)))
    meshes = {tuple(sorted(layout.settings.items())) for _, _, layout in transformers}
    print(f"  {len(listing.layouts)} runs of {len(meshes)} layouts of transformers; {len(legal & covered)} of {len(legal)} pairs")
    for (first, one), (second, other) in sorted(legal - covered, key=str):
        print(f"  missing: {first} = {one} with {second} = {other}")
    expect(len(meshes) >= 60 and legal <= covered, "layouts are missing")


def drawn(program, table, seed):
    """Layouts that the seed draws, of all that are legal on at most eight ranks."""
    print(f"  seed {seed}")
    numbers = random.Random(seed)
    legal = []
    for data, depth, width, zero, schedule, again in legal_meshes():
        chunks = numbers.choice([2, 3]) if schedule == "interleaved" else 1
        if depth * chunks <= 7:
            legal.append(Layout(data, depth, width, numbers.random() < 0.5 and width > 1, zero, schedule, chunks,
                                again, numbers.choice([1, 25]), numbers.choice([1, 2]), numbers.random() < 0.8))
    both(program, numbers.sample(legal, 6), table, more={"parallel.accumulate": numbers.choice(["fold-tree", "tree-fold"])})


CASES = {"tensor": tensor, "heads": heads, "recompute": recompute, "sharded": sharded, "rounds": rounds, "pipeline": pipeline,
         "zero_bubble": zero_bubble, "dropout": dropout, "all_axes": all_axes, "pairs": pairs, "virtual": virtual}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=[*CASES, "drawn", "coverage"])
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--table")
    options = parser.parse_args()
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1 << 31)
    with tempfile.TemporaryDirectory(prefix="lockstep-meshes-") as scratch:
        program = Program(options.lockstep, scratch)
        table = Table(options.table, options.case, [*CASES, "drawn", "coverage"])
        try:
            if options.case == "drawn":
                drawn(program, table, seed)
            elif options.case == "coverage":
                coverage()
            else:
                CASES[options.case](program, table)
        except Failure as failure:
            sys.exit(f"{options.case} (seed {seed}): {failure}")
        finally:
            table.write()
        print(f"{options.case}: {program.num_runs} runs")


if __name__ == "__main__":
    main()
