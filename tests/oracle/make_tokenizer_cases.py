#!/usr/bin/env python3
"""Writes tests/oracle/data/tokenizer/: a small byte-level BPE and the ids it gives to hard texts.

Needs the package `tokenizers`; the files hold the version that made them. The C++ tests read the
files and need no Python.
"""
import json
import pathlib

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).parent / "data" / "tokenizer"

PROSE = """The harbour lay still under a thin grey sky, and the boats that had come in before dawn
were already empty. A woman counted the baskets twice, because the first time the numbers didn't
agree: 12 of herring, 7 of mackerel, and one that nobody would own to. "It's not ours," they said,
and they'll say it again tomorrow. The gulls were of another opinion.
By noon the wind had turned. Someone'd left a rope across the steps, and the children, who weren't
looking, went over it one after another and laughed; we're told that this happens every year in
1904, 1905 and 1906 alike. The keeper of the light wrote it all down in his book, in a small and
upright hand: the wind, the weather, the height of the water, the names of the ships.
In the evening there was music. Die alte Frau sang ein Lied über die Straße nach Süden, et le
garçon répondait en français. The rain began at ten o'clock and the harbour was still again.
"""

TEXTS = [
    "",
    "a",
    " ",
    "The harbour was still again.",
    "don't we're they'll I've it's I'd I'm DON'T WE'RE THEY'LL 'tis 's'",
    "   leading and trailing   ",
    "two  spaces   three    four\ttab\t\ttabs",
    "line\nline\n\nline\n\n\n   indented\n\tfoo\n",
    "windows\r\nline\r\n\r\nends\r\n",
    "end in spaces  \n  and more  \n\n  ",
    " " * 300 + "x" + "\n" * 50 + " \n" * 20,
    "non\u00a0breaking\u00a0\u00a0space\u3000wide\u2003em\u2028line\u2029paragraph\u0085next",
    "zero\u200bwidth\u200djoin\ufeffbom\u180evowel",
    "12 345 6789 3.14159 1,000,000 0x1F 50% \u0661\u0662\u0663 \u216b \u00bd \u00b2",
    "!!! ... ?!? -- (a) [b] {c} <d> #e @f $g ^h &i *j ~k `l` |m| \\n",
    "snake_case CamelCase kebab-case a/b/c http://example.org/?q=1&r=2",
    "f(x) {\n    return x + 1;  // done\n}\n",
    "stra\u00dfe \u00fcber gar\u00e7on na\u00efve \u0130stanbul \u01c5 \ufb01ne",
    "combining e\u0301 a\u0308o\u0302 n\u0303 \u0915\u094d\u0937\u093f \u0e01\u0e33",
    "\u4e2d\u6587\u5b57\u7b26\u3002\n\u65e5\u672c\u8a9e\u306e\u30c6\u30ad\u30b9\u30c8\uff01\n\ud55c\uad6d\uc5b4",
    "\u0440\u0443\u0441\u0441\u043a\u0438\u0439 \u05e2\u05d1\u05e8\u05d9\u05ea \u0627\u0644\u0639\u0631\u0628\u064a\u0629",
    "\U0001f600\U0001f44d\U0001f3fd \U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \u2764\ufe0f",
    "\u0000\u0001\u001a\u007f control \u001b[31m",
    "it\u2019s \u2018quoted\u2019 it\u017f it'\u017f it'\u017fx K\u212a'll",
    "a" * 200,
    "ab" * 150 + " " + "the" * 60,
    "<|endoftext|>one<|endoftext|><|endoftext|> two <|endoftext |> <|endof",
    "<|user|>plain added token<|user|>\n<|endoftext|>\n",
    "\ufffd\ufffd replacement",
]

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN = LLAMA3.replace("{1,3}", "")


def byte_level(use_regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


VARIANTS = [
    ("gpt2", byte_level(True), False),
    ("llama3", pre_tokenizers.Sequence([split(LLAMA3), byte_level(False)]), True),
    ("qwen", pre_tokenizers.Sequence([split(QWEN), byte_level(False)]), False),
    ("smollm2", pre_tokenizers.Sequence([pre_tokenizers.Digits(True), byte_level(True)]), False),
    ("digit runs", pre_tokenizers.Sequence([pre_tokenizers.Digits(False), byte_level(True)]),
     False),
    ("literal", pre_tokenizers.Sequence([pre_tokenizers.Split("ar", "isolated"),
                                         byte_level(True)]), False),
    ("pattern with gaps", pre_tokenizers.Sequence([split(r"[aeiou]{2,}|\d\s*"),
                                                   byte_level(False)]), False),
]


def train():
    """Trained without any splitting, so that merges reach over words, numbers and lines: a piece
    that ends in the wrong place then shows in the ids."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = byte_level(False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=1000, max_token_length=12, special_tokens=["<|endoftext|>"],
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    texts = [text for text in TEXTS if "<|" not in text]
    tokenizer.train_from_iterator(2 * [PROSE, *texts], trainer)
    tokenizer.add_tokens(["<|user|>"])
    tokenizer.pre_tokenizer = byte_level(True)
    return tokenizer


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    tokenizer = train()
    tokenizer.save(str(FOLDER / "tokenizer.json"), pretty=False)
    small = json.loads((FOLDER / "tokenizer.json").read_text("utf-8"))
    variants = []
    for name, pre_tokenizer, ignore_merges in VARIANTS:
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.model.ignore_merges = ignore_merges
        state = json.loads(tokenizer.to_str())
        assert state["model"]["ignore_merges"] == ignore_merges
        assert state["model"]["vocab"] == small["model"]["vocab"]
        variants.append({"name": name, "pre_tokenizer": state["pre_tokenizer"],
                         "ignore_merges": ignore_merges,
                         "ids": [tokenizer.encode(text).ids for text in TEXTS]})
    lines = ",\n".join(json.dumps(variant) for variant in variants)
    texts = ",\n".join(json.dumps(text) for text in TEXTS)
    (FOLDER / "cases.json").write_text(
        f'{{"made_with": "tokenizers {tokenizers.__version__}",\n"texts": [\n{texts}],\n'
        f'"variants": [\n{lines}]}}\n', "utf-8")


if __name__ == "__main__":
    main()
