"""scripts/bench: what is measured, and what is made of it."""
import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import support

sys.path.insert(0, str(support.SCRIPTS / "bench"))
# pylint: disable=wrong-import-position
import cases
import machine
import report
import sides
import traces


def load_program(name):
    loader = importlib.machinery.SourceFileLoader(name, str(support.SCRIPTS / "bench" / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(name, loader))
    loader.exec_module(module)
    return module


def find_case(name):
    return next(case for case in cases.CASES if case.name == name)


def measured(case, seconds_of, **fields):
    return {variant: [sides.Measurement(seconds_of(variant), **fields)] for variant in case.variants}


class CasesTest(unittest.TestCase):
    def test_a_name_selects_every_precision_of_a_model(self):
        self.assertEqual([case.name for case in cases.select(["gpt-10m"])], ["gpt-10m-f32", "gpt-10m-bf16"])
        self.assertEqual([case.name for case in cases.select(["gpt2-124m-bf16", "seed"])], ["seed", "gpt2-124m-bf16"])

    def test_an_unknown_name_is_refused_with_the_valid_ones(self):
        with self.assertRaisesRegex(ValueError, "no case 'gpt-1m'; valid: .*gpt-10m-f32"):
            cases.select(["gpt-1m"])

    def test_parameters_are_those_of_gpt2(self):
        published = 124_439_808  # with 1,024 positions

        positions_left_out = (1024 - cases.GPT2_124M.seq_length) * cases.GPT2_124M.hidden

        self.assertEqual(cases.GPT2_124M.parameters, published - positions_left_out)

    def test_names_of_the_variants_of_a_case_differ(self):
        for case in cases.CASES:
            names = [variant.name for variant in case.variants]
            self.assertEqual(len(names), len(set(names)), case.name)

    def test_an_average_step_of_seed_counts_the_smaller_last_batches(self):
        self.assertEqual(find_case("seed").model.steps, 1570)
        self.assertAlmostEqual(find_case("seed").model.tokens * 1570, 100_000)


class ReportTest(unittest.TestCase):
    def test_a_target_compares_the_best_of_both_sides(self):
        case = find_case("gpt-10m-f32")
        seconds = {("lockstep", 1): 0.5, ("lockstep", 2): 0.6, ("torch", 1): 1.1, ("torch", 2): 0.9}

        verdict, = report.judge(case, measured(case, lambda v: seconds[v.side, v.ranks]))

        self.assertAlmostEqual(verdict["ratio"], 1.8)
        self.assertIs(verdict["met"], False)

    def test_seed_is_bounded_from_below_by_ddp_and_from_above_by_the_plain_loop(self):
        case = find_case("seed")

        def seconds(variant):
            return 31.0 if variant.feed == "loader" else 29.0 if variant.feed else 0.6 if variant.side == "floor" else 1.0
        verdicts = report.judge(case, measured(case, seconds))

        self.assertEqual([verdict["met"] for verdict in verdicts], [True, False, True])

    def test_a_target_without_pytorch_is_not_judged(self):
        case = find_case("gpt-10m-bf16")
        ours = {variant: [sides.Measurement(1.0)] for variant in case.variants if variant.side == "lockstep"}

        verdict, = report.judge(case, ours)

        self.assertIsNone(verdict["met"])
        self.assertIsNone(report.summarise(case, ours)[0]["times_best_torch"])

    def test_the_limit_of_a_step_is_its_arithmetic_and_its_memory_traffic(self):
        limits = {"threads": [{"threads": 1, "f32_gflops": 50.0, "bf16_gflops": 60.0, "stream_gb_per_second": 5.0},
                              {"threads": 2, "f32_gflops": 100.0, "bf16_gflops": 200.0, "stream_gb_per_second": 10.0}]}
        model = cases.GPT_10M

        f32 = report.floor_of(find_case("gpt-10m-f32"), limits)
        bf16 = report.floor_of(find_case("gpt-10m-bf16"), limits)

        self.assertAlmostEqual(f32["arithmetic_ms"], 1e3 * model.flops / 100e9)
        self.assertAlmostEqual(bf16["arithmetic_ms"], 1e3 * model.flops / 200e9)
        self.assertAlmostEqual(bf16["total_ms"] - bf16["arithmetic_ms"], 1e3 * 28 * model.parameters / 10e9)
        self.assertIsNone(report.floor_of(find_case("seed"), limits))

    def test_a_table_has_a_line_for_each_variant_and_target(self):
        case = find_case("gpt2-124m-f32")
        results = measured(case, lambda v: 2.0 if v.side == "torch" else 1.0)
        output = io.StringIO()

        with contextlib.redirect_stdout(output):
            report.print_case(case, report.summarise(case, results), None, None, report.judge(case, results))

        text = output.getvalue()
        for variant in case.variants:
            self.assertIn(variant.name, text)
        self.assertIn("met: best against the best PyTorch: 2.00x (target >= 1.9x)", text)
        self.assertIn("MISSED: 2 ranks against DDP on 2 ranks: 2.00x (target >= 2.2x)", text)


class SidesTest(support.ScriptTest):
    def test_steps_that_warm_up_do_not_count(self):
        self.assertEqual(sides.median_after_warming([9, 9, 1, 3, 2]), 2)
        with self.assertRaisesRegex(machine.BenchError, "2 steps"):
            sides.median_after_warming([1, 1])

    def test_models_of_different_size_or_loss_are_refused(self):
        case = find_case("gpt-10m-f32")
        right = case.model.parameters

        sides.check_same_work(case, measured(case, lambda v: 1.0, parameters=right, first_loss=4.2))

        with self.assertRaisesRegex(machine.BenchError, "parameters, expected"):
            sides.check_same_work(case, measured(case, lambda v: 1.0, parameters=right + 1, first_loss=4.2))
        results = measured(case, lambda v: 1.0, parameters=right, first_loss=4.2)
        results[case.variants[0]] = [sides.Measurement(1.0, right, 5.0)]
        with self.assertRaisesRegex(machine.BenchError, "first losses differ"):
            sides.check_same_work(case, results)

    def test_parameters_are_counted_in_the_checkpoint(self):
        folder = self.scratch / "checkpoints/step-00000001"
        folder.mkdir(parents=True)
        header = json.dumps({"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
                             "b": {"dtype": "BF16", "shape": [5], "data_offsets": [24, 34]}}).encode()
        (folder / "model-00000.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
        (self.scratch / "checkpoints/latest").symlink_to("step-00000001")

        self.assertEqual(sides.count_parameters(self.scratch), 11)

    def test_a_failing_rank_ends_the_others_and_its_words_are_kept(self):
        commands = [(["sleep", "60"], self.environment),
                    (["bash", "-c", "echo no room >&2; exit 3"], self.environment)]

        with self.assertRaisesRegex(machine.BenchError, "no room"):
            machine.run_together(commands)

    def test_the_time_of_children_is_not_that_of_others(self):
        meter = machine.LoadMeter()
        before = meter.children()

        subprocess.run([sys.executable, "-c", "import time\nwhile time.process_time() < 0.3: pass"], check=True)

        self.assertGreaterEqual(meter.children() - before, 0.3)
        self.assertLessEqual(meter.stop().others, 1.0)

    def test_without_pytorch_the_reason_is_given(self):
        environment, reason = sides.find_torch(str(self.scratch / "no/python"))

        self.assertIsNone(environment)
        self.assertIn("scripts/bench/install_torch", reason)

    def test_the_driver_refuses_an_unknown_case(self):
        result = self.run_script(support.SCRIPTS / "bench/training", "gpt-1m")

        self.assertEqual(result.returncode, 2)
        self.assertIn("no case 'gpt-1m'", result.stderr)


def span(begin, end, **fields):
    return {"ph": "X", "tid": 0, "ts": begin, "dur": end - begin, **fields}


class TracesTest(unittest.TestCase):
    def test_time_that_spans_share_counts_once(self):
        spans = [span(10, 12), span(0, 4), span(1, 2), span(3, 6)]

        self.assertEqual(traces.intervals(spans), [(0, 6), (10, 12)])
        self.assertEqual(traces.union(spans), 8)

    def test_shared_time_is_that_of_both(self):
        self.assertEqual(traces.shared([(0, 6), (10, 12)], [(1, 2), (5, 11), (12, 20)]), 3)
        self.assertEqual(traces.shared([(0, 6)], []), 0)

    def test_spans_are_those_of_a_track_in_the_order_of_their_begins(self):
        names = [{"name": "thread_name", "tid": 0, "args": {"name": "compute"}},
                 {"name": "thread_name", "tid": 1, "args": {"name": "waiting"}}]
        events = [span(5, 6), {**span(2, 3), "tid": 1}, span(1, 2)]

        self.assertEqual(traces.spans(names + events, "compute"), [events[2], events[0]])

    def test_ranks_are_aligned_by_the_times_of_their_zeros(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "trace").mkdir()
            for rank, origin in enumerate((7_000, 5_000)):
                (pathlib.Path(folder) / f"trace/rank-{rank:05d}.json").write_text(
                    json.dumps({"otherData": {"origin_ns": origin}, "traceEvents": [span(1, 2)]}))

            first, second = traces.read_aligned(folder, 2)

        self.assertEqual((first[0]["ts"], second[0]["ts"]), (3, 1))


class PipelineSchedulesTest(unittest.TestCase):
    # Two stages, one micro-batch. The second stage begins 3 after its input was made, the first 1.
    TABLES = [[["forward", 0, 0], ["backward", 0, 0]]] * 2
    STEP = [[span(0, 10), span(44, 60)], [span(13, 23), span(23, 43)]]

    def setUp(self):
        self.program = load_program("pipeline_schedules")

    def test_a_pass_is_late_from_when_its_input_was_made_and_its_rank_was_free(self):
        schedule = {"ranks": self.TABLES, "virtual_stages": 1}

        self.assertEqual(self.program.late_time(self.STEP, schedule), (3 + 1) / 2)

    def test_what_a_pass_starts_from_is_on_the_neighbouring_stage(self):
        source = lambda rank, *entry: self.program.source_of(rank, entry, 4, 2)

        self.assertEqual(source(1, "forward", 0, 5), (0, ("forward", 0, 5)))
        self.assertEqual(source(0, "forward", 1, 5), (3, ("forward", 0, 5)))
        self.assertEqual(source(3, "backward", 0, 5), (0, ("backward", 1, 5)))
        self.assertIsNone(source(0, "forward", 0, 5))
        self.assertIsNone(source(3, "backward_input", 1, 5))
        self.assertIsNone(source(1, "backward_weight", 0, 5))

    def test_steps_are_the_passes_of_whole_tables(self):
        names = [{"name": "thread_name", "tid": 0, "args": {"name": "compute"}}]
        table = [["forward", 0, 0], ["backward_input", 0, 0]]
        passes = [span(i, i + 1, name=name, cat="pass", args={"chunk": 0, "micro_batch": 0})
                  for i, name in enumerate(["forward", "backward input"] * 2)]

        self.assertEqual(self.program.steps_of(names + passes, table, 0), [passes[:2], passes[2:]])
        for wrong in (passes[1:], passes[:3], []):
            with self.assertRaisesRegex(SystemExit, "rank 0 did not run"):
                self.program.steps_of(names + wrong, table, 0)


if __name__ == "__main__":
    unittest.main()
