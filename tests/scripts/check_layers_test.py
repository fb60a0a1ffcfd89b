"""Tests of scripts/check_layers.py on small trees."""
import unittest

from support import SCRIPTS, ScriptTest


class CheckLayersTest(ScriptTest):
    def check(self, name, text):
        """The lines printed for a tree that holds one file."""
        path = self.scratch / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        result = self.run_script(SCRIPTS / "check_layers.py", self.scratch / "src")
        path.unlink()
        self.assertEqual(result.returncode, 1 if result.stdout else 0, result.stderr)
        return result.stdout

    def test_includes_may_only_point_down(self):
        self.assertEqual(self.check("nn/linear.h", '#include "kernels/matmul.h"\n#include "nn/layer.h"\n'), "")
        self.assertIn("nn/ may not include parallel/", self.check("nn/linear.h", '#include "parallel/mesh.h"\n'))
        self.assertIn("nn/ may not include optim/", self.check("nn/linear.cpp", '  # include "optim/sgd.h"\n'))

    def test_every_folder_has_a_level(self):
        self.assertIn("folder misc/ has no level", self.check("misc/any.h", ""))

    def test_main_may_include_everything(self):
        self.assertEqual(self.check("main.cpp", '#include "cli/application.h"\n'), "")

    def test_libraries_are_known_to_their_folders_only(self):
        for header, allowed, forbidden in (("mpi.h", "comm/mpi/a.h", "comm/local/a.h"),
                                           ("mpi.h", "cli/a.cpp", "training/a.cpp"),
                                           ("oneapi/dnnl/dnnl.hpp", "kernels/cpu/a.cpp", "kernels/a.h"),
                                           ("cuda_runtime.h", "device/cuda/a.cpp", "device/a.h"),
                                           ("cublasLt.h", "kernels/cuda/a.cu", "kernels/cpu/a.cpp"),
                                           ("nccl.h", "comm/nccl/a.h", "comm/mpi/a.h"),
                                           ("CLI/CLI.hpp", "cli/a.cpp", "base/a.h")):
            self.assertEqual(self.check(allowed, f"#include <{header}>\n"), "")
            self.assertIn(f"{header} (", self.check(forbidden, f"#include <{header}>\n"))


if __name__ == "__main__":
    unittest.main()
