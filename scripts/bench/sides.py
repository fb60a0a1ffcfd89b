"""Runs one variant of a case in processes of its own and returns the time of its steps."""
import dataclasses
import json
import os
import pathlib
import shutil
import socket
import statistics
import struct
import subprocess
import tempfile

from machine import BenchError, LoadMeter, run_together

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = pathlib.Path(__file__).resolve().parent / "peers"
WARM_STEPS = 2
# Losses of a first step lie near log(vocab); further apart, the models would not be the same.
FIRST_LOSS_TOLERANCE = 0.2


@dataclasses.dataclass(frozen=True)
class Tools:
    """What was found to measure with; an empty entry leaves its variants out."""
    program: pathlib.Path
    floor: pathlib.Path
    limits: pathlib.Path
    torch: pathlib.Path
    torch_environment: dict
    scratch: pathlib.Path
    steps: int  # of a language model, those that warm up included


@dataclasses.dataclass(frozen=True)
class Measurement:
    step_seconds: float  # median of the run, or for `seed` the mean of its steps
    parameters: int = 0
    first_loss: float = 0.0
    others: float = 0.0
    stolen: float = 0.0


def measure(case, variant, tools):
    run = {"lockstep": run_lockstep, "torch": run_torch, "floor": run_floor}[variant.side]
    meter = LoadMeter()
    result = run(case, variant, tools)
    load = meter.stop()
    return dataclasses.replace(result, others=load.others, stolen=load.stolen)


@dataclasses.dataclass(frozen=True)
class Limits:
    threads: list  # what bench_machine_limits says for each number of threads
    others: float
    stolen: float


def measure_limits(tools):
    counts = sorted({1, min(2, len(os.sched_getaffinity(0)))})
    meter = LoadMeter()
    output = run_together([([str(tools.limits), *map(str, counts)], dict(os.environ))])
    load = meter.stop()
    return Limits(json.loads(output), load.others, load.stolen)


def median_after_warming(seconds):
    if len(seconds) <= WARM_STEPS:
        raise BenchError(f"{len(seconds)} steps: more than {WARM_STEPS} are needed")
    return statistics.median(seconds[WARM_STEPS:])


# ---- lockstep ----

def lockstep_flags(case, variant, tools):
    model = case.model
    flags = {"data.kind": "synthetic", "train.eval_interval": 0, "train.global_batch_size": model.batch,
             "train.micro_batch_size": model.batch // variant.ranks, "optimizer.grad_clip": 0,
             "run.precision": case.precision, "run.threads": variant.threads, "checkpoint.interval": 0,
             "checkpoint.resume": "never", "log.tensorboard": "false", "log.progress": "false"}
    if case.name == "seed":
        return {"config": ROOT / "configs/seed-classifier.toml", **flags, "train.epochs": model.epochs,
                "log.interval": 10**9}
    return {**flags, "model.architecture": "gpt2", "model.num_layers": model.layers,
            "model.hidden_size": model.hidden, "model.num_heads": model.heads, "model.seq_length": model.seq_length,
            "model.vocab_size": model.vocab, "model.dropout": 0, "model.tie_embeddings": "true",
            "train.steps": tools.steps, "optimizer.name": "adamw", "optimizer.lr": 3e-4,
            "optimizer.weight_decay": 0.1, "lr_schedule.name": "constant", "lr_schedule.warmup_steps": 0,
            "log.interval": 1, **dict(variant.flags)}


