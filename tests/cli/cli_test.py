#!/usr/bin/env python3
"""Runs the program as a user does: output, messages and exit codes, on good and on bad input.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/cli_test.py [unittest options]

A small model with seeded weights and a few images are made in a temporary folder; each test spoils
one thing and expects exit code 2, a message of at most three lines on standard error that names
what was found and what was expected, and nothing on standard output.
"""
import gzip
import json
import os
import pathlib
import random
import re
import resource
import shutil
import signal
import struct
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.environ.get("CONVOY_PROGRAM", "convoy")
SUBCOMMANDS = ["run", "bench", "verify", "explain", "tune", "devices"]
IMAGES, SIZE, CLASSES = 12, 6, 3
STAGE = "n2h8c16k16r3pad1+bias+relu+max2"


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


class Usage(CliTest):
    def test_version(self):
        result = convoy("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^\d+\.\d+\.\d+\n$")

    def test_help_of_every_subcommand_has_an_example(self):
        listed = convoy("--help").stdout
        for name in SUBCOMMANDS:
            with self.subTest(name):
                self.assertIn(name, listed)
                result = convoy(name, "--help")
                self.assertEqual(result.returncode, 0)
                self.assertRegex(result.stdout, rf"convoy {name} \S")
                self.assertIn("xample", result.stdout)

    def test_without_a_word_the_help_is_an_error(self):
        result = convoy()
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertEqual(result.stderr, convoy("--help").stdout)

    def test_wrong_usage(self):
        for words, *expected in ((["paint"], '"paint"', *SUBCOMMANDS), (["--paint"], '"--paint"', *SUBCOMMANDS),
                                 (["run"], "model", "convoy run --help"), (["explain"], "stage", "convoy explain --help"),
                                 (["bench"], "--stage", "--shapes"), (["tune"], "--stage", "--shapes"),
                                 (["bench", "--frobnicate"], "--frobnicate"), (["bench", "extra"], "extra"),
                                 (["verify", "--stage", STAGE, "--shapes", "list"], "excludes"),
                                 (["verify", "--stage", STAGE, "--images", "0"], '--images: "0": expected a whole number, 1 or more'),
                                 (["bench", "--stage", STAGE, "--seconds", "nan"], '--seconds: "nan": expected a number, 0.001 to 10'),
                                 (["bench", "--stage", STAGE, "--dtype", "f8"], '--dtype: "f8": expected f32, f16, bf16 or u8')):
            with self.subTest(words):
                self.refused(convoy(*words), *expected)

    def test_zero_threads(self):
        for count in ("0", "-3", "many"):
            with self.subTest(count):
                self.refused(self.run_model("--threads", count), "(?i)threads", re.escape(count))
                self.refused(self.run_model(env={"CONVOY_NUM_THREADS": count}),
                             "CONVOY_NUM_THREADS", re.escape(count))

    def test_unknown_device(self):
        self.refused(self.run_model("--device", "toaster"), "toaster", "cpu")

    def test_a_pipe_gets_no_progress(self):
        for words in (["bench", "--stage", STAGE, "--rounds", "3"], ["verify", "--stage", STAGE],
                      ["explain", STAGE], ["devices"]):
            with self.subTest(words[0]):
                result = convoy(*words)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stderr, "")
                self.assertNotIn("\r", result.stdout)
                self.assertNotIn("\033", result.stdout)


