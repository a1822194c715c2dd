#!/usr/bin/env python3
"""Writes the tables of docs/performance.md from the JSON under bench/results.

    bench/tables.py            rewrites what stands between the markers
    bench/tables.py --check    exit code 1 if the document is not what the results say
"""

import argparse
import json
import sys
from pathlib import Path

import tables_gpu

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs/performance.md"
BEGIN, END = "<!-- tables: made by bench/tables.py -->", "<!-- end of tables -->"
BEGIN_GPU, END_GPU = "<!-- GPU tables: made by bench/tables.py -->", "<!-- end of GPU tables -->"


def cpu_targets(result):
    lines = ["| stage | kernel | ours, µs | of FMA peak | best peer | its µs | its share of peak | ratio |",
             "|---|---|---:|---:|---|---:|---:|---:|"]
    for row in result["rows"]:
        best = next(peer for peer in row["peers"] if peer["name"] == row["best_peer"])
        lines.append(f"| `{row['stage']}` | {row['kernel']} | {row['convoy']['median_us']:.0f} "
                     f"| {100 * row['convoy']['share_of_peak']:.0f} % | {best['name']} | {best['median_us']:.0f} "
                     f"| {100 * best['share_of_peak']:.0f} % | **{row['ratio']:.2f}** |")
    return lines


def wide_list(result):
    under = [row for row in result["rows"] if row["ratio"] < 1]
    lines = [f"{len(result['rows'])} stages, {len(under)} under 1.0{':' if under else '.'}"]
    if under:
        lines.append("")
    for row in under:
        lines.append(f"- `{row['stage']}` {row['ratio']:.2f}: {row['kernel']} against {row['best_peer']}")
    return lines


def spiking(result):
    everyone = {"Convoy": result, **result["peers"]}
    lines = ["| what | images/s | one image, µs |", "|---|---:|---:|"]
    for name, row in sorted(everyone.items(), key=lambda item: -item[1]["images_per_second"]):
        lines.append(f"| {name} | {row['images_per_second']:,.0f} | {1e6 * row['one_image_seconds']:.1f} |")
    return lines


def tables():
    lines = []
    for folder in sorted((ROOT / "bench/results").iterdir()):
        if not folder.is_dir():
            continue
        for path in sorted(folder.glob("*.json")):
            result = json.loads(path.read_text())
            if "copy_bandwidth" in result:  # a GPU's
                continue
            if "images_per_second" in result:
                lines += [f"### {result['model']}: {result['machine']}, {result['isa']}, {result['threads']} threads",
                          ""] + spiking(result) + [""]
            elif "rows" in result and "mode" in result:
                lines += [f"### {path.stem}: {result['machine']}, {result['isa']}", "",
                          f"{result['mode']} mode, {result['threads']} threads, median of {result['processes']} "
                          f"process{'es' if result['processes'] > 1 else ''}; geometric mean "
                          f"**{result['geometric_mean']:.2f}**, least {result['least_ratio']:.2f}.", ""]
                lines += (cpu_targets if path.stem.startswith("targets") else wide_list)(result) + [""]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    text = new = DOCUMENT.read_text()
    for begin, end, made in ((BEGIN, END, tables()), (BEGIN_GPU, END_GPU, tables_gpu.tables(ROOT))):
        head, rest = new.split(begin)
        _, tail = rest.split(end)
        new = f"{head}{begin}\n\n{made}\n{end}{tail}"
    if args.check:
        if new != text:
            sys.exit("docs/performance.md is not what bench/results says. Run bench/tables.py and commit.")
    else:
        DOCUMENT.write_text(new)


if __name__ == "__main__":
    main()
