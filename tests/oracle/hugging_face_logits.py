#!/usr/bin/env python3
"""Compares lockstep with transformers on small random GPT-2 and Llama models, both ways.

Usage: hugging_face_logits.py PROGRAM, where PROGRAM is the built tests/oracle/hugging_face_losses.
Needs torch and transformers (run with torch 2.15.0 and transformers 5.24.0).

For every model: transformers saves it; PROGRAM loads the folder and prints the loss of each target,
which must agree with transformers' in f64; PROGRAM exports it again; transformers loads the export,
in which every parameter must have the same bits and every loss the same value as before.
"""
import os
import pathlib
import subprocess
import sys
import tempfile

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers.utils.logging
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

VOCAB = 101
POSITIONS = 40


def gpt2(**changes):
    sizes = dict(n_layer=3, n_embd=48, n_head=6, n_positions=POSITIONS, vocab_size=VOCAB, n_inner=70,
                 bos_token_id=None, eos_token_id=None)
    return GPT2LMHeadModel(GPT2Config(**{**sizes, **changes}))


def llama(**changes):
    sizes = dict(num_hidden_layers=3, hidden_size=48, num_attention_heads=6, num_key_value_heads=2,
                 intermediate_size=70, max_position_embeddings=POSITIONS, vocab_size=VOCAB,
                 rope_parameters={"rope_theta": 500.0, "rope_type": "default"}, bos_token_id=None, eos_token_id=None)
    return LlamaForCausalLM(LlamaConfig(**{**sizes, **changes}))


# name: (model, dtype it is saved in, options of save_pretrained)
CASES = {
    "gpt2": (gpt2, torch.float32, {}),
    "gpt2 with its own head, in bf16": (lambda: gpt2(tie_word_embeddings=False), torch.bfloat16, {}),
    "gpt2 in f16, epsilon 1e-3": (lambda: gpt2(layer_norm_epsilon=1e-3), torch.float16, {}),
    "llama in several files": (llama, torch.float32, {"max_shard_size": "40KB"}),
    "llama, tied, one kv head": (lambda: llama(tie_word_embeddings=True, num_key_value_heads=1), torch.float32, {}),
    "llama in bf16, all heads": (lambda: llama(num_key_value_heads=6), torch.bfloat16, {}),
}


def randomise(model):
    """Values of trained sizes everywhere, so that biases, gains and swapped parts show in the losses."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 2:
                parameter.normal_(0, 0.15)
            else:
                parameter.normal_(1, 0.3)


def losses(model, ids):
    with torch.no_grad():
        logits = model(ids[None, :-1]).logits[0]
    return torch.nn.functional.cross_entropy(logits, ids[1:], reduction="none")


def load(folder, dtype):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.eval()


def check(program, name, make, dtype, options, blocks):
    model = make()
    randomise(model)
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        model.to(dtype).save_pretrained(folder / "saved", **options)
        ids = torch.randint(VOCAB, (POSITIONS + 1,))
        (folder / "tokens").write_text(" ".join(map(str, ids.tolist())))
        ran = subprocess.run([program, folder / "saved", folder / "tokens", str(blocks), folder / "exported"],
                             check=True, capture_output=True, text=True)
        ours = torch.tensor([float(line) for line in ran.stdout.split()], dtype=torch.float64)

        saved, exported = load(folder / "saved", torch.float32), load(folder / "exported", torch.float32)
        expected = losses(load(folder / "saved", torch.float64), ids)
        in_f32 = losses(saved, ids)
        there, here = dict(saved.named_parameters()), dict(exported.named_parameters())
        assert there.keys() == here.keys(), there.keys() ^ here.keys()
        for key, value in there.items():
            assert torch.equal(value.view(torch.int32), here[key].view(torch.int32)), key
        assert torch.equal(in_f32, losses(exported, ids)), "the export has other losses"
        for key in ("tie_word_embeddings", "vocab_size", "num_hidden_layers", "hidden_size", "num_attention_heads"):
            assert getattr(saved.config, key) == getattr(exported.config, key), key

        # Rounding in f32 grows with depth and sum lengths; transformers' own error in f32 is the yardstick.
        error = (ours - expected).abs().max().item()
        yardstick = (in_f32 - expected).abs().max().item()
        tolerance = 8 * max(yardstick, torch.finfo(torch.float32).eps * expected.max().item())
        print(f"{name}, {blocks} blocks: losses {expected.min():.2f} to {expected.max():.2f}, error {error:.1e} "
              f"(transformers in f32: {yardstick:.1e}), {len(there)} parameters equal")
        assert len(ours) == POSITIONS and error <= tolerance, (error, tolerance)


def main():
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.manual_seed(1)
    for name, (make, dtype, options) in CASES.items():
        for blocks in (1, 2, 3):
            check(sys.argv[1], name, make, dtype, options, blocks)


if __name__ == "__main__":
    main()