def run_lockstep(case, variant, tools):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="lockstep-bench-", dir=tools.scratch))
    try:
        command = [ROOT / "scripts/launch", "-n", variant.ranks, "--cores-per-rank", variant.threads,
                   "--max-restarts", 0, "--", "train"]
        for key, value in lockstep_flags(case, variant, tools).items():
            command += [f"--{key}", value]
        command += ["--train.output_dir", folder / "run"]
        environment = dict(os.environ, LOCKSTEP=str(tools.program))
        run_together([([str(word) for word in command], environment)])
        lines = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
        entries = [entry for entry in lines if entry["kind"] == "train"]
        if case.name == "seed":
            # The last line is the mean since the line before it: of all steps but the first.
            return Measurement(entries[-1]["seconds"])
        seconds = [entry["seconds"] for entry in entries]
        return Measurement(median_after_warming(seconds), count_parameters(folder / "run"), entries[0]["loss"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def count_parameters(run):
    """Of the model in a run's last checkpoint, from the headers of its safetensors files."""
    elements = {}
    for path in sorted((run / "checkpoints/latest").glob("model-*.safetensors")):
        with open(path, "rb") as file:
            header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        for name, tensor in header.items():
            if name != "__metadata__":
                first, last = tensor["data_offsets"]
                elements[path.name, name] = (last - first) // {"F32": 4, "BF16": 2}[tensor["dtype"]]
    return sum(elements.values())


# ---- PyTorch ----

def find_torch(python):
    """Returns (environment, version), or (None, reason). The libraries that came in wheels beside PyTorch are
    added to the search path if it does not find them itself."""
    if not pathlib.Path(python).exists():
        return None, f"no {python}: scripts/bench/install_torch makes it, or set LOCKSTEP_TORCH_PYTHON"
    environment = dict(os.environ)
    site = subprocess.run([python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True,
                          capture_output=True, check=False, cwd="/").stdout.strip()
    libraries = [str(path) for path in sorted(pathlib.Path(site).glob("nvidia/*/lib"))]
    for paths in ([], libraries):
        if paths:
            environment["LD_LIBRARY_PATH"] = ":".join([*paths, os.environ.get("LD_LIBRARY_PATH", "")]).strip(":")
        loaded = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], text=True,
                                capture_output=True, check=False, cwd="/", env=environment)
        if loaded.returncode == 0:
            return environment, loaded.stdout.strip()
    return None, f"{python} does not load PyTorch: {loaded.stderr.strip().splitlines()[-1:]}"


def torch_arguments(case, variant, tools):
    model = case.model
    if case.name == "seed":
        return [PEERS / "seed.py", "--epochs", model.epochs, "--feed", variant.feed, "--threads", variant.threads]
    arguments = [PEERS / "gpt.py", "--threads", variant.threads, "--steps", tools.steps]
    for key in ("layers", "hidden", "heads", "vocab", "seq_length", "batch"):
        arguments += [f"--{key.replace('_', '-')}", getattr(model, key)]
    arguments += ["--bf16"] if case.precision == "bf16" else []
    return arguments + (["--compile"] if variant.compiled else [])


def run_torch(case, variant, tools):
    command = [str(word) for word in [tools.torch, "-B", *torch_arguments(case, variant, tools)]]
    # Compiling in helper processes would leave them running beside the measurement.
    environment = dict(tools.torch_environment, OMP_NUM_THREADS=str(variant.threads),
                       TORCHINDUCTOR_COMPILE_THREADS="1")
    if variant.ranks == 1:
        commands = [(command, environment)]
    else:
        world = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(variant.ranks)}
        commands = [(command, dict(environment, **world, RANK=str(rank), LOCAL_RANK=str(rank)))
                    for rank in range(variant.ranks)]
    result = json.loads(run_together(commands).strip().splitlines()[-1])
    if case.name == "seed":
        return Measurement(result["seconds"] / result["steps"])
    return Measurement(median_after_warming(result["step_seconds"]), result["parameters"], result["first_loss"])


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


# ---- the plain loop ----

def run_floor(case, _variant, tools):
    environment = dict(os.environ)
    # Would make OpenBLAS use another processor's kernels, and the floor too high.
    environment.pop("OPENBLAS_CORETYPE", None)
    result = json.loads(run_together([([str(tools.floor), str(case.model.epochs)], environment)]))
    return Measurement(result["seconds"] / result["steps"])


def check_same_work(case, results):
    """Raises BenchError when the language models of a case differ in size or in their first loss."""
    measured = {variant.name: m for variant, runs in results.items() for m in runs if m.parameters}
    for name, measurement in measured.items():
        if measurement.parameters != case.model.parameters:
            raise BenchError(f"{case.name}: {name} has {measurement.parameters} parameters, "
                             f"expected {case.model.parameters}")
    losses = [measurement.first_loss for measurement in measured.values()]
    if losses and max(losses) - min(losses) > FIRST_LOSS_TOLERANCE:
        raise BenchError(f"{case.name}: first losses differ: "
                         + ", ".join(f"{name} {m.first_loss:.3f}" for name, m in measured.items()))
