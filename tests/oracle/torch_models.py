"""The models of lockstep, written plainly in PyTorch over a dictionary of lockstep's parameters.

Each function returns logits, [positions x classes]. Nothing is fused, cached or rounded: computed in f64
they are what lockstep's kernels approximate.
"""
import math

import torch
import torch.nn.functional as F

from dropout_masks import EMBEDDING, FEED_FORWARD, PROJECTION, NoDropout


def mlp(weights, settings, features, _):
    x = features
    count = len(settings["layer_sizes"]) - 1
    for layer in range(count):
        x = x @ weights[f"layers.{layer}.weight"].T + weights[f"layers.{layer}.bias"]
        if layer + 1 < count:
            x = torch.relu(x)
    return x


def linear(weights, name, x):
    y = x @ weights[name + ".weight"].T
    bias = weights.get(name + ".bias")
    return y if bias is None else y + bias


def norm(weights, settings, name, x):
    epsilon = settings["norm_epsilon"]
    if settings["architecture"] == "llama":
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + epsilon) * weights[name + ".weight"]
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred / torch.sqrt(variance + epsilon) * weights[name + ".weight"] + weights[name + ".bias"]


def rotate(settings, x):
    """Turns pairs (i, i + head_dim / 2) of x [batch x heads x tokens x head_dim] by their position."""
    tokens, head_dim = x.shape[-2:]
    half = head_dim // 2
    frequency = settings["rope_theta"] ** (-2.0 * torch.arange(half, dtype=x.dtype) / head_dim)
    angle = torch.arange(tokens, dtype=x.dtype)[:, None] * frequency
    first, second = x[..., :half], x[..., half:]
    return torch.cat((first * angle.cos() - second * angle.sin(),
                      second * angle.cos() + first * angle.sin()), -1)


def attention(weights, settings, layer, x, dropout):
    prefix = f"layers.{layer}.attention."
    batch, tokens, hidden = x.shape
    heads = settings["num_heads"]
    kv_heads = settings["num_kv_heads"] or heads
    head_dim = hidden // heads

    def by_head(part, count):
        return part.reshape(batch, tokens, count, head_dim).transpose(1, 2)

    qkv = linear(weights, prefix + "qkv", x)
    q, k, v = qkv.split((heads * head_dim, kv_heads * head_dim, kv_heads * head_dim), -1)
    q, k, v = by_head(q, heads), by_head(k, kv_heads), by_head(v, kv_heads)
    if settings["architecture"] == "llama":
        q, k = rotate(settings, q), rotate(settings, k)
    k = k.repeat_interleave(heads // kv_heads, 1)
    v = v.repeat_interleave(heads // kv_heads, 1)
    scores = q @ k.transpose(-1, -2) / math.sqrt(head_dim)
    future = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    mixed = dropout.heads(layer, scores.masked_fill(future, -math.inf).softmax(-1)) @ v
    return linear(weights, prefix + "projection", mixed.transpose(1, 2).reshape(batch, tokens, hidden))


def feed_forward(weights, settings, prefix, x):
    if settings["architecture"] == "llama":
        gate, up = linear(weights, prefix + "gate_up", x).chunk(2, -1)
        inner = gate * torch.sigmoid(gate) * up
    else:
        inner = linear(weights, prefix + "up", x)
        inner = 0.5 * inner * (1 + torch.tanh(math.sqrt(2 / math.pi) * (inner + 0.044715 * inner ** 3)))
    return linear(weights, prefix + "down", inner)


def transformer(weights, settings, tokens, dropout):
    x = weights["embedding.weight"][tokens]
    if settings["architecture"] == "gpt2":
        x = x + weights["positions.weight"]
    x = dropout.rows(EMBEDDING, 0, x)
    for layer in range(settings["num_layers"]):
        prefix = f"layers.{layer}."
        attended = attention(weights, settings, layer, norm(weights, settings, prefix + "norm_1", x), dropout)
        x = x + dropout.rows(PROJECTION, layer, attended)
        fed = feed_forward(weights, settings, prefix + "ffn.", norm(weights, settings, prefix + "norm_2", x))
        x = x + dropout.rows(FEED_FORWARD, layer, fed)
    x = norm(weights, settings, "norm", x)
    head = weights["embedding.weight" if settings["tie_embeddings"] else "head.weight"]
    return (x @ head.T).flatten(0, 1)


def mean_loss(weights, settings, inputs, targets, dropout=NoDropout()):
    """Mean cross-entropy over the targets that are not negative, and the largest logit's magnitude."""
    model = mlp if settings["architecture"] == "mlp" else transformer
    logits = model(weights, settings, inputs, dropout)
    loss = F.cross_entropy(logits, targets.flatten(), ignore_index=-1)
    return loss, logits.detach().abs().max().item()
