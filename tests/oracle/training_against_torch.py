#!/usr/bin/env python3
"""Trains a small model with lockstep and with PyTorch in f64 and compares loss, norm and weights.

Usage: training_against_torch.py --lockstep PROGRAM (--case NAME | --all | --list)

Transformers start from random weights in a Hugging Face folder: gains and biases are trained ones then, and
attention looks at something. An mlp, which there is no such folder for, starts from lockstep's own initial
weights, which a step with a learning rate of 0 leaves in a checkpoint.
PyTorch computes in f64, so that what is measured is lockstep's rounding. Prints the largest deviation of each
kind beside its bound; fails beyond the bound. Needs: python3-torch, python3-numpy.

The bounds. u is the unit roundoff of the dtype in which layers keep their results (f32: 2^-24, bf16: 2^-8,
that is half an epsilon), w that of f32, in which sums are taken.
- A result passes through stages. Each rounds it once to the dtype and, where it is a sum of k products, also
  rounds k times in f32; products also read weights that were rounded. Roundings are independent, so that their
  squares add: eta^2 = sum over stages of (2 u^2 + k w^2), from the tokens to the logits and back to a gradient.
- Units of a ReLU closer to zero than eta of their size are on in one program and off in the other; such a
  term of a gradient is wrong altogether. A share eta of independent terms makes an error of sqrt(eta) of
  their sum. In f32 not one of all units is expected to be so close, and the term is left out.
- Loss: errors of logits enter it with at most their own size. Each value of a stage is rounded by itself and the
  loss depends on all of them, at least as many as the narrowest stage is wide: eta / sqrt(width). (Averaging
  over tokens is not counted on: all share the rounded weights.) In addition the weights have drifted: an error
  of eta in every update is one of eta * |moved| in their sum, where moved = weights - initial weights, and
  changes the loss by at most |gradient| * eta * |moved|.
- Norm: eta / sqrt(width) of itself, for the same reason; and the drift: moving all the way has changed the
  gradient by at most |gradient| + |first gradient|, so that eta of the movement so far changes it by its share.
- Weights: SGD moves one by the sum of lr * velocity, each with an error of eta of the largest. AdamW moves it
  by the sum of lr * m / (sqrt(v) + epsilon). An element's gradient errs by eta of itself and by eta of its
  tensor's root mean square (its terms are of that size, even when they cancel); hence the update errs by
  eta * (1 + rms / epsilon). So the cases have an epsilon near the size of gradients: with a tiny one, elements
  whose gradient is exactly zero (biases of keys) would be moved by rounding errors of full size.
  Weights are also rounded to f32 once an update.
Thousands of values are compared, so each bound is SAFETY standard deviations.

All this holds where the model is smooth on the scale of a step. RMSNorm is not near a vector of zeros: when rows of
an embedding are so small that an update may carry them past zero, PyTorch in f64 changes its own norm by 2e-4
when the initial weights change by one f32 rounding. So embeddings start 50 times as large as an update.
"""
import argparse
import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch

import dropout_masks
import hugging_face_folder
import lockstep_files
import torch_models

STEPS = 20
BATCH = 6
MICRO_BATCH = 4  # the second of a batch has two
SAMPLES = 50  # 20 batches of 6 go through them more than twice
SAFETY = 4.0
F32_ROUNDOFF = 2.0 ** -24
ROUNDOFF = {"f32": F32_ROUNDOFF, "bf16": 2.0 ** -8}
F32_RELATIVE = 1e-5  # what is promised in f32 for loss and norm, whatever the derived bound

TRANSFORMER = {
    "model.num_layers": 3, "model.hidden_size": 72, "model.num_heads": 6, "model.num_kv_heads": 6,
    "model.ffn_hidden_size": 171, "model.seq_length": 24, "model.vocab_size": 101,
    "model.tie_embeddings": True, "model.norm_epsilon": 1e-5, "model.rope_theta": 10000.0}
