#!/usr/bin/env python3
"""Measures the GPU figures of docs/trust/speed.md, ours and the peers in the same run.

    python3 bench/targets_gpu.py --convoy build/cuda/bin/convoy --out bench/results/h200

Each part but `two-stages` is one `convoy bench --device cuda`: rounds in which everything runs in turns, medians
over the rounds. `targets`, `targets-without-pool` and the wide lists run so in several processes, one after the other;
a stage's ratio is the median of the processes' ratios, each of which is kept. What torch.compile and XLA choose by
measurement they choose once, in the first process; of a stage's peers the others time those that were near the best
there. A part's result goes to OUT/<part>.json, with the geometric mean and the least of its ratios to the best peer
that does the whole stage. Needs an interpreter with torch and jax.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import records
from targets_cpu import merge_row

ROOT = Path(__file__).resolve().parent.parent
ALL = "cudnn,chain,compile,xla"
# name: list, peers, further words for `convoy bench`
PARTS = {
    "targets": ("targets-gpu", ALL, ["--apart"]),
    "targets-without-pool": ("targets-gpu", "cudnn", ["--without-pool", "--apart"]),
    "targets-bf16": ("targets-gpu", "", ["--both-types", "--rounds", "10", "--seconds", "0.02"]),
    "cutlass": ("targets-gpu", "cutlass,cudnn", []),
    "window-targets": ("targets-gpu", "cutlass,cudnn", ["--kernel", "window"]),
    "window-without-pool": ("targets-gpu", "cutlass", ["--kernel", "window", "--without-pool"]),
    "f32-targets": ("targets-gpu", "cudnn", ["--dtype", "f32"]),
    "f32-resnet50": ("resnet50", "cudnn", ["--dtype", "f32", "--rounds", "3", "--seconds", "0.01"]),
    "resnext50": ("resnext50", "cudnn,compile,xla", []),
    "groups": ("groups", "cudnn,compile,xla", []),
    "people": ("people", "cudnn", ["--rounds", "3", "--seconds", "0.005"]),
    "k-sweep": ("k-sweep", "cublas,cudnn", []),
    "same-pixels": ("same-pixels", "", []),
    "launch-split": ("launch-split", "", []),
}
LISTS = ("resnet50", "vgg16", "mobilenetv2", "yolov8n", "unet")
PARTS |= {name: (name, "cudnn", ["--dtype", "f16", "--rounds", "3", "--seconds", "0.01"]) for name in LISTS}
REPEATED = ("targets", "targets-without-pool", "cutlass", "window-targets", "window-without-pool", "f32-targets",
            "f32-resnet50", "resnext50", "groups", "people", *LISTS)  # in several processes


TWO_STAGES = ["f16:n32h56w56c64k128r3pad1+bias+relu+max2", "f16:n32h28w28c128k256r1+bias+relu+max2"]


def shapes(name):
    return ROOT / f"shapes/{name}.txt"


def median_of(rows, key):
    """Of the rows that have such a value; nothing where none has."""
    values = [row[key] for row in rows if key in row]
    return {key: statistics.median(values)} if values else {}


def merge_peers(same):
    """The peers of the middle process, each with the median of its ratios."""
    merged = []
    for peer in merge_row(same)["peers"]:
        everywhere = [other for row in same for other in row["peers"] if other["name"] == peer["name"]]
        merged.append(peer | median_of(everywhere, "ratio") | median_of(everywhere, "apart_ratio"))
    return merged


def merge(runs):
    """The processes' results, some perhaps merged before, as one. A stage that failed in one of them is left out of
    it, and named."""
    by_stage = {}
    for row in (row for run in runs for row in run["rows"]):
        by_stage.setdefault(row["stage"], []).append(row)
    def times(row):
        return row.get("us_of_processes", [row["convoy"]["median_us"]])
    result = dict(runs[0], processes=sum(run.get("processes", 1) for run in runs),
                  rows=[dict(merge_row(same), peers=merge_peers(same),
                             us_of_processes=[us for row in same for us in times(row)],
                             **median_of(same, "apart_ratio")) if same[0]["ratio"] else same[0]
                        for same in by_stage.values()])
    if failed := [failure for run in runs for failure in run.get("failed", [])]:
        result["failed"] = failed
    if ratios := [row["ratio"] for row in result["rows"] if row["ratio"]]:
        result["geometric_mean"] = math.exp(sum(map(math.log, ratios)) / len(ratios))
        result["least_ratio"] = min(ratios)
    return result


def measure(part, args, environment):
    """One process of a part: its result, or None, and the exit code."""
    name, peers, words = PARTS[part]
    with tempfile.TemporaryDirectory() as folder:
        stages = shapes(name).read_text().splitlines()
        chosen = Path(folder) / f"{name}.txt"
        chosen.write_text("\n".join([line for line in stages if line and line[0] != "#"][:args.stages]) + "\n")
        path = Path(folder) / "result.json"
        command = [args.convoy, "bench", "--device", "cuda", "--shapes", chosen, "--json", path, *words]
        command += ["--peers"] if peers else []
        if "--rounds" not in words:
            command += ["--rounds", str(args.rounds), "--seconds", str(args.seconds)]
        code = subprocess.run(
            command, env={**environment, "CONVOY_GPU_PEERS": peers}, stdout=subprocess.DEVNULL
        ).returncode
        return json.loads(path.read_text()) if path.exists() else None, code


def two_stages(args, environment):
    """A pipeline of two stages in one launch (timed by `convoy explain --then`) beside the peers' chains, in rounds."""
    record = records.of_program(args.convoy, "cuda")
    common = dict(dtype="f16", n=32, t=1, hold=False, nchw=False, stride=[1, 1], dil=[1, 1], groups=1, bias=True,
                  act="relu", a=0, b=0,
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
        for name, key in (("one launch", "one_kernel_seconds"), ("two launches", "by_themselves_seconds")):
            samples.setdefault(name, []).append(1e6 * ours[key])
        for peer in prepared["peers"]:
            timed = ask(op="time", peer=peer, seconds=args.seconds)["samples"]
            samples.setdefault(peer, []).append(1e6 * statistics.median(timed))
    worker.stdin.close()
    worker.wait()
    return dict(record, first=TWO_STAGES[0], second=TWO_STAGES[1], versions=prepared["versions"], rounds=args.rounds,
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
    parser.add_argument("--processes", type=int, default=5, help="of " + " and ".join(REPEATED))
    parser.add_argument("--more", action="store_true", help="add to the processes of the results in --out")
    parser.add_argument("--limit", type=float, default=math.inf,
                        help="seconds: no process begins that would likely end after them")
    parser.add_argument(
        "--choices",
        help="a folder for what torch.compile and XLA choose, and for which peers were near "
        "the best: a later run on such a machine begins from it (default: a temporary one)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="of each process")
    parser.add_argument("--seconds", type=float, default=0.02, help="of each contestant in each round, and to warm up")
    parser.add_argument("--stages", type=int, help="only the first so many of each list: a trial")
    args = parser.parse_args()
    parts = args.parts.split(",")
    if unknown := [part for part in parts if part not in names]:
        parser.error(f"--parts: {', '.join(unknown)}: expected some of {', '.join(names)}")
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()

    def say(text):
        print(f"[{time.perf_counter() - start:5.0f} s] {text}", flush=True)

    failures, runs, took = 0, {}, {}
    with tempfile.TemporaryDirectory() as temporary:
        choices = os.path.abspath(args.choices or temporary)
        os.makedirs(choices, exist_ok=True)
        searches = not os.listdir(choices)
        environment = {
            **os.environ,
            "CONVOY_PEERS_PYTHON": sys.executable,
            "CONVOY_PEERS_SCRIPT": str(ROOT / "bench/peers_gpu.py"),
            "TORCHINDUCTOR_CACHE_DIR": f"{choices}/torch",
            "JAX_COMPILATION_CACHE_DIR": f"{choices}/jax",
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }
        repeated = [part for part in parts if part in REPEATED] * args.processes
        for part in repeated + [part for part in parts if part not in REPEATED]:
            begin = time.perf_counter()
            # The first process also searches, and takes some four times as long as those after it.
            likely = took.get(part, 0) / (4 if len(runs.get(part, [])) == 1 and searches else 1)
            if begin - start + likely > args.limit:
                say(f"{part}: no time left for another process")
                continue
            if part == "two-stages":
                result = two_stages(args, environment)
                write(out / "two-stages.json", result)
                say(f"two-stages: {result['microseconds']}")
                continue
            history = {"CONVOY_PEERS_HISTORY": f"{choices}/{part}.json"} if part in REPEATED else {}
            result, code = measure(part, args, environment | history)
            took[part] = time.perf_counter() - begin
            say(f"{part}, {took[part]:.0f} s: exit code {code}")
            failures += code != 0
            if result:
                path = out / f"{part}.json"
                more = args.more and part in REPEATED and part not in runs and path.exists()
                runs.setdefault(part, [json.loads(path.read_text())] if more else []).append(result)
                merged = merge(runs[part])  # after each process: an interrupt keeps those before it
                write(out / f"{part}.json", merged)
                print_rows(merged)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
