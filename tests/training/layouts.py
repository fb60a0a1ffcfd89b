#!/usr/bin/env python3
"""The layout does not change the bits: trains in many layouts and compares every line with one rank's.

Usage: layouts.py --lockstep BINARY --case NAME [--hosts tests/cluster/hosts.sh]
"""
import argparse
import re
import sys
import tempfile

import runs
from runs import Failure, Program, compare, expect

BASE = {"log.interval": 1, "log.tensorboard": False, "log.progress": False, "checkpoint.interval": 0,
        "checkpoint.async": False, "lr_schedule.warmup_steps": 2, "run.seed": 7}
# About a million parameters each, so that buckets of 1 MiB are several.
MODELS = {
    "gpt2": {"model.architecture": "gpt2", "model.num_layers": 4, "model.hidden_size": 144, "model.num_heads": 6,
             "model.seq_length": 16, "model.vocab_size": runs.VOCABULARY},
    "llama": {"model.architecture": "llama", "model.num_layers": 4, "model.hidden_size": 144, "model.num_heads": 6,
              "model.num_kv_heads": 3, "model.seq_length": 16, "model.vocab_size": runs.VOCABULARY,
              "model.tie_embeddings": False},
    "mlp": {"model.architecture": "mlp", "model.layer_sizes": "[64, 1000, 1000, 10]"},
}
# Seven micro-batches over four virtual ranks; the last one is smaller than the others.
BATCH = {"train.steps": 4, "train.global_batch_size": 13, "train.micro_batch_size": 2, "train.eval_interval": 2}


def token_data(program, ignored=False, count=1500):
    train = program.scratch / "train.bin"
    validation = program.scratch / "validation.bin"
    runs.write_tokens(train, runs.random_tokens(count, 1))
    runs.write_tokens(validation, runs.random_tokens(16 * 11 + 1, 2))
    data = {"data.kind": "tokens", "data.train": train, "data.validation": validation}
    return dict(data, **({"data.ignore_token": runs.IGNORED} if ignored else {}))


def image_data(program, train=60, test=23):
    folder = program.scratch / "images"
    runs.write_images(folder, train, test)
    return {"data.kind": "images", "data.train": folder, "data.validation": folder}


def data_of(program, model):
    return image_data(program) if model == "mlp" else token_data(program)


def settings_of(program, model, precision="f32", **more):
    settings = {**BASE, **BATCH, **MODELS[model], **data_of(program, model), "run.precision": precision,
                "run.threads": 1, "parallel.virtual_data": 4, "parallel.virtual_tensor": 1}
    settings.update({key.replace("__", "."): value for key, value in more.items()})
    return settings


def layout(ranks, threads=1, bucket=25, overlap=True, hosts=None):
    return {"ranks": ranks, "hosts": hosts,
            "settings": {"run.threads": threads, "parallel.bucket_mib": bucket, "parallel.overlap": overlap}}


def all_equal(program, settings, layouts, extra=None, reference=None):
    """Trains once in the reference layout (one rank, one thread) and in each of `layouts`; returns the reference."""
    reference = reference or layout(1)
    first = program.train({**settings, **reference["settings"]}, reference["ranks"], extra=extra)
    expected = first.result()
    expect(len(expected["loss"]) > 0, "the reference wrote no line")
    for number, other in enumerate(layouts, 1):
        run = program.train({**settings, **other["settings"]}, other["ranks"], other["hosts"], extra)
        compare(expected, run.result(), f"layout {number}: {other}")
    print(f"  {len(layouts)} layouts equal that of {reference['ranks']}: losses "
          f"{expected['loss'][0]} .. {expected['loss'][-1]}, hash {expected['hash']}")
    return first


def matrix(program, model, precision, extra=None):
    """Ranks, threads, bucket sizes and overlap, without and with a virtual tensor degree."""
    first = all_equal(program, settings_of(program, model, precision),
                      [layout(1, threads=2), layout(1, threads=5), layout(2, bucket=1),
                       layout(2, threads=2, overlap=False), layout(4, bucket=1),
                       layout(4, threads=2, bucket=1, overlap=False)], extra)
    for degree in (2, 3):
        run = all_equal(program, settings_of(program, model, precision, parallel__virtual_tensor=degree),
                        [layout(1, threads=5), layout(4, bucket=1)], extra)
        expect(run.hash() != first.hash(), "products of blocks gave the bits of whole ones: was it used?")
        raised = "virtual_tensor becomes 4 instead of 3" in run.output  # one real rank fits 1, 2, 4
        expect(raised == (degree == 3), run.output)


def buckets(program):
    """The gradients of these models, in f32, fill several buckets of 1 MiB."""
    for model in MODELS:
        run = program.train(settings_of(program, model), 1)
        number, unit = re.search(r"([0-9.]+) ([kM]) parameters", run.output).groups()
        num_buckets = float(number) * {"k": 1e3, "M": 1e6}[unit] * 4 / (1 << 20)
        expect(num_buckets > 3, f"{model} has {num_buckets} buckets only:\n{run.output}")


