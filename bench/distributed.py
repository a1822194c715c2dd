#!/usr/bin/env python3
"""What more processes are worth: images a second of Ray's workers beside one process, and training by two processes.

    bench/distributed.py inference --out FILE       with the packages `convoy` (a wheel of scripts/wheel) and ray[data]
    bench/distributed.py training --out FILE        with python/requirements.txt

Each adds its part to the JSON in FILE. A part has its own record; the file's is that of the last one. Runs go in turns,
ROUNDS times, and the fastest of each counts, since other programs may run on the machine ("load": the average number
that want a core). Inference: Fashion-MNIST's training set, once and five times over, from an IDX file to a parquet
file, the start of workers included.
Training: the shipped network, 4 seeds, 3,000 images.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import records

ROOT = Path(__file__).resolve().parents[1]
SMALL, LARGE = 1, 5
TRAINING = ["--teachers", "0", "--seeds", "4", "--limit", "3000", "--batch", "50", "--device", "cpu"]


def inference(args):
    import numpy as np

    import convoy
    import convoy.ray
    from convoy.program import program

    record = records.of_program(program())
    # Behind the installed package: python/ has one without its compiled part.
    sys.path.insert(0, str(ROOT / "python"))
    from training import idx

    images = idx.read_set(idx.find_folder(args.data), "train")[0]
    files, seconds, started = {}, {}, None
    with tempfile.TemporaryDirectory() as folder:
        for times in (SMALL, LARGE):
            files[times] = Path(folder, f"images-{times}")
            idx.write_idx(files[times], np.concatenate([images] * times))
        begin = time.perf_counter()
        convoy.ray.connect(None, 4)
        started = time.perf_counter() - begin

        def ray(workers):
            def run(path):
                tables = convoy.ray.classify(convoy.demo_model(), path, workers=workers, batch=5000)
                return convoy.ray.write(tables, Path(folder, "labels.parquet"))

            return run

        def alone(threads):
            import pyarrow as pa

            def run(path):
                network = convoy.Network(convoy.demo_model(), threads=threads)
                labels = network.labels(idx.read_idx(path, 3))
                table = pa.table({"image": np.arange(len(labels)), "label": labels})
                return convoy.ray.write(iter([table]), Path(folder, "labels.parquet"))

            return run

        ways = {"one process, 1 thread": alone(1), "one process, 2 threads": alone(2)}
        ways |= {f"Ray, {workers} worker{'s' * (workers > 1)}": ray(workers) for workers in (1, 2, 4)}
        for _ in range(args.rounds):
            for name, run in ways.items():
                for times, path in files.items():
                    begin = time.perf_counter()
                    assert run(path) == times * len(images)
                    took = time.perf_counter() - begin
                    seconds.setdefault(name, {}).setdefault(times, []).append(took)
                    print(f"{name}, {times * len(images)} images: {took:.2f} s", flush=True)
    count = len(images)
    rows = [{"way": name, "images": [count * SMALL, count * LARGE], "seconds": [min(of[SMALL]), min(of[LARGE])],
             "seconds_of_rounds": [of[SMALL], of[LARGE]]} for name, of in seconds.items()]  # fmt: skip
    versions = {"ray": sys.modules["ray"].__version__, "convoy": convoy.__version__}
    return {**versions, "cluster_start_seconds": started, "record": record, "rows": rows}


def training(args):
    ways = {"one process": (1, 1), "two processes": (2, 1)}  # of one thread each
    record, found = records.of_source(), {}  # no program of ours takes part
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(args.rounds):
            for name, (processes, threads) in ways.items():
                out = Path(folder, f"{turn}-{processes}-{threads}")
                start = [sys.executable]
                if processes > 1:
                    start += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
                words = [*TRAINING, "--epochs", str(args.epochs), "--every", "1", "--out", str(out)]
                words += ["--data", args.data] if args.data else []
                subprocess.run([*start, str(ROOT / "python/train_fashion.py"), "train", *words], check=True,
                               stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": str(threads)})
                results = json.loads((out / "results.json").read_text())
                log = (out / "training.log").read_text()
                times = [float(at) for at in re.findall(r"^ *([\d.]+) s  epoch ", log, re.M)]
                row = found.setdefault(name, {"way": name, "validation": results["validation"], "seconds_an_epoch": []})
                row["seconds_an_epoch"].append(round((times[-1] - times[0]) / (len(times) - 1), 3))
                print(f"{name}: {row['seconds_an_epoch'][-1]} s an epoch, {results['validation']}", flush=True)
                assert row["validation"] == results["validation"], "another result in another round"
    torch = re.search(r"torch (\S+) on", log).group(1)
    return {"torch": torch, "options": " ".join(TRAINING), "epochs": args.epochs, "record": record,
            "rows": list(found.values())}  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts = {"inference": inference, "training": training}
    parser.add_argument("part", choices=parts)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--data")
    args = parser.parse_args()
    part = parts[args.part](args)
    part["load"] = round(os.getloadavg()[2], 1)
    before = json.loads(args.out.read_text()) if args.out.exists() else {}
    # Nothing else that the file had: a compiler that only the other part names would seem to be this one's too.
    kept = {name: before[name] for name in parts if name in before}
    whole = {**part["record"], "cores": os.cpu_count(), **kept, args.part: part}
    temporary = args.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(whole, indent=1, sort_keys=True) + "\n")
    temporary.replace(args.out)


if __name__ == "__main__":
    main()
