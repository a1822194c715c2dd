#!/usr/bin/env python3
"""Head, loop and tail of a run by time stamps from inside the kernel, beside what can be told from outside.

    python3 bench/trace_split.py --convoy build/cuda/bin/convoy --out bench/results/h200/trace-split.json
    python3 bench/trace_split.py --table bench/results/h200/trace-split.json

From outside: the time of runs without stamps, one after the other, over ever more channels on one tile. A line
through these times has the loop as its slope and what surrounds the loop as its height at no channels. From inside:
`convoy explain --trace`. Cycles are seconds times the clock that the traced runs had. Each stage is run in several
processes; figures are medians.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
from pathlib import Path

import records

# name: the stage, a tile, channels. The tiles hold for all channels of their line.
LINES = {
    "a tile an SM": ("f16:n132h16c{}k128r3pad1+bias+relu+max2", "16x16x1.pingpong", (128, 256, 384, 512, 768, 1024)),
    "256 of 14x14 to 512": ("f16:n256h14c{}k512r3pad1+bias+relu", "14x2x8n.pingpong", (64, 128, 256, 384, 512)),
    "the same, pooled": ("f16:n256h14c{}k512r3pad1+bias+relu+max2", "14x2x8n.pingpong", (64, 128, 256, 384, 512)),
    "64 of 8x8 to 128": ("f16:n64h8c{}k128r3pad1+bias+relu+max2", "8x8x1.pingpong", (64, 128, 256, 384, 512)),
}
SHOWN = {  # as they run: the tile that is chosen
    "f16:n256h14c256k512r3pad1+bias+relu": "",
    "f16:n256h14c256k512r3pad1+bias+relu+max2": "",
    "f16:n64h8c128k128r3pad1+bias+relu+max2": "",
    "f16:n32h56c64k128r3pad1+bias+relu+max2": "",
}


def hidden(path):
    """The share of the epilogues' time in which the CTA's other warpgroup multiplies."""
    spans, named = {}, {}
    for event in json.loads(path.read_text())["traceEvents"]:
        if event["name"] == "thread_name" and "consumer" in event["args"]["name"]:
            named[event["pid"], event["tid"]] = event["args"]["name"].rsplit(" ", 1)
        elif event["name"] in ("math", "epilogue"):
            spans.setdefault((event["pid"], event["tid"], event["name"]), []).append(
                (event["ts"], event["ts"] + event["dur"]))
    tracks = {(pid, cta, number): (pid, tid) for (pid, tid), (cta, number) in named.items()}
    beside = total = 0
    for (pid, cta, number), track in tracks.items():
        other = tracks[pid, cta, "1" if number == "0" else "0"]
        math = sorted(spans.get((*other, "math"), []))
        for begin, end in spans.get((*track, "epilogue"), []):
            total += end - begin
            beside += sum(max(0, min(end, b) - max(begin, a)) for a, b in math)
    return beside / total


def trace(args, stage, tile):
    """Medians over processes of one stage: seconds, and cycles by each process's own clock."""
    runs = []
    for _ in range(args.processes):
        with tempfile.TemporaryDirectory() as folder:
            command = [args.convoy, "explain", stage, "--device", "cuda", "--kernel", "halo", "--json",
                       "--trace", Path(folder) / "trace.json", "--seconds", str(args.seconds)]
            done = subprocess.run(command + (["--tile", tile] if tile else []), capture_output=True, text=True)
            if done.returncode != 0:
                print(f"{stage} {tile}: {done.stderr.strip()}")
                return None
            runs.append(json.loads(done.stdout) | {"hidden_share": hidden(Path(folder) / "trace.json")})
    figures = {}
    for run in runs:
        seconds = {f"traced_{name}": value for name, value in run["traced"].items()}
        seconds |= {key: run[key] for key in ("overlap_seconds", "in_a_row_seconds", "untraced_seconds")}
        for key, value in seconds.items():
            figures.setdefault(key, []).append(value)
            clock = run["untraced_clock_hz" if key == "untraced_seconds" else "clock_hz"]
            figures.setdefault(key.replace("seconds", "cycles"), []).append(value * clock)
        for key in ("clock_hz", "untraced_clock_hz", "math_share", "hidden_share"):
            figures.setdefault(key, []).append(run[key])
    same = {key: runs[0][key] for key in ("stage", "tile", "machine", "clock", "predicted", "spans")}
    return same | {key: statistics.median(values) for key, values in figures.items()} | {
        "same_bits": all(run["same_bits"] for run in runs), "processes": len(runs)}


