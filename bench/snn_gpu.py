#!/usr/bin/env python3
"""Times the demo's spiking network on a GPU, in several processes.

    bench/snn_gpu.py --convoy build/cuda/bin/convoy --data fashion-mnist --out bench/results/h200

Writes OUT/snn-gpu.json: microseconds of a run for each batch, images and outputs on the device (`convoy bench`, the
median over processes; also of its layers one by one), and of `convoy run`, images and labels on the host.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BATCHES = (1, 10, 132, 1000, 10000, 60000)
CHAIN = ("constants > u8:n{n}h28c1k8r5out(f32)+bias+if(1)+t2+hold+max2 > n{n}h12c8k16r5+bias+if(1)+t2+max2 > "
         "n{n}h1c256k128r1+bias+if(1)+t2 > n{n}h1c128k96r1+bias+if(1)+t2 > n{n}h1c96k10r1+bias > mean")
HEAD = ("machine", "driver", "driver_release", "commit", "dirty", "compiler", "cuda_compiler", "date", "host", "method")


def result_of(*command):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        subprocess.run([*command, "--device", "cuda", "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def merged(benches, runs):
    """What the file holds: of each batch the results of all processes, and those of `convoy run`."""
    rows = []
    for n, results in benches.items():
        of_n = [result["rows"][0] for result in results]
        us = [row["convoy"]["median_us"] for row in of_n]
        rows.append({"images": n, "kernel": of_n[0]["kernel"], "median_us": statistics.median(us),
                     "least_us": min(row["convoy"]["minimum_us"] for row in of_n), "us_of_processes": us,
                     "stage_by_stage_us": statistics.median(row["peers"][0]["median_us"] for row in of_n)})
    first = next(iter(benches.values()))[0]
    return {**{key: first[key] for key in HEAD if key in first}, "model": "fashion-scnn", "processes": len(runs),
            "rows": rows,
            "run": {"images": runs[0]["images"], "accuracy": runs[0]["accuracy"],
                    "seconds": statistics.median(run["seconds"] for run in runs),
                    "one_image_seconds": statistics.median(run["one_image_median_seconds"] for run in runs)}}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default=str(ROOT / "build/cuda/bin/convoy"))
    parser.add_argument("--model", default=str(ROOT / "models/fashion-scnn"))
    parser.add_argument("--data", required=True, help="folder of Fashion-MNIST's test images and labels")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    benches, runs = {n: [] for n in BATCHES}, []
    for _ in range(args.processes):
        for n, results in benches.items():
            results.append(result_of(args.convoy, "bench", "--no-tuning", "--rounds", "3", "--seconds", "0.02",
                                     "--stage", CHAIN.format(n=n)))
        runs.append(result_of(args.convoy, "run", args.model, "--data", args.data))
    Path(args.out, "snn-gpu.json").write_text(json.dumps(merged(benches, runs), indent=1) + "\n")


if __name__ == "__main__":
    main()
