#!/usr/bin/env python3
"""Memory that plan foretells, against the formulas that the literature gives for it.

Usage: formulas.py --lockstep BINARY --case NAME

plan is started alone and nothing trains; that runs take what is planned is tested elsewhere (plan.py).
"""
import argparse
import itertools
import sys
import tempfile

from plan import planned
from runs import Failure, Program, expect

SIZE_OF = {"f32": 4, "bf16": 2}
TOKENS = 64  # of a sequence
SAMPLES = 2  # of a micro-batch
# Nothing is padded: every matrix and statistic is a multiple of 64 bytes on up to four tensor ranks.
MODELS = {
    "gpt2": {"model.architecture": "gpt2", "model.hidden_size": 256, "model.num_heads": 8, "model.ffn_hidden_size": 1024},
    "llama": {"model.architecture": "llama", "model.hidden_size": 256, "model.num_heads": 8, "model.num_kv_heads": 4,
              "model.ffn_hidden_size": 768},
}
BASE = {"model.vocab_size": 101, "model.seq_length": TOKENS, "train.micro_batch_size": SAMPLES, "checkpoint.async": False}


class KeptOfLayer:
    """What a layer keeps of a micro-batch between its forward and its backward pass.

    Korthikanti et al., "Reducing activation recomputation in large transformer models" (2022), table 2, of s tokens, b
    samples, h hidden, a heads, on t tensor ranks and with 16 bits a number:
        tensor                          sbh (10 + 24/t + 5as/(ht))
        tensor, sequence                sbh (34/t + 5as/(ht))
        tensor, selective               sbh (10 + 24/t)
        tensor, sequence, selective     sbh 34/t
        full                            sbh 2
    Two of the 10 are masks of dropout, which are drawn again and not kept; of 5as, scores and their mask, attention by blocks keeps the
    logarithm of the sum of exponentials of every row alone. 8 + 24/t are left: x, x1 and the outputs of both norms
    (2 each), q, k and v (6), attention (2), the activation function's input (8) and its output (8). Selective
    recomputation here drops the outputs of attention and of the activation function, too: 8 + 14/t.
    """

    def __init__(self, name, width, sequence, recompute):
        model = MODELS[name]
        self.heads = model["model.num_heads"]
        self.hidden = model["model.hidden_size"]
        self.width = width
        self.sequence = sequence
        self.recompute = recompute
        self.is_gpt2 = name == "gpt2"
        kv_share = model.get("model.num_kv_heads", self.heads) / self.heads
        ffn = model["model.ffn_hidden_size"] / self.hidden
        # Numbers of every element of sbh.
        self.whole = 1 if recompute == "full" else 4
        self.split = 1 + 2 * kv_share + (ffn if self.is_gpt2 else 2 * ffn)
        self.recomputed = 1 + ffn
        if recompute == "full":
            self.split = 0
        if recompute != "none":
            self.recomputed = 0

    def coefficient(self):
        """Bytes of every element of sbh with 16 bits a number."""
        by_tokens = self.width if self.sequence else 1
        return 2 * (self.whole / by_tokens + (self.split + self.recomputed) / self.width)

    def statistics(self):
        """Bytes, in f32: means (of layer norms) and reciprocal deviations of both norms a token, sums a token and head."""
        rows = TOKENS * SAMPLES
        norms = 0 if self.recompute == "full" else 4 if self.is_gpt2 else 2
        sums = self.heads / self.width if self.recompute == "none" else 0
        return 4 * rows * (norms / (self.width if self.sequence else 1) + sums)

    def bytes(self, precision):
        return TOKENS * SAMPLES * self.hidden * self.coefficient() * SIZE_OF[precision] / 2 + self.statistics()

    def published(self):
        """The paper's coefficient, and the same without masks of dropout, and scores."""
        if self.recompute == "full":
            return 2, 2 / self.width if self.sequence else 2
        whole, split = (0, 34) if self.sequence else (10, 24)
        scores = 5 * self.heads * TOKENS / self.hidden if self.recompute == "none" else 0
        masks = 2 / self.width if self.sequence else 2
        return whole + (split + scores) / self.width, whole + split / self.width - masks


def activations(program, name, layers, precision, recompute, more):
    settings = {**BASE, **MODELS[name], "model.num_layers": layers, "run.precision": precision, "train.recompute": recompute,
                "train.global_batch_size": 8 * SAMPLES, **more}
    return planned(program, settings)


