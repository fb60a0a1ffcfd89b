"""Writes lockstep's parameters as a Hugging Face folder, as transformers names and lays them out."""
import json

import numpy as np

import lockstep_files

GPT2_MODULES = {"norm_1": "ln_1", "attention.qkv": "attn.c_attn", "attention.projection": "attn.c_proj",
                "norm_2": "ln_2", "ffn.up": "mlp.c_fc", "ffn.down": "mlp.c_proj"}
LLAMA_MODULES = {"norm_1": "input_layernorm", "attention.projection": "self_attn.o_proj",
                 "norm_2": "post_attention_layernorm", "ffn.down": "mlp.down_proj"}
GPT2_TOP = {"embedding.weight": "transformer.wte.weight", "positions.weight": "transformer.wpe.weight",
            "norm.weight": "transformer.ln_f.weight", "norm.bias": "transformer.ln_f.bias",
            "head.weight": "lm_head.weight"}
LLAMA_TOP = {"embedding.weight": "model.embed_tokens.weight", "norm.weight": "model.norm.weight",
             "head.weight": "lm_head.weight"}


def gpt2_config(settings):
    return {"model_type": "gpt2", "n_layer": settings["model.num_layers"], "n_embd": settings["model.hidden_size"],
            "n_head": settings["model.num_heads"], "n_inner": settings["model.ffn_hidden_size"],
            "n_positions": settings["model.seq_length"], "layer_norm_epsilon": settings["model.norm_epsilon"],
            "activation_function": "gelu_new"}


def llama_config(settings):
    return {"model_type": "llama", "num_hidden_layers": settings["model.num_layers"],
            "hidden_size": settings["model.hidden_size"], "num_attention_heads": settings["model.num_heads"],
            "num_key_value_heads": settings["model.num_kv_heads"] or settings["model.num_heads"],
            "intermediate_size": settings["model.ffn_hidden_size"], "hidden_act": "silu",
            "max_position_embeddings": settings["model.seq_length"],
            "rms_norm_eps": settings["model.norm_epsilon"], "rope_theta": settings["model.rope_theta"]}


def gpt2_tensors(weights):
    for name, value in weights.items():
        if name in GPT2_TOP:
            yield GPT2_TOP[name], value
            continue
        _, layer, rest = name.split(".", 2)
        module, kind = rest.rsplit(".", 1)
        yield f"transformer.h.{layer}.{GPT2_MODULES[module]}.{kind}", value.T  # Conv1D: [in x out]


def llama_tensors(settings, weights):
    hidden = settings["model.hidden_size"]
    key = hidden // settings["model.num_heads"] * (settings["model.num_kv_heads"] or settings["model.num_heads"])
    for name, value in weights.items():
        if name in LLAMA_TOP:
            yield LLAMA_TOP[name], value
            continue
        _, layer, rest = name.split(".", 2)
        module = rest.rsplit(".", 1)[0]
        prefix = f"model.layers.{layer}."
        if module == "attention.qkv":
            for letter, part in zip("qkv", np.split(value, (hidden, hidden + key))):
                yield f"{prefix}self_attn.{letter}_proj.weight", part
        elif module == "ffn.gate_up":
            for word, part in zip(("gate", "up"), np.split(value, 2)):
                yield f"{prefix}mlp.{word}_proj.weight", part
        else:
            yield f"{prefix}{LLAMA_MODULES[module]}.weight", value


def write(folder, settings, weights):
    """weights: lockstep's name -> array; settings: configuration key -> value."""
    gpt2 = settings["model.architecture"] == "gpt2"
    config = gpt2_config(settings) if gpt2 else llama_config(settings)
    config.update(vocab_size=settings["model.vocab_size"], tie_word_embeddings=settings["model.tie_embeddings"])
    tensors = dict(gpt2_tensors(weights) if gpt2 else llama_tensors(settings, weights))
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    lockstep_files.write_safetensors(folder / "model.safetensors", tensors)
