"""What scripts/bench/training measures: models, the ways to run them, and what is promised."""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Gpt:
    """A GPT-2: biases, learned positions for seq_length tokens, tied head."""
    layers: int
    hidden: int
    heads: int
    vocab: int
    seq_length: int
    batch: int  # sequences a step, over all ranks

    @property
    def tokens(self):
        return self.batch * self.seq_length

    @property
    def parameters(self):
        matrices = 12 * self.hidden**2
        biases_and_norms = 13 * self.hidden
        return (self.vocab + self.seq_length + 2) * self.hidden + self.layers * (matrices + biases_and_norms)

    @property
    def flops(self):
        """Of a step: 6 for each weight that multiplies a token (the head's too) and attention, of which causality
        needs (seq_length + 1) / 2 keys a query: two products of 2 x hidden a key, three times with the backward."""
        weights = 12 * self.layers * self.hidden**2 + self.vocab * self.hidden
        attention = 12 * self.layers * self.hidden * (self.seq_length + 1) / 2
        return self.tokens * (6 * weights + attention)

    @property
    def optimizer_bytes(self):
        """Of AdamW: weight, gradient and two moments are read, all but the gradient are written, 4 bytes each."""
        return 28 * self.parameters


@dataclasses.dataclass(frozen=True)
class Seed:
    """The model of configs/seed-classifier.toml."""
    samples: int = 10_000
    batch: int = 64
    epochs: int = 10

    @property
    def steps(self):
        return self.epochs * -(-self.samples // self.batch)

    @property
    def tokens(self):
        """Samples of an average step: an epoch's last batch is smaller."""
        return self.samples * self.epochs / self.steps


@dataclasses.dataclass(frozen=True)
class Variant:
    side: str  # lockstep | torch | floor
    ranks: int
    threads: int  # of a rank
    compiled: bool = False
    feed: str = ""  # seed: how PyTorch makes its batches
    title: str = ""  # instead of the name made of the rest
    flags: tuple = ()  # (key, value) of lockstep beside those of the case

    @property
    def name(self):
        if self.title:
            return self.title
        if self.side == "floor":
            return "plain C++ loop, 1 process x 1 thread"
        words = [{"lockstep": "lockstep", "torch": "PyTorch"}[self.side]]
        if self.side == "torch":
            words += ["DDP"] if self.ranks > 1 else []
            words += [self.feed] if self.feed else ["compile" if self.compiled else "eager"]
        return f"{' '.join(words)}, {self.ranks} x {self.threads}"


@dataclasses.dataclass(frozen=True)
class Target:
    """Bounds (time of `of`) / (time of `against`), each the best variant that the function accepts."""
    text: str
    of: object
    against: object
    at_least: float = 0.0
    at_most: float = float("inf")


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    model: object
    precision: str
    variants: tuple
    targets: tuple


def is_ours(variant):
    return variant.side == "lockstep"


def is_torch(variant):
    return variant.side == "torch"


def is_floor(variant):
    return variant.side == "floor"


def is_ours_on_two_ranks(variant):
    return is_ours(variant) and variant.ranks == 2


def is_ddp(variant):
    return is_torch(variant) and variant.ranks == 2


def seed_case():
    ddp = [Variant("torch", 2, 1, feed=feed) for feed in ("loader", "index")]
    alone = [Variant("torch", 1, threads, feed=feed) for threads in (1, 2) for feed in ("loader", "index")]
    targets = [Target(f"2 ranks against DDP on 2 ranks, {variant.feed}", lambda v, ddp=variant: v == ddp,
                      is_ours_on_two_ranks, at_least=30) for variant in ddp]
    targets.append(Target("2 ranks over the plain C++ loop", is_ours_on_two_ranks, is_floor, at_most=2))
    variants = (Variant("lockstep", 2, 1), Variant("lockstep", 1, 1), Variant("floor", 1, 1), *ddp, *alone)
    return Case("seed", Seed(), "f32", variants, tuple(targets))


def gpt_case(name, model, precision, best, ddp=0.0):
    layouts = ((1, 2), (2, 1))
    variants = [Variant("lockstep", *layout) for layout in layouts]
    variants += [Variant("torch", *layout, compiled) for compiled in (False, True) for layout in layouts]
    targets = [Target("best against the best PyTorch", is_torch, is_ours, at_least=best)]
    if ddp:
        targets.append(Target("2 ranks against DDP on 2 ranks", is_ddp, is_ours_on_two_ranks, at_least=ddp))
    return Case(f"{name}-{precision}", model, precision, tuple(variants), tuple(targets))


GPT_10M = Gpt(layers=6, hidden=384, heads=6, vocab=65, seq_length=256, batch=12)
# GPT-2's size with a table of 64 positions instead of 1,024 (0.7 M parameters fewer), on both sides.
GPT2_124M = Gpt(layers=12, hidden=768, heads=12, vocab=50257, seq_length=64, batch=4)

CASES = (
    seed_case(),
    gpt_case("gpt-10m", GPT_10M, "f32", best=2.0),
    gpt_case("gpt-10m", GPT_10M, "bf16", best=1.5),
    gpt_case("gpt2-124m", GPT2_124M, "f32", best=1.9, ddp=2.2),
    gpt_case("gpt2-124m", GPT2_124M, "bf16", best=1.4, ddp=2.2),
)


def select(names):
    """The cases that are named, or whose name starts with a given name and a dash; all without names."""
    if not names:
        return list(CASES)
    for name in names:
        if not any(case.name == name or case.name.startswith(name + "-") for case in CASES):
            raise ValueError(f"no case '{name}'; valid: gpt-10m, gpt2-124m, {', '.join(case.name for case in CASES)}")
    return [case for case in CASES if any(case.name == n or case.name.startswith(n + "-") for n in names)]
