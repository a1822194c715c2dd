"""The CPUs' tables, from what bench/targets_cpu.py and `convoy bench` wrote."""

import tables_gpu
import tables_versions
from stored import geometric_mean
from tables_text import days, item, mean_and_worst, on_day, processes, threads

LISTS = {"targets-cpu": "Target stages, with pools", "vgg16": "VGG-16", "unet": "U-Net", "mobilenetv2": "MobileNetV2",
         "resnet50": "ResNet-50", "yolov8n": "YOLOv8n"}
TARGETS = "targets-cpu-default-2t"


def is_list(result):
    return "geometric_mean" in result and "mode" in result and "copy_bandwidth" not in result


def summary(machines):
    """A row per list, with two threads: geometric mean and worst ratio, two columns per machine."""
    machines = [m for m in machines if not m.is_gpu() and any(f"{name}-default-2t" in m.results for name in LISTS)]
    if not machines:
        return []
    lines = ["| list | stages |" + "".join(f" {m.short} | strict mode |" for m in machines),
             "|---|---:|" + "---:|---:|" * len(machines)]
    shown = []
    for name, title in LISTS.items():
        found = [[m.results.get(f"{name}-{mode}-2t") for mode in ("default", "strict")] for m in machines]
        measured = [result for pair in found for result in pair if result]
        if not measured:
            continue
        shown += measured
        cells = " | ".join(mean_and_worst(result) or "not measured" for pair in found for result in pair)
        lines.append(f"| {title} | {len(measured[0]['rows'])} | {cells} |")
    return [*lines, "", f"Measured: {days(shown)}; each figure is the median of {processes(shown)}."]


def many_threads(machines):
    """A row per list that was measured with more than two threads."""
    def others(result):
        versions = tables_versions.versions_of(result)
        return ", ".join(name for key, name in tables_versions.NAMES.items() if versions.get(key, "absent") != "absent")

    rows = [f"| {machine.short} | {name.rsplit('-', 2)[0]} | {result['threads']} | {len(result['rows'])} "
            f"| {result['geometric_mean']:.2f} | {result['least_ratio']:.2f} | {others(result)} "
            f"| {result.get('processes', 1)} | {days([result])} |"
            for machine in machines for name, result in machine.results.items()
            if is_list(result) and result["threads"] > 2]
    return ["| machine | list | threads | stages | geometric mean | worst | other libraries | processes | measured |",
            "|---|---|---:|---:|---:|---:|---|---:|---|", *rows] if rows else []


def headline(machines):
    """README's table: default mode with two threads on CPUs, and the GPUs."""
    def of(machine, name):
        gpu = "targets" if name == "targets-cpu" else name
        return machine.results.get(gpu if machine.is_gpu() else f"{name}-default-2t")

    shown = [m for m in machines if (m.is_gpu() and "targets" in m.results) or "vgg16-default-2t" in m.results]
    if not shown:
        return []
    lines = ["| list | " + " | ".join(f"{m.short}, fp16" if m.is_gpu() else m.short for m in shown) + " |",
             "|---|" + "---:|" * len(shown)]
    lines += [f"| {title} | " + " | ".join(mean_and_worst(of(m, name)) for m in shown) + " |"
              for name, title in LISTS.items() if any(of(m, name) for m in shown)]
    records = [[found for name in LISTS if (found := of(machine, name))] for machine in shown]
    return [*lines, "| *measured* | " + " | ".join(f"{days(found)}; {processes(found)}" for found in records) + " |"]


def targets(result):
    lines = ["| stage | kernel | Convoy, µs | of FMA peak | fastest other library | its µs | its share of peak "
             "| ratio |", "|---|---|---:|---:|---|---:|---:|---:|"]
    for row in result["rows"]:
        best = next(peer for peer in row["peers"] if peer["name"] == row["best_peer"])
        lines.append(f"| `{row['stage']}` | {row['kernel']} | {row['convoy']['median_us']:.0f} "
                     f"| {100 * row['convoy']['share_of_peak']:.0f} % | {best['name']} | {best['median_us']:.0f} "
                     f"| {100 * best['share_of_peak']:.0f} % | **{row['ratio']:.2f}** |")
    return lines


def slow_paths(machines):
    """The fastest runs, against that of the first stage: what rules out the fast kernels."""
    lines = []
    for machine in machines:
        result = machine.results.get("slow-paths")
        if not result or machine.is_gpu():
            continue
        first = result["rows"][0]["convoy"]["minimum_us"]
        lines += [f"{machine.short}, {threads(result)}{on_day(result)}:", "",
                  "| stage | kernel | fastest run, µs | times the first stage |", "|---|---|---:|---:|"]
        for row in result["rows"]:
            us = row["convoy"]["minimum_us"]
            lines.append(f"| `{row['stage']}` | {row['kernel']} | {us:,.0f} | {us / first:.1f} |")
        lines.append("")
    return lines[:-1]


