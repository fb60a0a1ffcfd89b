#!/usr/bin/env python3
"""What every rank sends and computes in a step, against closed forms.

Usage: traffic.py --lockstep BINARY --case NAME

All runs are on one host. metrics.jsonl has rank 0's numbers a step, the last line of a rank's log its totals.
"""
import argparse
import json
import re
import sys
import tempfile

import runs
from layouts import data_of
from runs import Failure, Program, expect

CHUNK = 4096        # elements: parameters, and blocks of split ones, start on multiples (nn/parameter_table.h)
SUM_CHUNK = 512     # elements: what an all-reduce deals out to its ranks (comm/exchange.h)
FLOAT = 4
STEPS = 5
SEQ = 16
# Evaluations and checkpoints between the lines: they must not count. The batch is 4 micro-batches of 2 samples.
BASE = {"log.interval": 2, "log.tensorboard": False, "log.progress": False, "checkpoint.interval": 2,
        "checkpoint.async": False, "run.seed": 7, "run.threads": 1, "train.steps": STEPS, "train.eval_interval": 1,
        "train.global_batch_size": 8, "train.micro_batch_size": 2, "parallel.virtual_data": 4,
        "parallel.virtual_tensor": 2}
GPT2 = {"model.architecture": "gpt2", "model.num_layers": 3, "model.hidden_size": 64, "model.num_heads": 4,
        "model.seq_length": SEQ, "model.vocab_size": 102, "model.ffn_hidden_size": 160}
LLAMA = {**GPT2, "model.architecture": "llama", "model.num_kv_heads": 2, "model.tie_embeddings": False}
MLP = {"model.architecture": "mlp", "model.layer_sizes": "[64, 37, 10]", "parallel.virtual_tensor": 1}