def fit(points):
    """Slope and height of the line through them."""
    x, y = (statistics.mean(values) for values in zip(*points))
    slope = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    return slope, y - slope * x


def split(rows):
    """Lines over blocks of 64 channels, in cycles."""
    def line(value):
        return fit([(row["channels"] / 64, value(row)) for row in rows])
    outside = line(lambda row: row["untraced_cycles"])
    loop = line(lambda row: row["traced_loop_cycles"])
    around = line(lambda row: row["in_a_row_cycles"] - row["traced_loop_cycles"])
    return {"outside": {"loop_cycles": outside[0], "around_cycles": outside[1]},
            "inside": {"loop_cycles": loop[0] + around[0], "around_cycles": loop[1] + around[1]}}


def measure(args):
    result = {**records.of_program(args.convoy, "cuda"), "seconds": args.seconds, "lines": [], "shown": []}
    for name, (stage, tile, channels) in LINES.items():
        rows = [dict(row, channels=c) for c in channels if (row := trace(args, stage.format(c), tile))]
        if len(rows) > 1:
            result["lines"].append({"name": name, "tile": tile, "rows": rows} | split(rows))
    result["shown"] = [row for stage, tile in SHOWN.items() if (row := trace(args, stage, tile))]
    args.out.with_suffix(".tmp").write_text(json.dumps(result, indent=1) + "\n")
    args.out.with_suffix(".tmp").rename(args.out)
    return result


def table(result):
    print("µs, at the traced run's clock (GHz); of the head (so much) lies beside the end of the run before.\n")
    print("| stage, tile | head | loop | tail | in a row | without stamps | GHz | stamps cost "
          "| loop with math | epilogue beside math |")
    print("|---|" + "---:|" * 9)
    for row in [row for line in result["lines"] for row in line["rows"]] + result["shown"]:
        us = {key: 1e6 * value for key, value in row.items() if key.endswith("_seconds")}
        print(f"| `{row['stage']}` {row['tile']} | {us['traced_head_seconds']:.2f} ({us['overlap_seconds']:.2f}) "
              f"| {us['traced_loop_seconds']:.2f} | {us['traced_tail_seconds']:.2f} | {us['in_a_row_seconds']:.2f} "
              f"| {1e6 * row['untraced_cycles'] / row['clock_hz']:.2f} | {row['clock_hz'] * 1e-9:.2f} "
              f"| {row['in_a_row_cycles'] / row['untraced_cycles'] - 1:+.1%} | {row['math_share']:.0%} "
              f"| {row['hidden_share']:.0%} |")
    print("\nCycles: the line over blocks of 64 channels.\n")
    print("| line, tile | loop: outside | inside | | around: outside | inside | |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for line in result["lines"]:
        cells = [f"{line[side][key]:,.0f}" if side != "ratio" else
                 f"{line['inside'][key] / line['outside'][key] - 1:+.1%}"
                 for key in ("loop_cycles", "around_cycles") for side in ("outside", "inside", "ratio")]
        print(f"| {line['name']}, {line['tile']} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default="build/cuda/bin/convoy")
    parser.add_argument("--out", type=Path, default=Path("trace-split.json"))
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--processes", type=int, default=3)
    parser.add_argument("--table", type=Path, help="print the tables of such a file; measure nothing")
    args = parser.parse_args()
    table(json.loads(args.table.read_text()) if args.table else measure(args))


if __name__ == "__main__":
    main()
