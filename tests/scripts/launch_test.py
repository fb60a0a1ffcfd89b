"""Tests of scripts/launch with a stand-in for mpirun, so that no rank is started."""
import shlex
import signal
import time
import unittest

from support import SCRIPTS, ScriptTest

LAUNCH = SCRIPTS / "launch"


class LaunchTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.environment["LOCKSTEP"] = str(self.fake("lockstep", "exit 0"))
        self.fake("nproc", "echo 8")
        self.fake("lscpu", "echo 'Thread(s) per core:  2'")
        self.fake("nvidia-smi", "exit 9")

    def command_line(self, *arguments):
        result = self.run_script(LAUNCH, "--dry-run", *arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return shlex.split(result.stdout)

    def fake_mpirun(self, *statuses):
        """Leaves with one status after the other, the last one for ever; counts its starts in a file."""
        starts = self.scratch / "starts"
        starts.write_text("")
        self.fake("mpirun", f"""
            statuses=({' '.join(map(str, statuses))})
            started=$(wc -l <{starts}); echo "$*" >>{starts}
            exit ${{statuses[started < {len(statuses)} ? started : {len(statuses) - 1}]}}""")
        return starts

    def test_shares_the_cores_among_the_ranks(self):
        line = self.command_line("-n", "2", "--", "train", "--run.seed", "a b")

        self.assertEqual(line[:7], ["mpirun", "-n", "2", "--map-by", "slot:PE=2", "--bind-to", "core"])
        self.assertEqual(line[7:], [self.environment["LOCKSTEP"], "train", "--run.seed", "a b"])

    def test_starts_a_rank_a_core_when_there_is_no_gpu(self):
        self.assertEqual(self.command_line("train")[1:3], ["-n", "4"])

    def test_starts_a_rank_a_gpu(self):
        self.fake("nvidia-smi", "echo 'GPU 0: A'; echo 'GPU 1: B'")

        self.assertEqual(self.command_line("train")[1:3], ["-n", "2"])

    def test_does_not_bind_more_ranks_than_cores(self):
        line = self.command_line("-n", "5", "train")

        self.assertEqual(line[3:6], ["--oversubscribe", "--bind-to", "none"])

    def test_does_not_bind_when_confined_to_some_cores(self):
        self.fake("nproc", "[[ ${1:-} == --all ]] && echo 16 || echo 8")

        self.assertEqual(self.command_line("-n", "2", "train")[3:5], ["--bind-to", "none"])

    def test_a_host_file_brings_keep_alive_and_environment(self):
        hosts = self.scratch / "hosts"
        hosts.write_text("# two hosts\none slots=2\ntwo slots=4 max_slots=4\n")
        self.environment["NCCL_DEBUG"] = "INFO"

        line = self.command_line("--hostfile", hosts, "train")

        self.assertNotIn("-n", line)
        self.assertEqual(line[line.index("oob_tcp_keepalive_time") + 1], "5")
        self.assertEqual(line[line.index("NCCL_DEBUG") - 1], "-x")
        self.assertEqual(line[line.index("--map-by") + 1], "slot:PE=1")

    def test_refuses_a_wrong_request_with_status_2(self):
        for arguments in (["-n", "0", "train"], ["-n", "two", "train"], ["-n"], [], ["--wrong", "train"],
                          ["--hostfile", self.scratch / "absent", "train"]):
            result = self.run_script(LAUNCH, *arguments)

            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn("launch: ", result.stderr)

    def test_refuses_a_missing_program_with_status_2(self):
        self.environment["LOCKSTEP"] = str(self.scratch / "absent")

        result = self.run_script(LAUNCH, "train")

        self.assertEqual(result.returncode, 2)
        self.assertIn("absent", result.stderr)

    def test_starts_a_training_again_after_75_and_after_a_crash(self):
        starts = self.fake_mpirun(75, 139, 0)

        result = self.run_script(LAUNCH, "-n", "1", "train")

        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(len(starts.read_text().splitlines()), 3)

    def test_does_not_start_again_after_success_or_a_wrong_request(self):
        for status in (0, 2):
            starts = self.fake_mpirun(status)

            result = self.run_script(LAUNCH, "-n", "1", "train")

            self.assertEqual(result.returncode, status)
            self.assertEqual(len(starts.read_text().splitlines()), 1)

    def test_gives_up_after_max_restarts(self):
        starts = self.fake_mpirun(3)

        result = self.run_script(LAUNCH, "-n", "1", "--max-restarts", "1", "train")

        self.assertEqual(result.returncode, 3)
        self.assertEqual(len(starts.read_text().splitlines()), 2)

    def test_commands_that_cannot_resume_run_once(self):
        starts = self.fake_mpirun(3)

        result = self.run_script(LAUNCH, "-n", "1", "evaluate")

        self.assertEqual(result.returncode, 3)
        self.assertEqual(len(starts.read_text().splitlines()), 1)

    def test_signals_reach_mpirun_as_usr1_and_the_checkpoint_is_awaited(self):
        saved = self.scratch / "saved"
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            self.fake("mpirun", f"""
                trap 'sleep 0.5; echo saved >{saved}; exit 75' USR1
                trap 'exit 99' TERM INT
                echo ready
                while true; do sleep 0.05; done""")
            launch = self.start(LAUNCH, "-n", "1", "train")
            self.assertEqual(launch.stdout.readline(), "ready\n")

            launch.send_signal(number)
            launch.communicate(timeout=30)

            self.assertEqual(launch.returncode, 75)
            self.assertEqual(saved.read_text(), "saved\n")
            saved.unlink()

    def test_a_second_interrupt_ends_the_job_at_once(self):
        self.fake("mpirun", """
            trap 'echo asked' USR1
            trap 'exit 99' TERM
            echo ready
            while true; do sleep 0.05; done""")
        launch = self.start(LAUNCH, "-n", "1", "train")
        self.assertEqual(launch.stdout.readline(), "ready\n")

        launch.send_signal(signal.SIGINT)
        self.assertEqual(launch.stdout.readline(), "asked\n")
        launch.send_signal(signal.SIGINT)
        began = time.monotonic()
        launch.communicate(timeout=30)

        self.assertEqual(launch.returncode, 99)
        self.assertLess(time.monotonic() - began, 10)

    def test_standard_input_reaches_the_ranks(self):
        self.fake("mpirun", "cat")

        result = self.run_script(LAUNCH, "-n", "1", "generate", input="a prompt")

        self.assertEqual(result.stdout, "a prompt")


if __name__ == "__main__":
    unittest.main()
