#!/usr/bin/env python3
"""Trains the shipped spiking network's shape with T = 1, 2, 4, 8 and by both recipes, many seeds each.

    bench/snn_training.py train --out sweep             on a machine with GPUs: a queue of runs, one a GPU at a time
    bench/snn_training.py record sweep --out bench/results/h200
                                                        on any machine: of each run the seed that is best on the
                                                        validation images is tested, once; OUT/snn-training.json,
                                                        in which runs that SWEEP does not have are kept

`train` leaves a folder a run in SWEEP, as python/train_fashion.py writes it, and beside it by which commit and where it
was trained; a second call takes up what is missing.
Where there are two GPUs it also times runs on both at once. `--trial` is minutes on a CPU.
$PYTHON: the interpreter with python/requirements.txt (`train` does without SpikingJelly).
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

import records

ROOT = Path(__file__).resolve().parents[1]
TOOL = ROOT / "python/train_fashion.py"
PYTHON = os.environ.get("PYTHON", sys.executable)
STEPS = (1, 2, 4, 8)
TRIAL = ["--limit", "60", "--batch", "20", "--no-compile"]


class Job:
    """A run of `train`. Longest first in the queue; `after`: a run that must have ended before it begins."""

    def __init__(self, name, words, after=None, processes=1):
        self.name, self.words, self.after, self.processes = name, words, after, processes


def jobs(args):
    taught = ["--taught", str(args.out / "teachers.pt")]
    ours = ["--epochs", str(args.epochs), "--every", str(max(1, args.epochs // 12)), *taught]
    document = ["--preset", "document"]
    long = ["--epochs", str(args.document_epochs), "--every", str(max(1, args.document_epochs // 20))]
    if args.document_seeds:
        yield Job("document-t2", [*document, *long, "--seeds", str(args.document_seeds)])
    for steps in sorted(STEPS, reverse=True):
        yield Job(f"ours-t{steps}", ["--steps", str(steps), *ours], after="teachers")
    # Speed alone: how one GPU and two share the recipes' batches.
    short = ["--epochs", str(args.timing_epochs), "--every", str(args.timing_epochs)]
    for processes in (1, 2) if args.timing_epochs else ():
        for name, words in (("timing-ours", taught), ("timing-document", [*document, "--seeds", "16"])):
            yield Job(f"{name}-{processes}", [*words, *short], after="teachers", processes=processes)


class Sweep:
    def __init__(self, args):
        self.args, self.begin, self.lock = args, time.monotonic(), threading.Lock()
        self.devices = [str(i) for i in range(args.gpus)] * args.at_once or ["cpu"] * 2
        self.failed = []

    def say(self, text):
        print(f"{time.monotonic() - self.begin:6.1f} s  {text}", flush=True)

    def run(self, name, command, devices):
        """Whether the command ended well, by the deadline."""
        left = self.args.seconds - (time.monotonic() - self.begin)
        if left <= 0:
            return False
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ",".join(devices) if devices[0] != "cpu" else ""}
        self.say(f"{name} on {'+'.join(devices)} begins")
        (self.args.out / f"{name}.record.json").write_text(json.dumps(records.of_source(), indent=1) + "\n")
        with open(self.args.out / f"{name}.out", "a") as output:
            try:
                code = subprocess.run(command, stdout=output, stderr=output, env=environment, timeout=left).returncode
            except subprocess.TimeoutExpired:
                code = "none: no time left"
        self.say(f"{name} ended, exit code {code}")
        return code == 0

    def common(self):
        words = ["--data", self.args.data] if self.args.data else []
        return words + (["--device", "cpu"] if self.devices[0] == "cpu" else [])

    def teach(self, device):
        path = self.args.out / "teachers.pt"
        small = ["--teachers", "1", "--teacher-epochs", "1", "--limit", "60"] if self.args.trial else []
        return path.exists() or self.run(
            "teachers", [PYTHON, str(TOOL), "teach", "--out", str(path), *self.common(), *small], [device])

    def train(self, job, devices):
        folder = self.args.out / job.name
        if (folder / "results.json").exists():
            return True
        start = [PYTHON]
        if job.processes > 1:
            start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(job.processes)]
        again = ["--resume"] if (folder / "settings.json").exists() else []
        words = [*job.words, *(TRIAL if self.args.trial else [])]
        words = ["train", "--out", str(folder), *self.common(), *words, *again]
        return self.run(job.name, [*start, str(TOOL), *words], devices)

    def everything(self):
        waiting = list(jobs(self.args))
        pairs = [job for job in waiting if job.processes > 1]
        waiting = [job for job in waiting if job.processes == 1]
        taught, alive = threading.Event(), set(range(len(self.devices)))

        def work(number, device):
            if number == 0:
                if not (self.teach(device) or self.teach(device)):
                    self.failed.append("teachers")
                taught.set()
            while True:
                with self.lock:
                    ready = [job for job in waiting if taught.is_set() or not job.after]
                    job = ready[0] if ready else None
                    if job:
                        waiting.remove(job)
                    elif not waiting:
                        return
                if not job:
                    taught.wait()
                elif not (self.train(job, [device]) or self.train(job, [device])):
                    with self.lock:
                        # It may be the device: the others do what is left.
                        if len(alive) > 1 and time.monotonic() - self.begin < self.args.seconds:
                            self.say(f"{device} is left alone from now on")
                            alive.discard(number)
                            waiting.insert(0, job)
                            return
                    self.failed.append(job.name)

        threads = [threading.Thread(target=work, args=item) for item in enumerate(self.devices)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for job in pairs if len(set(self.devices)) > 1 or self.devices[0] == "cpu" else []:
            if not self.train(job, (self.devices[0], self.devices[1])):
                self.failed.append(job.name)


def train(args):
    args.out = Path(args.out).resolve()
    args.out.mkdir(parents=True, exist_ok=True)
    if args.gpus is None:
        count = "import torch; print(torch.cuda.device_count())"
        args.gpus = int(subprocess.run([PYTHON, "-c", count], check=True, capture_output=True, text=True).stdout)
    sweep = Sweep(args)
    sweep.everything()
    if sweep.failed:
        print("failed: " + " ".join(sweep.failed), file=sys.stderr)
        sys.exit(1)


def seconds_an_epoch(folder, epochs):
    """Without the first epoch, in which the step is compiled, from the log's times; None of one epoch."""
    times = dict(re.findall(r"^ *([\d.]+) s  epoch +(\d+) ", (folder / "training.log").read_text(), re.M))
    at = {int(epoch): float(seconds) for seconds, epoch in times.items()}
    return round((at[epochs] - at[1]) / (epochs - 1), 4) if epochs > 1 else None


