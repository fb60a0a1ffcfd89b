"""What scripts/bench/gpu_train measures: models, what a step of theirs computes, and what GPUs can do at most."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Transformer:
    family: str  # gpt2: biases, learned positions; llama: RMS norm, rotary positions, SwiGLU
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    ffn: int
    vocab: int
    seq_length: int
    batch: int  # sequences a step
    micro_batch: int  # sequences a forward pass, a divisor of batch
    tied: bool = True

    @property
    def tokens(self):
        return self.batch * self.seq_length

    @property
    def layer_weights(self):
        """Elements of a layer's matrices."""
        key = self.hidden // self.heads * self.kv_heads
        matrices = 3 if self.family == "llama" else 2
        return self.hidden * (2 * self.hidden + 2 * key + matrices * self.ffn)

    @property
    def parameters(self):
        if self.family == "llama":
            return (self.vocab * self.hidden * (1 if self.tied else 2) + self.hidden
                    + self.layers * (self.layer_weights + 2 * self.hidden))
        biases_and_norms = (3 + 1 + 1 + 4) * self.hidden + self.ffn  # qkv, projection, down, two norms; up
        return ((self.vocab + self.seq_length + 2) * self.hidden
                + self.layers * (self.layer_weights + biases_and_norms))

    @property
    def flops(self):
        """Of a step, recomputation left out: 6 for each weight that multiplies a token (the head's too) and attention, of
        which causality needs (seq_length + 1) / 2 keys a query: two products of 2 x hidden a key, three times with the
        backward pass."""
        weights = self.layers * self.layer_weights + self.vocab * self.hidden
        attention = 12 * self.layers * self.hidden * (self.seq_length + 1) / 2
        return self.tokens * (6 * weights + attention)


def gpt2(layers, hidden, heads, **sizes):
    return Transformer("gpt2", layers, hidden, heads, heads, 4 * hidden, **{"vocab": 50257, "seq_length": 1024, **sizes})


# Batches fit on cards of 80 GB, but for Llama 8B, whose weights, gradients and moments alone are 18 bytes a parameter.
CASES = {
    "gpt2-124m": gpt2(12, 768, 12, batch=32, micro_batch=32),
    "gpt2-1.5b": gpt2(48, 1600, 25, batch=8, micro_batch=8),
    "llama-1b": Transformer("llama", 16, 2048, 32, 8, 8192, 128256, 2048, batch=4, micro_batch=4),
    "llama-8b": Transformer("llama", 32, 4096, 32, 8, 14336, 128256, 2048, batch=4, micro_batch=1, tied=False),
    # For trying things out, on a CPU too.
    "tiny-gpt2": gpt2(2, 64, 4, vocab=300, seq_length=32, batch=4, micro_batch=2),
    "tiny-llama": Transformer("llama", 2, 64, 4, 2, 192, 300, 32, batch=4, micro_batch=2, tied=False),
}
STANDARD = ("gpt2-124m", "gpt2-1.5b", "llama-1b", "llama-8b")
RECOMPUTE = ("none", "selective", "full")  # the first that fits is taken

# Dense bf16 products with f32 sums, TFLOP/s. NVIDIA's data sheets give most of these with sparsity, which is twice that.
# The first whose words a card's name contains counts.
BF16_PEAKS = (
    ("B200", 2250.0, "DGX B200 data sheet: 4.5 PFLOPS a GPU with sparsity"),
    ("H200 NVL", 835.5, "H200 data sheet, NVL: 1,671 with sparsity"),
    ("H200", 989.5, "H200 data sheet, SXM: 1,979 with sparsity"),
    ("GH200", 989.5, "GH200 data sheet: 1,979 with sparsity"),
    ("H100 NVL", 835.5, "H100 data sheet, NVL: 1,671 with sparsity"),
    ("H100 PCIe", 756.5, "H100 data sheet, PCIe: 1,513 with sparsity"),
    ("H100", 989.5, "H100 data sheet, SXM: 1,979 with sparsity"),
    ("A100", 312.0, "A100 data sheet: 312, 624 with sparsity"),
    ("L40S", 362.05, "L40S data sheet: 362.05, 733 with sparsity"),
    ("L4", 121.0, "L4 data sheet: 242 with sparsity"),
    ("A40", 149.7, "A40 data sheet: 149.7, 299.4 with sparsity"),
    ("A10", 125.0, "A10 data sheet: 125, 250 with sparsity"),
)


def bf16_peak(name):
    """(TFLOP/s, source) of a card called `name`; (None, reason) where it is not in the table."""
    for part, tflops, source in BF16_PEAKS:
        if f" {part} " in f" {name.replace('-', ' ')} ":
            return tflops, source
    return None, f"no peak of '{name}' in gpu_cases.py"


def select(names):
    """Cases by name, all standard ones without names. Raises ValueError."""
    for name in names:
        if name not in CASES:
            raise ValueError(f"no model '{name}'; valid: {', '.join(CASES)}")
    return {name: CASES[name] for name in names or STANDARD}
