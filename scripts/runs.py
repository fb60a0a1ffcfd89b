#!/usr/bin/env python3
"""Reads the metrics of runs.

Usage: scripts/runs.py table RUN[=LABEL]...      a line of results a run
       scripts/runs.py same RUN_A RUN_B STEPS    shows that the losses of steps 1..STEPS are the same text, or where not
       scripts/runs.py step RUN                  the last step that was written

RUN is an output_dir or a metrics.jsonl.
"""
import json
import pathlib
import sys


class RunError(Exception):
    pass


def metrics_file(run):
    path = pathlib.Path(run)
    return path if path.name.endswith(".jsonl") else path / "metrics.jsonl"


def read_lines(run):
    """The text lines of RUN's metrics. A last line without a newline is still being written: it is left out."""
    path = metrics_file(run)
    try:
        text = path.read_text()
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from None
    return [line for line in text[:text.rfind("\n") + 1].splitlines() if line.strip()]


def parse_number(text):
    """Keeps a number as it is written, so that equal text means equal bits."""
    number = NumberText(text)
    number.text = text
    return number


class NumberText(float):
    text = ""


def read_metrics(run):
    """(train entries, evaluation entries), each in file order; floating-point values know their own text."""
    entries = {"train": [], "eval": []}
    for number, line in enumerate(read_lines(run), 1):
        try:
            entry = json.loads(line, parse_float=parse_number)
            entries.setdefault(entry["kind"], []).append(entry)
            entry["step"] = int(entry["step"])
        except (ValueError, KeyError, TypeError):
            raise RunError(f"{metrics_file(run)}:{number}: not a line of metrics") from None
    return entries["train"], entries["eval"]


def loss_text(entry):
    loss = entry.get("loss")
    return "null" if loss is None else getattr(loss, "text", str(loss))


def show(value, form):
    return "-" if value is None else format(value, form)


def print_table(runs):
    rows = [("run", "steps", "loss", "eval loss", "accuracy", "tokens/s")]
    for run, label in runs:
        train, evaluations = read_metrics(run)
        if not train:
            raise RunError(f"{metrics_file(run)} has no train line")
        last = train[-1]
        evaluation = evaluations[-1] if evaluations else {}
        speeds = sorted(e["tokens_per_second"] for e in train if e.get("tokens_per_second") is not None)
        rows.append((label, str(last["step"]), show(last.get("loss"), ".4f"), show(evaluation.get("loss"), ".4f"),
                     show(evaluation.get("accuracy"), ".2%"),
                     f"{speeds[len(speeds) // 2]:,.0f}" if speeds else "-"))
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) if i == 0 else cell.rjust(width)
                        for i, (cell, width) in enumerate(zip(row, widths))))


def compare(first, second, steps):
    """Prints the losses of the steps that both runs wrote; True when at least the first and the last of 1..STEPS are
    among them and all are the same text."""
    losses = [{e["step"]: loss_text(e) for e in read_metrics(run)[0] if e["step"] <= steps} for run in (first, second)]
    both = sorted(losses[0].keys() & losses[1].keys())
    if not both or both[0] != 1 or both[-1] != steps:
        raise RunError(f"{first} and {second} do not both have step 1 and step {steps}")
    different = 0
    for step in both:
        a, b = losses[0][step], losses[1][step]
        different += a != b
        print(f"  step {step:4}  {a:22}  {b:22}  {'same' if a == b else 'DIFFERENT'}")
    print(f"  {len(both) - different} of {len(both)} losses are the same, digit for digit")
    return different == 0


def main(arguments):
    if len(arguments) >= 2 and arguments[0] == "table":
        print_table([(run.partition("=")[0], run.partition("=")[2] or run) for run in arguments[1:]])
        return 0
    if len(arguments) == 4 and arguments[0] == "same" and arguments[3].isdigit():
        return 0 if compare(arguments[1], arguments[2], int(arguments[3])) else 1
    if len(arguments) == 2 and arguments[0] == "step":
        train = read_metrics(arguments[1])[0] if metrics_file(arguments[1]).exists() else []
        print(train[-1]["step"] if train else 0)
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except RunError as failure:
        sys.exit(f"runs: {failure}")
