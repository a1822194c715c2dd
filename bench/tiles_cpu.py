#!/usr/bin/env python3
"""Measures every tile of every CPU kernel on a shape list: what the cost models are fitted to.

    bench/tiles_cpu.py --convoy build/release/bin/convoy --threads 1
    build/release/bin/fit_cpu_cost bench/results/*/tiles-cpu-1t.json

Runs `convoy tune --all-kernels`, which saves nothing, and writes OUT/<cpu>/<list>-<threads>t.json with a line a
stage: [kernel, tile, microseconds] of each, the fastest first. Two and a half minutes with the defaults.
"""

import argparse
import json
import subprocess
from pathlib import Path

from results_folder import folder_of

ROOT = Path(__file__).resolve().parent.parent


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default=str(ROOT / "build/release/bin/convoy"))
    parser.add_argument("--shapes", default=str(ROOT / "shapes/tiles-cpu.txt"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=0.25, help="to measure, for each tile")
    parser.add_argument("--out", default=str(ROOT / "bench/results"))
    args = parser.parse_args()
    command = [args.convoy, "tune", "--all-kernels", "--json", "--shapes", args.shapes, "--threads", str(args.threads),
               "--seconds", str(args.seconds)]
    record = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    rows = [{"stage": stage["stage"],
             "tiles": [[row["kernel"], row["tile"], round(1e6 * row["median_seconds"], 3)] for row in stage["rows"]]}
            for stage in record.pop("stages")]
    record["seconds"] = args.seconds
    folder = Path(args.out) / folder_of(record)
    folder.mkdir(parents=True, exist_ok=True)
    out = folder / f"{Path(args.shapes).stem}-{args.threads}t.json"
    head = json.dumps(record, indent=1).removesuffix("\n}")
    out.with_suffix(".tmp").write_text(head + ',\n "rows": [\n  ' + ",\n  ".join(map(json.dumps, rows)) + "\n ]\n}\n")
    out.with_suffix(".tmp").rename(out)
    print(f"{out}: {len(rows)} stages, {sum(len(row['tiles']) for row in rows)} tiles")


if __name__ == "__main__":
    main()