MLP = {"model.architecture": "mlp", "model.layer_sizes": [35, 31, 17, 13, 10], "data.kind": "images"}
GPT2 = {**TRANSFORMER, "model.architecture": "gpt2"}
LLAMA = {**TRANSFORMER, "model.architecture": "llama", "model.num_kv_heads": 2, "model.tie_embeddings": False}
ADAMW = {"optimizer.name": "adamw", "optimizer.lr": 4e-3, "optimizer.weight_decay": 0.1, "optimizer.beta1": 0.9,
         "optimizer.beta2": 0.95, "optimizer.epsilon": 1e-3, "optimizer.momentum": 0.0}
SGD = {"optimizer.name": "sgd", "optimizer.lr": 0.1, "optimizer.momentum": 0.9, "optimizer.weight_decay": 0.01}
COMMON = {
    "data.shuffle": False, "data.ignore_token": -1, "train.steps": STEPS, "train.global_batch_size": BATCH,
    "train.micro_batch_size": MICRO_BATCH, "train.eval_interval": 0, "log.interval": 1, "log.progress": False,
    "log.tensorboard": False, "run.threads": 1, "run.seed": 3, "run.precision": "f32",
    "checkpoint.interval": 0, "checkpoint.async": False, "lr_schedule.name": "cosine",
    "lr_schedule.warmup_steps": 5, "lr_schedule.min_lr": 4e-4, "parallel.virtual_tensor": 1}

CASES = {
    "mlp_sgd": {**MLP, **SGD, "optimizer.grad_clip": 0.5},
    "mlp_adamw": {**MLP, **ADAMW, "optimizer.grad_clip": 0.5, "parallel.virtual_tensor": 2},
    "mlp_masked_bf16": {**MLP, **SGD, "optimizer.grad_clip": 0.5, "run.precision": "bf16",
                        "data.ignore_token": 7},
    "gpt2_tied": {**GPT2, **ADAMW, "optimizer.grad_clip": 1.0},
    "gpt2_untied_two_blocks": {**GPT2, **ADAMW, "optimizer.grad_clip": 1.0, "model.tie_embeddings": False,
                               "parallel.virtual_tensor": 2},
    "gpt2_tied_masked_two_blocks": {**GPT2, **ADAMW, "optimizer.grad_clip": 2.0, "data.ignore_token": 7,
                                    "parallel.virtual_tensor": 2, "parallel.virtual_data": 2},
    "gpt2_dropout": {**GPT2, **ADAMW, "optimizer.grad_clip": 1.0, "model.dropout": 0.2},
    "gpt2_dropout_masked_two_blocks": {**GPT2, **SGD, "optimizer.grad_clip": 1.0, "model.dropout": 0.1, "data.ignore_token": 7,
                                       "model.tie_embeddings": False, "parallel.virtual_tensor": 2, "parallel.virtual_data": 2},
    "gpt2_dropout_bf16": {**GPT2, **ADAMW, "optimizer.grad_clip": 1.0, "model.dropout": 0.1, "run.precision": "bf16",
                          "parallel.virtual_tensor": 2, "train.recompute": "full"},
    "gpt2_bf16": {**GPT2, **ADAMW, "optimizer.grad_clip": 1.0, "run.precision": "bf16"},
    "llama_untied": {**LLAMA, **ADAMW, "optimizer.grad_clip": 1.4},
    "llama_tied_masked": {**LLAMA, **ADAMW, "optimizer.grad_clip": 4.0, "model.tie_embeddings": True,
                          "data.ignore_token": 7},
    "llama_two_blocks": {**LLAMA, **ADAMW, "optimizer.grad_clip": 1.4, "parallel.virtual_tensor": 2},
    "llama_bf16_two_blocks": {**LLAMA, **ADAMW, "optimizer.grad_clip": 1.4, "run.precision": "bf16",
                              "parallel.virtual_tensor": 2},
    # Four blocks share a kv head, of which one has no query head; then two.
    "llama_eight_blocks": {**LLAMA, **ADAMW, "optimizer.grad_clip": 1.4, "parallel.virtual_tensor": 8},
    "llama_bf16_four_blocks": {**LLAMA, **ADAMW, "optimizer.grad_clip": 1.4, "run.precision": "bf16",
                               "parallel.virtual_tensor": 4},
}


def text_of(value):
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def run_lockstep(program, settings):
    command = [str(program), "train"]
    for key, value in settings.items():
        command += ["--" + key, text_of(value)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout}\nexit status {done.returncode}")