def ceil_div(a, b):
    return -(-a // b)


def slice_of(count, chunk, ranks, rank):
    """Elements of a buffer that a rank owns; the last chunk may be shorter."""
    chunks = ceil_div(count, chunk)
    ends = [min(count, chunk * (chunks * r // ranks)) for r in (rank, rank + 1)]
    return ends[1] - ends[0]


# The formulas of Communicator::bytes_sent for one host, S being the rank's own part.
def all_reduce(count, ranks, rank):
    own = slice_of(count, SUM_CHUNK, ranks, rank)
    return FLOAT * (count - own + (ranks - 1) * own)


def reduce_scatter(count, ranks, rank):
    return FLOAT * (count - slice_of(count, CHUNK, ranks, rank))


def all_gather(count, ranks, rank, item=FLOAT):
    """Into the one copy that the ranks of a host share."""
    return item * slice_of(count, CHUNK, ranks, rank)


def shapes_of(model):
    """(rows, columns, dimension that tensor ranks split or None) of the parameters, the vocabulary's last."""
    if model["model.architecture"] == "mlp":  # not split here: virtual_tensor is 1
        return [(37, 64, None), (1, 37, None), (10, 37, None), (1, 10, None)]
    hidden, ffn = model["model.hidden_size"], model["model.ffn_hidden_size"]
    llama = model["model.architecture"] == "llama"
    key = hidden * model.get("model.num_kv_heads", model["model.num_heads"]) // model["model.num_heads"]
    norm = [(1, hidden, None)] * (1 if llama else 2)
    layer = 2 * norm + [(hidden + 2 * key, hidden, 0), (hidden, hidden, 1), ((2 if llama else 1) * ffn, hidden, 0),
                        (hidden, ffn, 1)]
    if not llama:  # biases of the four products; those of split rows are split
        layer += [(1, hidden + 2 * key, 1), (1, hidden, None), (1, ffn, 1), (1, hidden, None)]
    vocabulary = (model["model.vocab_size"], hidden, 0)
    return ([vocabulary] if llama else [(SEQ, hidden, None)]) + model["model.num_layers"] * layer + norm + [vocabulary]


def stored(shape, tensor=1, blocks=2):
    """Elements that a tensor rank has of a parameter: whole blocks, each padded to whole chunks."""
    rows, columns, split = shape
    if split is None:
        return CHUNK * ceil_div(rows * columns, CHUNK)
    assert (rows, columns)[split] % blocks == 0
    return blocks // tensor * CHUNK * ceil_div(rows * columns // blocks, CHUNK)


def gradient_buckets(model, tensor=1):
    """Elements of the buckets at parallel.bucket_mib = 25, which is more than any of the buffers. A tied vocabulary
    has two gradients, of its input side in front and of its output side, and both are buckets of their own."""
    sizes = [stored(shape, tensor) for shape in shapes_of(model)]
    return [sizes[-1], sum(sizes[:-1]), sizes[-1]] if model["model.architecture"] == "gpt2" else [sum(sizes)]


class Work:
    """What a run says of itself."""

    def __init__(self, run, ranks):
        records = [json.loads(line) for line in run.lines]
        self.lines = [record for record in records if record["kind"] == "train"]
        expect([line["step"] for line in self.lines] == [1, 2, 4, 5], "other lines than expected")
        self.ranks = []
        for rank in range(ranks):
            log = (run.folder / "logs" / f"rank-{rank:05d}.log").read_text()
            found = re.findall(rf"work of this rank in {STEPS} steps: (\d+) operations, (\d+) bytes sent \((.*)\)", log)
            expect(len(found) == 1, f"rank {rank} says {len(found)} times what it did:\n{log}")
            self.ranks.append({"operations": int(found[0][0]), "bytes": int(found[0][1]), "groups": parsed(found[0][2])})

    def operations(self):
        return [rank["operations"] for rank in self.ranks]

    def check(self, closed_form):
        """closed_form(rank): {group: {kind: (calls, bytes)}} of a step. Of the world's few numbers only the calls: what
        the norm takes depends on its tree."""
        for rank, said in enumerate(self.ranks):
            expected = {group: {kind: (STEPS * calls, STEPS * count) for kind, (calls, count) in kinds.items()}
                        for group, kinds in closed_form(rank).items()}
            groups = {group: kinds for group, kinds in said["groups"].items() if group != "world"}
            expect(groups == expected, f"rank {rank} sent {groups}, expected {expected}")
            world = said["groups"]["world"]
            expect(list(world) == ["values"] and world["values"][0] == STEPS, f"rank {rank}, world: {world}")
            values = world["values"][1] / (8 * (len(self.ranks) - 1) * STEPS)
            expect(3 <= values <= 256 and values == int(values), f"rank {rank} sends {values} values a step")
            total = sum(count for kinds in said["groups"].values() for _, count in kinds.values())
            expect(said["bytes"] == total, f"rank {rank} sent {said['bytes']} bytes, its groups {total}")
        form = {group: {kind: {"calls": calls, "bytes": count} for kind, (calls, count) in kinds.items()}
                for group, kinds in closed_form(0).items()}
        for line in self.lines:  # every step is like the others
            groups = dict(line["communication"])
            world = groups.pop("world")
            expect(groups == form, f"step {line['step']}: {groups}, expected {form}")
            expect(list(groups) == sorted(groups), "groups are not in the order data, pipeline, tensor, world")
            total = sum(kind["bytes"] for kinds in (*groups.values(), world) for kind in kinds.values())
            expect(line["bytes_sent"] == total, f"step {line['step']}: {line['bytes_sent']} bytes, its groups {total}")
            expect(line["operations"] * STEPS == self.ranks[0]["operations"], f"step {line['step']}: operations")


def parsed(text):
    """{"data": {"all_reduce": (calls, bytes)}} of "data: all_reduce 5 calls, 20 bytes, ...; world: ..."."""
    groups = {}
    for part in filter(None, text.split("; ")):
        group, kinds = part.split(": ")
        groups[group] = {kind: (int(calls), int(count))
                         for kind, calls, count in re.findall(r"(\w+) (\d+) calls, (\d+) bytes", kinds)}
    return groups


def train(program, model, ranks=1, **more):
    name = model["model.architecture"]
    settings = {**BASE, **data_of(program, name), **model,
                **{key.replace("__", "."): value for key, value in more.items()}}
    work = Work(program.train(settings, ranks), ranks)
    words = ", ".join(f"{key.split('__')[-1]} {value}" for key, value in more.items())
    print(f"  {name} {words}: {work.lines[-1]['bytes_sent']:,} bytes, {work.lines[-1]['operations']:,} operations")
    return work


def data(program):
    # One reduction of every bucket a step, however many micro-batches there are: 2 (P-1)/P of it, since chunks of
    # 512 elements divide evenly on 2 and 4 ranks.
    for model in (GPT2, LLAMA, MLP):
        for ranks in (2, 4):
            buckets = gradient_buckets(model)
            expect(sum(all_reduce(count, ranks, 0) for count in buckets) * ranks == 2 * (ranks - 1) * FLOAT * sum(buckets),
                   "the sizes of this test do not divide")
            train(program, model, ranks, parallel__data=ranks).check(lambda rank: {"data": {"all_reduce": (
                len(buckets), sum(all_reduce(count, ranks, rank) for count in buckets))}})
    # Smaller buckets: as many bytes in more calls.
    wide = {**LLAMA, "model.hidden_size": 256, "model.ffn_hidden_size": 512}
    count = sum(gradient_buckets(wide))
    train(program, wide, 2, parallel__data=2, parallel__bucket_mib=1).check(lambda rank: {"data": {"all_reduce": (
        ceil_div(FLOAT * count, 1 << 20), FLOAT * count)}})


def sharded(program):
    # Every rank gets the sums of its part and sends its part of the new weights, which are rounded to bf16 first if
    # products are in bf16. The input side of a tied vocabulary is a gradient only. Parts are whole chunks of 4,096.
    for model, ranks, precision in ((GPT2, 2, "f32"), (LLAMA, 2, "bf16"), (LLAMA, 4, "f32")):
        buckets = gradient_buckets(model)
        weights = buckets[1:] if model is GPT2 else buckets
        item = FLOAT if precision == "f32" else 2
        train(program, model, ranks, parallel__data=ranks, parallel__zero_stage=1, run__precision=precision).check(
            lambda rank: {"data": {
                "reduce_scatter": (len(buckets), sum(reduce_scatter(count, ranks, rank) for count in buckets)),
                "all_gather": (len(weights), sum(all_gather(count, ranks, rank, item) for count in weights))}})


def tensor_step(model, ranks, rank, micro_batches, blocks=2, item=FLOAT):
    """Calls and bytes of a step whose micro-batches have these numbers of samples, of `item` bytes a number."""
    sums = 1 + 4 * model["model.num_layers"] + 1  # embedding; two forward and two backward a layer; head
    result = {"all_reduce": [0, 0], "all_gather": [0, 0]}
    for samples in micro_batches:
        rows = samples * SEQ
        # In f32 whatever the precision. The partial products of the rank's own blocks are added up before.
        result["all_reduce"][0] += sums
        result["all_reduce"][1] += sums * all_reduce(rows * model["model.hidden_size"], ranks, rank)
        # Cross entropy: the largest logit of a row; then a sum for each block, and the target's logit.
        result["all_gather"][0] += 2
        result["all_gather"][1] += FLOAT * (ranks - 1) * (rows + rows * (blocks // ranks + 1))
        # More ranks than kv heads: those that share one send each other their columns of key and value, in every layer,
        # and in f32 what their query heads add to the gradient of the others' columns.
        sharing = ranks // model.get("model.num_kv_heads", ranks)
        if sharing > 1:
            layers = model["model.num_layers"]
            columns = layers * (sharing - 1) * 2 * model["model.hidden_size"] // model["model.num_heads"] // sharing
            result["all_gather"][0] += layers
            result["all_gather"][1] += item * rows * columns
            result.setdefault("reduce_scatter", [0, 0])
            result["reduce_scatter"][0] += layers
            result["reduce_scatter"][1] += FLOAT * rows * columns
    return {kind: tuple(numbers) for kind, numbers in result.items()}


def tensor(program):
    for model, precision in ((GPT2, "f32"), (LLAMA, "bf16")):
        train(program, model, 2, parallel__tensor=2, run__precision=precision).check(
            lambda rank: {"tensor": tensor_step(model, 2, rank, [2] * 4)})
    # The last micro-batch is smaller.
    train(program, GPT2, 2, parallel__tensor=2, train__global_batch_size=7, parallel__virtual_data=1).check(
        lambda rank: {"tensor": tensor_step(GPT2, 2, rank, [2, 2, 2, 1])})
    # The ranks that share a kv head are the whole group, or half of it.
    for ranks, kv_heads, precision, item in ((2, 1, "bf16", 2), (4, 2, "f32", FLOAT)):
        model = {**LLAMA, "model.num_kv_heads": kv_heads, "parallel.virtual_tensor": 4}
        train(program, model, ranks, parallel__tensor=ranks, run__precision=precision).check(
            lambda rank: {"tensor": tensor_step(model, ranks, rank, [2] * 4, 4, item)})
    # With data ranks as well neither group is the world: half of the micro-batches, and half of the gradients' blocks.
    for model in (GPT2, LLAMA):
        buckets = gradient_buckets(model, tensor=2)
        train(program, model, 4, parallel__tensor=2, parallel__data=2).check(lambda rank: {
            "data": {"all_reduce": (len(buckets), sum(all_reduce(count, 2, rank // 2) for count in buckets))},
            "tensor": tensor_step(model, 2, rank % 2, [2] * 2)})


def pipeline(program):
    # Activations forward and gradients back, each micro_batch x sequence x hidden, whole also for a smaller batch.
    message = 2 * SEQ * GPT2["model.hidden_size"]
    for precision, item in (("f32", 4), ("bf16", 2)):
        train(program, LLAMA, 2, parallel__pipeline=2, run__precision=precision).check(
            lambda rank: {"pipeline": {"send": (4, 4 * item * message)}})
    train(program, LLAMA, 2, parallel__pipeline=2, train__global_batch_size=7, parallel__virtual_data=1).check(
        lambda rank: {"pipeline": {"send": (4, 4 * FLOAT * message)}})
    # A tied vocabulary is on both ends, which send each other their gradients of it, in f32, once a step.
    shared = stored(shapes_of(GPT2)[-1])
    train(program, GPT2, 2, parallel__pipeline=2).check(
        lambda rank: {"pipeline": {"send": (4 + 1, FLOAT * (4 * message + shared))}})
    # Interleaved, stages 0 and 2 on rank 0, 1 and 3 on rank 1: three borders, each crossed forward and back.
    four = {**LLAMA, "model.num_layers": 4}
    train(program, four, 2, parallel__pipeline=2, parallel__schedule="interleaved", parallel__virtual_stages=2).check(
        lambda rank: {"pipeline": {"send": (3 * 4, 3 * 4 * FLOAT * message)}})


def few_numbers(program):
    # The seed's layer on two ranks. Its weight is two chunks, its bias one: rank 0 sums the first for the norm, rank 1
    # the two others, which are nodes of different parameters. So: loss, flag, and two places for nodes.
    settings = {**BASE, "model.architecture": "mlp", "model.layer_sizes": "[784, 10]", "data.kind": "synthetic",
                "parallel.virtual_data": 2, "train.eval_interval": 0}
    work = Work(program.train(settings, 2), 2)
    for rank in work.ranks:
        expect(rank["groups"] == {"data": {"all_reduce": (STEPS, STEPS * 3 * CHUNK * FLOAT)},
                                  "world": {"values": (STEPS, STEPS * 4 * 8)}}, rank)
    # One rank sends nothing and has no groups.
    alone = Work(program.train(settings, 1), 1)
    for line in alone.lines:
        expect(line["bytes_sent"] == 0 and line["communication"] == {}, line)
    # Forward and gradient of the weight, 8 samples: 2 x 8 x 784 x 10 operations each.
    expect(alone.operations() == [STEPS * 2 * 2 * 8 * 784 * 10], alone.operations())


def operations_of(model, samples):
    """Of a gpt2 in a step: a product forward and two backward for every weight and token, 2 operations each; attention
    4 forward and 10 backward for every pair of a token and one that it sees, and every number of a head."""
    layers, hidden = model["model.num_layers"], model["model.hidden_size"]
    weights = layers * hidden * (4 * hidden + 2 * model["model.ffn_hidden_size"]) + model["model.vocab_size"] * hidden
    return samples * (6 * SEQ * weights + 14 * layers * hidden * SEQ * (SEQ + 1) // 2)


def operations(program):
    # The head costs as much as a layer: 4 layers on the first stage, 3 and the head on the second are even, up to
    # attention. "odd": a cheap head, so that the first stage has more; the vocabulary and the feed-forward layer are
    # padded for two blocks; of 7 micro-batches, the last with one sample, a data rank has 3 or 4.
    even = {**GPT2, "model.num_layers": 7, "model.hidden_size": 32, "model.ffn_hidden_size": 128,
            "model.vocab_size": 12 * 32 + SEQ}
    odd = {**even, "model.vocab_size": 101, "model.ffn_hidden_size": 101}
    layouts = ({"parallel__tensor": 2}, {"parallel__pipeline": 2}, {"parallel__data": 2})
    for label, model, samples in (("even", even, 8), ("odd", odd, 13)):
        batch = {"train__global_batch_size": samples}
        unpadded = train(program, model, parallel__virtual_tensor=1, **batch).operations()[0]
        expect(unpadded == STEPS * operations_of(model, samples), f"{label}: {unpadded} operations on one rank")
        one = train(program, model, **batch).operations()[0]
        for layout in layouts:
            work = train(program, model, 2, **layout, **batch).operations()
            ratio = max(work) / (unpadded / 2)
            print(f"  {label} {layout}: the busiest rank computes {ratio:.3f} of its share")
            # Nothing is computed twice: in one virtual layout the ranks together do what one does.
            expect(sum(work) == one, f"{label} {layout}: {work} of {one}")
            expect(ratio <= 1.15, f"{label} {layout}: {ratio}")
            if label == "even" and "parallel__pipeline" not in layout:
                expect(ratio == 1, f"{label} {layout}: {ratio}")
        # In two parts a backward pass computes the logits twice; the vocabulary is padded for the blocks.
        work = train(program, model, 2, parallel__pipeline=2, parallel__schedule="zero-bubble", **batch).operations()
        logits = 2 * samples * SEQ * model["model.hidden_size"] * 2 * ceil_div(model["model.vocab_size"], 2)
        expect(sum(work) == one + STEPS * logits, f"{label} zero-bubble: {work} of {one}, logits {logits}")


def traces(program):
    for layout, names in (({"parallel.data": 2}, {("all_reduce", "data"), ("wait for all_reduce", "data")}),
                          ({"parallel.data": 2, "parallel.zero_stage": 1},
                           {("reduce_scatter", "data"), ("all_gather", "data")}),
                          ({"parallel.tensor": 2}, {("all_reduce", "tensor"), ("all_gather", "tensor")}),
                          ({"parallel.pipeline": 2}, {("send", "pipeline"), ("backward", "pass")}),
                          ({"parallel.pipeline": 2, "parallel.schedule": "zero-bubble"},
                           {("send", "pipeline"), ("backward input", "pass"), ("backward weight", "pass")})):
        run = program.train({**BASE, **data_of(program, "llama"), **LLAMA, **layout, "log.trace": "2:5"}, 2)
        for rank in range(2):
            events = json.loads((run.folder / "trace" / f"rank-{rank:05d}.json").read_text())
            events = events["traceEvents"] if isinstance(events, dict) else events
            found = {(event["name"], event.get("cat")) for event in events if event["ph"] == "X"}
            expect(names <= found, f"{layout} rank {rank}: {names} are not all in {found}")
            axis = {name for _, name in names} - {"pass"}
            groups = {group for _, group in found if group in ("data", "pipeline", "tensor", "world")}
            expect(groups == axis, f"{layout} rank {rank}: {found}")


CASES = {"data": data, "sharded": sharded, "tensor": tensor, "pipeline": pipeline, "few_numbers": few_numbers,
         "operations": operations, "traces": traces}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-traffic-") as scratch:
        program = Program(options.lockstep, scratch)
        try:
            CASES[options.case](program)
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")
        print(f"{options.case}: {program.num_runs} runs")


if __name__ == "__main__":
    main()
