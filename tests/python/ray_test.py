"""convoy.ray: labels from a cluster on this machine, equal to one process's, also where a worker is killed."""

import csv
import doctest
import gzip
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

import numpy as np

import convoy

try:
    import pyarrow.parquet as parquet
    from PIL import Image

    import convoy.ray

    convoy.ray._ray()
    MISSING = ""
except (ImportError, convoy.Error) as error:
    MISSING = f"needs ray[data] and pillow ({error}); `.ci/run ray` installs them"

FASHION = Path("/usr/share/datasets/fashion-mnist/train-images-idx3-ubyte.gz")
COMMAND = [sys.executable, "-P", "-m", "convoy.ray"]


def write_idx(path, images):
    path.write_bytes(struct.pack(f">{1 + images.ndim}I", 0x800 + images.ndim, *images.shape) + images.tobytes())


def many_images():
    """(file of 60,000 images, the images): Fashion-MNIST's training set, or drawn ones where it is not installed."""
    if FASHION.exists():
        return FASHION, np.frombuffer(gzip.decompress(FASHION.read_bytes()), np.uint8, offset=16).reshape(-1, 28, 28)
    images = np.random.default_rng(1).integers(0, 256, (60000, 28, 28), np.uint8)
    path = Path(tempfile.mkdtemp(prefix="convoy-ray-")) / "images"
    write_idx(path, images)
    return path, images


def descendants(root):
    """{pid: its title} of a process's children, theirs and so on."""
    parents, titles = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            stat = (folder / "stat").read_text()
            titles[int(folder.name)] = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        parents[int(folder.name)] = int(stat.rpartition(")")[2].split()[1])
    family, new = {root}, {root}
    while new:
        new = {pid for pid, parent in parents.items() if parent in new} - family
        family |= new
    return {pid: titles[pid] for pid in family if pid in titles}