def row_of(args, folder):
    results = json.loads((folder / "results.json").read_text())
    settings, scores = results["settings"], results["validation"]
    log = (folder / "training.log").read_text()
    steps = int(re.search(r"^steps (\d+)", settings["network"], re.M).group(1))
    row = {
        "run": folder.name,
        "T": steps,
        "epochs": settings["epochs"],
        "batch": settings["batch"],
        "seeds": len(scores),
        "processes": settings.get("processes", 1),
        "machine": re.search(r"torch (\S+) on (.*?)(?:, \d+ processes)?;", log).group(2),
        "torch": re.search(r"torch (\S+) on", log).group(1),
        "seconds": results["seconds"],
        "seconds_an_epoch": seconds_an_epoch(folder, settings["epochs"]),
    }
    trained = args.sweep / f"{folder.name}.record.json"
    if trained.exists():  # sweeps of earlier versions have none
        row["trained"] = json.loads(trained.read_text())
    if folder.name.startswith("timing"):
        return row
    best = max(range(len(scores)), key=lambda s: scores[s])
    row |= {
        "validation": scores,
        "validation_mean": round(statistics.mean(scores), 5),
        "validation_deviation": round(statistics.stdev(scores), 5) if len(scores) > 1 else None,
        "best_seed": settings["seed"] + best,
        "best_validation": scores[best],
        "test": test_of(args, folder.name),
        "history": results["history"],
    }
    return row


def test_of(args, name):
    """The accuracy of a run's chosen model on the test images. Read once: what a file says is not read again."""
    kept, model = args.sweep / "models" / f"{name}.test.json", args.sweep / "models" / name
    if not kept.exists():
        subprocess.run([PYTHON, str(TOOL), "export", str(args.sweep / name), str(model)], check=True)
        command = [PYTHON, str(TOOL), "evaluate", str(model)]
        command += ["--data", args.data] if args.data else []
        command += ["--limit", str(args.limit)] if args.limit else []
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        kept.write_text(json.dumps(float(re.search(r": (\d\.\d+) of ", output).group(1))))
    return json.loads(kept.read_text())


def record(args):
    args.sweep = Path(args.sweep).resolve()
    folders = sorted(path.parent for path in args.sweep.glob("*/results.json"))
    if not folders:
        print(f"{args.sweep}: no finished run. Expected a folder that `train` wrote", file=sys.stderr)
        sys.exit(2)
    here = records.of_source()  # of the tests; of its training each run has its own
    tested_on = {key: here.pop(key) for key in ("machine", "cpu_model")}
    rows = [row_of(args, folder) for folder in folders]
    path = Path(args.out, "snn-training.json")
    if path.exists():  # runs of an earlier sweep
        names = {row["run"] for row in rows}
        rows += [row for row in json.loads(path.read_text())["training"] if row["run"] not in names]
        rows.sort(key=lambda row: row["run"])
    machines = sorted({row["machine"] for row in rows})
    result = {**here, "machine": ", ".join(machines), "torch": rows[0]["torch"], "tested_on": tested_on,
              "tested": "of each run the network that is best on the 5,000 validation images, once, on the CPU",
              "training": rows}  # fmt: skip
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(result, indent=1) + "\n")
    temporary.replace(path)
    print(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = parser.add_subparsers(dest="mode", required=True)
    sub = modes.add_parser("train")
    sub.add_argument("--out", required=True, help="folder; what is finished in it is not run again")
    sub.add_argument("--gpus", type=int, help="default: all")
    sub.add_argument("--at-once", type=int, default=1, help="runs on a GPU at once; default: 1")
    sub.add_argument("--epochs", type=int, default=60, help="of our recipe; default: 60")
    sub.add_argument("--document-epochs", type=int, default=1000, help="of the published one; default: its 1,000")
    sub.add_argument("--document-seeds", type=int, default=16, help="default: 16; 0 leaves it out")
    sub.add_argument("--timing-epochs", type=int, default=5, help="default: 5; 0 leaves these runs out")
    sub.add_argument("--seconds", type=float, default=86400, help="runs that are not done by then are stopped")
    sub.add_argument("--trial", action="store_true", help="60 images, to see that all works")
    sub.set_defaults(do=train)
    sub_record = modes.add_parser("record")
    sub_record.add_argument("sweep")
    sub_record.add_argument("--out", required=True)
    sub_record.add_argument("--limit", type=int, help="so many test images only, for a trial")
    sub_record.set_defaults(do=record)
    for each in (sub, sub_record):
        each.add_argument("--data", help="folder of the Fashion-MNIST IDX files; default: as train_fashion.py finds it")
    args = parser.parse_args()
    args.do(args)


if __name__ == "__main__":
    main()