def three_virtual_ranks(program):
    """Degrees that are no power of two; one that does not fit is raised, with a warning."""
    for model in ("gpt2", "mlp"):
        all_equal(program, settings_of(program, model, parallel__virtual_data=3),
                  [layout(3, threads=2, bucket=1), layout(3, overlap=False)], reference=layout(3))
        all_equal(program, settings_of(program, model, parallel__virtual_data=6), [layout(6, bucket=1)],
                  reference=layout(3))
        raised = program.train(settings_of(program, model, parallel__virtual_data=3), 1)
        fitting = program.train(settings_of(program, model, parallel__virtual_data=4), 1)
        compare(fitting.result(), raised.result(), "3 virtual ranks on one rank, raised to 4")
        expect("virtual_data becomes 4 instead of 3" in raised.output, f"no warning:\n{raised.output}")


def few_micro_batches(program):
    """Virtual ranks without a micro-batch count as zeros."""
    for model in MODELS:
        for samples in (1, 3):  # one micro-batch, two
            all_equal(program, settings_of(program, model, train__global_batch_size=samples),
                      [layout(2, bucket=1), layout(4, bucket=1, overlap=False)])


def epochs(program):
    """An epoch's last batch is smaller, and so is its last micro-batch."""
    for model in MODELS:
        settings = settings_of(program, model, train__epochs=2, train__global_batch_size=12)
        del settings["train.steps"]
        settings.update(image_data(program, train=31) if model == "mlp" else token_data(program, count=16 * 31 + 1))
        run = all_equal(program, settings,
                        [layout(1, threads=2), layout(2, bucket=1), layout(4, bucket=1)])
        expect(run.value("samples") == ["12", "24", "31", "43", "55", "62"], f"samples {run.value('samples')}")


def masked(program):
    """Targets that are not trained: some, all of a micro-batch, all of a global batch."""
    sequence, batch = 16, 8
    tokens = runs.random_tokens(5 * batch * sequence + 1, 3)
    for index in range(1, len(tokens)):
        sample = (index - 1) // sequence  # whose target this token is
        whole_micro_batch = sample in (2, 3)
        whole_batch = batch <= sample < 2 * batch
        if whole_micro_batch or whole_batch or index % 5 == 0:
            tokens[index] = runs.IGNORED
    for precision in ("f32", "bf16"):
        for model in ("gpt2", "llama"):
            settings = settings_of(program, model, precision, train__steps=5, train__global_batch_size=batch,
                                   data__shuffle=False, data__ignore_token=runs.IGNORED)
            runs.write_tokens(program.scratch / "train.bin", tokens)
            run = all_equal(program, settings, [layout(2, bucket=1), layout(4, bucket=1), layout(2, overlap=False)])
            expect(run.value("step") == ["1", "2", "3", "4", "5"], f"steps {run.value('step')}")
            skipped = [loss == "null" for loss in run.value("loss")]
            expect(skipped == [False, True, False, False, False], f"losses {run.value('loss')}")
            expect("step 2 skipped: its batch has no trained target" in run.output, run.output)


def native(program):
    """The library's own reduction runs, says that bits are not promised, and is close."""
    for model in ("gpt2", "mlp"):
        settings = settings_of(program, model)
        exact = program.train(settings, 2)
        close = program.train({**settings, "parallel.reduction": "native", "parallel.bucket_mib": 1}, 2)
        expect("not promised: parallel.reduction is native" in close.output, close.output)
        # Sums of two f32 in any order differ in nothing; those of a longer tree by some ulps a step.
        tolerance = 2.0 ** -23 * 100
        for ours, theirs in zip(exact.value("loss"), close.value("loss")):
            expect(abs(float(ours) - float(theirs)) <= tolerance * abs(float(ours)), f"{ours} against {theirs}")
        for other in (layout(2), layout(4)):
            program.train({**settings, **other["settings"], "parallel.reduction": "native"}, other["ranks"])


def avx2(program):
    """Narrower instructions are another machine, which may have other bits, but the same in every layout."""
    for model in MODELS:
        for precision in ("f32", "bf16"):
            run = all_equal(program, settings_of(program, model, precision),
                            [layout(1, threads=5), layout(4, threads=2, bucket=1)],
                            extra={"ONEDNN_MAX_CPU_ISA": "AVX2"})
            expect("tensor ranks (avx2" in run.output, f"other instructions were used:\n{run.output}")


def hosts(program):
    """Two hosts of two ranks, and of three and one, equal one rank."""
    for model, precision in (("gpt2", "f32"), ("llama", "bf16"), ("mlp", "f32")):
        settings = settings_of(program, model, precision)
        all_equal(program, settings,
                  [layout(4, bucket=1, hosts="2,2"), layout(4, bucket=1, hosts="3,1"),
                   layout(4, overlap=False, hosts="1,3"), layout(2, bucket=1, hosts="1,1")])


CASES = {f"{model}-{precision}": (lambda program, m=model, p=precision: matrix(program, m, p))
         for model in MODELS for precision in ("f32", "bf16")}
CASES.update({"three": three_virtual_ranks, "few": few_micro_batches, "epochs": epochs, "masked": masked,
              "native": native, "avx2": avx2, "hosts": hosts, "buckets": buckets})


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    parser.add_argument("--hosts", help="tests/cluster/hosts.sh")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-layouts-") as scratch:
        program = Program(options.lockstep, scratch, options.hosts)
        try:
            CASES[options.case](program)
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")
        print(f"{options.case}: {program.num_runs} runs")


if __name__ == "__main__":
    main()
