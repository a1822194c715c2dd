#!/usr/bin/env python3
"""Hostile surroundings: descriptors that are closed or full, files that are none, names that no
terminal should see, results that would destroy something. Nothing hangs, crashes or writes to a
place that was not named.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/hostile_test.py [unittest options]
"""
import json
import os
import shlex
import signal
import subprocess
import sys
import unittest

from cli_case import PROGRAM, STAGE, CliTest, convoy

BENCH = ["bench", "--stage", STAGE, "--rounds", "1", "--seconds", "0.001"]
ESCAPE = "\x1b[31m"


def shell(*words, redirect="", **options):
    """The program with redirections that only a shell can express."""
    line = " ".join(shlex.quote(str(word)) for word in (PROGRAM, *words))
    options.setdefault("timeout", 120)
    return subprocess.run(["sh", "-c", f"exec {line} {redirect}"], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, **options)


class Descriptors(CliTest):
    def test_an_error_that_nobody_can_read_keeps_its_exit_code(self):
        for redirect in ("2>&-", "2>/dev/full", ">&- 2>&-", ">/dev/full 2>/dev/full", "<&- >&- 2>&-"):
            for words in (["explain", "zz"], ["paint"], ["bench"], [], ["run", self.here / "absent"]):
                with self.subTest(redirect=redirect, words=words):
                    self.assertEqual(shell(*words, redirect=redirect).returncode, 2)
        for redirect in (">&- 2>&-", ">/dev/full 2>/dev/full"):
            self.assertEqual(shell("explain", STAGE, "--no-measure", redirect=redirect).returncode, 2)

    def test_a_message_to_a_pipe_that_nobody_reads(self):
        reading, writing = os.pipe()
        os.close(reading)
        try:
            result = subprocess.run([PROGRAM, "explain", "zz"], stderr=writing, stdout=subprocess.DEVNULL,
                                    timeout=60)
        finally:
            os.close(writing)
        self.assertEqual(result.returncode, 2)

    def test_a_closed_standard_output_is_an_error(self):
        for words in (["--version"], ["explain", STAGE, "--no-measure"], ["--help"]):
            with self.subTest(words):
                result = shell(*words, redirect=">&-")
                self.assertEqual(result.returncode, 2)
                self.assertIn("standard output: writing failed: ", result.stderr)

    def test_no_file_takes_the_place_of_a_closed_descriptor(self):
        # A message or a table would go into the first file that is opened.
        cache = self.here / "cache"
        for redirect in ("2>&-", ">&-", "<&- >&- 2>&-"):
            with self.subTest(redirect):
                shell("run", self.model, "--images", self.images, "--labels", self.labels, "--json",
                      self.here / "out.json", redirect=redirect)
                self.assertIn("accuracy", json.loads((self.here / "out.json").read_text()))
                shell("tune", "--stage", STAGE, "--seconds", "0.001", redirect=redirect,
                      env={**os.environ, "CONVOY_CACHE": str(cache)})
                self.assertEqual((cache / "tuning.json.lock").read_bytes(), b"")
                json.loads((cache / "tuning.json").read_text())


