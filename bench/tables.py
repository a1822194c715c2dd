#!/usr/bin/env python3
"""Writes the tables, charts and measured sentences of README.md, docs and bench/results from the records there.

    bench/tables.py            rewrites the text between the markers of each page, the pages of bench/results and the
                               charts in docs/charts
    bench/tables.py --check    exit code 1 names each file that differs from the records, and each record without a
                               commit

A page asks for a block with two comments: "made by bench/tables.py: NAME" and "end". BLOCKS has the names. A block
whose record is missing is empty; a table leaves out its row or column.
"""

import argparse
import os
import re
import sys

import charts
import tables_cpu
import tables_cutlass
import tables_folders
import tables_gpu
import tables_ladder
import tables_models
import tables_records
import tables_resources
import tables_spiking
import tables_trace
import tables_training
import tables_versions
from stored import RESULTS, ROOT, folders

BLOCK = re.compile(r"(<!-- made by bench/tables\.py: ([a-z -]+) -->\n).*?(<!-- end -->)", re.S)
CHARTS = ROOT / "docs/charts"
WIDE = {name: title for name, title in tables_cpu.LISTS.items() if not name.startswith("targets")}


def pictures(machines):
    """Every chart: file name, its SVG and what it shows, in words."""
    return {**charts.charts(machines, WIDE, tables_gpu.LISTS), **tables_training.charts(machines)}


def images(kind):
    """A block of the charts whose name begins so. CHARTS/ becomes a path from the page."""
    def lines(machines):
        found = [f"![{alt}](CHARTS/{name})" for name, (_, alt) in pictures(machines).items() if name.startswith(kind)]
        return [line for image in found for line in (image, "")][:-1]
    return lines


BLOCKS = {
    # README.md
    "headline": tables_cpu.headline,
    "spiking sentence": tables_spiking.sentence,
    "whole models": tables_models.whole_models,
    # docs/trust
    "cpu summary": tables_cpu.summary,
    "cpu charts": images("cpu-"),
    "many threads": tables_cpu.many_threads,
    "shares of peak": tables_cpu.shares,
    "strict mode": tables_cpu.strict_cost,
    "gpu summary": tables_gpu.summary_table,
    "gpu charts": images("h200-"),
    "gpu bounds": tables_gpu.bounds,
    "gpu kinds": tables_gpu.kinds,
    "drawn stages": tables_cpu.drawn,
    "spiking summary": tables_spiking.summary,
    "spiking on gpus": tables_spiking.gpu,
    "slow paths on cpus": tables_cpu.slow_paths,
    "slow paths on gpus": tables_gpu.slow_paths,
    "fused models": tables_models.table,
    "machines": tables_folders.index,
    "versions": tables_versions.table,
    # docs/use
    "fused spiking models": tables_models.spiking,
    "python calls": tables_models.calls,
    "training charts": images("snn-training-"),
    "trained networks": tables_training.trained,
    "inference by processes": tables_training.inference,
    "training by processes": tables_training.training,
    # docs/learn, docs/contribute, docs/lab
    "ladder": tables_ladder.ladders,
    "one ladder": tables_ladder.one_ladder,
    "trace split": tables_trace.trace_split,
    "registers on ampere": tables_resources.table,
    "pipeline on cutlass": lambda machines: list(tables_cutlass.pipeline(machines)),
    "convolutions of cutlass": lambda machines: list(tables_cutlass.peers(machines)),
}


def pages():
    """Every page that may have a block."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), RESULTS / "README.md"]


def filled(path, machines):
    """Returns the page's text with each block replaced by the present one."""
    def block(found):
        if found[2] not in BLOCKS:
            sys.exit(f"{path.relative_to(ROOT)}: bench/tables.py has no block '{found[2]}'")
        text = "\n".join(BLOCKS[found[2]](machines))
        for word, folder in (("CHARTS/", CHARTS), ("RESULTS/", RESULTS)):
            text = text.replace(word, os.path.relpath(folder, path.parent) + "/")
        return found[1] + ("\n" + text + "\n\n" if text else "") + found[3]
    return BLOCK.sub(block, path.read_text())


def generated():
    """Every file that this program writes: its path and its whole text."""
    machines = folders()
    for path in pages():
        text = filled(path, machines)
        if BLOCK.search(text):
            yield path, text
    for machine in machines:
        for name, text in tables_folders.pages(machine).items():
            yield RESULTS / machine.name / name, text
    for name, (svg, _) in pictures(machines).items():
        yield CHARTS / name, svg


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    differ, made = [], set()
    for path, text in generated():
        made.add(path)
        if path.exists() and path.read_text() == text:
            continue
        differ.append(str(path.relative_to(ROOT)))
        if not args.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    for path in sorted({*CHARTS.glob("*.svg"), *RESULTS.glob("*/*.md")} - made):  # of records that are gone
        differ.append(str(path.relative_to(ROOT)))
        if not args.check:
            path.unlink()
    wrong = list(tables_records.wrong())
    if args.check and differ:
        wrong.append(f"differs from the records in bench/results: {', '.join(differ)}. Run bench/tables.py and commit.")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