class Data:
    """Random samples, written for lockstep and kept for PyTorch; inputs and targets by sample."""

    def __init__(self, settings, folder):
        random = np.random.default_rng(5)
        if settings["model.architecture"] == "mlp":
            images = random.integers(0, 256, (SAMPLES, 5, 7))
            labels = random.integers(0, 10, SAMPLES)
            lockstep_files.write_images(folder, images, labels)
            self.path = folder
            self.inputs = torch.tensor(images.reshape(SAMPLES, 35) / 255.0)
            targets = labels
        else:
            tokens_a_sample = settings["model.seq_length"]
            ids = random.integers(0, 101, SAMPLES * tokens_a_sample + 1)
            ids[random.random(ids.size) < 0.25] = 7  # frequent, so that masking it leaves out a good part
            self.path = folder / "train.bin"
            lockstep_files.write_tokens(self.path, ids)
            self.inputs = torch.tensor(ids[:-1].reshape(SAMPLES, tokens_a_sample))
            targets = ids[1:].reshape(SAMPLES, tokens_a_sample)
        self.targets = torch.tensor(np.where(targets == settings["data.ignore_token"], -1, targets))

    def batch(self, step):
        samples = [sample % SAMPLES for sample in range(step * BATCH, (step + 1) * BATCH)]
        return self.inputs[samples], self.targets[samples]


def learning_rate(settings, step):
    peak, low = settings["optimizer.lr"], settings["lr_schedule.min_lr"]
    warmup = settings["lr_schedule.warmup_steps"]
    if step < warmup:
        return peak * (step + 1) / warmup
    return low + (peak - low) * (1 + math.cos(math.pi * (step - warmup) / (STEPS - warmup))) / 2


def make_optimizer(settings, parameters):
    decay = settings["optimizer.weight_decay"]
    groups = [{"params": [p for p in parameters if p.dim() >= 2], "weight_decay": decay},
              {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0}]
    if settings["optimizer.name"] == "sgd":
        return torch.optim.SGD(groups, lr=0.0, momentum=settings["optimizer.momentum"])
    return torch.optim.AdamW(groups, lr=0.0, eps=settings["optimizer.epsilon"],
                             betas=(settings["optimizer.beta1"], settings["optimizer.beta2"]))


def dropout_of(settings, step):
    if "model.dropout" not in settings:
        return dropout_masks.NoDropout()
    return dropout_masks.Dropout(settings["model.dropout"], settings["run.seed"], step)


class Reference:
    """Trains in f64 and notes by step what is compared, and by parameter what the bounds need."""

    def __init__(self, settings, data, initial):
        self.weights = {name: torch.tensor(value, requires_grad=True) for name, value in initial.items()}
        self.loss, self.norm, self.largest_logit, self.moved = [], [], [], []
        self.update_error = dict.fromkeys(initial, 0.0)  # sum over the steps, in units of eta
        model = {key.split(".", 1)[1]: value for key, value in settings.items() if key.startswith("model.")}
        parameters = list(self.weights.values())
        optimizer = make_optimizer(settings, parameters)
        for step in range(STEPS):
            moved = sum(((self.weights[name].detach() - torch.tensor(value)) ** 2).sum().item()
                        for name, value in initial.items())
            for group in optimizer.param_groups:
                group["lr"] = learning_rate(settings, step)
            optimizer.zero_grad()
            loss, largest_logit = torch_models.mean_loss(self.weights, model, *data.batch(step),
                                                         dropout_of(settings, step))
            loss.backward()
            self.norm.append(torch.nn.utils.clip_grad_norm_(parameters, settings["optimizer.grad_clip"]).item())
            optimizer.step()
            self.loss.append(loss.item())
            self.largest_logit.append(largest_logit)
            self.moved.append(math.sqrt(moved))
            self.note_update_errors(settings, optimizer, learning_rate(settings, step))

    def note_update_errors(self, settings, optimizer, lr):
        for name, weight in self.weights.items():
            if settings["optimizer.name"] == "sgd":
                error = optimizer.state[weight]["momentum_buffer"].abs().max().item()
            else:
                error = 1 + weight.grad.pow(2).mean().sqrt().item() / settings["optimizer.epsilon"]
            self.update_error[name] += lr * error


