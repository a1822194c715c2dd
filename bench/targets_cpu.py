#!/usr/bin/env python3
"""Runs `convoy bench --peers` in several processes and merges them: the figures of docs/performance.md.

    bench/targets_cpu.py --convoy build/release/bin/convoy --shapes shapes/targets-cpu.txt

Each stage's ratio is the median over processes of that process's ratio to its best peer. One JSON
file per mode and thread count goes to bench/results/<cpu>/; with --more the processes are added to
those that it holds, for a list whose processes do not all fit into one quiet hour.
"""

import argparse
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HEAD = ("convoy", "machine", "isa", "threads")


def one_process(args, threads):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [args.convoy, "bench", "--peers", "--shapes", args.shapes, "--json", str(out),
                   "--threads", str(threads), "--no-tuning", "--both-modes", "--rounds", str(args.rounds),
                   "--seconds", str(args.seconds)]
        # Ours and the peers on the same cores: one that others disturb would slow only who happens to sit on it.
        cores = sorted(os.sched_getaffinity(0))[-threads:]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores))
        return json.loads(out.read_text())


def merge_row(same):
    """One stage's rows of all processes, some perhaps merged before: that of the middle process, with the
    median of the ratios."""
    ratios = [ratio for row in same for ratio in row.get("ratios_of_processes", [row["ratio"]])]
    median = statistics.median(ratios)
    middle = min(same, key=lambda row: abs(row["ratio"] - median))
    return dict(middle, ratio=median, ratios_of_processes=ratios,
                least_us=min(row.get("least_us", row["convoy"]["minimum_us"]) for row in same))


def of_mode(row, mode):
    return row["stage"].endswith("+strict") == (mode == "strict")


def comparable(before, run, mode):
    """Whether an earlier result is of the same stages, machine and version as a run."""
    stages = [row["stage"] for row in run["rows"] if of_mode(row, mode)]
    return all(before[key] == run[key] for key in HEAD) and [row["stage"] for row in before["rows"]] == stages


def merge(runs, mode, before=None):
    """The rows of one mode, each with the median of its ratios; `before`: what earlier processes gave."""
    head = {key: runs[0][key] for key in HEAD}
    earlier = {row["stage"]: [row] for row in before["rows"]} if before else {}
    rows = []
    for same in zip(*(run["rows"] for run in runs)):
        if not of_mode(same[0], mode):
            continue
        rows.append(merge_row([*same, *earlier.get(same[0]["stage"], [])]))
    ratios = [row["ratio"] for row in rows]
    return dict(head, mode=mode, processes=len(runs) + (before["processes"] if before else 0),
                geometric_mean=math.exp(sum(map(math.log, ratios)) / len(ratios)), least_ratio=min(ratios), rows=rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default=str(ROOT / "build/release/bin/convoy"))
    parser.add_argument("--shapes", default=str(ROOT / "shapes/targets-cpu.txt"))
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--threads", type=int, nargs="+", default=[os.cpu_count()])
    parser.add_argument("--seconds", type=float, default=0.03, help="of each contestant in each round")
    parser.add_argument("--out", default=str(ROOT / "bench/results"))
    parser.add_argument("--more", action="store_true", help="add to the processes of the result that is there")
    args = parser.parse_args()
    name = Path(args.shapes).stem
    runs = {threads: [] for threads in args.threads}
    for process in range(args.processes):
        for threads, done in runs.items():
            print(f"process {process + 1} of {args.processes}, {threads} threads", file=sys.stderr)
            done.append(one_process(args, threads))
    for threads, mode in ((threads, mode) for threads in args.threads for mode in ("default", "strict")):
        machine = re.sub(r"[^a-z0-9]+", "-", "{machine} {isa}".format(**runs[threads][0]).lower()).strip("-")
        folder = Path(args.out) / machine
        folder.mkdir(parents=True, exist_ok=True)
        out = folder / f"{name}-{mode}-{threads}t.json"
        before = json.loads(out.read_text()) if args.more and out.exists() else None
        if before and not comparable(before, runs[threads][0], mode):
            aside = out.with_name(f"{out.stem}-new.json")
            print(f"{out} is of other stages, another machine or version: it stays, and these runs go to {aside}")
            out, before = aside, None
        merged = merge(runs[threads], mode, before)
        out.with_suffix(".tmp").write_text(json.dumps(merged, indent=1) + "\n")
        out.with_suffix(".tmp").rename(out)
        print(f"{out}: geometric mean {merged['geometric_mean']:.2f}, least {merged['least_ratio']:.2f}")
        for row in merged["rows"]:
            print(f"  {row['stage']:<48} {row['kernel']:<16} {row['convoy']['median_us']:10.1f} us  "
                  f"{row['best_peer']:<17} ratio {row['ratio']:.2f}")


if __name__ == "__main__":
    main()
