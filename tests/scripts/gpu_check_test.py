"""scripts/gpu_check with stand-ins for the compiler, CMake, ctest and the GPU's tools."""
import importlib.machinery
import importlib.util
import json
import pathlib
import shutil
import unittest
import unittest.mock

import support
from support import ScriptTest

CHECK = support.SCRIPTS / "gpu_check"
KERNELS = {"limits": {"bytes_per_second": 4e12, "operations_per_second": 7e14},
           "kernels": [{"kernel": "adamw", "role": "", "shape": "8 f32", "median_seconds": 1e-5, "bytes_per_second": 3e12,
                        "operations_per_second": 1e12, "fraction_of_limit": 0.75}]}


def load():
    loader = importlib.machinery.SourceFileLoader("gpu_check", str(CHECK))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


class RunTest(ScriptTest):
    """A copy of the script in a tree of its own, so that its build folder is not ours."""

    def setUp(self):
        super().setUp()
        (self.scratch / "scripts/bench").mkdir(parents=True)
        self.script = self.scratch / "scripts/gpu_check"
        shutil.copy(CHECK, self.script)
        self.folder = self.scratch / "build/gpu_check"
        self.out = self.scratch / "report"
        self.fake("nvcc", 'echo "Build cuda_13.0"')
        self.fake("nvidia-smi", 'echo "NVIDIA H200, 9.0, 580.1, 143771 MiB"')
        self.fake("cmake", f'echo "$@" >>{self.scratch}/cmake; echo made')
        self.fake("ctest", 'while [ $# -gt 1 ]; do [ "$1" = --output-junit ] && out=$2; shift; done\n'
                           'echo \'<testsuite tests="3" failures="1" skipped="0" disabled="0"><testcase name="gpu: one" '
                           'status="fail"/><testcase name="gpu: two" status="run"/></testsuite>\' >"$out"; exit 8')
        self.fake("compute-sanitizer", 'echo "$@"; [ "$2" != racecheck ]')
        (self.folder / "build/tests/gpu").mkdir(parents=True)
        program = self.folder / "build/lockstep"
        program.write_text(f"#!/bin/sh\ncat <<'J'\n{json.dumps(KERNELS)}\nJ\n")
        program.chmod(0o755)
        train = self.scratch / "scripts/bench/gpu_train"
        train.write_text("import os, sys\nprint('trained', os.environ['LOCKSTEP'], *sys.argv[1:])\n")

    def run_check(self, *arguments):
        result = self.run_script(self.script, "run", "--out", self.out, *arguments)
        path = self.out / "report.json"
        report = json.loads(path.read_text()) if path.exists() else {"parts": []}
        return result, report, {part["part"]: part for part in report["parts"]}

    def test_every_part_is_reported_and_a_failed_one_does_not_stop_the_others(self):
        result, report, parts = self.run_check()

        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual({name: part["status"] for name, part in parts.items()},
                         {"unpack": "left out", "configure": "passed", "build": "passed", "tests": "failed (8)",
                          "kernels": "passed", "training": "passed", "memcheck": "passed", "racecheck": "failed (1)",
                          "initcheck": "passed", "synccheck": "passed"})
        self.assertEqual(parts["tests"]["failed"], ["gpu: one"])
        self.assertEqual(report["facts"]["architecture"], "90-real")
        self.assertIn("adamw", parts["kernels"]["output"])
        self.assertIn(f"--kernels {self.out / 'kernels.json'}", parts["training"]["output"])
        text = (self.out / "report.txt").read_text()
        self.assertIn("gpu: NVIDIA H200, 9.0", text)
        self.assertIn("tests: failed (8) (0 s) 1 of 3 failed", text)

    def test_only_the_cards_architecture_and_what_is_needed_are_built(self):
        self.run_check("--targets", "gpu_tests")

        configure, build = (self.scratch / "cmake").read_text().splitlines()
        for option in ("-DLOCKSTEP_CUDA=ON", "-DLOCKSTEP_GPU_TESTS=ON", "-DCMAKE_CUDA_ARCHITECTURES=90-real"):
            self.assertIn(option, configure)
        self.assertTrue(build.endswith("--target gpu_tests"), build)

    def test_without_a_build_nothing_is_run(self):
        self.fake("cmake", '[ "$1" != --build ] || { echo "error: no"; exit 1; }')
        result, _, parts = self.run_check()

        self.assertEqual(result.returncode, 1)
        self.assertEqual(parts["build"]["status"], "failed (1)")
        for name in ("tests", "kernels", "training", "memcheck"):
            self.assertEqual((parts[name]["status"], parts[name]["detail"]), ("left out", "build did not pass"))

    def test_a_part_that_hangs_is_ended_with_what_it_started(self):
        self.fake("cmake", f'[ "$1" != --build ] || {{ sleep 50 & echo $! >{self.scratch}/pid; wait; }}')
        result, _, parts = self.run_check("--build-seconds", "1")

        self.assertEqual(result.returncode, 1)
        self.assertEqual(parts["build"]["status"], "not done in 1 s")
        self.assertFalse(pathlib.Path(f"/proc/{(self.scratch / 'pid').read_text().strip()}/exe").exists())

    def test_what_finds_no_time_says_so(self):
        result, _, parts = self.run_check("--seconds", "4")

        self.assertEqual(result.returncode, 1)
        self.assertEqual(parts["configure"]["status"], "no time left")

    def test_without_a_gpu_it_builds_only_when_told(self):
        self.fake("nvidia-smi", "exit 9")
        refused, _, _ = self.run_check()
        built, _, parts = self.run_check("--no-gpu")

        self.assertEqual(refused.returncode, 2)
        self.assertIn("nvidia-smi shows no GPU", refused.stderr)
        self.assertEqual(built.returncode, 0, built.stderr)
        self.assertEqual((parts["build"]["status"], parts["tests"]["status"]), ("passed", "left out"))


class PackTest(ScriptTest):
    DEPENDS = {"libone-dev": "  Depends: libone1\n |Depends: libc6\n  Depends: other-libc\n  PreDepends: libthree1",
               "libone1": "  Depends: libc6\n  Depends: <virtual>\n    real"}

    def test_libraries_and_what_they_need_are_taken_and_no_tools(self):
        module = load()
        module.dependencies_of = lambda package: {"catch2": ["libc6"], "libspdlog-dev": ["libfmt-dev", "gcc"],
                                                  "libfmt-dev": ["libfmt9"]}.get(package, [])

        packages = module.packages_to_pack()

        self.assertLessEqual({"catch2", "libspdlog-dev", "libfmt-dev", "libfmt9", "libopenmpi-dev", "pkg-config"},
                             set(packages))
        self.assertFalse({"g++", "cmake", "git", "gcc", "libc6", "openmpi-bin"} & set(packages))

    def test_of_alternatives_the_first_is_taken(self):
        for package, text in self.DEPENDS.items():
            self.fake("apt-cache", f"cat <<'T'\n{package}\n{text}\nT")
            module = load()
            path = self.environment["PATH"]
            with unittest.mock.patch.dict("os.environ", PATH=path):
                found = module.dependencies_of(package)
            self.assertEqual(found, {"libone-dev": ["libone1", "libc6", "libthree1"], "libone1": ["libc6"]}[package])


if __name__ == "__main__":
    unittest.main()
