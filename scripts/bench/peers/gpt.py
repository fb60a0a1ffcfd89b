"""Trains a GPT-2 with PyTorch on random tokens and prints the seconds of its steps as JSON.

The model is that of lockstep's "gpt2": pre-norm blocks with biases, tanh GELU, learned positions, tied head. So is
the work of a step: forward, mean cross-entropy, backward, AdamW; no dropout, no clipping. With WORLD_SIZE set it is
one rank of DistributedDataParallel over gloo, and --batch is that of all ranks.
"""
import argparse
import json
import math
import os
import time

import torch
from torch import distributed, nn
from torch.nn import functional

DATA_TOKENS = 1 << 18
INITIAL_DEVIATION = 0.02


class Block(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(hidden)
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.projection = nn.Linear(hidden, hidden)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.up = nn.Linear(hidden, 4 * hidden)
        self.down = nn.Linear(4 * hidden, hidden)

    def forward(self, x):
        batch, tokens, hidden = x.shape
        qkv = self.qkv(self.attention_norm(x)).view(batch, tokens, 3, self.heads, hidden // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(functional.gelu(self.up(self.mlp_norm(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = nn.Embedding(shape.seq_length, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape.hidden, shape.heads) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("projection.weight", "down.weight"))
                nn.init.normal_(parameter, 0, INITIAL_DEVIATION / math.sqrt(2 * shape.layers if residual else 1))
            elif name.endswith(("qkv.bias", "projection.bias", "up.bias", "down.bias")):
                nn.init.zeros_(parameter)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("layers", "hidden", "heads", "vocab", "seq-length", "batch", "threads", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--bf16", action="store_true", help="autocast")
    parser.add_argument("--compile", action="store_true", help="torch.compile")
    return parser.parse_args()


def main():
    arguments = read_arguments()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(1)
    if ranks > 1:
        distributed.init_process_group("gloo")
    model = Gpt(arguments)
    parameters = sum(p.numel() for p in model.parameters())
    if ranks > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    optimizer = make_optimizer(model)
    network = torch.compile(model) if arguments.compile else model

    length = arguments.seq_length
    data = torch.randint(arguments.vocab, (DATA_TOKENS,), generator=torch.Generator().manual_seed(rank))

    def next_batch():
        starts = torch.randint(DATA_TOKENS - length, (arguments.batch // ranks,)).tolist()
        windows = torch.stack([data[start:start + length + 1] for start in starts])
        return windows[:, :-1], windows[:, 1:]

    seconds, losses = [], []
    for _ in range(arguments.steps):
        if ranks > 1:
            distributed.barrier()
        start = time.perf_counter()
        ids, targets = next_batch()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
            loss = network(ids, targets)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if ranks > 1:
            distributed.barrier()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"step_seconds": seconds, "parameters": parameters, "first_loss": losses[0],
                          "last_loss": losses[-1]}))
    if ranks > 1:
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
