"""A Markdown table of layouts that tests of several cases write together."""
import fcntl
import os
import pathlib

HEAD = ("| case | model | layout: data x pipeline x tensor | virtual | ranks | loss difference | bits "
        "| peak memory of a rank, bytes | sent a step by all ranks, bytes |\n|---|---|---|---|---|---|---|---|---|\n")


class Table:
    """The rows of one case. Other cases have theirs in the same file and may write them at the same time; what an
    earlier run of this case left is dropped at the start."""

    def __init__(self, path, case, order):
        self.path = pathlib.Path(path).resolve() if path else None
        self.case = case
        self.order = order
        self.rows = []
        self.write()

    def add(self, model, layout, virtual, ranks, difference, bits, memory, sent):
        self.rows.append(f"| {self.case} | {model} | {layout} | {virtual} | {ranks} | {difference:.1e} | {bits} | {memory:,} "
                         f"| {sent:,} |\n")

    def write(self):
        if self.path is None:
            return
        with open(f"{self.path}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            old = self.path.read_text(encoding="utf-8").splitlines(keepends=True)[2:] if self.path.exists() else []
            others = [row for row in old if self.case_of(row) != self.case and self.case_of(row) in self.order]
            rows = sorted(others + self.rows, key=lambda row: self.order.index(self.case_of(row)))
            new = pathlib.Path(f"{self.path}.new")
            new.write_text(HEAD + "".join(rows), encoding="utf-8")
            os.replace(new, self.path)

    @staticmethod
    def case_of(row):
        return row.split("|")[1].strip() if row.count("|") > 2 else ""
