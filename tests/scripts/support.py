"""What the tests of the scripts share: a scratch folder whose bin/ shadows programs with small fakes."""
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"


class ScriptTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="lockstep-scripts-")
        self.addCleanup(scratch.cleanup)
        self.scratch = pathlib.Path(scratch.name)
        (self.scratch / "bin").mkdir()
        self.environment = dict(os.environ, PATH=f"{self.scratch / 'bin'}:{os.environ['PATH']}")
        for name in ("LOCKSTEP", "LOCKSTEP_SKIP_INSTALL", "LOCKSTEP_CACHE_DIR"):
            self.environment.pop(name, None)

    def fake(self, name, body, shell="bash"):
        """Puts a program NAME in front of PATH; returns its path."""
        path = self.scratch / "bin" / name
        path.write_text(f"#!/usr/bin/env {shell}\n{body}\n")
        path.chmod(0o755)
        return path

    def start(self, *command, **options):
        return subprocess.Popen([str(part) for part in command], env=self.environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def run_script(self, *command, **options):
        return subprocess.run([str(part) for part in command], env=self.environment, text=True,
                              capture_output=True, timeout=60, check=False, **options)
