#!/usr/bin/env python3
"""`convoy bench` with peers, and the scripts of bench/ that start it.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/bench_test.py [unittest options]
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from cli_case import PROGRAM, CliTest, convoy

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"


def script(name, *words, **options):
    return subprocess.run([sys.executable, BENCH / name, *map(str, words)], capture_output=True, text=True, timeout=120,
                          **options)


class Table(CliTest):
    # Takes every stage but the first.
    WORKER = """
import json, sys
asked = 0
for line in sys.stdin:
    if json.loads(line)["op"] == "prepare":
        asked += 1
        answer = {"peers": ["other"][: asked - 1], "left_out": [], "versions": {}}
    else:
        answer = {"samples": [1e-3]}
    print(json.dumps(answer), flush=True)
"""

    def table(self, *words):
        ran = convoy("bench", "--threads", 1, "--seconds", 0.002, "--rounds", 2, *words)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        lines = [line.removesuffix("  noisy") for line in ran.stdout.splitlines()]
        return lines[1:lines.index(next(line for line in lines if line.startswith("GFLOP/s counts")))]

    def test_columns_are_as_wide_as_what_stands_in_them(self):
        head, row = self.table("--unfused", "--stage", "n1h9c3k7r3+relu")
        self.assertEqual(len(head), len(row))
        self.assertLessEqual(len(head), 105)  # the demo's stage has 15 letters more, a terminal 120 columns
        self.assertRegex(row, r"^n1h9w9c3k7r3\+relu  \w+ .* unfused chain +\d")

    def test_a_first_stage_without_peers(self):
        worker = self.write("worker.py", self.WORKER.encode())
        head, first, second = self.table("--peers", "--peers-python", sys.executable, "--peers-script", worker,
                                         "--stage", "n1h8c16k16r3", "--stage", "n1h9c16k16r3+relu")
        self.assertRegex(head, r"best peer +median us +ratio$")
        self.assertRegex(first, r"%$")
        self.assertRegex(second, r" other +[\d.]+ +[\d.]+$")
        self.assertEqual(len(head), len(second))


class Peers(CliTest):
    """A worker that spins, as idle threads of some libraries do: stopped while ours is timed, ended at the end."""

    # Says in its answers how much CPU time its spinning child took between an answer and the next question.
    WORKER = """
import json, os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
open(sys.argv[0] + ".pids", "w").write(f"{os.getpid()} {child.pid}")
def spent():
    fields = open(f"/proc/{child.pid}/stat").read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
before, idle = spent(), 0
for line in sys.stdin:
    idle += spent() - before
    if json.loads(line)["op"] == "prepare":
        answer = {"peers": ["spinner"], "left_out": [], "versions": {"idle": idle}}
    else:
        answer = {"samples": [1e-3]}
    before = spent()
    print(json.dumps(answer), flush=True)
"""

    def setUp(self):
        super().setUp()
        self.worker = self.write("worker.py", self.WORKER.encode())

    def command(self, *words, rounds=3, seconds=0.7):
        return [PROGRAM, "bench", "--threads", "1", "--seconds", str(seconds), "--rounds", str(rounds), "--peers",
                "--peers-python", sys.executable, "--peers-script", str(self.worker),
                "--stage", "n1h8w8c16k16r3", *words]

    def gone(self):
        """Whether the worker and its child are, after some seconds at most."""
        pids = pathlib.Path(f"{self.worker}.pids").read_text().split()
        for _ in range(100):
            left = [pid for pid in pids if pathlib.Path(f"/proc/{pid}/stat").exists()
                    and pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"]
            if not left:
                return True
            time.sleep(0.05)
        for pid in left:
            os.kill(int(pid), signal.SIGKILL)
        return False

    def idle_seconds(self, *words):
        """CPU time of the worker's child in our turns on a first stage, as its answer for a second one tells."""
        out = self.here / "out.json"
        run = subprocess.run([*self.command(*words), "--stage", "n1h8w8c16k17r3", "--json", out], capture_output=True,
                             text=True, timeout=120)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertTrue(self.gone())
        return json.loads(out.read_text())["rows"][1]["versions"]["idle"]

    def test_they_stand_still_while_ours_is_timed(self):
        stopped, running = self.idle_seconds(), self.idle_seconds("--peers-keep-running")
        self.assertGreater(running, 0.1)  # of some seconds, also where others have most of the CPU
        self.assertLess(stopped, running / 3)

    def test_none_is_left_by_an_error(self):
        text = self.WORKER.replace('{"samples": [1e-3]}', '{"samples": "none"}')
        self.worker.write_text(text)
        run = subprocess.run(self.command(), capture_output=True, text=True, timeout=120)
        self.refused(run, "worker.py answered")
        self.assertTrue(self.gone())

    def test_none_is_left_by_a_signal(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(number):
                pids = pathlib.Path(f"{self.worker}.pids")
                pids.unlink(missing_ok=True)
                process = subprocess.Popen(self.command(rounds=1000, seconds=10), stdout=subprocess.DEVNULL)
                while process.poll() is None and (not pids.exists() or len(pids.read_text().split()) < 2):
                    time.sleep(0.02)
                time.sleep(0.5)  # now our turn, in which the worker stands still
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=10), -number)
                self.assertTrue(self.gone())

    def test_none_is_left_by_a_signal_while_it_works(self):
        busy = '        time.sleep(60)\n        answer = {"samples"'
        self.worker.write_text(self.WORKER.replace('        answer = {"samples"', busy))
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL):
            with self.subTest(number):
                pids = pathlib.Path(f"{self.worker}.pids")
                pids.unlink(missing_ok=True)
                process = subprocess.Popen(self.command("--peers-keep-running", seconds=0.01),
                                           stdout=subprocess.DEVNULL)
                while process.poll() is None and (not pids.exists() or len(pids.read_text().split()) < 2):
                    time.sleep(0.02)
                time.sleep(0.7)
                process.send_signal(number)
                self.assertEqual(process.wait(timeout=10), -number)
                self.assertTrue(self.gone())


