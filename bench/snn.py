#!/usr/bin/env python3
"""Throughput and latency of a spiking network beside other libraries, in turns, in several processes.

    bench/snn.py --convoy build/release/bin/convoy

Writes bench/results/<cpu>/snn.json. Each ratio is the median over processes of that process's ratio to its
best peer. scripts/peers makes the environment of the peers.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import records
from results_folder import folder_of

ROOT = Path(__file__).resolve().parent.parent


def convoy(args, images):
    labels = str(images).replace("images-idx3", "labels-idx1")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run.json"
        subprocess.run([args.convoy, "run", args.model, "--images", str(images), "--labels", labels, "--threads",
                        str(args.threads), "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def one_round(args, images):
    """Convoy before and after the peers, so that a drift of the machine shows and counts half."""
    before = convoy(args, images)
    peers = json.loads(subprocess.run(
        [args.python, str(ROOT / "bench/peers_snn.py"), args.model, str(images), "--threads", str(args.threads),
         "--seconds", str(args.seconds)], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1])
    after = convoy(args, images)
    ours = statistics.mean(run["images_per_second"] for run in (before, after))
    latency = statistics.mean(run["one_image_median_seconds"] for run in (before, after))
    fastest = max(peers["peers"], key=lambda name: peers["peers"][name]["images_per_second"])
    quickest = min(peers["peers"], key=lambda name: peers["peers"][name]["one_image_seconds"])
    return {
        "images_per_second": ours, "one_image_seconds": latency, "accuracy": before["accuracy"],
        "fastest_peer": fastest, "quickest_peer": quickest,
        "throughput_ratio": ours / peers["peers"][fastest]["images_per_second"],
        "latency_ratio": peers["peers"][quickest]["one_image_seconds"] / latency,
        "peers": peers["peers"], "versions": peers["versions"],
        "layers": {layer["name"]: layer["share_of_time"] for layer in before["layers"]},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default=str(ROOT / "build/release/bin/convoy"))
    parser.add_argument("--model", default=str(ROOT / "models/fashion-scnn"))
    parser.add_argument("--images", default="/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz")
    parser.add_argument("--python", default=str(ROOT / ".venv/bin/python"), help="of the peers (scripts/peers)")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each measurement of a peer")
    parser.add_argument("--add", action="store_true", help="to the processes that the result file has already")
    parser.add_argument("--out", default=str(ROOT / "bench/results"))
    args = parser.parse_args()
    record = records.of_program(args.convoy)
    out = Path(args.out) / folder_of(record) / "snn.json"
    rounds = json.loads(out.read_text())["rounds"] if args.add and out.exists() else []
    for process in range(args.processes):
        rounds.append(one_round(args, Path(args.images)))
        r = rounds[-1]
        print(f"process {process + 1}: {r['images_per_second']:.0f} images/s, {r['throughput_ratio']:.2f} x "
              f"{r['fastest_peer']}; one image {r['one_image_seconds'] * 1e6:.2f} us, {r['latency_ratio']:.1f} x "
              f"{r['quickest_peer']}", file=sys.stderr)
    median = {key: statistics.median(r[key] for r in rounds)
              for key in ("images_per_second", "one_image_seconds", "throughput_ratio", "latency_ratio", "accuracy")}
    peers = {name: {key: statistics.median(r["peers"][name][key] for r in rounds)
                    for key in ("images_per_second", "one_image_seconds", "labels_that_differ_in_1000")}
             for name in rounds[0]["peers"]}
    result = {
        **record,
        "threads": args.threads,
        "processes": len(rounds),
        "model": Path(args.model).name,
        **median,
        "peers": peers,
        "versions": rounds[0]["versions"],
        "rounds": rounds,
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.with_suffix(".tmp").write_text(json.dumps(result, indent=1) + "\n")
    out.with_suffix(".tmp").rename(out)
    print(
        f"{out}: {median['images_per_second']:.0f} images/s, {median['throughput_ratio']:.2f} x the best peer; "
        f"one image {median['one_image_seconds'] * 1e6:.2f} us, {median['latency_ratio']:.1f} x the best peer"
    )


if __name__ == "__main__":
    main()
