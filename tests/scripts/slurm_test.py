"""Tests of scripts/slurm/train.sbatch with stand-ins for srun and scontrol."""
import signal
import unittest

from support import SCRIPTS, ScriptTest

BATCH = SCRIPTS / "slurm/train.sbatch"


class SlurmTest(ScriptTest):
    def setUp(self):
        super().setUp()
        self.environment.update(SLURM_JOB_ID="42", SLURM_SUBMIT_DIR=str(self.scratch))
        self.requeued = self.scratch / "requeued"
        self.fake("scontrol", f'echo "$*" >{self.requeued}')
        self.fake("sleep", "exit 0")

    def test_the_notice_reaches_srun_and_the_job_is_requeued(self):
        self.fake("srun", """
            trap 'exit 75' USR1
            echo "started $*"
            while true; do /bin/sleep 0.05; done""")
        batch = self.start(BATCH, "--config", "a.toml")
        self.assertIn("job 42, start 1", batch.stdout.readline())
        self.assertEqual(batch.stdout.readline(),
                         f"started --mpi=pmix {self.scratch}/build/release/lockstep train --config a.toml\n")

        batch.send_signal(signal.SIGUSR1)
        batch.communicate(timeout=30)

        self.assertEqual(batch.returncode, 75)
        self.assertEqual(self.requeued.read_text(), "requeue 42\n")

    def test_a_finished_or_failed_training_is_not_requeued(self):
        for status in (0, 2, 3):
            self.fake("srun", f"exit {status}")

            self.assertEqual(self.run_script(BATCH).returncode, status)
            self.assertFalse(self.requeued.exists())


if __name__ == "__main__":
    unittest.main()