class Run(CliTest):
    def test_the_last_line_is_time_and_accuracy(self):
        result = self.run_model()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout.splitlines()[-1], r"^\d+\.\d{4}:[01]\.\d{4}$")

    def test_gzip_threads_batch_and_limit_change_nothing(self):
        accuracy = self.run_model().stdout.splitlines()[-1].split(":")[1]
        packed = self.write("images.gz", gzip.compress(self.images.read_bytes()))
        for words, images in ((["--threads", "1"], None), (["--threads", "2"], None),
                              (["--batch", "1"], None), (["--batch", "5"], None), ([], packed)):
            with self.subTest(words=words, images=images):
                result = self.run_model(*words, images=images)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout.splitlines()[-1].split(":")[1], accuracy)
        limited = self.run_model("--limit", "4")
        self.assertEqual(limited.returncode, 0, limited.stderr)
        self.assertIn(float(limited.stdout.splitlines()[-1].split(":")[1]), (0, 0.25, 0.5, 0.75, 1))

    def test_json(self):
        path = self.here / "out.json"
        self.assertEqual(self.run_model("--json", path).returncode, 0)
        report = json.loads(path.read_text())
        self.assertIn("accuracy", report)
        self.assertEqual([p.name for p in self.here.iterdir() if "out.json" in p.name], ["out.json"])

    def test_json_on_standard_output(self):
        before = set(self.here.iterdir())
        result = self.run_model("--json", "-", cwd=self.here)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("accuracy", json.loads(result.stdout))
        self.assertEqual(set(self.here.iterdir()), before)

    def test_spoiled_images(self):
        good = self.images.read_bytes()
        packed = gzip.compress(good)
        spoiled = {
            "truncated": (good[:-1], str(len(self.pixels) - 1)),
            "oversized": (good + b"\0\0", str(len(self.pixels))),
            "header cut": (good[:10], "sizes.*cut short"),
            "empty": (b"", "empty|0 bytes"),
            "wrong magic": (b"\0\0\x0d\x03" + good[4:], "(?i)magic|0x"),
            "labels for images": (self.labels.read_bytes(), "(?i)label|magic|0x"),
            "huge sizes": (idx(0x803, (0xFFFFFFFF,) * 3, b"12"), "4294967295"),
            "huge claim": (idx(0x803, (2**24, 2**10, 2**10), b"12"), r"\d"),
            "no image": (idx(0x803, (0, SIZE, SIZE), b""), "0|empty|no image"),
            "another size": (idx(0x803, (4, 5, 5), bytes(100)), "5.*6|6.*5"),
            "text": (b"P5 6 6 255 this is no IDX file", "(?i)idx|magic"),
            "gzip cut short": (packed[:-9], "(?i)gzip|gz|cut"),
            "gzip spoiled": (packed[:60] + bytes(40) + packed[100:], "(?i)gzip"),
        }
        for name, (data, expected) in spoiled.items():
            with self.subTest(name):
                self.refused(self.run_model(images=self.write("spoiled", data)), "spoiled", expected)

    def test_no_gzip_in_a_gz_file(self):
        result = self.run_model(images=self.write("plain.gz", b"certainly not gzip" * 9))
        self.refused(result, "plain.gz")

    @unittest.skipIf(os.environ.get("CONVOY_SANITIZED"), "sanitizers reserve more memory than the limit")
    def test_a_huge_claim_allocates_nothing(self):
        claim = self.write("claim", idx(0x803, (2**30, 32, 32), b""))
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        self.refused(self.run_model(images=claim, preexec_fn=limit), "claim")

    def test_missing_files(self):
        self.refused(self.run_model(images=self.here / "absent"), "absent")
        self.refused(self.run_model(labels=self.here / "absent"), "absent")
        self.refused(self.run_model(model=self.here / "absent"), "absent")
        self.refused(self.run_model(images=self.here), "(?i)director|folder|not a file")

    def test_labels_that_do_not_match(self):
        fewer = self.write("fewer", idx(0x801, (IMAGES - 1,), bytes(IMAGES - 1)))
        self.refused(self.run_model(labels=fewer), str(IMAGES - 1), str(IMAGES))
        beyond = self.write("beyond", idx(0x801, (IMAGES,), bytes(IMAGES - 1) + b"\x09"))
        self.refused(self.run_model(labels=beyond), "9", str(CLASSES))

    def test_spoiled_weights(self):
        path = self.model / "fc1.weight.txt"
        lines = path.read_text().splitlines()
        spoiled = {
            "short": (lines[:-1], ("95", "96")),
            "long": (lines + ["0.5"], ("97|more", "96")),
            "empty": ([], ("0 values|empty", "96")),
            "text": (lines[:5] + ["three"] + lines[6:], ("three", "6")),
            "half a number": (lines[:5] + ["0.5x"] + lines[6:], ("0.5x",)),
            "NaN": (lines[:5] + ["nan"] + lines[6:], ("(?i)nan|finite",)),
            "infinite": (lines[:5] + ["inf"] + lines[6:], ("(?i)inf|finite",)),
            "beyond float": (lines[:5] + ["1e400"] + lines[6:], ("1e400|range|finite",)),
        }
        for name, (content, expected) in spoiled.items():
            with self.subTest(name):
                path.write_text("\n".join(content))
                self.refused(self.run_model(), r"fc1\.weight\.txt", *expected)
        path.unlink()
        self.refused(self.run_model(), r"fc1\.weight")

    def test_spoiled_networks(self):
        path = self.model / "network.txt"
        good = path.read_text()
        spoiled = {
            "unknown layer": (good.replace("flatten", "dropout"), ("4", "dropout")),
            "no parse": (good.replace("k2r3", "k2q3"), ("3", "q3")),
            "unknown rider": (good.replace("+relu", "+gelu"), ("3", "gelu")),
            "no input": (good.replace("input", "#"), ("(?i)input",)),
            "two inputs": (good + "input u8:h6w6c1\n", ("6", "(?i)input")),
            "empty": ("", ("(?i)empty|input",)),
            "a name twice": (good.replace("fc1", "conv1"), ("5", "conv1")),
            "zero": (good.replace("k2r3", "k0r3"), ("3", "k")),
            "overflow": (good.replace("k2r3", "k99999999999999999999r3"), ("3",)),
            "too large a filter": (good.replace("k2r3", "k2r9"), ("3", "9")),
            "pool larger than its image": (good.replace("+relu", "+relu+max5"), ("3", "5")),
            "binary": ("\0\1\2\xff\n", ("1",)),
        }
        for name, (content, expected) in spoiled.items():
            with self.subTest(name):
                path.write_text(content)
                self.refused(self.run_model(), r"network\.txt", *expected)
        path.unlink()
        self.refused(self.run_model(), r"network\.txt")


