"""scripts/bench/gpu_train: what is measured, with stand-ins for lockstep and nvidia-smi."""
import importlib.machinery
import importlib.util
import json
import pathlib
import sys
import unittest

import support
from support import ScriptTest

BENCH = support.SCRIPTS / "bench"
sys.path.insert(0, str(BENCH))
# pylint: disable=wrong-import-position
import gpu_cases
import machine

# Writes lines of metrics for ever, in steps of log.interval, as a training whose steps take 0.5 s, those before the sixth 9 s;
# plans as many bytes as the file `planned` says for each value of train.recompute.
FAKE = '''
import json, os, pathlib, sys, time
keys = dict(zip(sys.argv[2::2], sys.argv[3::2])) if sys.argv[1] == "train" else dict(zip(sys.argv[3::2], sys.argv[4::2]))
here = pathlib.Path(__file__).parent
if sys.argv[1] == "plan":
    total = json.loads((here / "planned").read_text())[keys["--train.recompute"]]
    rank = {"total": total + 12, "batches": 3, "results": 4, "checkpoint_copy": 5}
    print(json.dumps({"parameters": int((here / "parameters").read_text()), "largest_rank": rank}))
elif sys.argv[1] == "train":
    if (here / "fails").exists():
        print("error no memory")
        sys.exit(2)
    folder = pathlib.Path(keys["--train.output_dir"])
    folder.mkdir(parents=True)
    (here / "train.json").write_text(json.dumps({**keys, "pid": os.getpid()}))
    interval = int(keys["--log.interval"])
    with open(folder / "metrics.jsonl", "w") as file:
        for step in [1, *range(interval, 1000, interval)]:
            print(json.dumps({"kind": "train", "step": step, "seconds": 9 if step <= 5 else 0.5, "loss": 5.7,
                              "memory_bytes": 77}), file=file, flush=True)
    time.sleep(60)
'''


