#!/usr/bin/env python3
"""Compares the speed of two builds of the program, stage by stage.

    bench/compare.py OLD_CONVOY NEW_CONVOY --shapes shapes/resnet50.txt shapes/vgg16.txt --rounds 5 --json compared.json
    bench/compare.py OLD_CONVOY NEW_CONVOY --device cuda --dtype f16 --shapes shapes/targets-gpu.txt

Each round starts one process of `convoy bench` of each build on each list, in an order that changes from round to
round, so that a slow minute of the machine falls on both. A process gives a stage's median time; a stage's ratio is
the old build's fastest process / the new one's: above 1 the new build is faster. Rounds are even in number, because
on some machines the second of two processes is the slower one. Stages under --least get as many rounds again, up to
--again times, and all of their rounds count. Prints the geometric mean of the ratios and each stage under --least.
Exit code: 1 where a stage is under it or failed in one build alone, 2 where nothing could be compared.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from stored import geometric_mean


def measure(program, shapes, args):
    """One process: its result as `convoy bench --json` writes it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [program, "bench", "--shapes", shapes, "--json", path, "--device", args.device, "--no-tuning",
                   "--rounds", str(args.inner_rounds), "--seconds", str(args.seconds)]
        command += ["--strict"] if args.strict else []
        command += ["--dtype", args.dtype] if args.dtype else []
        command += ["--images", str(args.images)] if args.images else []
        command += ["--without-pool"] if args.without_pool else []
        cores = sorted(os.sched_getaffinity(0))
        if args.threads:  # the same cores for both: one that others disturb slows neither alone
            command += ["--threads", str(args.threads)]
            cores = cores[-args.threads:]
        run = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                             preexec_fn=lambda: os.sched_setaffinity(0, cores))
        if not path.exists():
            sys.exit(f"{program}: {run.stderr.strip() or f'exit code {run.returncode}'}")
        return json.loads(path.read_text())


def rows_of(runs):
    """Of each stage that both builds timed in every round: its ratios and times. And the stages that failed."""
    times = {}  # stage: build: microseconds of each round
    failed = {}  # stage: build: why
    for build, results in runs.items():
        for result in results:
            for row in result["rows"]:
                of_stage = times.setdefault(row["stage"], {})
                of_stage.setdefault(build, []).append((row["convoy"]["median_us"], row["kernel"], row["tile"]))
            for failure in result.get("failed", []):
                failed.setdefault(failure["stage"], {})[build] = failure["why"]
    rows = []
    for stage, builds in times.items():
        if stage in failed or len(builds) < 2:
            continue
        old, new = builds["old"], builds["new"]
        old_us, new_us = min(time for time, _, _ in old), min(time for time, _, _ in new)
        rows.append({"stage": stage, "ratio": old_us / new_us,
                     "ratios": [before[0] / after[0] for before, after in zip(old, new)],
                     "old_us": old_us, "new_us": new_us,
                     "old": "/".join(old[-1][1:]), "new": "/".join(new[-1][1:])})
    return rows, failed


def measure_rounds(lists, args):
    """The results of each build, a process a list and round."""
    runs = {"old": [], "new": []}
    for i in range(args.rounds):
        for shapes in lists:
            print(f"round {i + 1} of {args.rounds}: {shapes}", file=sys.stderr, flush=True)
            for build in ("old", "new") if i % 2 == 0 else ("new", "old"):
                runs[build].append(measure(getattr(args, build), shapes, args))
    return runs


def measure_again(runs, args):
    """More rounds of the stages that are under --least; whether there were any."""
    slower = [row["stage"] for row in rows_of(runs)[0] if row["ratio"] < args.least]
    if not slower:
        return False
    # A stage's text holds what the options added to its list's line.
    whole = argparse.Namespace(**{**vars(args), "strict": False, "dtype": None, "images": None, "without_pool": False})
    with tempfile.TemporaryDirectory() as folder:
        shapes = Path(folder) / "slower.txt"
        shapes.write_text("\n".join(slower) + "\n")
        for build, results in measure_rounds([shapes], whole).items():
            runs[build] += results
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--shapes", nargs="+", required=True, help="lists of stages")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", help="as for `convoy bench`, as are the next three")
    parser.add_argument("--images", type=int)
    parser.add_argument("--without-pool", action="store_true")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--threads", type=int, help="of the CPU; both builds then run on the last so many cores")
    parser.add_argument("--rounds", type=int, default=6, help="processes of each build and list; even")
    parser.add_argument("--again", type=int, default=2, help="times that stages under --least get as many rounds again")
    parser.add_argument("--inner-rounds", type=int, default=5, help="most rounds inside each process")
    parser.add_argument("--seconds", type=float, default=0.03, help="of each round inside a process")
    parser.add_argument("--least", type=float, default=0.97, help="stages under this ratio are named")
    parser.add_argument("--json", help="write the result here")
    args = parser.parse_args()
    if args.rounds < 2 or args.rounds % 2:
        parser.error(f"--rounds {args.rounds}: an even number is wanted, so that each build goes first as often")
    builds = {"old": args.old, "new": args.new}
    runs = measure_rounds(args.shapes, args)
    for _ in range(args.again):
        if not measure_again(runs, args):
            break
    rows, failed = rows_of(runs)
    alone = {stage: why for stage, why in failed.items() if len(why) == 1}
    for stage, why in failed.items():
        for build, text in why.items():
            print(f"{stage}: failed in the {build} build: {text}")
    if not rows:
        sys.exit(2)
    mean = geometric_mean(row["ratio"] for row in rows)
    slower = sorted((row for row in rows if row["ratio"] < args.least), key=lambda row: row["ratio"])
    for row in slower:
        print(f"{row['stage']:<56} {row['ratio']:.3f}  {row['old']} {row['old_us']:.2f} us -> "
              f"{row['new']} {row['new_us']:.2f} us")
    print(
        f"{len(rows)} stages, old time / new: geometric mean {mean:.3f}, "
        f"least {min(row['ratio'] for row in rows):.3f}, {len(slower)} under {args.least}"
    )
    if args.json:
        heads = {build: {key: value for key, value in results[0].items() if key not in ("rows", "failed")}
                 for build, results in runs.items()}
        names = {build: Path(program).name for build, program in builds.items()}
        result = dict(builds={build: dict(heads[build], program=name) for build, name in names.items()},
                      rounds=args.rounds, lists=args.shapes, geometric_mean=mean,
                      least_ratio=min(row["ratio"] for row in rows), rows=rows, failed=failed)
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")
    return 1 if slower or alone else 0


if __name__ == "__main__":
    sys.exit(main())
