"""Tests of the CMake option LOCKSTEP_CUDA with a stand-in for the toolkit, NCCL and cuDNN."""
import pathlib
import unittest

from support import ROOT, ScriptTest

PROJECT = f"""cmake_minimum_required(VERSION 3.25)
project(probe LANGUAGES CXX)
set(CMAKE_FIND_USE_CMAKE_SYSTEM_PATH OFF)
list(APPEND CMAKE_MODULE_PATH {ROOT}/third_party/cmake)
include(LockstepCuda)
message(STATUS "found: ${{LOCKSTEP_CUDA_FOUND}}")
"""


class CudaOptionTest(ScriptTest):
    def setUp(self):
        super().setUp()
        for name in ("CUDA_PATH", "CUDAToolkit_ROOT", "NCCL_ROOT", "CUDNN_ROOT"):
            self.environment.pop(name, None)
        (self.scratch / "CMakeLists.txt").write_text(PROJECT)
        self.toolkit = self.scratch / "toolkit"
        for folder in ("bin", "include", "lib64"):
            (self.toolkit / folder).mkdir(parents=True)
        self.nvcc("12.4.131")
        for library in ("cudart", "cublasLt", "nccl", "cudnn"):
            (self.toolkit / f"lib64/lib{library}.so").touch()
        for header in ("cuda_runtime.h", "cublas_v2.h"):
            (self.toolkit / "include" / header).touch()
        self.header("nccl.h", NCCL_MAJOR=2, NCCL_MINOR=19, NCCL_PATCH=3)
        self.header("cudnn_version.h", CUDNN_MAJOR=9, CUDNN_MINOR=1, CUDNN_PATCHLEVEL=0)

    def nvcc(self, version):
        path = self.toolkit / "bin/nvcc"
        path.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release x, V{version}'\n")
        path.chmod(0o755)

    def header(self, name, **numbers):
        (self.toolkit / "include" / name).write_text("".join(f"#define {key} {number}\n" for key, number in numbers.items()))

    def configure(self, value=None, root=None):
        """Exit status and what was said, wherever lines were broken."""
        option = [f"-DLOCKSTEP_CUDA={value}"] if value else []
        result = self.run_script("cmake", "-S", self.scratch, "-B", self.scratch / "build", "--fresh",
                                 f"-DCUDAToolkit_ROOT={root or self.toolkit}", *option)
        return result.returncode, " ".join((result.stdout + result.stderr).split())

    def refused(self, value, *parts):
        status, output = self.configure(value)
        self.assertNotEqual(status, 0, output)
        for part in parts:
            self.assertIn(part, output)

    def test_finds_all_parts_and_names_their_versions(self):
        for value in (None, "ON"):
            status, output = self.configure(value)
            self.assertEqual(status, 0, output)
            self.assertIn("CUDA: found toolkit 12.4.131, NCCL 2.19.3 and cuDNN 9.1.0 -- found: TRUE", output)

    def test_does_without_cudnn(self):
        (self.toolkit / "lib64/libcudnn.so").unlink()

        status, output = self.configure("ON")

        self.assertEqual(status, 0, output)
        self.assertIn("NCCL 2.19.3 and no cuDNN", output)

    def test_auto_leaves_out_what_on_refuses(self):
        (self.toolkit / "lib64/libnccl.so").unlink()
        reason = "NCCL 2.19 or later is not found (NCCL_ROOT)"

        status, output = self.configure("AUTO")

        self.assertEqual(status, 0, output)
        self.assertIn(f"CUDA: left out: {reason} -- found: FALSE", output)
        self.refused("ON", f"LOCKSTEP_CUDA=ON: {reason}")

    def test_old_versions_are_named(self):
        self.header("nccl.h", NCCL_MAJOR=2, NCCL_MINOR=18, NCCL_PATCH=5)
        self.refused("ON", "LOCKSTEP_CUDA=ON: NCCL 2.18.5 is older than 2.19 (NCCL_ROOT)")

        self.nvcc("12.2.140")
        self.refused("ON", "LOCKSTEP_CUDA=ON: CUDA toolkit 12.2.140 is older than 12.4 (CUDAToolkit_ROOT)")

    def test_a_toolkit_without_cublaslt_is_refused(self):
        (self.toolkit / "lib64/libcublasLt.so").unlink()

        self.refused("ON", "cuBLASLt is not in the CUDA toolkit of")

    def test_no_toolkit_at_all(self):
        folders = self.environment["PATH"].split(":")
        self.environment["PATH"] = ":".join(folder for folder in folders if not pathlib.Path(folder, "nvcc").exists())

        status, output = self.configure(root=self.scratch / "nowhere")

        self.assertEqual(status, 0, output)
        self.assertIn("CUDA: left out: CUDA toolkit 12.4 or later is not found (CUDAToolkit_ROOT)", output)

    def test_off_does_not_look_and_other_words_are_refused(self):
        status, output = self.configure("OFF")

        self.assertEqual(status, 0, output)
        self.assertIn("CUDA: left out by LOCKSTEP_CUDA=OFF -- found: FALSE", output)
        self.refused("MAYBE", "LOCKSTEP_CUDA is 'MAYBE': expected AUTO, ON or OFF")


if __name__ == "__main__":
    unittest.main()