def load():
    loader = importlib.machinery.SourceFileLoader("gpu_train", str(BENCH / "gpu_train"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_train", loader))
    sys.modules["gpu_train"] = module  # for its dataclasses
    loader.exec_module(module)
    return module


gpu_train = load()


class CasesTest(unittest.TestCase):
    def test_parameters_are_the_published_ones(self):
        published = {"gpt2-124m": 124_439_808, "gpt2-1.5b": 1_557_611_200, "llama-1b": 1_235_814_400,
                     "llama-8b": 8_030_261_248}
        self.assertEqual({name: model.parameters for name, model in gpu_cases.select([]).items()}, published)

    def test_operations_are_six_a_weight_and_token_and_causal_attention(self):
        model = gpu_cases.CASES["tiny-llama"]
        weights = 2 * (64 * (64 + 2 * 32 + 64) + 3 * 64 * 192) + 300 * 64
        pairs = 4 * 32 * 33 // 2  # of queries and keys, 4 sequences
        self.assertEqual(model.flops, 6 * weights * 128 + 3 * 2 * 2 * 64 * pairs * 2)

    def test_micro_batches_divide_steps(self):
        for name, model in gpu_cases.CASES.items():
            self.assertEqual(model.batch % model.micro_batch, 0, name)

    def test_peaks_are_found_by_the_names_that_drivers_give(self):
        for name, tflops in (("NVIDIA H200", 989.5), ("NVIDIA H200 NVL", 835.5), ("NVIDIA H100 80GB HBM3", 989.5),
                             ("NVIDIA H100 PCIe", 756.5), ("NVIDIA A100-SXM4-80GB", 312.0), ("NVIDIA GH200 480GB", 989.5),
                             ("NVIDIA L40S", 362.05), ("NVIDIA L40", None), ("NVIDIA A10G", None)):
            self.assertEqual(gpu_cases.bf16_peak(name)[0], tflops, name)


class MeasuringTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.program = self.fake("lockstep", FAKE, shell="python3")
        self.model = gpu_cases.CASES["tiny-gpt2"]
        self.note("parameters", str(self.model.parameters))
        self.plan(none=900, selective=500, full=100)
        self.environment.update(LOCKSTEP=str(self.program), LOCKSTEP_TORCH_PYTHON="/nowhere/python")
        self.arguments = gpu_train.read_arguments(["tiny-gpt2", "--steps", "10", "--run-seconds", "20"])

    def note(self, name, text):
        (self.program.parent / name).write_text(text)

    def plan(self, **planned):
        self.note("planned", json.dumps(planned))

    def choose(self, free):
        return gpu_train.choose_recomputation(self.program, self.model, self.arguments, free)

    def test_less_is_kept_until_the_plan_fits_beside_the_spare_memory(self):
        spare = gpu_train.SPARE_BYTES
        self.assertEqual(self.choose(None), ("none", 900))
        self.assertEqual(self.choose(spare + 900), ("none", 900))
        self.assertEqual(self.choose(spare + 899), ("selective", 500))
        self.assertEqual(self.choose(spare + 100), ("full", 100))
        self.assertEqual(self.choose(spare + 99), (None, 100))

    def test_a_plan_of_another_model_is_refused(self):
        self.note("parameters", "12")
        with self.assertRaisesRegex(machine.BenchError, "12 parameters, expected 121344"):
            self.choose(None)

    def test_the_steps_after_the_warm_up_count_and_the_run_is_ended_then(self):
        settings = gpu_train.lockstep_settings(self.model, self.arguments, "none")

        run = gpu_train.run_lockstep(self.program, settings, self.arguments)

        self.assertEqual((run.step_seconds, run.first_loss, run.own_bytes), (0.5, 5.7, 77))
        started = json.loads((self.program.parent / "train.json").read_text())
        self.assertFalse(pathlib.Path(started["--train.output_dir"]).exists())
        self.assertFalse(pathlib.Path(f"/proc/{started['pid']}").exists())

    def test_a_run_that_fails_says_why_and_the_others_go_on(self):
        self.note("fails", "")
        result = self.run_script(BENCH / "gpu_train", "tiny-gpt2", "--device", "cpu", "--rounds", "2", "--sides", "lockstep",
                                 "--out", self.scratch / "out.json")

        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertIn("lockstep failed: error no memory", result.stdout)
        failures = json.loads((self.scratch / "out.json").read_text())["models"][0]["failures"]
        self.assertIn("status 2", failures["lockstep"])

    def test_rows_have_the_ratio_to_pytorch_and_what_the_card_could_do(self):
        runs = {"lockstep": [gpu_train.Run(s, 5.7, 10, 20) for s in (0.4, 0.5, 0.9)],
                "torch": [gpu_train.Run(s, 5.7, 30, None) for s in (1.1, 1.0, 0.9)]}
        result = {"runs": runs, "flops": 50e12, "tokens": 100}

        ours, theirs = gpu_train.summarise(result, 1000.0, 500.0)

        self.assertEqual((ours["step_seconds"], ours["tokens_per_second"], ours["times_torch"]), (0.5, 200, 2.0))
        self.assertEqual((ours["mfu_of_peak"], ours["mfu_of_product"], ours["seen_bytes"]), (0.1, 0.2, 20))
        self.assertEqual((theirs["times_torch"], theirs["seen_bytes"], theirs["own_bytes"]), (1.0, None, 30))

    def test_dry_prints_commands_and_runs_nothing(self):
        result = self.run_script(BENCH / "gpu_train", "tiny-gpt2", "--dry")

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("train --model.architecture gpt2", result.stdout)
        self.assertFalse((self.program.parent / "train.json").exists())

    def test_without_a_gpu_nothing_is_measured(self):
        self.fake("nvidia-smi", "exit 9")
        result = self.run_script(BENCH / "gpu_train", "tiny-gpt2")

        self.assertEqual(result.returncode, 2)
        self.assertIn("nvidia-smi shows no GPU", result.stderr)

    def test_what_does_not_fit_on_the_card_is_left_out(self):
        self.fake("nvidia-smi", 'echo "NVIDIA H200, 1024"')
        self.note("planned", json.dumps(dict.fromkeys(("none", "selective", "full"), 1 << 40)))
        result = self.run_script(BENCH / "gpu_train", "tiny-gpt2", "--dry")

        self.assertIn("NVIDIA H200: bf16 peak 989.5 TFLOP/s (H200 data sheet, SXM", result.stdout)
        self.assertIn("left out: plan: 1024.0 GiB at least, 1.0 GiB are free", result.stdout)

    def test_impossible_arguments_are_refused(self):
        for words, text in ((["gpt-3"], "no model 'gpt-3'"), (["--steps", "7"], "multiple of --warm-steps"),
                            (["--sides", "jax"], "sides are lockstep, torch")):
            result = self.run_script(BENCH / "gpu_train", *words)
            self.assertEqual(result.returncode, 2, result.stderr)
            self.assertIn(text, result.stderr)


if __name__ == "__main__":
    unittest.main()
