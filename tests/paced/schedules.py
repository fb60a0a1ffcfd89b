"""The real program on a device that sleeps (paced_training): every rank runs the schedule's table, which its trace shows,
and nothing is taken for a training."""
import argparse
import json
import pathlib
import sys
import tempfile

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "training"), str(TESTS.parent / "scripts/bench")]
# pylint: disable=wrong-import-position
import traces
from runs import MPIRUN, Failure, Program, expect, flags

RANKS, MICRO_BATCHES, STEPS = 4, 8, 4
TRACED = 2  # of the steps, the last ones
DEVICE = ["1e12", "1e12"]  # operations and bytes a second: passes of some tens of microseconds
SETTINGS = {
    "train.steps": STEPS, "train.global_batch_size": MICRO_BATCHES, "train.micro_batch_size": 1,
    "train.eval_interval": 0, "data.kind": "synthetic", "model.architecture": "llama", "model.vocab_size": 32,
    "model.seq_length": 32, "model.num_layers": 8, "model.hidden_size": 64, "model.num_heads": 2, "run.threads": 1,
    "parallel.pipeline": RANKS, "log.tensorboard": False, "log.interval": 1,
    "log.trace": f"{STEPS - TRACED + 1}:{STEPS + 1}"}


def run(program, schedule, folder, virtual_stages=1, status=0):
    settings = {**SETTINGS, "parallel.schedule": schedule, "parallel.virtual_stages": virtual_stages,
                "train.output_dir": str(folder)}
    command = MPIRUN + ["-np", str(RANKS), program.binary] + DEVICE + ["train"] + flags(settings)
    got, output = program.finish(program.start(command))
    expect(got == status, f"exit status {got}, expected {status}: {' '.join(command)}\n{output}")
    return output


def check_order(table, events, rank):
    passes = [event for event in traces.spans(events, "compute") if event["cat"] == "pass"]
    ran = [[event["name"].replace(" ", "_"), event["args"]["chunk"], event["args"]["micro_batch"]] for event in passes]
    expect(ran == table * TRACED, f"rank {rank} ran {ran}, expected {TRACED} times {table}")
    for before, after in zip(passes, passes[1:]):
        expect(before["ts"] + before["dur"] <= after["ts"], f"rank {rank}: passes overlap: {before}, {after}")
    return passes


def check_messages(schedule, passes):
    """No pass begins before the one on another rank that it needs has ended."""
    stages = RANKS * schedule["virtual_stages"]
    number = 0
    for step in range(TRACED):
        when = {}
        for rank, table in enumerate(schedule["ranks"]):
            for entry, event in zip(table, passes[rank][step * len(table):]):
                kind, chunk, micro_batch = entry
                when[kind, chunk * RANKS + rank, micro_batch] = event
        for (kind, stage, micro_batch), event in when.items():
            source = when.get((kind, stage + (-1 if kind == "forward" else 1), micro_batch))
            if source and kind != "backward_weight":
                number += 1
                expect(source["ts"] + source["dur"] <= event["ts"],
                       f"{kind} of micro-batch {micro_batch} on stage {stage} began before its input was there")
    expect(number == TRACED * 2 * (stages - 1) * MICRO_BATCHES, f"{number} messages")


def check_schedule(program, schedule, virtual_stages=1):
    folder = program.folder(schedule)
    output = run(program, schedule, folder, virtual_stages)
    said = json.loads((folder / "schedule.json").read_text())
    length = (3 if schedule == "zero-bubble" else 2) * MICRO_BATCHES * virtual_stages
    expect([len(table) for table in said["ranks"]] == [length] * RANKS, f"{schedule}: tables {said['ranks']}")
    events = traces.read_aligned(folder, RANKS)
    check_messages(said, [check_order(said["ranks"][rank], events[rank], rank) for rank in range(RANKS)])
    # Nothing looks like a training.
    expect("nothing is trained" in output, output)
    expect(not list((folder / "checkpoints").iterdir()), "a checkpoint was written")
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    expect(len(lines) == STEPS and all(line["loss"] is None for line in lines), f"losses: {lines}")
    return folder


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="lockstep-paced-") as scratch:
        program = Program(options.program, scratch)
        try:
            check_schedule(program, "gpipe")
            folder = check_schedule(program, "1f1b")
            check_schedule(program, "interleaved", virtual_stages=2)
            check_schedule(program, "zero-bubble")
            expect("expected a new folder" in run(program, "1f1b", folder, status=2), "went on in an old folder")
        except Failure as failure:
            sys.exit(str(failure))


if __name__ == "__main__":
    main()
