#!/usr/bin/env python3
"""Writes the tables and charts of README.md, docs and bench/results/README.md from bench/results.

    bench/tables.py            rewrites what stands between the markers, and the charts in docs/charts
    bench/tables.py --check    exit code 1 names each file that is not what the results say, and each new result without
                               a commit
"""

import argparse
import re
import sys

import charts
import tables_cutlass
import tables_gpu
import tables_ladder
import tables_records
import tables_resources
import tables_training
from stored import ROOT, folders

DOCUMENTS = ("README.md", "docs/trust/speed.md", "docs/lab/cutlass-pooled.md", "docs/learn/ladder.md",
             "docs/contribute/gpu-resources.md",
             "docs/use/distributed.md", "docs/use/training.md", "bench/results/README.md")
BLOCK = re.compile(r"(<!-- made by bench/tables\.py: ([a-z -]+) -->\n).*?(<!-- end -->)", re.S)
LISTS = {"targets-cpu": "Target stages, with pools", "vgg16": "VGG-16", "unet": "U-Net", "mobilenetv2": "MobileNetV2",
         "resnet50": "ResNet-50", "yolov8n": "YOLOv8n"}


def is_cpu_list(result):
    return "geometric_mean" in result and "mode" in result and "copy_bandwidth" not in result


def mean_and_least(result):
    return f"{result['geometric_mean']:.2f} ({result['least_ratio']:.2f})" if result else ""


def cpu_summary(machines):
    """A row a list, with two threads: geometric mean and least ratio, a pair of columns a machine."""
    machines = [machine for machine in machines if "targets-cpu-default-2t" in machine.results]
    lines = ["| list | stages |" + "".join(f" {m.short} | strict mode |" for m in machines),
             "|---|---:|" + "---:|---:|" * len(machines)]
    for name, title in LISTS.items():
        found = [[m.results.get(f"{name}-{mode}-2t") for mode in ("default", "strict")] for m in machines]
        stages = next(len(result["rows"]) for pair in found for result in pair if result)
        cells = " | ".join(mean_and_least(result) for pair in found for result in pair)
        lines.append(f"| {title} | {stages} | {cells} |")
    return lines


def many_threads(machines):
    """A sentence for each list that was measured with more than two threads."""
    lines = []
    for machine in machines:
        for name, result in machine.results.items():
            if is_cpu_list(result) and result["threads"] > 2:
                lines.append(f"- {machine.short}, {name}: **{result['geometric_mean']:.2f}**, least "
                             f"{result['least_ratio']:.2f}, {len(result['rows'])} stages.")
    return ["With more threads (geometric mean, least):", "", *lines] if lines else []


def headline(machines):
    """README's table: default mode with two threads on CPUs that hide nothing, and the GPUs."""
    shown = [m for m in machines if (m.is_gpu() and "targets" in m.results) or "vgg16-default-2t" in m.results]
    lines = [
        "| list | " + " | ".join(f"{m.short}, fp16" if m.is_gpu() else m.short for m in shown) + " |",
        "|---|" + "---:|" * len(shown),
    ]
    for name, title in LISTS.items():
        found = [
            m.results.get(("targets" if name == "targets-cpu" else name) if m.is_gpu() else f"{name}-default-2t")
            for m in shown
        ]
        lines.append(f"| {title} | " + " | ".join(map(mean_and_least, found)) + " |")
    return lines


def targets(result):
    lines = ["| stage | kernel | ours, µs | of FMA peak | best peer | its µs | its share of peak | ratio |",
             "|---|---|---:|---:|---|---:|---:|---:|"]
    for row in result["rows"]:
        best = next(peer for peer in row["peers"] if peer["name"] == row["best_peer"])
        lines.append(f"| `{row['stage']}` | {row['kernel']} | {row['convoy']['median_us']:.0f} "
                     f"| {100 * row['convoy']['share_of_peak']:.0f} % | {best['name']} | {best['median_us']:.0f} "
                     f"| {100 * best['share_of_peak']:.0f} % | **{row['ratio']:.2f}** |")
    return lines


def slow_paths_cpu(machines):
    """The fastest runs, against that of the first stage: what rules out the fast kernels."""
    for machine in machines:
        result = machine.results.get("slow-paths")
        if not result or machine.is_gpu():
            continue
        first = result["rows"][0]["convoy"]["minimum_us"]
        threads = f"{result['threads']} thread{'s' if result['threads'] > 1 else ''}"
        yield f"| {machine.short}, {threads} | kernel | fastest run, µs | times the first |"
        yield "|---|---|---:|---:|"
        for row in result["rows"]:
            us = row["convoy"]["minimum_us"]
            yield f"| `{row['stage']}` | {row['kernel']} | {us:,.0f} | {us / first:.1f} |"


def spiking(result):
    everyone = {"Convoy": result, **result["peers"]}
    lines = ["| what | images/s | one image, µs |", "|---|---:|---:|"]
    for name, row in sorted(everyone.items(), key=lambda item: -item[1]["images_per_second"]):
        lines.append(f"| {name} | {row['images_per_second']:,.0f} | {1e6 * row['one_image_seconds']:.1f} |")
    return lines


