"""Tests of scripts/runs.py and scripts/plot on synthetic metrics."""
import json
import subprocess
import sys
import unittest

from support import SCRIPTS, ScriptTest

RUNS = SCRIPTS / "runs.py"
PNG_SIGNATURE = b"\x89PNG\r\n\x1a\n"


def has_matplotlib():
    return any(subprocess.run([python, "-c", "import matplotlib"], capture_output=True, check=False).returncode == 0
               for python in (sys.executable, "/usr/bin/python3"))


class RunsTest(ScriptTest):
    def write_run(self, name, losses, tail=""):
        """A run with one train line a loss text and an evaluation at the end."""
        folder = self.scratch / name
        folder.mkdir()
        lines = [f'{{"kind":"train","step":{step},"loss":{loss},"lr":{0.001 / step},"tokens_per_second":{1000.5 * step}}}'
                 for step, loss in enumerate(losses, 1)]
        lines.append(json.dumps({"kind": "eval", "step": len(losses), "loss": 0.75, "accuracy": 0.885}))
        (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n" + tail)
        return folder

    def test_equal_digits_are_the_same(self):
        first = self.write_run("a", ["2.0000000000000004", "1.5", "null"])
        second = self.write_run("b", ["2.0000000000000004", "1.5", "null", "1.0"])

        result = self.run_script(RUNS, "same", first, second, 3)

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("3 of 3 losses are the same", result.stdout)

    def test_one_differing_digit_is_different(self):
        first = self.write_run("a", ["2.0000000000000004", "1.5"])
        second = self.write_run("b", ["2.0000000000000000", "1.5"])

        result = self.run_script(RUNS, "same", first, second, 2)

        self.assertEqual(result.returncode, 1)
        self.assertIn("DIFFERENT", result.stdout)

    def test_numbers_are_compared_as_they_are_written(self):
        first = self.write_run("a", ["1.50"])
        second = self.write_run("b", ["1.5"])

        self.assertEqual(self.run_script(RUNS, "same", first, second, 1).returncode, 1)

    def test_a_run_that_stopped_early_is_no_proof(self):
        first = self.write_run("a", ["2.0", "1.5"])
        second = self.write_run("b", ["2.0"])

        result = self.run_script(RUNS, "same", first, second, 2)

        self.assertEqual(result.returncode, 1)
        self.assertIn("do not both have", result.stderr)

    def test_a_line_that_is_still_being_written_is_left_out(self):
        run = self.write_run("a", ["2.0", "1.5"], tail='{"kind":"train","st')

        self.assertEqual(self.run_script(RUNS, "step", run).stdout, "2\n")

    def test_a_run_that_has_not_begun_is_at_step_0(self):
        self.assertEqual(self.run_script(RUNS, "step", self.scratch / "absent").stdout, "0\n")

    def test_a_damaged_line_is_named(self):
        run = self.write_run("a", ["2.0"], tail="not json\n")

        result = self.run_script(RUNS, "table", run)

        self.assertEqual(result.returncode, 1)
        self.assertIn("metrics.jsonl:3", result.stderr)

    def test_the_table_shows_the_last_values_and_the_median_speed(self):
        run = self.write_run("a", ["2.0", "1.5", "1.25"])

        lines = self.run_script(RUNS, "table", f"{run}=two ranks").stdout.splitlines()

        self.assertEqual(lines[1].split(), ["two", "ranks", "3", "1.2500", "0.7500", "88.50%", "2,001"])

    def test_plots_a_png(self):
        if not has_matplotlib():
            result = self.run_script(SCRIPTS / "plot", self.scratch)
            self.assertIn("matplotlib is missing", result.stderr)
            return
        run = self.write_run("a", [str(2.0 / (1 + step)) for step in range(30)] + ["null"])

        result = self.run_script(SCRIPTS / "plot", "--output", self.scratch / "out.png", run)

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertTrue((self.scratch / "out.png").read_bytes().startswith(PNG_SIGNATURE))

    def test_a_run_without_metrics_is_named_when_plotting(self):
        if has_matplotlib():
            result = self.run_script(SCRIPTS / "plot", self.scratch / "absent")
            self.assertEqual(result.returncode, 1)
            self.assertIn("absent", result.stderr)


if __name__ == "__main__":
    unittest.main()
