#!/usr/bin/env python3
"""The command plan, started as users start it: alone, without mpirun; and what train says of memory.

Usage: plan.py --lockstep BINARY --case NAME [--hosts tests/cluster/hosts.sh]
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import meshes
import runs
from meshes import Layout
from runs import Failure, Program, expect

REFUSED = 2
KINDS = ("weights", "bf16_weights", "gradients", "optimiser", "activations", "workspace", "messages",
         "tables_and_inputs", "batches", "results", "checkpoint_copy")
# The large models are planned and never trained.
LLAMA_70B = {"model.architecture": "llama", "model.num_layers": 80, "model.hidden_size": 8192, "model.num_heads": 64,
             "model.num_kv_heads": 8, "model.ffn_hidden_size": 28672, "model.vocab_size": 128256,
             "model.seq_length": 4096, "model.tie_embeddings": False, "run.precision": "bf16",
             "train.micro_batch_size": 1, "train.global_batch_size": 512}
GPT2_XL = {"model.architecture": "gpt2", "model.num_layers": 48, "model.hidden_size": 1600, "model.num_heads": 25,
           "model.vocab_size": 50257, "model.seq_length": 1024, "run.precision": "bf16", "train.micro_batch_size": 1,
           "train.global_batch_size": 512}


def plan(binary, scratch, *arguments):
    return subprocess.run([binary, "plan", *arguments], cwd=scratch, text=True, capture_output=True,
                          timeout=60, check=False)


def drawing(binary, scratch):
    """Says what it took, draws every rank, and leaves nothing behind."""
    (scratch / "run.toml").write_text("[parallel]\npipeline = 2\ndata = 2\n[train]\nglobal_batch_size = 9\n"
                                      "micro_batch_size = 2\n")
    result = plan(binary, scratch, "--draw-schedule", "--config", "run.toml")
    expect(result.returncode == 0, result.stderr)
    for text in ("run.toml:2: parallel.pipeline = 2\n", 'parallel.schedule = "1f1b" (default)\n',
                 "run.toml:3: parallel.data = 2\n",
                 "5 micro-batches a step, 3 a data rank at most (drawn), one less on others\n",
                 "rank 0    01..aa2bb.cc\n", "rank 1    .0aa1bb2cc..\n"):
        expect(text in result.stdout, f"expected {text!r}:\n{result.stdout}")

    for kind, chunks in (("gpipe", 1), ("interleaved", 3), ("zero-bubble", 1)):
        result = plan(binary, scratch, "--draw-schedule", "--parallel.pipeline", "8", "--parallel.schedule", kind,
                      "--parallel.virtual_stages", str(chunks))
        expect(result.returncode == 0, result.stderr)
        expect(f"{kind}: 8 ranks, {chunks} chunk" in result.stdout, result.stdout)
        expect("parallel.data = 0 (default), taken as 1\n" in result.stdout, result.stdout)
        expect("\nrank 7 " in result.stdout and max(map(len, result.stdout.splitlines())) <= 200, result.stdout)
    expect(sorted(path.name for path in scratch.iterdir()) == ["run.toml"], "plan wrote files")


def refusals(binary, scratch):
    """What does not fit, and what is not there yet."""
    draw = ("--draw-schedule", "--parallel.pipeline", "2")
    for arguments, expected in (((), "model.vocab_size = 0: set it"),
                                (("--data.train", "none.bin"), "cannot be found out: none.bin"),
                                (("--model.vocab_size", "9", "--parallel.tensor", "7"), "possible with 7 ranks"),
                                (("--model.vocab_size", "9", "--parallel.data", "2000000000"), "at most 65536 ranks"),
                                (("--model.vocab_size", "9", "--parallel.pipeline", "2", "--parallel.schedule", "zero-bubble",
                                  "--train.recompute", "full"), "none | selective"),
                                (("--ranks-per-host", "0"), "--ranks-per-host = 0"),
                                ((*draw, "--json"), "--json does not go with --draw-schedule"),
                                ((*draw, "--parallel.virtual_stages", "2"), "parallel.virtual_stages = 2"),
                                ((*draw, "--parallel.schedule", "interleaved"), "parallel.virtual_stages = 1"),
                                ((*draw, "--train.global_batch_size", "2000000000"), "micro-batches"),
                                ((*draw, "--prune.sparsity", "0.25"), "--prune.sparsity = 0.25 is not yet available")):
        result = plan(binary, scratch, *arguments)
        expect(result.returncode == REFUSED, f"status {result.returncode}: {arguments}\n{result.stderr}")
        expect(expected in result.stderr and not result.stdout, f"expected {expected!r}:\n{result.stderr}{result.stdout}")


def planned(program, settings, *arguments):
    """The JSON of a plan, which must leave nothing behind."""
    before = sorted(program.scratch.rglob("*"))
    result = plan(program.binary, program.scratch, "--json", *arguments, *runs.flags(settings))
    expect(result.returncode == 0, result.stderr)
    expect(before == sorted(program.scratch.rglob("*")), "plan wrote files")
    return json.loads(result.stdout)


def taken(run, ranks):
    """Bytes that every rank says it took, from their log files."""
    found = []
    for rank in range(ranks):
        text = (run.folder / "logs" / f"rank-{rank:05d}.log").read_text()
        match = re.findall(r"memory: (\d+) bytes allocated, (\d+) planned", text)
        expect(len(match) == 1 and match[0][0] == match[0][1], f"rank {rank}: {match}")
        found.append(int(match[0][0]))
    return found


def check_plan(program, settings, layout, label, hosts=None):
    """Plans and trains a layout; every rank must have taken what was planned, to the byte."""
    settings = {**settings, **layout.settings, "train.steps": 2, "log.level": "debug"}
    per_host = layout.ranks // len(hosts.split(",")) if hosts else layout.ranks
    result = planned(program, settings, "--ranks-per-host", str(per_host))
    run = program.train(settings, layout.ranks, hosts)
    bytes_of = taken(run, layout.ranks)
    shown = [rank for stage in result["stages"] for rank in stage["ranks"]]
    for rank in shown + [result["largest_rank"]]:
        expect(rank["total"] == sum(rank[kind] for kind in KINDS), f"{label}: {rank}")
        expect(rank["total"] == bytes_of[rank["rank"]],
               f"{label}: rank {rank['rank']} took {bytes_of[rank['rank']]}, planned {rank['total']}")
    expect(len(result["stages"]) == result["mesh"]["pipeline"] and shown[0]["rank"] == 0, f"{label}: {shown}")
    expect(result["largest_rank"]["total"] == max(bytes_of), f"{label}: the largest is {max(bytes_of)}")
    by_host = [sum(bytes_of[first:first + per_host]) for first in range(0, layout.ranks, per_host)]
    expect(result["largest_host"]["total"] == max(by_host), f"{label}: hosts take {by_host}")
    print(f"  {label} {layout.words}: {bytes_of[0]:,} bytes on rank 0, as planned", flush=True)


def memory(program):
    """What plan says is what every rank takes, to the byte."""
    every = [Layout(), Layout(data=2), Layout(tensor=2), Layout(tensor=2, sequence=True), Layout(pipeline=2),
             Layout(pipeline=3, schedule="gpipe"), Layout(pipeline=2, schedule="interleaved", chunks=2),
             Layout(data=2, zero=1), Layout(recompute="selective"),
             Layout(data=2, pipeline=2, tensor=2, sequence=True, zero=1, recompute="full"),
             Layout(pipeline=3, schedule="zero-bubble")]
    for model, precision, layout in ([("gpt2", "f32", layout) for layout in every] +
                                     [("llama", "bf16", layout) for layout in (every[0], every[7], every[9], Layout(
                                         pipeline=2, tensor=4, sequence=True, schedule="zero-bubble", recompute="selective"))] +
                                     [("mlp", "f32", Layout(data=2, tensor=2, zero=1))]):
        settings = meshes.settings_of(program, model, precision)
        check_plan(program, settings, layout, f"{model} {precision}")


def more_memory(program):
    """A copy for checkpoints, the virtual layout left open, synthetic data in epochs, a vocabulary from the data."""
    settings = meshes.settings_of(program, "gpt2", "f32")
    check_plan(program, {**settings, "checkpoint.async": True}, Layout(data=2), "checkpoint copy")
    check_plan(program, {**settings, "parallel.virtual_data": 0, "parallel.virtual_tensor": 0},
               Layout(data=2, tensor=2), "virtual layout of the mesh")
    check_plan(program, {**settings, "model.vocab_size": 0}, Layout(data=2), "vocabulary from the data")
    drops = {**meshes.settings_of(program, "gpt2", "bf16"), "model.dropout": 0.1}
    for layout in (Layout(tensor=2, sequence=True, recompute="full"), Layout(pipeline=2, schedule="zero-bubble")):
        check_plan(program, drops, layout, "dropout")
    mlp = {**meshes.BASE, **meshes.MODELS["mlp"], "data.kind": "synthetic", "train.global_batch_size": 3000}
    del mlp["train.steps"]
    result = planned(program, {**mlp, "train.epochs": 1})
    run = program.train({**mlp, "train.epochs": 1})
    expect(taken(run, 1) == [result["largest_rank"]["total"]], f"epochs: {taken(run, 1)} {result}")


def hosts(program):
    """Messages between hosts are in the plan."""
    settings = meshes.settings_of(program, "gpt2", "f32")
    for layout in (Layout(data=4), Layout(data=4, zero=1), Layout(data=2, tensor=2), Layout(data=2, pipeline=2, zero=1)):
        check_plan(program, settings, layout, "two hosts", "2,2")
    # Four ranks share one kv head.
    check_plan(program, meshes.settings_of(program, "llama-one", "bf16"), Layout(tensor=4), "two hosts", "2,2")


def parameters_of_llama(model, layers, embeds, has_head, split):
    """Elements of a stage on one of `split` tensor ranks, in closed form."""
    hidden, heads, kv_heads = model["model.hidden_size"], model["model.num_heads"], model["model.num_kv_heads"]
    attention = hidden * hidden * 2 + hidden * hidden * kv_heads // heads * 2
    block = (attention + 3 * hidden * model["model.ffn_hidden_size"]) // split + 2 * hidden
    vocabulary = hidden * model["model.vocab_size"] // split
    return layers * block + embeds * vocabulary + has_head * (vocabulary + hidden)


def large(program):
    """Models that fit nowhere here, within seconds; the weights are those of the closed form."""
    begin = time.monotonic()
    mesh = {"parallel.data": 8, "parallel.pipeline": 8, "parallel.tensor": 8, "parallel.zero_stage": 1}
    result = planned(program, {**LLAMA_70B, **mesh}, "--ranks-per-host", "8")
    seconds = time.monotonic() - begin
    # On its own core it takes one; the tests share theirs.
    expect(seconds < 20, f"{seconds:.1f} s")
    expect(result["parameters"] == parameters_of_llama(LLAMA_70B, 80, 1, 1, 1) and result["hosts"] == 64, str(result))
    end = 0
    for stage in result["stages"]:
        [(first, after)] = stage["layers"]
        expect(first == end and after > first, f"layers {first} to {after} behind {end}")
        end = after
        elements = parameters_of_llama(LLAMA_70B, after - first, stage["embedding"], stage["head"], 8)
        got = stage["ranks"][0]
        # Parameters start on multiples of 4,096 elements: the norms of a hidden size of 8,192 do so anyway.
        expect(got["bf16_weights"] == 2 * elements, f"{got['bf16_weights']} bytes, closed form {2 * elements}")
        # Shards differ by the remainder of every bucket of 25 MiB.
        spread = abs(got["weights"] - 4 * elements / 8)
        expect(spread <= 4096 * 4 * (4 * elements / (25 << 20) + 3), f"{got['weights']} of {4 * elements / 8}")
    expect(end == 80, f"{end} layers")
    print(f"  70B on 512 ranks: {seconds:.1f} s")

    for data, depth, zero in ((8, 1, 0), (64, 1, 1), (16, 4, 1), (4, 8, 0)):
        mesh = {"parallel.data": data, "parallel.pipeline": depth, "parallel.zero_stage": zero}
        result = planned(program, {**GPT2_XL, **mesh}, "--ranks-per-host", "8")
        expect(result["parameters"] == 1557611200, str(result["parameters"]))
        expect(result["hosts"] == -(-data * depth // 8), str(result["hosts"]))


def words(program):
    """The table for people has every stage, and says what was taken for granted."""
    result = plan(program.binary, program.scratch, *runs.flags({**GPT2_XL, "parallel.pipeline": 4, "train.epochs": 1}))
    expect(result.returncode == 0, result.stderr)
    for text in ("model: gpt2, 1,557,611,200 parameters, bf16\n", "mesh: 1 x data, 4 x pipeline, 1 x tensor: 4 ranks on 1 host\n",
                 "parallel.data = 0, taken as 1\n", "train.epochs: every batch is taken as whole",
                 "stage 0: embedding, 0-", "stage 3: ", "largest rank: 0, ", "largest host: 0, "):
        expect(text in result.stdout, f"expected {text!r}:\n{result.stdout}")


def refused_for_memory(program, settings, ranks, free):
    """The changes that train proposes when `free` bytes are free, as settings, and the bytes it says they need."""
    folder = program.folder()
    command = program.command({**settings, "train.output_dir": str(folder)}, ranks)
    status, output = program.finish(program.start(command, {"LOCKSTEP_TEST_FREE_MEMORY": str(free)}))
    expect(status == REFUSED and not folder.exists(), f"status {status}: {output}")
    lines = [line for line in output.splitlines() if " error " in line]
    expect(len(lines) == 1 and "Cheapest changes that fit: " in lines[0], output)
    print("  " + lines[0].split("error ", 1)[1])
    advice = lines[0].split("Cheapest changes that fit: ")[1]
    found = []
    for text in re.split(r"(?:^|; )\(\d\) ", advice)[1:]:
        changes = dict(re.findall(r'([a-z]+\.[a-z_]+) = "?([a-z0-9-]+)"?', text))
        found.append(changes)
    return advice, found


def need_of(program, settings, ranks, changes):
    """Bytes of the one host. 0 left for data: plan needs the number."""
    degree = ranks // (int(changes.get("parallel.tensor", 1)) * int(changes.get("parallel.pipeline", 1)))
    return planned(program, {**settings, "parallel.data": degree, **changes})["largest_host"]["total"]


def check_advice(program, settings, ranks, free):
    """All that train names is enough and no more than that; the first of it is tried out."""
    text, found = refused_for_memory(program, settings, ranks, free)
    expect(1 <= len(found) <= 3, f"{free}: {found}")
    for changes, words in zip(found, text.split("; ")):
        need = need_of(program, settings, ranks, changes)
        expect(need <= free, f"{changes} needs {need}, {free} are free")
        for key in changes:
            less = {name: value for name, value in changes.items() if name != key}
            need = need_of(program, settings, ranks, less)
            expect(need > free, f"{changes}: {key} is not needed")
        stage = int(changes.get("parallel.zero_stage", 0))
        if stage > 1:
            need = need_of(program, settings, ranks, {**changes, "parallel.zero_stage": stage - 1})
            expect(need > free, f"{changes}: a stage less would do")
        if "parallel.accumulate" in changes:
            expect(words.endswith(", other bits"), words)
    program.train({**settings, **found[0]}, ranks, extra={"LOCKSTEP_TEST_FREE_MEMORY": str(free)})
    return found


def advice(program):
    """Where a host is too small, the changes that train names do fit, and those that do not are not named."""
    settings = {**meshes.settings_of(program, "gpt2", "f32"), "checkpoint.async": True, "train.micro_batch_size": 8,
                "train.global_batch_size": 32, "model.seq_length": 64, "data.validation": "",
                "parallel.virtual_data": 0, "parallel.virtual_tensor": 0, "train.steps": 1}
    ranks = 4
    whole = planned(program, {**settings, "parallel.data": ranks})["largest_host"]["total"]
    asynchronous = whole - planned(program, {**settings, "parallel.data": ranks, "checkpoint.async": False})["largest_host"]["total"]
    expect(asynchronous > 0, "the copy for checkpoints takes nothing")
    program.train(settings, ranks, extra={"LOCKSTEP_TEST_FREE_MEMORY": str(whole)})

    _, found = refused_for_memory(program, settings, ranks, whole - 1)
    expect(found[0] == {"checkpoint.async": "false"} and len(found) == 3, f"{found}")
    for fraction in (0.9, 0.7, 0.5, 0.3):
        check_advice(program, settings, ranks, int(whole * fraction))
    text, found = refused_for_memory(program, settings, ranks, 1000)
    expect(not found and text.startswith("none (the most that helps is "), text)


def sharding_advice(program):
    """Where weights and their gradients are most of it, train looks at every stage of ZeRO."""
    settings = {**meshes.settings_of(program, "gpt2", "bf16"), "checkpoint.async": False, "train.micro_batch_size": 1,
                "train.global_batch_size": 16, "train.recompute": "full", "data.validation": "", "model.num_layers": 14,
                "parallel.virtual_data": 0, "parallel.virtual_tensor": 0, "train.steps": 1}
    ranks = 4
    folded = {"parallel.accumulate": "tree-fold"}
    for expected in ({"parallel.zero_stage": "1"}, {"parallel.zero_stage": "2", **folded},
                     {"parallel.zero_stage": "3", **folded}):
        found = check_advice(program, settings, ranks, need_of(program, settings, ranks, expected))
        expect(expected in found, f"{expected} is not named: {found}")
    # One micro-batch a data rank: gradients are sharded without tree-fold, and the bits stay.
    few = {**settings, "train.global_batch_size": 4}
    expected = {"parallel.zero_stage": "2"}
    free = need_of(program, few, ranks, expected)
    text, _ = refused_for_memory(program, few, ranks, free)
    found = check_advice(program, few, ranks, free)
    expect(found[0] == expected and "other bits" not in text.split("; ")[0], text)


def with_path(case):
    return lambda program: case(program.binary, program.scratch)


CASES = {"drawing": with_path(drawing), "refusals": with_path(refusals), "memory": memory, "more_memory": more_memory,
         "hosts": hosts, "large": large, "words": words, "advice": advice,
         "sharding_advice": sharding_advice}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", required=True)
    parser.add_argument("--case", required=True, choices=CASES)
    parser.add_argument("--hosts", help="tests/cluster/hosts.sh")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-plan-") as scratch:
        try:
            CASES[options.case](Program(options.lockstep, scratch, options.hosts))
        except Failure as failure:
            sys.exit(f"{options.case}: {failure}")


if __name__ == "__main__":
    main()