class Record(CliTest):
    """What `convoy bench --json` says beside the times."""

    def test_where_and_by_what_it_was_measured(self):
        out = self.here / "out.json"
        run = convoy("bench", "--stage", "n1h8w8c16k16r3", "--rounds", "1", "--seconds", "0.001", "--json", out)
        self.assertEqual(run.returncode, 0, run.stderr)
        record = json.loads(out.read_text())
        self.assertRegex(record["commit"], "^([0-9a-f]{12})?$")
        self.assertIsInstance(record["dirty"], bool)
        self.assertRegex(record["compiler"], r"^(gcc|clang) \d+\.")
        self.assertRegex(record["date"], r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ$")
        for key in ("machine", "cpu_model", "isa", "flags"):
            self.assertTrue(record[key], key)
        self.assertIn("host's clock", record["method"]["convoy"])

    def test_what_a_plan_takes(self):
        out = self.here / "out.json"
        run = convoy("bench", "--stage", "n1h8w8c64k512r3", "--stage", "n1h8w8c1k8r3", "--rounds", "1", "--seconds",
                     "0.001", "--json", out)
        self.assertEqual(run.returncode, 0, run.stderr)
        large, small = json.loads(out.read_text())["rows"]
        for row in (large, small):
            self.assertGreater(row["plan_us"], 0)
        self.assertGreater(large["pack_us"], small["pack_us"])  # 4,096 times the weights

    def test_apart_is_of_gpus(self):
        self.refused(convoy("bench", "--stage", "n1h8w8c16k16r3", "--apart"), "--apart: found a CPU")


class Targets(CliTest):
    """bench/targets_cpu.py on a program whose times are known."""

    def program(self, ratio):
        row = {"stage": "n1h8w8c16k16r3", "kernel": "k", "ratio": ratio, "best_peer": "p",
               "convoy": {"minimum_us": 1.0, "median_us": 2.0}}
        record = {"convoy": "0", "commit": "c", "dirty": False, "compiler": "gcc 1", "machine": "Some CPU (R)",
                  "cpu_model": "6-143-8", "isa": "avx512", "threads": 1, "date": "d", "mode": "default", "rows": [row]}
        program = self.here / "program"
        program.write_text(f"#!{sys.executable}\nimport json, sys\nrecord = {record!r}\n"
                           "record['asked'] = sys.argv\n"
                           "json.dump(record, open(sys.argv[sys.argv.index('--json') + 1], 'w'))\n")
        program.chmod(0o755)
        return program

    def test_a_file_for_each_mode_and_number_of_threads(self):
        out = self.here / "results"
        words = ["--convoy", self.program(2.0), "--processes", "2", "--threads", "1", "--modes", "default"]
        words += ["--out", out]
        self.assertEqual(script("targets_cpu.py", *words).returncode, 0)
        path = out / "some-cpu-r-6-143-8-avx512/targets-cpu-default-1t.json"
        self.assertEqual([found for found in out.rglob("*") if found.is_file()], [path])
        result = json.loads(path.read_text())
        self.assertEqual((result["processes"], result["geometric_mean"], result["commit"]), (2, 2.0, "c"))
        self.assertNotIn("--both-modes", result["asked"])
        self.program(4.0)
        self.assertEqual(script("targets_cpu.py", *words, "--more").returncode, 0)
        self.assertEqual(json.loads(path.read_text())["rows"][0]["ratios_of_processes"], [4.0, 4.0, 2.0, 2.0])

    def test_it_keeps_to_its_limit(self):
        out = self.here / "results"
        run = script("targets_cpu.py", "--convoy", self.program(2.0), "--processes", "5", "--threads", "1", "--modes",
                     "default", "--limit", "0", "--out", out)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(json.loads(next(out.rglob("*.json")).read_text())["processes"], 1)


class Tiles(CliTest):
    """bench/tiles_cpu.py."""

    def test_a_line_a_stage_with_every_tile(self):
        shapes, out = self.here / "list.txt", self.here / "results"
        shapes.write_text("n1h8c16k16r3pad1+bias\nn1h4c8k8r1\n")
        run = script("tiles_cpu.py", "--convoy", PROGRAM, "--shapes", shapes, "--seconds", "0.001", "--out", out)
        self.assertEqual(run.returncode, 0, run.stderr)
        path = next(out.glob("*/list-1t.json"))
        result = json.loads(path.read_text())
        self.assertEqual([row["stage"] for row in result["rows"]], ["n1h8w8c16k16r3pad1+bias", "n1h4w4c8k8r1"])
        self.assertGreater(len({kernel for kernel, _, _ in result["rows"][0]["tiles"]}), 1)
        self.assertEqual(sum(line.startswith('  {"stage"') for line in path.read_text().splitlines()), 2)


class Compare(CliTest):
    """bench/compare.py on builds whose times are known."""

    def build(self, name, times, failed=()):
        """A program that writes such times, in microseconds, whatever it is asked for."""
        rows = [{"stage": stage, "kernel": "k", "tile": "t", "convoy": {"median_us": time}}
                for stage, time in times.items()]
        result = {"machine": "m", "rows": rows, "failed": [{"stage": stage, "why": "broken"} for stage in failed]}
        program = self.here / name
        program.write_text(f"#!{sys.executable}\nimport sys\n"
                           f"open(sys.argv[sys.argv.index('--json') + 1], 'w').write({json.dumps(result)!r})\n")
        program.chmod(0o755)
        return program

    def compared(self, old, new):
        out = self.here / "compared.json"
        run = script("compare.py", old, new, "--shapes", "any.txt", "--rounds", "2", "--json", out)
        return run, json.loads(out.read_text()) if out.exists() else None

    def test_names_what_became_slower(self):
        run, result = self.compared(self.build("old", {"a": 10, "b": 20}), self.build("new", {"a": 5, "b": 40}))
        self.assertEqual(run.returncode, 1, run.stderr)
        self.assertAlmostEqual(result["geometric_mean"], 1.0)
        self.assertEqual([row["ratio"] for row in result["rows"]], [2.0, 0.5])
        self.assertRegex(run.stdout, r"(?m)^b +0\.500")
        self.assertNotRegex(run.stdout, r"(?m)^a ")

    def test_is_content_with_the_same_speed(self):
        run, result = self.compared(self.build("old", {"a": 10, "b": 20}), self.build("new", {"a": 10, "b": 20.4}))
        self.assertEqual(run.returncode, 0, run.stdout)
        self.assertEqual(len(result["rows"]), 2)

    def test_a_stage_that_only_the_new_build_fails(self):
        run, result = self.compared(self.build("old", {"a": 10, "b": 20}), self.build("new", {"a": 10}, ["b"]))
        self.assertEqual(run.returncode, 1)
        self.assertIn("b: failed in the new build: broken", run.stdout)
        self.assertEqual([row["stage"] for row in result["rows"]], ["a"])

    def test_rounds_are_even(self):
        build = self.build("old", {"a": 10})
        run = script("compare.py", build, build, "--shapes", "any.txt", "--rounds", "3")
        self.assertEqual(run.returncode, 2)
        self.assertIn("--rounds 3: an even number", run.stderr)

    def test_a_slow_stage_gets_more_rounds(self):
        run, result = self.compared(self.build("old", {"a": 10, "b": 20}), self.build("new", {"a": 10, "b": 40}))
        self.assertEqual(run.returncode, 1)
        self.assertEqual([len(row["ratios"]) for row in result["rows"]], [6, 6])  # the program times both again

    def test_the_program_itself(self):
        stage = "n1h8w8c16k16r3pad1+bias+relu"
        shapes = self.write("shapes.txt", f"{stage}\n".encode())
        out = self.here / "compared.json"
        run = script("compare.py", PROGRAM, PROGRAM, "--shapes", shapes, "--rounds", "2", "--inner-rounds", "1",
                     "--seconds", "0.001", "--least", "0.001", "--json", out)
        self.assertEqual(run.returncode, 0, run.stderr)
        result = json.loads(out.read_text())
        self.assertEqual([row["stage"] for row in result["rows"]], [stage])
        self.assertIn("machine", result["builds"]["old"])

    def test_a_program_that_is_none(self):
        run, _ = self.compared("/bin/false", "/bin/false")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("/bin/false", run.stderr)


if __name__ == "__main__":
    unittest.main()