class Stages(CliTest):
    def test_illegal_stages(self):
        illegal = {
            "n0h8c4k4r3": "n", "n1h0c4k4r3": "h", "n1h8c0k4r3": "c", "n1h8c4k0r3": "k",
            "n1h8c4k4r0": "r", "n-1h8c4k4r3": "-1", "n1h8c4k4r3stride0": "stride",
            "n9999999999h9999999c4k4r3": "2147483647",
            "n2147483647h999999c99999k4r3": "(?i)overflow|large|many|more than",
            "n99999999999999999999h8c4k4r3": "99999999999999999999",
            "n1h8c4k4r3+paint": "paint", "n1h8c4k4r3+gelu": "gelu.*planned|planned.*gelu",
            "n1h8c6k4r3groups4": "groups", "n1h4c4k4r3+max3": "(?i)pool|max", "n1h2c4k4r3": "(?i)r|filter",
            "n1h8c4k4r3+relu+relu6": "relu6", "n1h8c4k4r3+bias+bias": "bias", "n1h8c4k4r3+soft": "soft",
            "n1h8c4k4r3+keep(idx)": "idx", "n1h8c4k4r3+max2s2p2": "pad", "f64:n1h8c4k4r3": "f64",
            "n1h8c4k4": "r is missing", "": "n is missing", "n1h8c4k4r3+clip(2,1)": "clip", "n1h8c4k4r3+lif(0,1)": "tau|lif",
        }
        for text, expected in illegal.items():
            with self.subTest(text):
                self.refused(convoy("explain", text), expected)

    def test_explain(self):
        result = convoy("explain", STAGE)
        self.assertEqual(result.returncode, 0, result.stderr)
        for word in ("gemm_m", "gemm_n", "gemm_k", "general", "winograd"):
            self.assertIn(word, result.stdout)

    def test_explain_json(self):
        result = convoy("explain", STAGE, "--json", "--no-measure")
        self.assertEqual(result.returncode, 0, result.stderr)
        json.loads(result.stdout)

    def test_devices_json(self):
        json.loads(convoy("devices", "--json").stdout)

    def test_shape_lists(self):
        good = self.write("list.txt", f"# two\n{STAGE}\nn1h5c3k4r3  # small\n".encode())
        result = convoy("verify", "--shapes", good)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        bad = self.write("bad.txt", f"{STAGE}\nn1h5c3\n".encode())
        self.refused(convoy("verify", "--shapes", bad), r"bad\.txt.*2")
        self.refused(convoy("bench", "--shapes", self.here / "absent"), "absent")
        self.refused(convoy("bench", "--shapes", self.here), "(?i)file")
        for name, data in (("none.txt", b""), ("comment.txt", b"# nothing\n\n")):
            self.refused(convoy("verify", "--shapes", self.write(name, data)), name, "no stage")
        binary = self.write("binary.txt", b"n1h8c4k4r3\x1b[2J\0\xff+relu\n")
        result = convoy("verify", "--shapes", binary)
        self.refused(result, r"binary\.txt:1", "column 11")
        self.assertTrue(result.stderr.rstrip("\n").isprintable(), repr(result.stderr))

    def test_a_list_for_other_types_and_sizes(self):
        shapes = self.here / "list"
        shapes.write_text("n8h8c4k5r3pad1+relu+max2+keep(idx)\n")
        changes = ["--shapes", shapes, "--dtype", "f16", "--images", "2", "--without-pool"]
        result = convoy("verify", *changes, "--json")
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertGreater(report["checks"], 0)
        self.assertEqual({cell["epilogue"] for cell in report["coverage"]}, {"relu"})
        out = self.here / "bench.json"
        self.assertEqual(convoy("bench", *changes, "--rounds", "1", "--json", out).returncode, 0)
        self.assertEqual([row["stage"] for row in json.loads(out.read_text())["rows"]],
                         ["f16:n2h8w8c4k5r3pad1+relu"])

    def test_several_stages(self):
        stages = ["--stage", STAGE, "--stage", "n1h5c3k4r3"]
        for words in (["bench", "--rounds", "1"], ["tune", "--dry-run", "--seconds", "0.01"], ["verify"]):
            with self.subTest(words[0]):
                result = convoy(*words, *stages)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, "2 stages|n2h8w8c16(.|\n)*n1h5w5c3")

    def test_nothing_to_verify(self):
        self.refused(convoy("verify", "--random", "0"), "no stage")
        self.refused(convoy("verify", "--random", "3", "--kernel", "winograd4",
                            env={"CONVOY_ISA": "scalar"}), "winograd4", "multiply-add")
        self.refused(convoy("verify", "--random", "3", "--seed", "-1"), "seed")

    def test_unknown_kernel(self):
        self.refused(convoy("bench", "--stage", STAGE, "--kernel", "paint"), "paint", "general")