@unittest.skipIf(MISSING, MISSING)
class Killed(unittest.TestCase):
    def test_a_killed_worker_loses_and_doubles_nothing(self):
        source, images = many_images()
        expected = convoy.Network(convoy.demo_model(), threads=1).labels(images)
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, "labels.parquet")
            # Small batches, so that there is time to kill in.
            command = [*COMMAND, convoy.demo_model(), str(source), "-o", str(out), "--workers", "4", "--batch", "50"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
                killed, workers = None, set()
                limit = time.monotonic() + 240
                while not killed and process.poll() is None and time.monotonic() < limit:
                    titles = {pid: title for pid, title in descendants(process.pid).items() if "_Worker" in title}
                    workers |= set(titles)
                    running = [pid for pid, title in titles.items() if ".submit" in title]
                    if len(workers) == 4 and running:  # all four have begun; one of them is in the middle of a block
                        killed = running[0]
                        os.kill(killed, signal.SIGKILL)
                    time.sleep(0.002)
                output, errors = process.communicate(timeout=300)
            self.assertEqual(process.returncode, 0, errors)
            self.assertIsNotNone(killed, f"no worker was seen at work: {workers}\n{output}\n{errors}")
            # Ray's own lines, which say that a worker died, may stand before and behind it.
            self.assertIn(f"60000 labels of 60000 images: {out}", output.splitlines())
            self.assertRegex(output, "worker died|unavailable|unexpectedly")
            table = parquet.read_table(out)
        self.assertEqual(table.column_names, ["image", "label"])
        np.testing.assert_array_equal(table["image"].to_numpy(), np.arange(60000))
        np.testing.assert_array_equal(table["label"].to_numpy(), expected)


@unittest.skipIf(MISSING, MISSING)
class Cluster(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ray = convoy.ray._ray()
        convoy.ray.connect(None, 3)
        cls.temporary = tempfile.TemporaryDirectory()
        cls.here = Path(cls.temporary.name)
        cls.images = np.random.default_rng(7).integers(0, 256, (211, 28, 28), np.uint8)
        write_idx(cls.here / "images", cls.images)
        cls.network = convoy.Network(convoy.demo_model(), threads=1)
        cls.logits = cls.network(cls.images)
        cls.labels = cls.network.labels(cls.images)

    @classmethod
    def tearDownClass(cls):
        cls.ray.shutdown()
        cls.temporary.cleanup()

    def pictures(self, name, count=23):
        folder = self.here / name
        (folder / "part").mkdir(parents=True)
        for i in range(count):
            Image.fromarray(self.images[i]).save(folder / ("part" if i % 2 else ".") / f"{i:03}.png")
        return folder

    def classify(self, source, **options):
        import pyarrow as pa

        return pa.concat_tables(convoy.ray.classify(convoy.demo_model(), source, **options))

    def test_drawn_batches_and_workers(self):
        for seed in range(3):
            draw = random.Random(seed)
            workers, batch = draw.choice([1, 2, 3]), draw.choice([1, 2, 17, 100, 211, 5000])
            with self.subTest(seed=seed, workers=workers, batch=batch):
                table = self.classify(self.here / "images", workers=workers, batch=batch, logits=True)
                np.testing.assert_array_equal(table["image"].to_numpy(), np.arange(211))
                np.testing.assert_array_equal(table["label"].to_numpy(), self.labels)
                logits = np.stack([table[f"logit{k}"].to_numpy() for k in range(10)], axis=1)
                np.testing.assert_array_equal(logits, self.logits)

    def test_pictures_to_csv(self):
        folder = self.pictures("png")
        out = self.here / "labels.csv"
        rows = convoy.ray.write(convoy.ray.classify(convoy.demo_model(), folder, workers=2, batch=5), out)
        self.assertEqual(rows, 23)
        with open(out, newline="") as file:
            found = {row["image"]: int(row["label"]) for row in csv.DictReader(file)}
        names = {(f"part/{i:03}.png" if i % 2 else f"{i:03}.png"): int(self.labels[i]) for i in range(23)}
        self.assertEqual(found, names)
        self.assertEqual(list(found), sorted(found))

    def test_the_class_in_a_pipeline_of_ones_own(self):
        for model in (convoy.demo_model(), convoy.ray.pack(convoy.demo_model())):
            rows = self.ray.data.from_items([{"pixels": image, "name": f"n{i}"} for i, image in enumerate(self.images)])
            labels = rows.map_batches(
                convoy.ray.Classifier, fn_constructor_args=[model], fn_constructor_kwargs={"column": "pixels"},
                batch_size=20, compute=self.ray.data.ActorPoolStrategy(size=1), num_cpus=1)  # fmt: skip
            found = {row["name"]: row["label"] for row in labels.take_all()}
            self.assertEqual(found, {f"n{i}": label for i, label in enumerate(self.labels)})

    def test_what_a_batch_may_not_be(self):
        classifier = convoy.ray.Classifier(convoy.demo_model())
        self.assertEqual(classifier({"image": self.images[:0]})["label"].shape, (0,))
        with self.assertRaisesRegex(convoy.Error, "no column 'image' among .'pixels'."):
            classifier({"pixels": self.images})
        with self.assertRaisesRegex(convoy.Error, "27"):
            classifier({"image": self.images[:, :27]})
        ragged = np.empty(2, object)
        ragged[:] = [self.images[0], self.images[1, :5]]
        with self.assertRaisesRegex(convoy.Error, "2 shapes.*28, 28, 1"):
            classifier({"image": ragged})

    def test_pictures_that_are_none(self):
        folder = self.pictures("broken")
        (folder / "zzz.png").write_bytes(b"certainly none")
        out = self.here / "never.csv"
        with self.assertRaisesRegex(convoy.Error, "zzz.png.*Expected a picture"):
            convoy.ray.write(convoy.ray.classify(convoy.demo_model(), folder, batch=7), out)
        Image.fromarray(self.images[0, :20]).save(folder / "zzz.png")
        with self.assertRaisesRegex(convoy.Error, "zzz.png: 20x28.*expected 28x28.*--resize"):
            convoy.ray.write(convoy.ray.classify(convoy.demo_model(), folder, batch=7), out)
        self.assertEqual([path.name for path in self.here.iterdir() if path.name.startswith("never")], [])
        self.assertEqual(len(self.classify(folder, batch=7, resize=True)), 24)

    def test_docstrings(self):
        done = doctest.testmod(convoy.ray, extraglobs={"convoy": convoy})
        self.assertEqual(done.failed, 0)
        self.assertGreater(done.attempted, 0)

    def test_a_file_that_changes(self):
        path = self.here / "changing"
        for count in (3, 5):
            write_idx(path, self.images[:count])
            self.assertEqual(convoy.ray.find_images(path, (28, 28, 1)).count, count)

    def test_more_workers_than_the_cluster_has(self):
        with self.assertRaisesRegex(convoy.Error, "4 workers of 1 threads: the cluster has 3 CPUs"):
            self.classify(self.here / "images", workers=4)

    def test_a_client_without_the_token_is_refused(self):
        address = self.ray.get_runtime_context().gcs_address
        environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": "0" * 64}
        command = [*COMMAND, convoy.demo_model(), str(self.here / "images"), "-o", str(self.here / "no.csv")]
        result = subprocess.run(
            [*command, "--address", address], env=environment, capture_output=True, text=True, timeout=200)
        self.assertNotEqual(result.returncode, 0, result.stdout)
        self.assertFalse((self.here / "no.csv").exists())
        self.assertRegex(result.stderr.lower(), "token|auth")


@unittest.skipIf(MISSING, MISSING)
class Command(unittest.TestCase):
    """Input that is wrong is told before a cluster is started."""

    def test_wrong_input(self):
        with tempfile.TemporaryDirectory() as folder:
            here = Path(folder)
            write_idx(here / "small", np.zeros((3, 9, 9), np.uint8))
            write_idx(here / "good", np.zeros((3, 28, 28), np.uint8))
            (here / "short").write_bytes((here / "good").read_bytes()[:-1])
            (here / "short.gz").write_bytes(gzip.compress(b"abc" * 99)[:-9])
            (here / "text").write_text("certainly none")
            (here / "empty").mkdir()
            model = convoy.demo_model()
            for words, expected in (
                ([model, here / "small"], r"images of \(9, 9, 1\), expected \(28, 28, 1\)"),
                ([model, here / "short"], "Check whether it was cut short"),
                ([model, here / "short.gz"], "Expected a folder of pictures, or an IDX file"),
                ([model, here / "text"], "no IDX file of images"),
                ([model, here / "absent"], "absent.*Expected a folder of pictures"),
                ([model, here / "empty"], "no picture in it"),
                ([here / "empty", here / "good"], "network.txt"),
                ([model, here / "good", "-o", "labels.txt"], "ends in .csv or .parquet"),
                ([model, here / "good", "-o", here / "absent/labels.csv"], "no folder"),
                ([model, here / "good", "--workers", "0"], "expected 1 or more"),
                ([model, here / "good", "--address", "auto"], "no Ray cluster at auto"),
            ):
                with self.subTest(expected):
                    out = [] if "-o" in words else ["-o", here / "labels.csv"]
                    result = subprocess.run([*COMMAND, *map(str, [*words, *out])], capture_output=True, text=True)
                    self.assertEqual(result.returncode, 2, result.stderr)
                    self.assertRegex(result.stderr, expected)
                    self.assertNotIn("Traceback", result.stderr)
            self.assertFalse((here / "labels.csv").exists())


if __name__ == "__main__":
    unittest.main()
