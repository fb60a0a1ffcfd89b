"""Tests of scripts/quickstart's course, with a stand-in for the program, for mpirun and for what takes a network."""
import shutil
import unittest

from support import ROOT, SCRIPTS, ScriptTest

# Trains 40 steps, resumes, stops with 75 on SIGUSR1 as the program does, and writes the losses of its steps.
TRAINER = r'''
import os, pathlib, signal, sys, time
command, *arguments = sys.argv[1:]
options = dict(zip(arguments[::2], arguments[1::2]))
if command == "tokenize":
    pathlib.Path(options["--tokenize.output"]).write_text("tokens")
    sys.exit(0)
stop = []
signal.signal(signal.SIGUSR1, lambda *_: stop.append(1))
folder = pathlib.Path(options["--train.output_dir"])
folder.mkdir(parents=True, exist_ok=True)
metrics = folder / "metrics.jsonl"
done = len(metrics.read_text().splitlines()) if metrics.exists() else 0
drift = float(os.environ.get("DRIFT", "0")) if folder.name == "gpt-1-rank" else 0.0
with metrics.open("a", buffering=1) as file:
    for step in range(done + 1, 41):
        file.write('{"kind":"train","step":%d,"loss":%.17g,"lr":0.001,"tokens_per_second":5.5}\n'
                   % (step, 2.0 / step + drift))
        time.sleep(0.1 if folder.name == "gpt-1-rank" else 0.0)
        if stop:
            sys.exit(75)
'''


class QuickstartTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.scratch / "repository"
        shutil.copytree(SCRIPTS, self.root / "scripts")
        shutil.copytree(ROOT / "configs", self.root / "configs")
        for part in ("train", "validation"):
            (self.root / "data/austen").mkdir(parents=True, exist_ok=True)
            (self.root / f"data/austen/{part}.txt").write_text("text")
        for name in ("install_dependencies", "fetch_data", "plot"):
            path = self.root / "scripts" / name
            path.write_text(f"#!/usr/bin/env bash\necho {name} \"$@\"\n")
        self.environment["LOCKSTEP"] = str(self.fake("lockstep", TRAINER, shell="python3"))
        self.fake("mpirun", 'while [[ $1 != */lockstep ]]; do shift; done; exec "$@"')

    def quickstart(self, *arguments):
        return self.run_script(self.root / "scripts/quickstart", *arguments)

    def test_shows_equal_losses_and_a_table(self):
        result = self.quickstart()

        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("20 of 20 losses are the same", result.stdout)
        self.assertRegex(result.stdout, r"GPT, 2 ranks +40 +0\.0500")
        self.assertIn("plot --output runs/quickstart/gpt-2-ranks.png", result.stdout)

    def test_a_second_time_nothing_is_trained(self):
        self.quickstart()
        before = (self.root / "runs/quickstart/gpt-1-rank/metrics.jsonl").read_text()

        result = self.quickstart()

        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual((self.root / "runs/quickstart/gpt-1-rank/metrics.jsonl").read_text(), before)

    def test_fails_when_the_number_of_ranks_changes_the_losses(self):
        self.environment["DRIFT"] = "1e-15"

        result = self.quickstart()

        self.assertEqual(result.returncode, 1)
        self.assertIn("DIFFERENT", result.stdout)

    def test_a_training_that_fails_ends_it(self):
        self.fake("lockstep", "exit 2")

        self.assertEqual(self.quickstart().returncode, 2)


if __name__ == "__main__":
    unittest.main()