class NoFiles(CliTest):
    """Pipes, devices, folders and links where a file is expected: refused, never waited for."""

    def in_place_of(self, path):
        """Each thing that is no file, put at the path."""
        for kind, make in (("is a pipe", os.mkfifo), ("is a folder", os.mkdir),
                           ("is a device", lambda at: os.symlink("/dev/zero", at)),
                           ("link whose target does not exist", lambda at: os.symlink("nowhere", at)),
                           ("leads back to itself", lambda at: os.symlink(at, at))):
            make(path)
            yield kind
            os.rmdir(path) if kind == "is a folder" else os.unlink(path)

    def test_images_and_lists(self):
        thing = self.here / "thing"
        for kind in self.in_place_of(thing):
            with self.subTest(kind):
                self.refused(self.run_model(images=thing, timeout=20), "thing", kind)
                self.refused(self.run_model(labels=thing, timeout=20), "thing", kind)
                self.refused(convoy("verify", "--shapes", thing, timeout=20), "thing", kind)
        self.refused(convoy("bench", "--shapes", "/dev/zero", timeout=20), "/dev/zero: is a device")

    def test_models(self):
        for name in ("network.txt", "fc1.bias.txt", "conv1.weight.txt"):
            path = self.model / name
            good = path.read_bytes()
            path.unlink()
            for kind in self.in_place_of(path):
                with self.subTest(name=name, kind=kind):
                    self.refused(self.run_model(timeout=20), name, kind)
            path.write_bytes(good)
        (self.model / "conv1.weight.txt").unlink()
        for name in ("conv1.weight.npy", "model.safetensors"):
            for kind in self.in_place_of(self.model / name):
                with self.subTest(name=name, kind=kind):
                    self.refused(self.run_model(timeout=20), name, kind)

    def test_a_tuning_cache_blocks_nothing(self):
        cache = self.here / "cache"
        cache.mkdir()
        for kind in self.in_place_of(cache / "tuning.json"):
            with self.subTest(kind):
                result = convoy("explain", STAGE, "--no-measure", env={"CONVOY_CACHE": str(cache)}, timeout=20)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertRegex(result.stdout, "ignored.*" + kind)
        os.mkfifo(cache / "tuning.json")
        result = convoy("tune", "--stage", STAGE, "--seconds", "0.001", env={"CONVOY_CACHE": str(cache)}, timeout=60)
        self.refused(result, "tuning cache", "is a pipe")

    def test_a_huge_file_without_content(self):
        for name in ("conv1.weight.txt", "network.txt"):
            path = self.model / name
            good = path.read_bytes()
            os.truncate(path, 20 << 30)
            self.refused(self.run_model(timeout=20), name, "21474836480 bytes, expected at most")
            path.write_bytes(good)

    def test_empty_names(self):
        for words in (["verify", "--shapes", ""], ["bench", "--shapes", ""], ["tune", "--shapes", ""],
                      ["run", self.model, "--images", "", "--labels", ""], ["run", self.model, "--data", ""],
                      [*BENCH, "--peers-python", ""], [*BENCH, "--kernel", ""], ["explain", STAGE, "--then", ""]):
            with self.subTest(words):
                self.refused(convoy(*words, timeout=20), f"--{words[-2].lstrip('-')}|--images", "expected a name")


