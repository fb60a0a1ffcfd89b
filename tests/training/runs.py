"""What the tests of whole trainings share: small data sets, starting ranks, and reading what a run wrote."""
import array
import gzip
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import time

SECONDS_A_RUN = 60
VOCABULARY = 101
IGNORED = 100


class Failure(Exception):
    """A run that did not do what it should."""


def expect(condition, message):
    if not condition:
        raise Failure(message)


def write_tokens(path, tokens):
    """llm.c's token file of uint16 ids."""
    header = [20240520, 1, len(tokens)] + [0] * 253
    values = array.array("H", tokens)
    if sys.byteorder == "big":
        values.byteswap()
    path.write_bytes(struct.pack("<256i", *header) + values.tobytes())


def random_tokens(count, seed, vocabulary=VOCABULARY):
    numbers = random.Random(seed)
    return [numbers.randrange(vocabulary) for _ in range(count)]


def write_images(folder, train, test, rows=8, classes=10, seed=1):
    """A folder of four IDX files; those of the training part are compressed."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = random.Random(seed)
    for part, count, opener in (("train", train, gzip.open), ("t10k", test, open)):
        suffix = ".gz" if opener is gzip.open else ""
        images = struct.pack(">4i", 0x803, count, rows, rows) + numbers.randbytes(count * rows * rows)
        labels = struct.pack(">2i", 0x801, count) + bytes(numbers.randrange(classes) for _ in range(count))
        for name, data in (("images-idx3", images), ("labels-idx1", labels)):
            with opener(folder / f"{part}-{name}-ubyte{suffix}", "wb") as file:
                file.write(data)


def flags(settings):
    """{"run.seed": 1} as command-line flags."""
    words = []
    for key, value in settings.items():
        text = str(value).lower() if isinstance(value, bool) else str(value)
        words += [f"--{key}", text]
    return words


def environment(extra=None):
    """The variables of a rank; a launcher's own must not leak into runs that are started alone."""
    own = {key: value for key, value in os.environ.items() if not key.startswith(("OMPI_", "PMIX_", "SLURM_"))}
    own.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", **(extra or {}))
    return own


MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]


class Program:
    """The program under test and a scratch folder for its runs."""

    def __init__(self, binary, scratch, hosts_script=None):
        self.binary = str(pathlib.Path(binary).resolve())
        self.scratch = pathlib.Path(scratch)
        self.hosts_script = str(pathlib.Path(hosts_script).resolve()) if hosts_script else None
        self.num_runs = 0

    def folder(self, label="run"):
        self.num_runs += 1
        return self.scratch / f"{self.num_runs:03d}-{label}"

    def command(self, settings, ranks=1, hosts=None):
        """Words that train on `ranks` ranks; `hosts`: on several hosts instead, such as "2,2"."""
        train = [self.binary, "train"] + flags(settings)
        if hosts:
            return [self.hosts_script, "run", str(len(hosts.split(","))), hosts] + train
        return train if ranks == 1 else MPIRUN + ["-np", str(ranks)] + train

    def start(self, command, extra=None):
        # A session of its own: a signal for it reaches nothing else.
        return subprocess.Popen(command, env=environment(extra), text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, start_new_session=True, cwd=self.scratch)

    def finish(self, process, seconds=SECONDS_A_RUN):
        """Exit status and everything that was printed."""
        try:
            output, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            kill_tree(process.pid)
            output, _ = process.communicate()
            raise Failure(f"still running after {seconds} s: {process.args}\n{output}") from None
        return process.returncode, output

    def train(self, settings, ranks=1, hosts=None, extra=None, status=0):
        """Trains in a new folder (unless settings name one) and returns the Run."""
        settings = dict(settings)
        settings.setdefault("train.output_dir", str(self.folder()))
        command = self.command(settings, ranks, hosts)
        got, output = self.finish(self.start(command, extra))
        if got != status:
            raise Failure(f"exit status {got}, expected {status}: {' '.join(command)}\n{output}")
        run = Run(pathlib.Path(settings["train.output_dir"]), output)
        run.check_memory()
        return run


def descendants(pid):
    """Processes below `pid`, at this moment."""
    found = []
    try:
        children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in map(int, children):
        found += [child] + descendants(child)
    return found


def ranks_of(pid, binary):
    """The processes below `pid` that run `binary`, in the order in which they were started."""
    result = []
    for child in descendants(pid):
        try:
            if os.path.realpath(f"/proc/{child}/exe") == os.path.realpath(binary):
                result.append(child)
        except OSError:
            pass
    return sorted(result)


def kill_tree(pid):
    """Kills a process that a test started, and everything below it, at once."""
    for process in [pid] + descendants(pid):
        try:
            os.kill(process, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Run:
    """What a training left behind."""

    def __init__(self, folder, output=""):
        self.folder = folder
        self.output = output

    @property
    def lines(self):
        return (self.folder / "metrics.jsonl").read_text().splitlines()

    def steps(self):
        return [record["step"] for record in map(json.loads, self.lines) if record["kind"] == "train"]

    def value(self, key, kind="train"):
        """The texts of one value over the lines of a kind: equal text means equal bits."""
        column = []
        for line in self.lines:
            if json.loads(line)["kind"] == kind:
                found = re.search(rf'"{key}":([^,}}]+)', line)
                expect(found, f"no {key} in {line}")
                column.append(found.group(1))
        return column

    def hash(self):
        found = re.findall(r"hash of weights and optimiser state: ([0-9a-f]+)", self.output)
        expect(len(found) == 1, f"the hash is printed {len(found)} times:\n{self.output}")
        return found[0]

    def check_memory(self):
        """A rank takes what was planned before the first step, to the byte; those that do not say so."""
        found = re.findall(r"memory: (\d+) bytes allocated, (\d+) planned", self.output)
        expect(found and all(allocated == planned for allocated, planned in found), self.output)

    def result(self):
        """Everything that must not depend on the layout."""
        return {"step": self.value("step"), "epoch": self.value("epoch"), "samples": self.value("samples"),
                "loss": self.value("loss"), "grad_norm": self.value("grad_norm"), "lr": self.value("lr"),
                "eval": [line for line in self.lines if '"kind":"eval"' in line], "hash": self.hash()}

    def wait_for_step(self, step, process, seconds=SECONDS_A_RUN):
        """Returns once the run has written the line of `step`."""
        end = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < end:
            try:
                if any(f'"step":{later},' in line for line in self.lines for later in (step, step + 1)):
                    return
            except OSError:
                pass
            time.sleep(0.002)
        raise Failure(f"step {step} never came (status {process.poll()})")


def compare(reference, other, label):
    """Raises when two results differ, saying where first."""
    for key, expected in reference.items():
        got = other[key]
        if got == expected:
            continue
        if isinstance(expected, list):
            for index, (a, b) in enumerate(zip(expected, got)):
                expect(a == b, f"{label}: {key} number {index + 1} is {b}, the reference has {a}")
        raise Failure(f"{label}: {key} is {got}, the reference has {expected}")