def stages_of(settings):
    """Of one way, from the tokens to the logits: their number, the lengths of their sums, the smallest width."""
    if settings["model.architecture"] == "mlp":
        sizes = settings["model.layer_sizes"]
        return 2 * (len(sizes) - 1), sizes[:-1], min(sizes)  # a product and an activation a layer
    hidden, ffn = settings["model.hidden_size"], settings["model.ffn_hidden_size"]
    # A block: norm, qkv, its bias or rotation, softmax, means of v, projection, residual;
    # norm, up, activation, down, residual. Around them: embedding, last norm, head.
    layers = settings["model.num_layers"]
    sums = layers * [hidden, hidden, hidden, settings["model.seq_length"], hidden, hidden, hidden, ffn]
    # Dropout: of the embedding, of probabilities, and of what joins the residual, which is rounded before.
    dropout = 5 * layers + 1 if "model.dropout" in settings else 0
    return 12 * layers + 3 + dropout, sums + [hidden, hidden], hidden


def relative_error(settings):
    """eta of a logit, and eta of a gradient (there and back, and ReLU's units)."""
    stages, sums, _ = stages_of(settings)
    square = stages * 2 * ROUNDOFF[settings["run.precision"]] ** 2 + sum(sums) * F32_ROUNDOFF ** 2
    forward, gradient = math.sqrt(square), math.sqrt(2 * square)
    if settings["model.architecture"] == "mlp":
        units = sum(settings["model.layer_sizes"][1:-1]) * BATCH * STEPS
        if forward * units > 0.1:
            gradient = math.sqrt(2 * square + forward)
    return forward, gradient


class Comparison:
    """The largest deviation of a kind, as a share of its bound."""

    def __init__(self, kind):
        self.kind, self.share, self.deviation, self.bound, self.where = kind, -1.0, 0.0, 0.0, ""

    def add(self, deviation, bound, where):
        share = deviation / bound if math.isfinite(deviation) else math.inf
        if share > self.share:
            self.share, self.deviation, self.bound, self.where = share, deviation, bound, where

    def report(self):
        verdict = "ok" if self.share <= 1 else "BEYOND ITS BOUND"
        print(f"  {self.kind:8} {self.deviation:.2e} of {self.bound:.2e} at {self.where}: {verdict}")
        return self.share <= 1


def compare(settings, lines, final, reference, initial):
    logit_eta, eta = relative_error(settings)
    width = stages_of(settings)[2]
    in_f32 = settings["run.precision"] == "f32"
    loss, norm, rate, weight = (Comparison(kind) for kind in ("loss", "norm", "lr", "weights"))
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1)), "not every step has its line"
    for step, line in enumerate(lines):
        expected_loss, expected_norm = reference.loss[step], reference.norm[step]
        drift = eta * reference.moved[step]
        moved_share = reference.moved[step] / reference.moved[-1]
        loss_bound = SAFETY * (logit_eta * reference.largest_logit[step] / math.sqrt(width)
                               + drift * expected_norm) / expected_loss
        norm_bound = SAFETY * eta * (1 / math.sqrt(width)
                                     + moved_share * (1 + reference.norm[0] / expected_norm))
        if in_f32:
            loss_bound, norm_bound = min(loss_bound, F32_RELATIVE), min(norm_bound, F32_RELATIVE)
        where = f"step {step + 1}"
        loss.add(abs(line["loss"] - expected_loss) / expected_loss, loss_bound, where)
        norm.add(abs(line["grad_norm"] - expected_norm) / expected_norm, norm_bound, where)
        expected_rate = learning_rate(settings, step)
        rate.add(abs(line["lr"] - expected_rate), 4 * 2.0 ** -52 * settings["optimizer.lr"], where)
    assert final.keys() == initial.keys(), "parameters have other names than at the start"
    for name, value in final.items():
        expected = reference.weights[name].detach().numpy()
        rounding = math.sqrt(STEPS) * F32_ROUNDOFF * np.abs(expected).max()
        bound = SAFETY * (eta * reference.update_error[name] + rounding)
        weight.add(np.abs(value - expected).max(), bound, name)
    clipped = sum(norm > settings["optimizer.grad_clip"] for norm in reference.norm)
    print(f"  loss {reference.loss[0]:.3f} to {reference.loss[-1]:.3f}, norm {min(reference.norm):.2f} to "
          f"{max(reference.norm):.2f}, {clipped} of {STEPS} steps clipped, eta {eta:.1e}")
    assert 0 < clipped < STEPS, "choose grad_clip so that some steps are clipped and some are not"
    return all([comparison.report() for comparison in (loss, norm, rate, weight)])


