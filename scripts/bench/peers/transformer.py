"""Trains a GPT-2 or a Llama with PyTorch on random tokens, on one GPU (or a CPU), and prints the seconds of a step as JSON.

The models are lockstep's: pre-norm blocks, gpt2 with biases, tanh GELU and learned positions, llama with RMS norms, rotary
positions, grouped keys and SwiGLU. So is the work of a step: forward, mean cross-entropy, backward, AdamW; no dropout, no
clipping. Weights are f32, products and the residual bf16 (autocast); with --pure-bf16 weights, gradients and moments are bf16.
Attention is scaled_dot_product_attention, AdamW the fused one. The steps after the warm-up are timed as one: nothing waits
for the device between them.
"""
import argparse
import json
import math
import time

import torch
from torch import nn
from torch.nn import functional
from torch.utils import checkpoint

DATA_TOKENS = 1 << 20
INITIAL_DEVIATION = 0.02
ROPE_THETA = 500000.0
EPSILON = 1e-5


class RmsNorm(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden))

    def forward(self, x):
        wide = x.float()
        scaled = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + EPSILON)
        return scaled.to(x.dtype) * self.weight.to(x.dtype)


def rotate(x, cos, sin):
    """Pairs (i, i + half) of every head; x is [batch, heads, tokens, head size]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.llama = shape.family == "llama"
        self.heads, self.kv_heads = shape.heads, shape.kv_heads
        self.head_size = shape.hidden // shape.heads
        norm = RmsNorm if self.llama else nn.LayerNorm
        biases = not self.llama
        self.attention_norm = norm(shape.hidden)
        self.qkv = nn.Linear(shape.hidden, (shape.heads + 2 * shape.kv_heads) * self.head_size, bias=biases)
        self.projection = nn.Linear(shape.hidden, shape.hidden, bias=biases)
        self.mlp_norm = norm(shape.hidden)
        self.up = nn.Linear(shape.hidden, (2 if self.llama else 1) * shape.ffn, bias=biases)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=biases)

    def attend(self, x, rotary):
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).view(batch, tokens, -1, self.head_size).transpose(1, 2)
        query, key, value = qkv.split((self.heads, self.kv_heads, self.kv_heads), dim=1)
        if self.llama:
            cos, sin = (table[:tokens].to(query.dtype) for table in rotary)
            query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        grouped = {"enable_gqa": True} if self.kv_heads != self.heads else {}
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, **grouped)
        return self.projection(mixed.transpose(1, 2).reshape(batch, tokens, -1))

    def feed(self, x):
        if not self.llama:
            return self.down(functional.gelu(self.up(x), approximate="tanh"))
        gate, up = self.up(x).chunk(2, dim=-1)
        return self.down(functional.silu(gate) * up)

    def forward(self, x, rotary):
        x = x + self.attend(self.attention_norm(x), rotary)
        return x + self.feed(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.recompute = shape.recompute
        llama = shape.family == "llama"
        self.tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.positions = None if llama else nn.Embedding(shape.seq_length, shape.hidden)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = RmsNorm(shape.hidden) if llama else nn.LayerNorm(shape.hidden)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        if shape.tied:
            self.head.weight = self.tokens.weight
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                residual = name.endswith(("projection.weight", "down.weight"))
                nn.init.normal_(parameter, 0, INITIAL_DEVIATION / math.sqrt(2 * shape.layers if residual else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)
        pairs = shape.hidden // shape.heads // 2
        frequencies = ROPE_THETA ** (-torch.arange(pairs).float() / pairs)
        angles = torch.arange(shape.seq_length).float()[:, None] * frequencies
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids, targets):
        x = self.tokens(ids)
        if self.positions is not None:
            x = x + self.positions.weight[:ids.shape[1]]
        x = x.bfloat16()  # the residual; under autocast it would stay f32
        rotary = (self.cos, self.sin)
        for block in self.blocks:
            x = checkpoint.checkpoint(block, x, rotary, use_reentrant=False) if self.recompute else block(x, rotary)
        logits = self.head(self.norm(x))
        return functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def make_optimizer(model):
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    vectors = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=3e-4, betas=(0.9, 0.95), eps=1e-8, fused=True)


class Trainer:
    def __init__(self, arguments):
        self.arguments = arguments
        self.device = torch.device(arguments.device)
        torch.manual_seed(1)
        with self.device:
            self.model = Transformer(arguments)
        if arguments.pure_bf16:
            self.model.bfloat16()
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.optimizer = make_optimizer(self.model)
        self.network = self.model if arguments.eager else torch.compile(self.model)
        self.data = torch.randint(arguments.vocab, (DATA_TOKENS,), generator=torch.Generator().manual_seed(1)).to(self.device)

    def batch(self):
        length = self.arguments.seq_length
        starts = torch.randint(DATA_TOKENS - length, (self.arguments.micro_batch,)).tolist()
        windows = torch.stack([self.data[start:start + length + 1] for start in starts])
        return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        passes = self.arguments.batch // self.arguments.micro_batch
        total = 0.0
        for _ in range(passes):
            ids, targets = self.batch()
            with torch.autocast(self.device.type, torch.bfloat16, enabled=not self.arguments.pure_bf16):
                loss = self.network(ids, targets)
            (loss / passes).backward()
            total = total + loss.detach() / passes
        self.optimizer.step()
        return total

    def wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def run(self):
        """Of a run: the first loss, the last one, and seconds a step after the warm-up."""
        first_loss = self.step().item()
        for _ in range(self.arguments.warm_steps - 1):
            self.step()
        self.wait()
        start = time.perf_counter()
        for _ in range(self.arguments.steps):
            last_loss = self.step()
        self.wait()
        seconds = (time.perf_counter() - start) / self.arguments.steps
        return first_loss, last_loss.item(), seconds


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--family", choices=("gpt2", "llama"), required=True)
    for name in ("layers", "hidden", "heads", "kv-heads", "ffn", "vocab", "seq-length", "batch", "micro-batch", "steps"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--warm-steps", type=int, default=5)
    parser.add_argument("--tied", action="store_true", help="the head is the embedding")
    parser.add_argument("--recompute", action="store_true", help="run blocks again in the backward pass")
    parser.add_argument("--pure-bf16", action="store_true", help="weights, gradients and moments in bf16")
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--device", default="cuda")
    return parser.parse_args()


def main():
    arguments = read_arguments()
    torch.set_float32_matmul_precision("high")
    trainer = Trainer(arguments)
    first_loss, last_loss, seconds = trainer.run()
    result = {"step_seconds": seconds, "parameters": trainer.parameters, "first_loss": first_loss, "last_loss": last_loss,
              "torch": torch.__version__}
    if trainer.device.type == "cuda":
        result.update(device=torch.cuda.get_device_name(), memory_bytes=torch.cuda.max_memory_allocated(),
                      reserved_bytes=torch.cuda.max_memory_reserved())
    print(json.dumps(result))


if __name__ == "__main__":
    main()