def activation_memory(program):
    """What plans of twice as many layers have more is what a layer keeps, to the byte."""
    print("  bytes for each of sbh, 16 bits: published; without masks of dropout and scores; here; statistics here (bytes)")
    for name, precision, width, recompute in itertools.product(MODELS, SIZE_OF, (1, 2, 4), ("none", "selective", "full")):
        for sequence in (False, True)[:1 if width == 1 else 2]:
            kept = KeptOfLayer(name, width, sequence, recompute)
            mesh = {"parallel.tensor": width, "parallel.sequence": sequence}
            few, many = (activations(program, name, layers, precision, recompute, mesh) for layers in (3, 6))
            label = f"{name} {precision}, tensor {width}{', sequence' if sequence else ''}, recompute {recompute}"
            for a, b in zip(few["stages"][0]["ranks"], many["stages"][0]["ranks"]):
                got = (b["activations"] - a["activations"]) / 3
                expect(got == kept.bytes(precision), f"{label}: {got} bytes a layer, closed form {kept.bytes(precision)}")
            if name == "gpt2" and precision == "bf16":
                published, without = kept.published()
                own = kept.coefficient()
                expect(own == without if recompute != "selective" else own == without - 10 / width, f"{label}: {own}, {without}")
                print(f"  tensor {width}, {'sequence' if sequence else '        '} {recompute:9} "
                      f"{published:6.2f} {without:6.2f} {own:6.2f} {kept.statistics():6.0f}")


def activations_of_pipelines(program):
    """In a pipeline a layer keeps as much of every micro-batch that is in flight."""
    micro_batches = 8
    for name, depth, recompute in itertools.product(MODELS, (2, 4), ("none", "selective", "full")):
        for schedule in ("1f1b", "gpipe"):
            mesh = {"parallel.pipeline": depth, "parallel.schedule": schedule}
            few, many = (activations(program, name, layers, "bf16", recompute, mesh)["stages"] for layers in (8, 16))
            for stage in range(depth):
                in_flight = depth - stage if schedule == "1f1b" else micro_batches
                [(begin, end)], [(later_begin, later_end)] = few[stage]["layers"], many[stage]["layers"]
                layers = (later_end - later_begin) - (end - begin)
                got = many[stage]["ranks"][0]["activations"] - few[stage]["ranks"][0]["activations"]
                expected = in_flight * layers * KeptOfLayer(name, 1, False, recompute).bytes("bf16")
                expect(layers > 0 and got == expected,
                       f"{name}, pipeline {depth}, {schedule}, {recompute}: stage {stage} takes {got} bytes for {layers} "
                       f"layers, closed form {expected}")
    print(f"  1f1b: pipeline - stage micro-batches in flight; gpipe: all {micro_batches}")


CHUNK = 4096  # elements, of which parameters and shards are multiples


