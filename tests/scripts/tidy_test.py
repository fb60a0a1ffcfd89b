"""Tests of scripts/tidy and scripts/format with a stand-in for clang-tidy, in a repository of their own."""
import json
import shutil
import subprocess
import unittest

from support import ROOT, SCRIPTS, ScriptTest


class TidyTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.root = self.scratch / "repository"
        for folder in ("scripts", "src", "build/release"):
            (self.root / folder).mkdir(parents=True)
        for name in ("tidy", "format"):
            shutil.copy(SCRIPTS / name, self.root / "scripts" / name)
        shutil.copy(ROOT / ".clang-format", self.root)
        (self.root / ".clang-tidy").write_text("Checks: '*'\n")
        (self.root / "src/a.h").write_text("int a();\n")
        (self.root / "src/a.cpp").write_text('#include "a.h"\nint a() {\n  return 1;\n}\n')
        (self.root / "src/b.cpp").write_text("int b() {\n  return 2;\n}\n")
        entries = [{"directory": str(self.root / "build/release"), "file": str(self.root / "src" / name),
                    "command": f"c++ -o {name}.o -c {self.root}/src/{name}"} for name in ("a.cpp", "b.cpp")]
        (self.root / "build/release/compile_commands.json").write_text(json.dumps(entries))
        self.environment["XDG_CACHE_HOME"] = str(self.root / ".cache")
        self.environment.pop("LOCKSTEP_CACHE_DIR", None)
        self.git("init", "-q")
        self.git("add", ".")
        self.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "-q", "-m", "first")
        self.fake_tidy("")

    def git(self, *arguments):
        subprocess.run(["git", "-C", self.root, *arguments], check=True, env=self.environment)

    def fake_tidy(self, findings):
        self.fake("clang-tidy-14", f"""
            [[ $1 != --version ]] || {{ echo 'LLVM version 14.0.6'; exit; }}
            printf '%s' '{findings}'""")

    def tidy(self, *arguments):
        result = self.run_script(self.root / "scripts/tidy", *arguments)
        return result.returncode, result.stdout.splitlines()[-1] if result.stdout else result.stderr

    def test_a_clean_file_is_not_checked_again_until_it_changes(self):
        self.assertEqual(self.tidy(), (0, "tidy: 0 with findings, 2 clean, 0 clean before, 0 not changed"))
        self.assertEqual(self.tidy(), (0, "tidy: 0 with findings, 0 clean, 2 clean before, 0 not changed"))

        (self.root / "src/a.h").write_text("int a();  // NOLINT\n")

        self.assertEqual(self.tidy(), (0, "tidy: 0 with findings, 1 clean, 1 clean before, 0 not changed"))

    def test_other_checks_are_run_anew(self):
        self.tidy()
        (self.root / ".clang-tidy").write_text("Checks: 'bugprone-*'\n")

        self.assertEqual(self.tidy(), (0, "tidy: 0 with findings, 2 clean, 0 clean before, 0 not changed"))

    def test_a_finding_fails_and_is_not_remembered(self):
        self.fake_tidy("a.cpp:1:1: error: wrong")

        for _ in range(2):
            self.assertEqual(self.tidy(), (1, "tidy: 2 with findings, 0 clean, 0 clean before, 0 not changed"))

    def test_changed_covers_the_sources_that_include_a_changed_header(self):
        (self.root / "src/a.h").write_text("int a();\nint c();\n")

        self.assertEqual(self.tidy("--changed", "HEAD"),
                         (0, "tidy: 0 with findings, 1 clean, 0 clean before, 1 not changed"))

    def test_a_missing_build_folder_and_another_version_are_refused(self):
        status, message = self.tidy("-p", "build/absent")
        self.assertEqual(status, 2)
        self.assertIn("configure first", message)

        self.fake("clang-tidy-14", "echo 'LLVM version 15.0.1'")
        status, message = self.tidy()
        self.assertEqual(status, 2)
        self.assertIn("is not version 14", message)

    def test_format_names_what_is_laid_out_otherwise_and_refuses_another_version(self):
        if shutil.which("clang-format-14"):
            script = self.root / "scripts/format"
            self.assertEqual(self.run_script(script).returncode, 0)
            (self.root / "src/b.cpp").write_text("int b ( ) { return 2; }\n")
            result = self.run_script(script)
            self.assertEqual(result.returncode, 1)
            self.assertIn("b.cpp:1", result.stderr)
            self.assertEqual(self.run_script(script, "--fix").returncode, 0)
            self.assertEqual(self.run_script(script).returncode, 0)

        self.fake("clang-format-14", "echo 'clang-format version 15.0.1'")
        result = self.run_script(self.root / "scripts/format")
        self.assertEqual(result.returncode, 2)
        self.assertIn("expected 14", result.stderr)


if __name__ == "__main__":
    unittest.main()