def draw_weights(settings):
    """Random weights of a transformer, f32 values: of a size at which its activations are of order one."""
    hidden, vocab = settings["model.hidden_size"], settings["model.vocab_size"]
    ffn, llama = settings["model.ffn_hidden_size"], settings["model.architecture"] == "llama"
    head_dim = hidden // settings["model.num_heads"]
    key = head_dim * (settings["model.num_kv_heads"] or settings["model.num_heads"])
    random = np.random.default_rng(11)
    weights = {}

    def add(name, shape, deviation, mean=0.0):
        weights[name] = (mean + deviation * random.standard_normal(shape)).astype(np.float32).astype(np.float64)

    def add_linear(name, outputs, inputs):
        add(name + ".weight", (outputs, inputs), inputs ** -0.5)
        if not llama:
            add(name + ".bias", (outputs,), 0.1)

    def add_norm(name):
        add(name + ".weight", (hidden,), 0.2, 1.0)
        if not llama:
            add(name + ".bias", (hidden,), 0.1)

    add("embedding.weight", (vocab, hidden), 0.2)
    if not llama:
        add("positions.weight", (settings["model.seq_length"], hidden), 0.2)
    for layer in range(settings["model.num_layers"]):
        add_norm(f"layers.{layer}.norm_1")
        add_linear(f"layers.{layer}.attention.qkv", hidden + 2 * key, hidden)
        add_linear(f"layers.{layer}.attention.projection", hidden, hidden)
        add_norm(f"layers.{layer}.norm_2")
        add_linear(f"layers.{layer}.ffn.gate_up" if llama else f"layers.{layer}.ffn.up", 2 * ffn if llama else ffn,
                   hidden)
        add_linear(f"layers.{layer}.ffn.down", hidden, ffn)
    add_norm("norm")
    if not settings["model.tie_embeddings"]:
        add("head.weight", (vocab, hidden), 0.05)
    return weights


def run_without_moving(program, settings, run):
    """lockstep's own initial weights."""
    still = {"optimizer.lr": 0.0, "lr_schedule.min_lr": 0.0, "lr_schedule.warmup_steps": 0, "train.steps": 1}
    run_lockstep(program, {**settings, **still, "train.output_dir": run})
    return lockstep_files.read_weights(run)


def run_case(program, name):
    settings = {**COMMON, **CASES[name]}
    print(name)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        data = Data(settings, folder)
        settings["data.train"] = data.path
        if settings["model.architecture"] != "mlp":
            initial = draw_weights(settings)
            hugging_face_folder.write(folder / "model", settings, initial)
            settings["model.init_from"] = folder / "model"
        else:
            initial = run_without_moving(program, settings, folder / "start")
        run_lockstep(program, {**settings, "train.output_dir": folder / "run"})
        reference = Reference(settings, data, initial)
        return compare(settings, lockstep_files.read_train_lines(folder / "run"),
                       lockstep_files.read_weights(folder / "run"), reference, initial)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lockstep", type=pathlib.Path, help="the program")
    choice = parser.add_mutually_exclusive_group(required=True)
    choice.add_argument("--case", choices=CASES)
    choice.add_argument("--all", action="store_true")
    choice.add_argument("--list", action="store_true", help="print the names of the cases")
    arguments = parser.parse_args()
    if arguments.list:
        print("\n".join(CASES))
        return
    if arguments.lockstep is None:
        parser.error("--lockstep is missing")
    torch.set_num_threads(1)
    names = CASES if arguments.all else [arguments.case]
    if not all([run_case(arguments.lockstep, name) for name in names]):
        sys.exit(1)


if __name__ == "__main__":
    main()
