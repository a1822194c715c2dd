"""What the tests of the program share: running it as a user does, a small model and a few images.

The model has seeded weights and lies in a temporary folder; each test spoils one thing and expects
exit code 2, a message of at most three lines on standard error that names what was found and what
was expected, and nothing on standard output.
"""
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tempfile
import unittest

PROGRAM = os.path.abspath(os.environ.get("CONVOY_PROGRAM", "build/release/bin/convoy"))
IMAGES, SIZE, CLASSES = 12, 6, 3
STAGE = "n2h8c16k16r3pad1+bias+relu+max2"
# A spiking network, and how many weights and biases its layers have.
STEPS = 3
SPIKING = f"""input u8:h{SIZE}w{SIZE}c1 mean(0.5) std(0.5)
steps {STEPS}
conv1 k3r3+bias+if(0.5)+max2
flatten
fc1 k7+bias+lif(2,0.25)+soft
fc2 k{CLASSES}+bias
"""
SPIKING_PARAMETERS = {"conv1": (3 * 9, 3), "fc1": (7 * 12, 7), "fc2": (CLASSES * 7, CLASSES)}


def convoy(*words, env=None, **options):
    options.setdefault("timeout", 120)
    environment = {**os.environ, "CONVOY_CACHE": CliTest.folder + "/cache", **(env or {})}
    return subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, env=environment, **options)


def idx(magic, sizes, data):
    return struct.pack(f">{1 + len(sizes)}I", magic, *sizes) + bytes(data)


class CliTest(unittest.TestCase):
    folder = ""

    @classmethod
    def setUpClass(cls):
        CliTest.folder = tempfile.mkdtemp(prefix="convoy-cli-")
        os.chmod(CliTest.folder, 0o755)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(CliTest.folder)

    def setUp(self):
        """A model: 6x6 images, 3x3 convolution to 2 channels, ReLU, linear to 3 classes."""
        self.here = pathlib.Path(tempfile.mkdtemp(dir=CliTest.folder))
        self.model = self.here / "model"
        self.model.mkdir()
        (self.model / "network.txt").write_text(
            f"# a test\ninput u8:h{SIZE}w{SIZE}c1 mean(0.5) std(0.5)\n"
            f"conv1 k2r3+bias+relu\nflatten\nfc1 k{CLASSES}+bias\n")
        draw = random.Random(1)
        for name, count in (("conv1.weight", 18), ("conv1.bias", 2), ("fc1.weight", 96),
                            ("fc1.bias", 3)):
            (self.model / f"{name}.txt").write_text(
                "".join(f"{draw.uniform(-1, 1):.9g}\n" for _ in range(count)))
        self.pixels = bytes(draw.randrange(256) for _ in range(IMAGES * SIZE * SIZE))
        self.images = self.write("images", idx(0x803, (IMAGES, SIZE, SIZE), self.pixels))
        self.labels = self.write("labels", idx(0x801, (IMAGES,), [i % CLASSES for i in range(IMAGES)]))

    def make_model(self, name, network, parameters):
        model = self.here / name
        model.mkdir()
        (model / "network.txt").write_text(network)
        draw = random.Random(2)
        for layer, counts in parameters.items():
            for kind, count in zip(("weight", "bias"), counts, strict=True):
                if count == 0:
                    continue
                (model / f"{layer}.{kind}.txt").write_text(
                    "".join(f"{draw.uniform(-0.5, 0.7):.9g}\n" for _ in range(count)))
        return model

    def write(self, name, data):
        path = self.here / name
        path.write_bytes(data)
        return path

    def run_model(self, *words, images=None, labels=None, model=None, **options):
        return convoy("run", model or self.model, "--images", images or self.images, "--labels",
                      labels or self.labels, *words, **options)

    def refused(self, result, *expected):
        """Exit code 2, one short message on standard error with every expected pattern in it."""
        self.assertEqual(result.returncode, 2, f"stdout: {result.stdout}\nstderr: {result.stderr}")
        self.assertEqual(result.stdout, "")
        message = result.stderr
        self.assertTrue(message.strip(), "no message")
        self.assertLessEqual(len(message.strip().splitlines()), 3, message)
        for pattern in expected:
            self.assertRegex(message, pattern)
