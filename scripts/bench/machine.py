"""The machine that measurements run on: waits until it is idle, runs processes and says what others used meanwhile."""
import dataclasses
import os
import resource
import subprocess
import tempfile
import time

IDLE_CORES = 0.06
SAMPLE_SECONDS = 1.5
END_SECONDS = 60
TICKS = os.sysconf("SC_CLK_TCK")


class BenchError(Exception):
    pass


def busy_seconds():
    """(core seconds that this machine was busy, core seconds that its host gave to others) since it started."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, file.readline().split()[1:9])
    return (user + nice + system + irq + softirq) / TICKS, steal / TICKS


def wait_until_idle(limit_seconds):
    """Returns when less than IDLE_CORES are busy, or after the limit; the cores that were busy last."""
    end = time.monotonic() + limit_seconds
    while True:
        before = busy_seconds()[0]
        time.sleep(SAMPLE_SECONDS)
        busy = (busy_seconds()[0] - before) / SAMPLE_SECONDS
        if busy < IDLE_CORES or time.monotonic() >= end:
            return busy


@dataclasses.dataclass
class Load:
    """Fractions of all cores over the time of a measurement, start-up included."""
    others: float
    stolen: float


class LoadMeter:
    """What others used between its start and stop(): the busy time less that of children that ended between."""

    def __init__(self):
        self.start = time.monotonic(), busy_seconds(), self.children()

    @staticmethod
    def children():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    def stop(self):
        start, (busy, stolen), own = self.start
        cores = (time.monotonic() - start) * os.cpu_count()
        busy_now, stolen_now = busy_seconds()
        others = busy_now - busy - (self.children() - own)
        return Load(max(0.0, others / cores), (stolen_now - stolen) / cores)


def end_all(processes):
    """Asks those that still run to end, and kills those that do not: scripts/launch hands a signal on to its ranks,
    which outlive it otherwise."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    for process in processes:
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def run_together(commands, timeout_seconds=1800):
    """Runs [(arguments, environment)] at the same time; returns the standard output of the first. When one fails the
    others are ended."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        processes = [subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, stderr=errors,
                                      stdout=subprocess.DEVNULL if number else output)
                     for number, (arguments, environment) in enumerate(commands)]
        end = time.monotonic() + timeout_seconds
        try:
            while any(process.poll() is None for process in processes):
                if any(process.poll() for process in processes) or time.monotonic() > end:
                    break
                time.sleep(0.02)
            if any(process.poll() != 0 for process in processes):
                errors.seek(0)
                tail = errors.read().decode(errors="replace").strip().splitlines()[-12:]
                raise BenchError("\n  ".join([f"failed: {' '.join(map(str, commands[0][0]))}", *tail]))
        finally:
            end_all(processes)
        output.seek(0)
        return output.read().decode()


def describe():
    """Model, flags and number of the processors."""
    fields = {}
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            key, _, value = line.partition(":")
            fields.setdefault(key.strip(), value.strip())
    return {"processor": fields.get("model name", "unknown"), "vendor": fields.get("vendor_id", "unknown"),
            "cores": len(os.sched_getaffinity(0)), "amx": "amx_bf16" in fields.get("flags", "").split()}