def strict_cost(machines):
    """What strict mode costs, of the target stages that it runs on another kernel or not."""
    lines = []
    for machine in machines:
        default, strict = (machine.results.get(f"targets-cpu-{mode}-2t") for mode in ("default", "strict"))
        if not default or not strict:
            continue
        us = {row["stage"]: row for row in default["rows"]}
        pairs = [(us[row["stage"].removesuffix("+strict")], row) for row in strict["rows"]]
        slower = [b["convoy"]["median_us"] / a["convoy"]["median_us"] for a, b in pairs
                  if a["kernel"] == "winograd4" != b["kernel"]]
        if slower:
            lines += item(f"{machine.short}, two threads{on_day(default)}: {len(slower)} of {len(pairs)} target stages "
                          f"run on `winograd4` in default mode. In strict mode they take {min(slower):.2f} to "
                          f"{max(slower):.2f} times as long. The other {len(pairs) - len(slower)} use the same kernel "
                          "in both modes.")
    return lines


def shares(machines):
    """How near to the peak 1×1 and 3×3 target stages run, in Convoy and elsewhere."""
    lines = []
    for machine in machines:
        result = machine.results.get(TARGETS)
        if not result:
            continue
        kinds = {"1×1": [], "3×3 on `winograd4`": []}
        for row in result["rows"]:
            best = next(peer for peer in row["peers"] if peer["name"] == row["best_peer"])
            kind = "1×1" if "r1" in row["stage"] else "3×3 on `winograd4`" if row["kernel"] == "winograd4" else ""
            if kind:
                kinds[kind].append((row["convoy"]["share_of_peak"], best["share_of_peak"]))
        parts = [f"{kind} target stages: Convoy {percents(a for a, _ in found)}, the fastest other library "
                 f"{percents(b for _, b in found)}" for kind, found in kinds.items() if found]
        if parts:
            lines += item(f"{machine.short}, two threads{on_day(result)}, share of the CPU's FMA peak. "
                          + ". ".join(parts) + ".")
    return lines


def percents(values):
    values = [round(100 * value) for value in values]
    return f"{min(values)} to {max(values)} %" if min(values) < max(values) else f"{values[0]} %"


def drawn(machines):
    """Of stages that were drawn as people use them, how many are slower than in another library."""
    lines = []
    for machine in machines:
        for name, result in machine.results.items():
            if not name.startswith("people"):
                continue
            rows = [row for row in result["rows"] if row["ratio"]]
            slower = sorted((row for row in rows if row["ratio"] < 1), key=lambda row: row["ratio"])
            where = "" if machine.is_gpu() else f", f32, {threads(result)}"
            cudnn_only = all(peer["name"].startswith("cudnn") for row in rows for peer in row["peers"])
            other = "cuDNN" if cudnn_only else "the fastest other library"
            text = (f"{machine.short}{where}{on_day(result)}: {len(rows)} stages, geometric mean "
                    f"{geometric_mean(row['ratio'] for row in rows):.2f}")
            if slower:
                text += (f"; {len(slower)} stages are slower than in {other}, the worst has "
                         f"{slower[0]['ratio']:.2f} (`{slower[0]['stage']}`)")
            lines += item(text + ".")
    return lines


def sections(machine):
    """(page, heading, lines): all lists of a machine, its target stages one by one and every other stage that lost."""
    lists = {name: result for name, result in machine.results.items() if is_list(result)}
    if lists:
        lines = ["| list, mode, threads | stages | processes | geometric mean | worst | under 1.0 |",
                 "|---|---:|---:|---:|---:|---:|"]
        for name, result in lists.items():
            under = sum(row["ratio"] < 1 for row in result["rows"])
            lines.append(f"| {name} | {len(result['rows'])} | {result.get('processes', 1)} "
                         f"| **{result['geometric_mean']:.2f}** | {result['least_ratio']:.2f} | {under} |")
        yield "README", "Lists", lines
    if lost := [(name, row) for name, result in lists.items() for row in result["rows"] if row["ratio"] < 1]:
        yield "README", "Stages under 1.0", [
            "| stage | list | ratio | kernel | fastest other library |", "|---|---|---:|---|---|",
            *(f"| `{row['stage']}` | {name} | {row['ratio']:.2f} | {row['kernel']} | {row['best_peer']} |"
              for name, row in lost)]
    for name, result in lists.items():
        if name.startswith("targets"):
            yield "README", f"Target stages: {name}", targets(result)
        elif name.startswith("people"):
            yield "README", f"Stages drawn as people use them: {name}", tables_gpu.drawn(result)
    if slow := slow_paths([machine]):
        yield "README", "Slow paths", slow
