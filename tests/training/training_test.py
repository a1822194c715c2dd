#!/usr/bin/env python3
"""python/train_fashion.py on 60 drawn images: a run that was killed and resumed ends as one that was not, to the bit.

The same by two processes of torchrun, of which one is killed, and that they train what one process trains.

    CONVOY_TORCH_PYTHON=.venv/bin/python tests/training/training_test.py [unittest options]

The interpreter needs python/requirements.txt; without the variable everything here is skipped.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

PYTHON = os.environ.get("CONVOY_TORCH_PYTHON")
SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "python/train_fashion.py"
# Images beyond the validation set's 5,000; --limit takes 60 of each.
IMAGES = 5100
NETWORK = """# a small one
input u8:h28w28c1 mean(0.5) std(0.5)
steps 3
conv1 k4r5+bias+if(1)+max2
conv2 k6r3pad1+bias+lif(2,0.5)+soft+max2
flatten
fc1 k10+bias
"""
OPTIONS = ["--teachers", "0", "--limit", "60", "--batch", "20", "--seeds", "2", "--epochs", "12", "--every", "1",
           "--gain", "4", "--device", "cpu"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


class Runs(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.here = pathlib.Path(tempfile.mkdtemp(prefix="convoy-training-"))
        draw = random.Random(3)
        labels = bytes(draw.randrange(10) for _ in range(IMAGES))
        for name, magic, sizes, data in (
                ("train-images-idx3-ubyte", 0x803, (IMAGES, 28, 28), draw.randbytes(IMAGES * 784)),
                ("train-labels-idx1-ubyte", 0x801, (IMAGES,), labels)):
            (cls.here / name).write_bytes(struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + data)
        cls.network = cls.here / "network.txt"
        cls.network.write_text(NETWORK)
    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.here)

    @classmethod
    def command(cls, out, *words):
        return [PYTHON, str(SCRIPT), "train", "--data", str(cls.here), "--network", str(cls.network), "--out", str(out),
                *OPTIONS, *words]

    @classmethod
    def run_command(cls, command):
        return subprocess.run(command, capture_output=True, text=True, timeout=300, env=ONE_THREAD)

    @classmethod
    def train(cls, out, *words, code=0):
        result = cls.run_command(cls.command(out, *words))
        if result.returncode != code:
            raise AssertionError(f"exit code {result.returncode}\n{result.stdout}\n{result.stderr}")
        return result

    def killed(self, name, *words):
        """A run's folder, killed once it has a checkpoint."""
        out = self.here / name
        with subprocess.Popen(self.command(out, *words), stdout=subprocess.DEVNULL,
                              env=ONE_THREAD) as process:
            limit = time.monotonic() + 120
            while not (out / "checkpoint.pt").exists():
                self.assertIsNone(process.poll(), "the run ended before it could be killed")
                self.assertLess(time.monotonic(), limit)
                time.sleep(0.005)
            process.send_signal(signal.SIGKILL)
        self.assertFalse((out / "results.json").exists())
        return out

    def refused(self, result, *words):
        self.assertEqual(len(result.stderr.strip().splitlines()), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def same(self, out, whole):
        """Both folders hold the same run, to the bit."""
        self.assertEqual((out / "students.npz").read_bytes(), (whole / "students.npz").read_bytes())
        results = [json.loads((folder / "results.json").read_text()) for folder in (out, whole)]
        for result in results:
            del result["seconds"]
        self.assertEqual(*results)
        self.assertEqual(sorted(p.name for p in out.iterdir()), sorted(p.name for p in whole.iterdir()))
        return results[0]


@unittest.skipUnless(PYTHON, "CONVOY_TORCH_PYTHON is not set")
class Training(Runs):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = cls.here / "whole"
        cls.train(cls.whole, "--preset", "ours")

    def test_a_killed_run_goes_on_to_the_same_bits(self):
        out = self.killed("killed")
        log = self.train(out, "--resume").stdout
        self.assertIn("resumed after epoch ", log)
        self.assertNotIn("resumed after epoch 0\n", log)
        self.assertEqual(len(self.same(out, self.whole)["history"]), 12)
        self.refused(self.train(out, "--resume", code=2), "complete")

    def test_what_is_no_checkpoint_is_refused(self):
        out = self.killed("broken")
        good = (out / "checkpoint.pt").read_bytes()
        half = len(good) // 2
        for name, data in (("cut short", good[:half]), ("empty", b""), ("text", b"certainly none"),
                           ("one bit", good[:half] + bytes([good[half] ^ 1]) + good[half + 1:])):
            with self.subTest(name):
                (out / "checkpoint.pt").write_bytes(data)
                result = self.run_command(self.command(out, "--resume"))
                self.assertEqual(result.returncode, 2, f"{result.stdout}\n{result.stderr}")
                self.refused(result, "checkpoint.pt", "Remove it")
        other = self.killed("other", "--seed", "9")
        shutil.copy(other / "checkpoint.pt", out / "checkpoint.pt")
        self.refused(self.train(out, "--resume", code=2), "checkpoint.pt", "other settings")

    def test_other_options_are_refused(self):
        out = self.killed("options")
        self.refused(self.train(out, "--resume", "--lr", "0.5", code=2), "lr", "0.02", "0.5")
        self.refused(self.train(out, "--resume", "--steps", "4", code=2), "network")
        self.refused(self.train(out, code=2), "--resume")
        self.refused(self.train(self.here / "absent", "--resume", code=2), "settings.json")

    def test_steps_presets_and_export(self):
        out, model = self.here / "steps", self.here / "model"
        self.train(out, "--steps", "1", "--preset", "document", "--epochs", "1")
        settings = json.loads((out / "settings.json").read_text())
        self.assertEqual((settings["seed"], settings["surrogate"], settings["through_reset"]), (42, "sigmoid", True))
        for form, name in (("text", "fc1.weight.txt"), ("safetensors", "model.safetensors")):
            result = self.run_command([PYTHON, str(SCRIPT), "export", str(out), str(model / form), "--form", form])
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertTrue((model / form / name).exists())
            self.assertIn("\nsteps 1\n", (model / form / "network.txt").read_text())
        readers = "from training import description as d, weights as w\n" \
                  "import sys, torch\n" \
                  "n = d.read(sys.argv[1] + '/text')\n" \
                  "a, b = (w.read_weights(sys.argv[1] + f, n) for f in ('/text', '/safetensors'))\n" \
                  "assert a.keys() == b.keys() == n.shapes.keys()\n" \
                  "assert all(torch.equal(a[k], b[k]) for k in a)\n"
        result = subprocess.run([PYTHON, "-c", readers, str(model)], capture_output=True, text=True, cwd=SCRIPT.parent)
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_networks_that_cannot_be_trained(self):
        for old, new, word in (("k4r5", "k4r6", "even sizes"), ("+if(1)", "", "neuron"),
                               ("steps 3", "steps x", "number"), ("steps 3", "steps 0", "1 or more"),
                               ("flatten", "", "linear"), ("c1 ", "c4 ", "28x28x1"),
                               ("k6r3pad1", "k6r3stride2", "Expected")):
            with self.subTest(new):
                path = self.here / "wrong.txt"
                path.write_text(NETWORK.replace(old, new, 1))
                self.refused(self.train(self.here / "never", "--network", str(path), code=2), word)
                shutil.rmtree(self.here / "never", ignore_errors=True)


@unittest.skipUnless(PYTHON, "CONVOY_TORCH_PYTHON is not set")
class Torchrun(Runs):
    """Two processes over gloo."""

    @classmethod
    def command(cls, out, *words, restarts=0):
        first, *rest = super().command(out, *words, "--epochs", "30")
        return [first, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts",
                str(restarts), *rest]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.whole = cls.here / "whole"
        log = cls.train(cls.whole).stdout
        assert "2 processes" in log, log

    def ranks(self, torchrun):
        """{rank: process id} of the processes that torchrun has started."""
        found = {}
        for folder in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == torchrun:
                    words = (folder / "environ").read_bytes().split(b"\0")
                    found.update({int(word[5:]): int(folder.name) for word in words if word.startswith(b"RANK=")})
            except OSError:
                continue
        return found

    def kill(self, name, rank, restarts):
        """(folder, torchrun's exit code, output) of a run; process `rank` is killed behind the first checkpoint."""
        out = self.here / name
        with subprocess.Popen(self.command(out, restarts=restarts), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, env=ONE_THREAD) as process:
            limit = time.monotonic() + 120
            while not (out / "checkpoint.pt").exists():
                self.assertIsNone(process.poll(), "the run ended before it could be killed")
                self.assertLess(time.monotonic(), limit)
                time.sleep(0.005)
            os.kill(self.ranks(process.pid)[rank], signal.SIGKILL)
            output = process.communicate(timeout=300)[0]
        self.assertRegex(output, r"exitcode *: -9\b")
        return out, process.returncode, output

    def test_two_processes_train_what_one_trains(self):
        one, two = self.here / "one", self.here / "two"
        alone = Runs.command.__func__(type(self), one, "--epochs", "1")
        for command in (alone, [*self.command(two), "--epochs", "1"]):
            result = self.run_command(command)
            self.assertEqual(result.returncode, 0, result.stderr)
        code = "import numpy as np, sys\n" \
               "a, b, start = (np.load(f) for f in sys.argv[1:])\n" \
               "print(max(abs(a[n] - b[n]).max() for n in a.files), min(abs(a[n] - start[n]).max() for n in a.files))\n"
        files = [folder / "students.npz" for folder in (one, two, self.whole)]
        result = subprocess.run([PYTHON, "-c", code, *map(str, files)], capture_output=True, text=True)
        self.assertEqual(result.returncode, 0, result.stderr)
        difference, trained = map(float, result.stdout.split())
        # Three steps: what the order of sums changes has not grown yet; 29 more epochs move every parameter further.
        self.assertLess(difference, 1e-4)
        self.assertGreater(trained, 1e-3)

    def test_one_killed_and_resumed_by_a_second_command(self):
        out, code, _ = self.kill("resumed", rank=1, restarts=0)
        self.assertNotEqual(code, 0)
        self.assertFalse((out / "results.json").exists())
        log = self.train(out, "--resume").stdout
        self.assertIn("resumed after epoch ", log)
        self.same(out, self.whole)

    def test_one_killed_and_started_again_by_torchrun(self):
        out, code, output = self.kill("restarted", rank=0, restarts=1)
        self.assertEqual(code, 0, output)
        self.assertIn("resumed after epoch ", output)
        self.same(out, self.whole)

    def test_what_is_refused(self):
        for words, expected in ((["--batch", "15"], "multiple of the 2 processes"), ([], "exists already")):
            result = self.run_command(self.command(self.whole, *words))
            self.assertNotEqual(result.returncode, 0)
            self.assertIn(expected, result.stderr)
        told = [line for line in result.stderr.splitlines() if line.startswith("train_fashion.py: ")]
        self.assertEqual(len(told), 1, result.stderr)  # by process 0 alone
        out = self.here / "other"
        (out).mkdir()
        settings = json.loads((self.whole / "settings.json").read_text())
        (out / "settings.json").write_text(json.dumps({**settings, "processes": 4}))
        result = self.run_command(self.command(out, "--resume"))
        self.assertIn("processes 4, and is now resumed with 2", result.stderr)


if __name__ == "__main__":
    unittest.main()
