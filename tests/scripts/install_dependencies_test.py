"""Tests of scripts/install_dependencies with stand-ins for dpkg-query and apt-get."""
import unittest

from support import SCRIPTS, ScriptTest

INSTALL = SCRIPTS / "install_dependencies"


class InstallTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.log = self.scratch / "apt"
        self.log.write_text("")
        self.fake("apt-get", f'echo "$@" >>{self.log}')
        self.fake("sudo", '"$@"')
        self.on_system("ID=debian\nVERSION_ID=12\n")

    def on_system(self, text):
        path = self.scratch / "os-release"
        path.write_text(text)
        self.environment["LOCKSTEP_OS_RELEASE"] = str(path)

    def installed(self, *names):
        lines = "".join(f"{name} installed\\n" for name in names)
        self.fake("dpkg-query", f"printf '{lines}removed config-files\\n'; exit 1")

    def test_does_nothing_when_nothing_is_missing(self):
        packages = self.run_script(INSTALL, "--list", "cluster").stdout.split()
        self.installed(*packages)

        result = self.run_script(INSTALL, "cluster")

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.log.read_text(), "")

    def test_installs_only_what_is_missing(self):
        packages = self.run_script(INSTALL, "--list", "cluster").stdout.split()
        self.installed(*packages[1:])

        result = self.run_script(INSTALL, "cluster")

        self.assertEqual(result.returncode, 0, result.stderr)
        update, install = self.log.read_text().splitlines()
        self.assertTrue(update.endswith(" update"))
        self.assertTrue(install.endswith(f" --no-install-recommends {packages[0]}"), install)

    def test_lists_the_packages_and_stops_on_another_system(self):
        self.on_system("ID=fedora\nVERSION_ID=40\n")

        result = self.run_script(INSTALL, "build")

        self.assertEqual(result.returncode, 2)
        self.assertIn("libopenmpi-dev", result.stderr)
        self.assertEqual(self.log.read_text(), "")

    def test_refuses_an_unknown_group(self):
        result = self.run_script(INSTALL, "bild")

        self.assertEqual(result.returncode, 2)
        self.assertIn("'bild'", result.stderr)


if __name__ == "__main__":
    unittest.main()