def chunks_of(*sizes):
    return sum(-(-size // CHUNK) for size in sizes)


class Parameters:
    """Chunks of a model's parameters, by units that are gathered and reduced together."""

    def __init__(self, name, layers):
        model = MODELS[name]
        hidden, vocabulary = model["model.hidden_size"], BASE["model.vocab_size"]
        ffn = model["model.ffn_hidden_size"]
        if name == "gpt2":
            qkv = 3 * hidden
            self.layer_sizes = [hidden] * 2 + [qkv * hidden, qkv, hidden * hidden, hidden] + \
                               [hidden] * 2 + [ffn * hidden, ffn, hidden * ffn, hidden]
            front, norm = [vocabulary * hidden, TOKENS * hidden], [hidden, hidden]
        else:
            qkv = hidden + 2 * hidden * model["model.num_kv_heads"] // model["model.num_heads"]
            self.layer_sizes = [hidden, qkv * hidden, hidden * hidden, hidden, 2 * ffn * hidden, hidden * ffn]
            front, norm = [vocabulary * hidden], [hidden]
        head = [vocabulary * hidden]
        self.units = [chunks_of(*sizes) for sizes in [front] + [self.layer_sizes] * layers + [norm, head]]
        self.slots = sum(self.units) - (layers - 2) * chunks_of(*self.layer_sizes)  # layers take turns in two
        self.count = sum(front + norm + head) + layers * sum(self.layer_sizes)
        self.number = len(front + norm + head) + layers * len(self.layer_sizes)
        self.largest = max(map(sum, (front, self.layer_sizes, head)))

    def all(self):
        return sum(self.units)

    def owned(self, rank, data, by_units, bucket):
        """Chunks of a rank's shares of all buckets; a bucket is cut from the end, at `bucket` chunks at most."""
        total = 0
        for size in self.units if by_units else [self.all()]:
            for begin in range(0, size, bucket):
                part = min(bucket, size - begin)
                total += (rank + 1) * part // data - rank * part // data
        return total


def expected_state(parameters, settings, rank, per_host, is_one):
    """Bytes by kind, of a rank of data parallelism: Rajbhandari et al., "ZeRO" (2020), section 5, and our buffers.

    Adam keeps, of every one of Psi parameters, 8 bytes of state; weights are 4 bytes in f32, and with bf16 2 and a master
    copy of 4; gradients are 4. On N ranks, in f32 and bf16:
        stage 0    16 Psi                              18 Psi
        stage 1    8 Psi + 8 Psi/N                     6 Psi + 12 Psi/N
        stage 2    4 Psi + 12 Psi/N                    2 Psi + 16 Psi/N
        stage 3    16 Psi/N                            16 Psi/N (the copy in bf16 is made while it is gathered)
    Psi are stored elements: each parameter is padded to chunks of 4,096. Beside these a rank has
    - weights that are gathered (all in stages 1 and 2, in stage 3 the slots: two layers, embedding, norm and head), once a
      host, by its first rank
    - slots for gradients, of the same sizes, in stages 2 and 3 where it has one virtual rank and sums up no more than
      one micro-batch before a reduction; else all gradients, log2(virtual ranks it owns) + 1 times
    - with tree-fold, or slots, a further buffer for sums, of what it owns
    """
    data, stage = settings["parallel.data"], settings["parallel.zero_stage"]
    virtual = settings["parallel.virtual_data"] // data
    stage = stage if data > 1 else 0
    takes = rank % per_host == 0
    every = parameters.all()
    bucket = settings["parallel.bucket_mib"] * 2 ** 20 // (4 * CHUNK)
    own = parameters.owned(rank, data, stage > 1, bucket) if stage > 0 else every
    folds_rounds = settings["parallel.accumulate"] == "tree-fold"
    slotted = stage > 1 and virtual == 1 and (folds_rounds or is_one)
    gathered = {0: 0, 1: every, 2: every, 3: parameters.slots}[stage] * takes
    gradients = parameters.slots if slotted else every * virtual.bit_length()
    kept = own if folds_rounds or slotted else 0
    if settings["run.precision"] == "bf16":
        weights, copy = 4 * own, 2 * (gathered if stage > 0 else every)
    elif stage == 3:
        weights, copy = 4 * own, 4 * gathered
    else:
        weights, copy = 4 * (gathered if stage > 0 else every), 0
    kinds = {"weights": weights, "bf16_weights": copy, "gradients": 4 * (gradients + kept), "optimiser": 8 * own}
    return {kind: size * CHUNK for kind, size in kinds.items()}, own * CHUNK


def check_state(program, name, parameters, settings, per_host, is_one):
    result = planned(program, settings, "--ranks-per-host", str(per_host))
    label = f"{name} {settings}, {per_host} ranks a host"
    data = settings["parallel.data"]
    stage = settings["parallel.zero_stage"] if data > 1 else 0
    expect(result["parameters"] == parameters.count, f"{label}: {result['parameters']} parameters, not {parameters.count}")
    padding = parameters.all() * CHUNK - parameters.count
    expect(0 <= padding < CHUNK * parameters.number, f"{label}: {padding} elements of padding")
    for rank in result["stages"][0]["ranks"] + [result["largest_rank"]]:
        kinds, own = expected_state(parameters, settings, rank["rank"], per_host, is_one)
        for kind, size in kinds.items():
            expect(rank[kind] == size, f"{label}: rank {rank['rank']} has {rank[kind]} bytes of {kind}, closed form {size}")
        share = parameters.count / (data if stage > 0 else 1)
        expect(abs(own - share) <= max(parameters.largest, padding),
               f"{label}: rank {rank['rank']} owns {own} elements, its share is {share}")
    return result["stages"][0]["ranks"][0]


def sharded_state(program):
    """Weights, gradients and the optimiser's state in every stage of ZeRO, to the byte."""
    layers = 4
    print("  data 4, a host each, MiB a rank: weights, their copy, gradients, optimiser")
    for name, data, stage, precision in itertools.product(MODELS, (1, 2, 4, 8), range(4), SIZE_OF):
        parameters = Parameters(name, layers)
        for accumulate, count, virtual in itertools.product(("fold-tree", "tree-fold"), (1, 4), (1, 2)):
            settings = {**BASE, **MODELS[name], "model.num_layers": layers, "model.tie_embeddings": False,
                        "run.precision": precision, "parallel.data": data, "parallel.zero_stage": stage,
                        "parallel.virtual_data": data * virtual, "parallel.accumulate": accumulate,
                        "parallel.bucket_mib": 25 if virtual == 1 else 1,
                        "train.global_batch_size": SAMPLES * count * data * virtual}
            for per_host in sorted({1, data} if virtual == 1 else {max(1, data // 2)}):
                rank = check_state(program, name, parameters, settings, per_host, count == 1)
            if (name, data, accumulate, count, virtual) == ("gpt2", 4, "fold-tree", 1, 1):
                sizes = " ".join(f"{rank[kind] / 2 ** 20:6.2f}" for kind in ("weights", "bf16_weights", "gradients", "optimiser"))
                print(f"  {precision:4} stage {stage} {sizes}")


CASES = {"activation_memory": activation_memory, "activations_of_pipelines": activations_of_pipelines,
         "sharded_state": sharded_state}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-formulas-") as scratch:
        try:
            CASES[options.case](Program(options.lockstep, scratch))
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")


if __name__ == "__main__":
    main()