class Results(CliTest):
    """--json and --csv replace what they name, and nothing else."""

    def left(self):
        return sorted(p.name for p in self.here.iterdir())

    def test_modes_stay(self):
        path = self.here / "out.json"
        for mode in (0o600, 0o640, 0o664):
            path.write_text("old")
            path.chmod(mode)
            self.assertEqual(self.run_model("--json", path).returncode, 0)
            self.assertEqual(path.stat().st_mode & 0o777, mode)
            self.assertIn("accuracy", json.loads(path.read_text()))

    def test_a_link_to_nowhere_stays(self):
        link = self.here / "link"
        link.symlink_to("later")
        self.assertEqual(self.run_model("--json", link).returncode, 0)
        self.assertTrue(link.is_symlink())
        self.assertIn("accuracy", json.loads((self.here / "later").read_text()))

    def test_the_file_that_standard_output_goes_to_is_not_replaced(self):
        out = self.here / "out"
        for name in ("/dev/stdout", "/proc/self/fd/1", out):
            with self.subTest(name):
                with open(out, "w") as file:
                    inode = os.fstat(file.fileno()).st_ino
                    result = subprocess.run(
                        [PROGRAM, "run", self.model, "--images", self.images, "--labels", self.labels, "--json",
                         name], stdout=file, stderr=subprocess.PIPE, text=True, timeout=120)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(out.stat().st_ino, inode)
                # As into any other file, and the table goes there too.
                report, end = json.JSONDecoder().raw_decode(out.read_text())
                self.assertIn("accuracy", report)
                self.assertRegex(out.read_text()[end:].splitlines()[-1], r"^\d+\.\d{4}:[01]\.\d{4}$")
        result = convoy(*BENCH, "--csv", "/dev/stdout")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("best_peer_us", result.stdout)

    def test_where_messages_go_is_no_place_for_a_result(self):
        log = self.here / "log"
        result = shell("run", self.model, "--images", self.images, "--labels", self.labels, "--json",
                       "/dev/stderr", redirect=f"2>{shlex.quote(str(log))}")
        self.assertEqual(result.returncode, 2)
        self.assertIn("is standard error, to which messages are written", log.read_text())

    def test_one_file_for_both(self):
        (self.here / "link").symlink_to("x")
        (self.here / "folder").symlink_to(self.here)
        before = self.left()
        for a, b in (("x", "x"), ("x", "./x"), ("x", "link"), ("folder/x", "x"), ("link", "folder/link")):
            with self.subTest(a=a, b=b):
                self.refused(convoy(*BENCH, "--json", a, "--csv", b, cwd=self.here), "same file")
        self.refused(convoy(*BENCH, "--json", "-", "--csv", "/dev/stdout"), "both for standard output")
        self.assertEqual(self.left(), before)

    def test_an_interrupt_in_mid_write(self):
        stages = self.write("list", "".join(f"n1h{4 + i % 8}c4k4r3\n" for i in range(100)).encode())
        for _ in range(4):
            process = subprocess.Popen([PROGRAM, "bench", "--shapes", stages, "--rounds", "1", "--seconds", "0.001",
                                        "--json", self.here / "out.json"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL)
            # Until there is a result, a temporary file may be the trial before all measuring.
            while process.poll() is None:
                if (self.here / "out.json").exists() and any(n.endswith(".tmp") for n in os.listdir(self.here)):
                    process.send_signal(signal.SIGINT)
                    break
            process.wait(timeout=120)
            self.assertEqual([n for n in self.left() if n.endswith(".tmp")], [])
            json.loads((self.here / "out.json").read_text())
            (self.here / "out.json").unlink()

    def test_a_planted_link_is_not_followed(self):
        cache, victim = self.here / "cache", self.here / "victim"
        cache.mkdir()
        victim.write_text("precious")
        line = f'ln -s {victim} {cache}/tuning.json.$$.tmp; exec "$0" tune --stage {STAGE} --seconds 0.001'
        result = subprocess.run(["sh", "-c", line, PROGRAM], env={**os.environ, "CONVOY_CACHE": str(cache)},
                                capture_output=True, text=True, timeout=120)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(victim.read_text(), "precious")


class Names(CliTest):
    """Nothing that a terminal would obey is printed, and no name loses a result."""

    def clean(self, result):
        for text in (result.stdout, result.stderr):
            text = text.decode(errors="strict")
            self.assertLess(len(text), 20000)
            for line in text.splitlines():
                self.assertTrue(line.isprintable(), repr(line[:300]))
        return result

    def raw(self, *words, env=None, code=2):
        result = subprocess.run([PROGRAM, *words], capture_output=True, stdin=subprocess.DEVNULL, timeout=60,
                                env={**os.environ, "CONVOY_CACHE": CliTest.folder + "/cache", **(env or {})})
        self.assertEqual(result.returncode, code, result.stderr[:300])
        return self.clean(result)

    def test_arguments(self):
        for bad in (ESCAPE, "a\u009b31mb", "\u202e", b"\xff\xfe", ESCAPE * 10000):
            bad = bad if isinstance(bad, bytes) else bad.encode()
            for words in (["explain", bad], ["explain", STAGE, b"--kernel", bad], ["explain", STAGE, bad],
                          [bad], [b"--" + bad], ["run", bad], ["verify", "--shapes", bad],
                          ["bench", "--stage", STAGE, "--threads", bad], ["verify", "--dtype", bad],
                          ["explain", STAGE, "--device", bad], ["bench", "--stage", STAGE, "--seconds", bad],
                          [*BENCH, "--json", b"absent/" + bad], [*BENCH, "--peers", "--peers-python", b"/" + bad],
                          ["run", self.model, "--data", bad]):
                with self.subTest(words=[word[:40] for word in map(os.fsencode, words)]):
                    self.raw(*words)

    def test_environment(self):
        bad = b"x\xff" + ESCAPE.encode() * 1000
        self.raw("explain", STAGE, "--no-measure", env={"CONVOY_ISA": bad})
        self.raw("explain", STAGE, "--no-measure", env={"CONVOY_NUM_THREADS": bad})
        cache = os.fsencode(self.here) + b"/c\xff\x1b[31m"
        os.mkdir(cache)
        with open(cache + b"/tuning.json", "w") as file:
            file.write('{"format": 2, "version": "\\u001b[31m", "rows": []}')
        self.raw("explain", STAGE, "--no-measure", env={"CONVOY_CACHE": cache}, code=0)
        json.loads(self.raw("explain", STAGE, "--no-measure", "--json", env={"CONVOY_CACHE": cache}, code=0).stdout)
        for words in ([], ["--json"]):
            self.raw("tune", "--stage", STAGE, "--seconds", "0.001", *words, env={"CONVOY_CACHE": cache}, code=0)

    def test_files(self):
        run = ["run", self.model, "--images", self.images, "--labels", self.labels]
        network = self.model / "network.txt"
        good = network.read_bytes()
        for line in (b"c\x1b[31m k2r3\n", b"c\xff k2r3\n", b"c\0d k2r3\n", b"conv2 k2r3+\x1b[31m\n",
                     b"conv2 k2r3 batchnorm(\x1b)\n", b"conv2 " + b"+relu" * 180000):
            with self.subTest(line[:30]):
                network.write_bytes(good.replace(b"flatten\n", line + b"flatten\n"))
                self.assertIn(b"network.txt:4", self.raw(*run).stderr)
        network.write_bytes(good.replace(b"flatten\n", b"x" * 900000 + b" k2r3\nflatten\n"))
        self.assertIn(b"no weights", self.raw(*run).stderr)  # a legal name, and far longer than a file's
        network.write_bytes(good)
        weights = self.model / "conv1.weight.txt"
        weights.write_bytes(b"\x1b[31m" * 100000)
        self.raw(*run)
        weights.unlink()
        npy = self.model / "conv1.weight.npy"
        header = b"{'descr': '\x1b[31m', 'fortran_order': False, 'shape': (18,), }"
        npy.write_bytes(b"\x93NUMPY\x01\x00" + bytes([len(header), 0]) + header)
        self.assertIn(b"?[31m", self.raw(*run).stderr)
        npy.unlink()
        header = b'{"conv1.weight":{"dtype":"\\u001b[31m","shape":[],"data_offsets":[0,0]}}'
        (self.model / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
        self.assertIn(b"?[31m", self.raw(*run).stderr)
        shapes = self.write("shapes", b"\xef\xbb\xbf" + STAGE.encode() + b"\n\x1b[31m\n")
        self.assertIn(b"shapes:2", self.raw("verify", "--shapes", shapes).stderr)

    def test_a_name_that_is_not_utf8_loses_no_result(self):
        model = os.fsencode(self.here) + b"/m\xff\x1b[31m"
        os.rename(self.model, model)
        out = self.here / "out.json"
        self.raw("run", model, "--images", self.images, "--labels", self.labels, "--json", out, code=0)
        self.assertIn("m\ufffd\x1b[31m", json.loads(out.read_text())["model"])
        named = os.fsencode(self.here) + b"/o\xff"
        self.raw("run", model, "--images", self.images, "--labels", self.labels, "--json", named, code=0)
        with open(named) as file:
            json.load(file)


class Peers(CliTest):
    """A worker that is none: a clear error, whatever it says and however much of it."""

    def answer(self, script, *expected):
        worker = self.here / "worker.py"
        worker.write_text("import sys, time\n" + script)
        result = convoy(*BENCH, "--peers", "--peers-python", sys.executable, "--peers-script", worker, timeout=100)
        self.refused(result, *expected)
        self.assertTrue(all(line.isprintable() for line in result.stderr.splitlines()), repr(result.stderr[:300]))
        self.assertLess(len(result.stderr), 2000)

    def test_garbage(self):
        say = "sys.stdin.readline(); sys.stdout.buffer.write({}); sys.stdout.flush(); sys.stdin.read()"
        for text in (rb"hello\x1b[31m\n", rb"\xff\xfe\n", rb"[1]\n", rb"{}\n", rb"7\n", rb"\n",
                     rb'{\"peers\": 1}\n', rb'{\"peers\": [1], \"left_out\": [], \"versions\": {}}\n',
                     rb'{\"peers\": [\"a,b\"], \"left_out\": [], \"versions\": {}}\n',
                     rb'{\"peers\": [\"\\u001b\"], \"left_out\": [], \"versions\": {}}\n'):
            with self.subTest(text):
                self.answer(say.format(f'b"{text.decode()}"'), "worker.py answered", "--peers-python")

    def test_times_that_are_none(self):
        prepare = ('sys.stdin.readline(); print(\'{"peers": ["it"], "left_out": [], "versions": {}}\', flush=True)\n'
                   "sys.stdin.readline(); print('SAY', flush=True); sys.stdin.read()")
        for samples in ("{}", '{"samples": []}', '{"samples": ["x"]}', '{"samples": [0]}', '{"samples": [NaN]}'):
            with self.subTest(samples):
                self.answer(prepare.replace("SAY", samples), "worker.py answered")

    def test_endless(self):
        self.answer("while True: sys.stdout.write('x' * 65536)", "worker.py answered \"xxx")
        self.answer("while True: print('no', 'more')", "worker.py answered \"no more\"")

    def test_silence(self):
        self.answer("", "worker died")

    def test_a_worker_that_does_not_go(self):
        self.answer("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
                    "print('no', flush=True)\nwhile True: time.sleep(1)", "worker.py answered")


if __name__ == "__main__":
    unittest.main()
