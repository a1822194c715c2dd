#!/usr/bin/env python3
"""Measures the GPU figures of docs/performance.md, ours and the peers in the same run.

    python3 bench/targets_gpu.py --convoy build/cuda/bin/convoy --out bench/results/h200

Each part but `two-stages` is one `convoy bench --device cuda`: rounds in which everything runs in turns, medians
over the rounds. A part's
result goes to OUT/<part>.json, with the geometric mean and the least of its ratios to the best peer
that does the whole stage. Needs an interpreter with torch and jax.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ALL = "cudnn,compile,xla"
# name: list, peers, further words for `convoy bench`
PARTS = {
    "targets": ("targets-gpu", ALL, []),
    "targets-without-pool": ("targets-gpu", "cudnn", ["--without-pool"]),
    "targets-bf16": ("targets-gpu", "", ["--dtype", "bf16"]),
    "k-sweep": ("k-sweep", "cublas,cudnn", []),
    "same-pixels": ("same-pixels", "", []),
    "launch-split": ("launch-split", "", []),
}
PARTS |= {name: (name, "cudnn", ["--dtype", "f16", "--rounds", "3", "--seconds", "0.01"])
          for name in ("resnet50", "vgg16", "mobilenetv2", "yolov8n", "unet")}


TWO_STAGES = ["f16:n32h56w56c64k128r3pad1+bias+relu+max2", "f16:n32h28w28c128k256r1+bias+relu+max2"]


def shapes(name):
    return ROOT / f"shapes/{name}.txt"


def summarize(path):
    result = json.loads(path.read_text())
    ratios = [row["ratio"] for row in result["rows"] if row["ratio"]]
    if ratios:
        result["geometric_mean"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
        result["least_ratio"] = min(ratios)
    write(path, result)
    return result


def two_stages(args, environment):
    """A pipeline of two stages in one launch (timed by `convoy explain --then`) beside the peers' chains, in rounds."""
    common = dict(dtype="f16", n=32, stride=[1, 1], dil=[1, 1], groups=1, bias=True, act="relu", a=0, b=0,
                  pool=dict(window=[2, 2], stride=[2, 2], pad=[0, 0], dil=[1, 1], ceil=False))
    second = dict(common, h=28, w=28, c=128, k=256, r=1, s=1, pad=[0] * 4)
    first = dict(common, h=56, w=56, c=64, k=128, r=3, s=3, pad=[1] * 4, then=second)
    worker = subprocess.Popen([sys.executable, ROOT / "bench/peers_gpu.py"], stdin=subprocess.PIPE, text=True,
                              stdout=subprocess.PIPE, env={**environment, "CONVOY_GPU_PEERS": ALL})

    def ask(**request):
        worker.stdin.write(json.dumps(request) + "\n")
        worker.stdin.flush()
        return json.loads(worker.stdout.readline())

    prepared = ask(op="prepare", stage=first)
    samples = {}
    command = [args.convoy, "explain", "--device", "cuda", TWO_STAGES[0], "--then", TWO_STAGES[1], "--json",
               "--seconds", str(args.seconds)]
    for _ in range(args.rounds):
        ours = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        for name in ("one launch", "two launches"):
            samples.setdefault(name, []).append(1e6 * ours[name.replace(" ", "_") + "_seconds"])
        for peer in prepared["peers"]:
            timed = ask(op="time", peer=peer, seconds=args.seconds)["samples"]
            samples.setdefault(peer, []).append(1e6 * statistics.median(timed))
    worker.stdin.close()
    worker.wait()
    return dict(first=TWO_STAGES[0], second=TWO_STAGES[1], versions=prepared["versions"], rounds=args.rounds,
                left_out=prepared["left_out"], microseconds={name: statistics.median(s) for name, s in samples.items()})


def write(path, result):
    path.with_suffix(".tmp").write_text(json.dumps(result, indent=1) + "\n")
    path.with_suffix(".tmp").rename(path)


def print_rows(result):
    for row in result["rows"]:
        ours = row["convoy"]
        peers = "  ".join(f"{peer['name']} {peer['median_us']:.1f}" for peer in row["peers"])
        left = "  ".join(f"({gone['name']}: {gone['why'][:60]})" for gone in row["left_out"])
        print(f"  {row['stage']:<46} {row['kernel']}/{row['tile']} {ours['median_us']:8.2f} us  "
              f"floor {row.get('floor_us', 0):.1f}  {row.get('clock_ghz', 0):.2f} GHz  "
              f"ratio {row['ratio'] or 0:.2f}  {peers} {left}")
    if "geometric_mean" in result:
        print(f"  geometric mean {result['geometric_mean']:.2f}, least {result['least_ratio']:.2f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default=str(ROOT / "build/cuda/bin/convoy"))
    parser.add_argument("--out", default=str(ROOT / "bench/results/h200"))
    names = [*PARTS, "two-stages"]
    parser.add_argument("--parts", default=",".join(names), help="some of " + ", ".join(names))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.03, help="of each contestant in each round, and to warm up")
    args = parser.parse_args()
    parts = args.parts.split(",")
    if unknown := [part for part in parts if part not in names]:
        parser.error(f"--parts: {', '.join(unknown)}: expected some of {', '.join(names)}")
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "CONVOY_PEERS_PYTHON": sys.executable,
                   "CONVOY_PEERS_SCRIPT": str(ROOT / "bench/peers_gpu.py")}
    start = time.perf_counter()
    say = lambda text: print(f"[{time.perf_counter() - start:5.0f} s] {text}", flush=True)
    failures = 0
    for part in parts:
        if part == "two-stages":
            result = two_stages(args, environment)
            write(out / "two-stages.json", result)
            say(f"two-stages: {result['microseconds']}")
            continue
        name, peers, words = PARTS[part]
        path = out / f"{part}.json"
        command = [args.convoy, "bench", "--device", "cuda", "--shapes", shapes(name), "--json", path, *words]
        command += ["--peers"] if peers else []
        if "--rounds" not in words:
            command += ["--rounds", str(args.rounds), "--seconds", str(args.seconds)]
        done = subprocess.run(command, env={**environment, "CONVOY_GPU_PEERS": peers}, stdout=subprocess.DEVNULL)
        say(f"{part}: exit code {done.returncode}")
        failures += done.returncode != 0
        if path.exists():
            print_rows(summarize(path))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