class Output(CliTest):
    """Files are whole or absent, whatever goes wrong."""

    def left(self):
        return sorted(p.name for p in self.here.iterdir())

    def test_no_folder(self):
        before = self.left()
        self.refused(self.run_model("--json", self.here / "absent/out.json"), "absent", "(?i)no such")
        self.refused(self.run_model("--json", self.here), "folder")
        self.assertEqual(self.left(), before)

    def test_an_unwritable_result_is_told_before_measuring(self):
        before = self.left()
        for option in ("--json", "--csv"):
            result = convoy("bench", "--stage", STAGE, "--rounds", "1000", "--seconds", "10", option,
                            self.here / "absent/out", timeout=30)
            self.refused(result, "absent", "(?i)no such")
        self.assertEqual(self.left(), before)

    def test_lost_output_is_no_success(self):
        more_than_a_buffer = [word for act in ("relu", "relu6", "leaky(0.1)", "clip(0,2)", "relu+max2")
                              for word in ("--stage", f"n1h6c16k16r3pad1+{act}")]
        for words in (["devices", "--no-measure"], ["explain", STAGE, "--no-measure"], ["--help"],
                      ["--version"], ["verify", "--json", *more_than_a_buffer]):
            with self.subTest(words), open("/dev/full", "w") as full:
                result = subprocess.run([PROGRAM, *words], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=120)
                self.assertEqual(result.returncode, 2)
                self.assertRegex(result.stderr, "(?i)no space")
                self.assertNotIn("report this", result.stderr)

    def test_a_reader_that_has_seen_enough(self):
        # The end is silent, as of other programs: SIGPIPE, no message.
        process = subprocess.Popen([PROGRAM, "verify", "--stage", STAGE], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        with process:
            process.stdout.close()
            self.assertEqual(process.stderr.read(), "")
            self.assertEqual(process.wait(timeout=120), -signal.SIGPIPE)

    @unittest.skipIf(os.geteuid() != 0, "needs root, to become somebody without permission")
    def test_no_permission(self):
        program = shutil.copy(PROGRAM, CliTest.folder)  # where nobody may read it
        subprocess.run(["chmod", "-R", "a+rX", str(self.here)], check=True)
        before = self.left()
        result = subprocess.run(
            [program, "run", self.model, "--images", self.images, "--labels", self.labels, "--json",
             self.here / "out.json"], capture_output=True, text=True, user=65534, group=65534,
            extra_groups=[], env={"PATH": os.environ["PATH"]}, timeout=120)
        self.refused(result, r"out\.json", "(?i)permission")
        self.assertEqual(self.left(), before)

    def test_no_space(self):
        # A file may not grow at all: what a full disk looks like to the program. Python ignores
        # SIGXFSZ and hands that on, so that the write fails instead of killing the program.
        before = self.left()
        result = self.run_model("--json", self.here / "out.json", restore_signals=False,
                                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0)))
        self.refused(result, r"out\.json", "(?i)large|space")
        self.assertEqual(self.left(), before)

    def test_interrupted(self):
        before = self.left()
        process = subprocess.Popen([PROGRAM, "bench", "--stage", STAGE, "--seconds", "1", "--json",
                                    self.here / "bench.json"], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        self.assertNotEqual(process.wait(timeout=30), 0)
        self.assertEqual(self.left(), before)

    def test_a_spoiled_tuning_cache_is_a_warning(self):
        cache = self.here / "cache"
        cache.mkdir()
        (cache / "tuning.json").write_text('{"format": 1, "rows": [')
        result = convoy("explain", STAGE, "--no-measure", env={"CONVOY_CACHE": str(cache)})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("tuning cache", result.stdout + result.stderr)


if __name__ == "__main__":
    unittest.main()