def spiking_networks(machines):
    for machine in machines:
        for result in machine.results.values():
            if "images_per_second" in result:
                yield machine, result


def spiking_sentence(machines):
    return [
        f"{machine.short}, {result['threads']} threads: {result['images_per_second']:,.0f} images a second, "
        f"{result['throughput_ratio']:.1f} times the best of PyTorch, ONNX Runtime and OpenVINO; one image in "
        f"{1e6 * result['one_image_seconds']:.1f} µs, {result['latency_ratio']:.1f} times as fast as the best of them."
        for machine, result in spiking_networks(machines)
    ] + tables_gpu.spiking_sentence(machines)


def spiking_summary(machines):
    lines = []
    for machine, result in spiking_networks(machines):
        lines += [f"{machine.short}, {result['threads']} threads, {result['model']}; "
                  f"{result['throughput_ratio']:.1f} times the images of the best peer, "
                  f"one image {result['latency_ratio']:.1f} times as fast:", ""] + spiking(result)
    return lines


def provenance(result):
    """Commit, compiler and date, where the record has them."""
    lengths = {"commit": 12, "compiler": 12, "date": 10}
    return ", ".join(str(result[key])[:length] for key, length in lengths.items() if result.get(key))


def cpu_machine(machine):
    """All lists of a machine, then its target stages one by one and every other stage that lost."""
    lists = {name: result for name, result in machine.results.items() if is_cpu_list(result)}
    lines = [
        "| list, mode, threads | stages | processes | geometric mean | least | under 1.0 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, result in lists.items():
        under = sum(row["ratio"] < 1 for row in result["rows"])
        from_where = provenance(result)
        lines.append(
            f"| {name}{f' ({from_where})' if from_where else ''} "
            f"| {len(result['rows'])} | {result.get('processes', 1)} "
            f"| **{result['geometric_mean']:.2f}** | {result['least_ratio']:.2f} | {under} |"
        )
    lost = [(name, row) for name, result in lists.items() for row in result["rows"] if row["ratio"] < 1]
    if lost:
        lines += ["", "Under 1.0:", "", "| stage | list | ratio | kernel | best peer |", "|---|---|---:|---|---|"]
        lines += [
            f"| `{row['stage']}` | {name} | {row['ratio']:.2f} | {row['kernel']} | {row['best_peer']} |"
            for name, row in lost
        ]
    for name, result in lists.items():
        if name.startswith("targets"):
            lines += ["", f"### {machine.short}: {name}", ""] + targets(result)
    return lines


def results(machines):
    """All tables, a section a machine."""
    lines = []
    for machine in machines:
        if not machine.is_gpu() and not any(map(is_cpu_list, machine.results.values())):
            continue  # what cost models are fitted to, and other tables
        lines += [f"## {machine.title}", ""]
        lines += tables_gpu.section(machine) if machine.is_gpu() else cpu_machine(machine)
        for where, result in spiking_networks([machine]):
            lines += ["", f"### {where.short}: {result['model']}, {result['threads']} threads", ""] + spiking(result)
        lines.append("")
    return lines[:-1]


BLOCKS = {
    "headline": headline,
    "many threads": many_threads,
    "cpu summary": cpu_summary,
    "gpu summary": tables_gpu.summary_table,
    "spiking summary": spiking_summary,
    "spiking on gpus": tables_gpu.spiking,
    "slow paths on cpus": lambda machines: list(slow_paths_cpu(machines)),
    "slow paths on gpus": tables_gpu.slow_paths,
    "spiking sentence": spiking_sentence,
    "pipeline on cutlass": lambda machines: list(tables_cutlass.pipeline(machines)),
    "convolutions of cutlass": lambda machines: list(tables_cutlass.peers(machines)),
    "ladder": tables_ladder.ladders,
    "one ladder": tables_ladder.one_ladder,
    "trained networks": tables_training.trained,
    "inference by processes": tables_training.inference,
    "training by processes": tables_training.training,
    "registers on ampere": tables_resources.table,
    "records": tables_records.table,
    "results": results,
}


def block(name, machines):
    lines = BLOCKS[name](machines)
    return "\n".join(["", *lines, "", ""]) if lines else ""


def generated():
    """Every file that this program writes: its path and its whole text."""
    machines = folders()
    for name in DOCUMENTS:
        path = ROOT / name
        yield path, BLOCK.sub(lambda found: found[1] + block(found[2], machines) + found[3],
                              path.read_text())
    pictures = charts.charts(machines, {n: t for n, t in LISTS.items() if not n.startswith("targets")},
                             tables_gpu.LISTS)
    for name, text in {**pictures, **tables_training.charts(machines)}.items():
        yield ROOT / "docs/charts" / name, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    differ = []
    for path, text in generated():
        if path.exists() and path.read_text() == text:
            continue
        differ.append(str(path.relative_to(ROOT)))
        if not args.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
    wrong = []
    if args.check and differ:
        wrong.append(f"not what bench/results says: {', '.join(differ)}. Run bench/tables.py and commit.")
    if unknown := tables_records.unexpected():
        wrong.append(f"no commit in {', '.join(unknown)}: measure with a script that writes it.")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
