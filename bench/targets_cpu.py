#!/usr/bin/env python3
"""Runs `convoy bench --peers` in several processes and merges them: the CPU's figures in bench/results.

    bench/targets_cpu.py --convoy build/release/bin/convoy --shapes shapes/targets-cpu.txt
    python3 bench/targets_cpu.py --convoy convoy --python python3 --threads 16 --modes default --limit 300 --out results

Each stage's ratio is the median over processes of that process's ratio to its best peer. One JSON
file per mode and thread count goes to OUT/<cpu>/; with --more the processes are added to
those that it holds, for a list whose processes do not all fit into one quiet hour. A peer whose library is
absent is left out, as the rows say.
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

from results_folder import folder_of

ROOT = Path(__file__).resolve().parent.parent
HEAD = ("convoy", "commit", "dirty", "compiler", "machine", "cpu_model", "isa", "threads")  # the same in all processes
OF_ONE = ("rows", "failed", "mode")  # what a run has beside its head


def one_process(args, threads):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        command = [args.convoy, "bench", "--peers", "--peers-python", args.python, "--peers-script",
                   ROOT / "bench/peers.py", "--shapes", args.shapes, "--json", out, "--threads", str(threads),
                   "--no-tuning", "--rounds", str(args.rounds), "--seconds", str(args.seconds)]
        command += {"both": ["--both-modes"], "strict": ["--strict"], "default": []}[args.modes]
        # Ours and the peers on the same cores: one that others disturb would slow only who happens to sit on it.
        cores = sorted(os.sched_getaffinity(0))[-threads:]
        subprocess.run(
            command, check=True, stdout=subprocess.DEVNULL, preexec_fn=lambda: os.sched_setaffinity(0, cores)
        )
        return json.loads(out.read_text())


def measure(args):
    """The processes' results, by threads; after the first none that would likely end after the limit."""
    runs = {threads: [] for threads in args.threads}
    start, longest = time.monotonic(), 0
    for process in range(args.processes):
        for threads, done in runs.items():
            begin = time.monotonic()
            if done and begin - start + longest > args.limit:
                print(f"no time left for process {process + 1}, {threads} threads", file=sys.stderr)
                continue
            print(f"process {process + 1} of {args.processes}, {threads} threads", file=sys.stderr, flush=True)
            done.append(one_process(args, threads))
            # The first one also compiles for PyTorch: those after it tell better.
            took = time.monotonic() - begin
            longest = took if len(done) <= 2 else max(longest, took)
    return runs


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
    """Whether an earlier result is of the same stages, machine and build as a run."""
    stages = [row["stage"] for row in run["rows"] if of_mode(row, mode)]
    return all(before.get(key) == run[key] for key in HEAD) and [row["stage"] for row in before["rows"]] == stages


def merge(runs, mode, before=None):
    """The rows of one mode, each with the median of its ratios; `before`: what earlier processes gave."""
    head = {key: value for key, value in runs[0].items() if key not in OF_ONE}
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
    parser.add_argument("--modes", choices=["both", "default", "strict"], default="both")
    own = ROOT / ".venv/bin/python"
    parser.add_argument("--python", default=str(own if own.exists() else sys.executable), help="the peers' interpreter")
    parser.add_argument("--limit", type=float, default=math.inf,
                        help="seconds: after the first process none begins that would likely end after them")
    args = parser.parse_args()
    name = Path(args.shapes).stem
    runs = measure(args)
    modes = ("default", "strict") if args.modes == "both" else (args.modes,)
    for threads, mode in ((threads, mode) for threads in args.threads for mode in modes):
        folder = Path(args.out) / folder_of(runs[threads][0])
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
