"""The GPU's tables, from what bench/targets_gpu.py and bench/resources.py wrote."""

import re

from stored import geometric_mean, peer, plain
from tables_text import days, item, mean_and_worst, on_day, processes

LISTS = {
    "vgg16": "VGG-16",
    "unet": "U-Net",
    "mobilenetv2": "MobileNetV2",
    "resnet50": "ResNet-50",
    "yolov8n": "YOLOv8n",
}


def tflops(row):
    return row["gflops"] / 1e3


def kernel(row):
    return f"{row['kernel']} {row['tile']}".replace(f"{row['kernel']} {row['kernel']}", row["kernel"])


def summary(result):
    return (f"Geometric mean of the ratios **{result['geometric_mean']:.2f}**, worst {result['least_ratio']:.2f}; "
            f"{processes([result])}.")


def with_apart(rows, lines):
    """The table and, if it was measured, one more column: the ratio with another kernel between launches."""
    if not any(row.get("apart_ratio") for row in rows):
        return lines
    cells = [" apart |", "---:|"] + [f" {row['apart_ratio']:.2f} |" if row.get("apart_ratio") else " |" for row in rows]
    return [line + cell for line, cell in zip(lines, cells)]


def targets(result):
    lines = ["| stage | kernel, tile | µs | GHz | TFLOP/s | of peak | floor, µs | time / floor "
             "| fastest other library, µs | ratio "
             "| cuDNN without its pool, µs | ratio |", "|---|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|"]
    for row in result["rows"]:
        ours, floor = row["convoy"], row["floor_us"]
        best = peer(row, row["best_peer"])
        alone = peer(row, "cudnn without pool")
        bound = "math" if row["gflops"] * ours["median_us"] / row["peak_gflops"] >= 0.999 * floor else "memory"
        lines.append(
            f"| `{row['stage']}` | {kernel(row)} | {ours['median_us']:.1f} | {row['clock_ghz']:.2f} "
            f"| {tflops(row):.0f} | {100 * ours['share_of_peak']:.0f} % | {floor:.1f} ({bound}) "
            f"| {ours['median_us'] / floor:.2f} | {best['name']} {best['median_us']:.1f} | **{row['ratio']:.2f}** "
            + (f"| {alone['median_us']:.1f} | {alone['ratio']:.2f} |" if alone else "| | |")
        )
    return with_apart(result["rows"], lines) + ["", summary(result)]


def against_best(result):
    lines = ["| stage | kernel, tile | µs | TFLOP/s | fastest other library, µs | ratio |",
             "|---|---|---:|---:|---|---:|"]
    for row in result["rows"]:
        best = peer(row, row["best_peer"])
        lines.append(f"| `{row['stage']}` | {kernel(row)} | {row['convoy']['median_us']:.1f} | {tflops(row):.0f} "
                     f"| {best['name']} {best['median_us']:.1f} | **{row['ratio']:.2f}** |")
    return with_apart(result["rows"], lines) + ["", summary(result)]


def half_types(bf16, f16):
    lines = ["| stage | bf16, µs | f16, µs | bf16 / f16 |", "|---|---:|---:|---:|"]
    # In the same rounds if they were measured so.
    times = {row["stage"]: row["convoy"]["median_us"] for row in f16["rows"] + bf16["rows"]}
    for row in (row for row in bf16["rows"] if row["stage"].startswith("bf16:")):
        same = times[row["stage"].replace("bf16:", "f16:")]
        ours = row["convoy"]["median_us"]
        lines.append(f"| `{row['stage']}` | {ours:.1f} | {same:.1f} | {ours / same:.3f} |")
    return lines


def wide(result):
    under = [row for row in result["rows"] if row["ratio"] and row["ratio"] < 1]
    lines = [f"{len(result['rows'])} stages, geometric mean {result['geometric_mean']:.2f}, worst "
             f"{result['least_ratio']:.2f}, {len(under)} under 1.0" + (":" if under else ".")]
    if under:
        lines.append("")
    return lines + [f"- `{row['stage']}` {row['ratio']:.2f}: {kernel(row)} {row['convoy']['median_us']:.1f} µs, "
                    f"{row['best_peer']} {peer(row, row['best_peer'])['median_us']:.1f} µs" for row in under]


def k_sweep(result):
    lines = ["| channels | kernel, tile | µs | TFLOP/s | cuBLAS, TFLOP/s | ratio | cuDNN 1×1, ratio |",
             "|---:|---|---:|---:|---:|---:|---:|"]
    for row in result["rows"]:
        blas, dnn = peer(row, "cublas"), peer(row, "cudnn")
        channels = row["stage"].split("c")[1].split("k")[0]
        lines.append(f"| {channels} | {kernel(row)} | {row['convoy']['median_us']:.1f} | {tflops(row):.0f} "
                     f"| {tflops(row) / blas['ratio']:.0f} | **{blas['ratio']:.2f}** | {dnn['ratio']:.2f} |")
    return lines


def times(result):
    lines = ["| stage | kernel, tile | µs | TFLOP/s |", "|---|---|---:|---:|"]
    return lines + [f"| `{row['stage']}` | {kernel(row)} | {row['convoy']['median_us']:.1f} | {tflops(row):.0f} |"
                    for row in result["rows"]]


def launch_split(result):
    """A line through the cycles over the channels: the clock falls as the loop grows."""
    lines = ["| stage | kernel, tile | µs | GHz | cycles | TFLOP/s |", "|---|---|---:|---:|---:|---:|"]
    points = []
    for row in result["rows"]:
        cycles = 1e3 * row["convoy"]["median_us"] * row["clock_ghz"]
        points.append((int(row["stage"].split("c")[1].split("k")[0]) / 64, cycles))
        lines.append(f"| `{row['stage']}` | {kernel(row)} | {row['convoy']['median_us']:.1f} | {row['clock_ghz']:.2f} "
                     f"| {cycles:,.0f} | {tflops(row):.0f} |")
    x, y = (sum(values) / len(points) for values in zip(*points))
    slope = sum((a - x) * (b - y) for a, b in points) / sum((a - x) ** 2 for a, _ in points)
    head = y - slope * x
    worst = max(abs(head + slope * a - b) for a, b in points)
    return lines + [
        "",
        f"A straight line through the cycles gives {head:,.0f} for launch, prologue and epilogue, and {slope:,.0f} for "
        f"64 channels and nine taps. The largest distance of a point from it is {worst:,.0f} cycles.",
    ]


def two_stages(result):
    lines = [
        f"`{result['first']}`, then `{result['second']}`.",
        "",
        "| launches | µs | time / one launch |",
        "|---|---:|---:|",
    ]
    one = result["microseconds"]["one launch"]
    return lines + [f"| {name} | {us:.1f} | {us / one:.2f} |"
                    for name, us in sorted(result["microseconds"].items(), key=lambda item: item[1])]


def resources(result):
    lines = ["| kernel | variants | registers | stack, bytes | static shared, bytes | threads | CTAs by registers |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    families = {}
    for row in result["kernels"]:
        families.setdefault(row["kernel"].split("<")[0], []).append(row)

    def span(values):
        return "–".join(str(v) for v in sorted({min(values), max(values)}))

    for family, rows in families.items():
        cells = [span([row[key] for row in rows]) for key in ("registers", "stack_bytes", "static_shared_bytes")]
        fixed = [row for row in rows if row["threads"]]
        cells += [span([row[key] for row in fixed]) if fixed else "" for key in ("threads", "ctas")]
        lines.append(f"| {family} | {len(rows)} | {' | '.join(cells)} |")
    return lines


def listed(ratios):
    return {"rows": ratios, "geometric_mean": geometric_mean(ratios), "least_ratio": min(ratios)}


def summary_table(machines):
    """Geometric means and worst ratios of each GPU's lists."""
    lines = []
    for machine in machines:
        if not machine.is_gpu():
            continue
        of = machine.results
        rows = []
        if targets_of := of.get("targets"):
            alone = [found["ratio"] for row in targets_of["rows"] if (found := peer(row, "cudnn without pool"))]
            apart = [row["apart_ratio"] for row in targets_of["rows"] if row.get("apart_ratio")]
            about = {key: targets_of[key] for key in ("date", "processes") if key in targets_of}
            rows += [(f"Target stages, {against}", listed(ratios) | about)
                     for against, ratios in (
                         ("against the fastest of cuDNN, `torch.compile` and XLA",
                          [row["ratio"] for row in targets_of["rows"]]),
                         ("with another small kernel between launches", apart),
                         ("against cuDNN's convolution + bias + ReLU only, without its pool", alone)) if ratios]
        rows += [(title, of[name]) for title, name in (
            ("Target stages without pools, against cuDNN", "targets-without-pool"),
            *((f"{title}, against cuDNN", name) for name, title in LISTS.items())) if name in of]
        if rows:
            lines += [f"| {machine.short}, fp16 | stages | geometric mean | worst | processes | measured |",
                      "|---|---:|---:|---:|---:|---|"]
            lines += [f"| {title} | {len(result['rows'])} | {mean_and_worst(result).replace(' (', ' | ')[:-1]} "
                      f"| {result.get('processes', 1)} | {days([result])} |" for title, result in rows]
    return lines


def kinds(machines):
    """Lists of groups and of f32, which run on other kernels than the target stages in fp16."""
    names = {"resnext50": "Grouped 3×3 layers of ResNeXt-50, f16, against cuDNN, `torch.compile` and XLA",
             "groups": "Groups of 16 and 32 channels, against cuDNN, `torch.compile` and XLA",
             "f32-targets": "Target stages in f32, against cuDNN without TF32",
             "f32-resnet50": "ResNet-50 in f32, against cuDNN without TF32",
             "people": "200 stages drawn as people use them (f16, bf16, f32), against cuDNN"}
    lines = []
    for machine in machines:
        rows = [(title, machine.results[name]) for name, title in names.items() if name in machine.results]
        if machine.is_gpu() and rows:
            lines += [f"| {machine.short} | kernels | geometric mean | worst | processes | measured |",
                      "|---|---|---:|---:|---:|---|"]
            for title, result in rows:
                used = sorted({row["kernel"] for row in result["rows"]})
                some = ", ".join(f"`{name}`" for name in used) if len(used) < 7 else f"{len(used)} kernels"
                lines.append(f"| {title} | {some} | {result['geometric_mean']:.2f} | {result['least_ratio']:.2f} "
                             f"| {result.get('processes', 1)} | {days([result])} |")
    return lines


def bounds(machines):
    """What bounds large and small stages, from the target stages."""
    lines = []
    for machine in machines:
        result = machine.results.get("targets")
        if not machine.is_gpu() or not result:
            continue
        large = [row for row in result["rows"] if row["convoy"]["median_us"] >= 100]
        small = min(result["rows"], key=lambda row: row["convoy"]["median_us"])
        top = max(row["clock_ghz"] for row in result["rows"])
        on = f"{machine.short}{on_day(result)}"
        if large:
            clocks = [row["clock_ghz"] for row in large]
            share = [100 * row["convoy"]["share_of_peak"] for row in large]
            lines += item(f"**Large stages are bound by power** ({on}): the clock falls from {top:.2f} GHz to "
                          f"{min(clocks):.2f} to {max(clocks):.2f} GHz in target stages of 100 µs and more. Convoy "
                          f"runs them at {min(share):.0f} to {max(share):.0f} % of the peak at that clock.")
        lines += item(f"**Small stages are bound by latency** ({on}): the smallest target stage takes "
                      f"{small['convoy']['median_us']:.1f} µs and reaches "
                      f"{100 * small['convoy']['share_of_peak']:.0f} % of the peak.")
        if bf16 := machine.results.get("targets-bf16"):
            times = {row["stage"]: row["convoy"]["median_us"] for row in bf16["rows"]}
            found = [us / times[other] for stage, us in times.items() if stage.startswith("bf16:")
                     and (other := stage.replace("bf16:", "f16:")) in times]
            if found:
                lines += item(f"**bf16 and f16** ({machine.short}{on_day(bf16)}): a target stage in bf16 takes "
                              f"{min(found):.2f} to {max(found):.2f} times its time in f16.")
        if f32 := machine.results.get("f32-targets"):
            half = {plain(row["stage"]): row["convoy"]["median_us"] for row in result["rows"]}
            found = [row["convoy"]["median_us"] / half[name] for row in f32["rows"]
                     if (name := plain(row["stage"])) in half]
            if found:
                lines += item(f"**f32** ({machine.short}{on_day(f32)}): a target stage takes {min(found):.1f} to "
                              f"{max(found):.1f} times its time in f16, {geometric_mean(found):.1f} times in the "
                              "geometric mean.")
    return lines


def by_cudnn(result):
    """Stages by one kernel beside cuDNN alone, one process."""
    lines = ["| stage | kernel | µs | cuDNN, µs | ratio |", "|---|---|---:|---:|---:|"]
    for row in result["rows"]:
        cudnn = peer(row, "cudnn")
        lines.append(f"| `{row['stage']}` | {kernel(row)} | {row['convoy']['median_us']:,.1f} | "
                     + (f"{cudnn['median_us']:,.1f} | {row['ratio']:.2f} |" if cudnn else "| |"))
    return lines


def beside_cutlass(result):
    """Stages by `window` beside the best of CUTLASS's tiles, which leave the pool out, and cuDNN."""
    lines = ["| stage | tile | µs | fastest of CUTLASS's tiles | its µs | ratio | cuDNN, µs | ratio |",
             "|---|---|---:|---|---:|---:|---:|---:|"]
    ratios = []
    for row in result["rows"]:
        ours, cudnn = row["convoy"]["median_us"], peer(row, "cudnn")
        tiles = [p for p in row["peers"] if p["name"].startswith("cutlass ")]
        best = min(tiles, key=lambda p: p["median_us"]) if tiles else None
        cells = ["", "", ""]
        if best:
            ratios.append(best["median_us"] / ours)
            cells = [best["name"].removeprefix("cutlass "), f"{best['median_us']:,.1f}", f"{ratios[-1]:.2f}"]
        cells += [f"{cudnn['median_us']:,.1f}", f"{cudnn['median_us'] / ours:.2f}"] if cudnn else ["", ""]
        lines.append(f"| `{row['stage']}` | {row['tile']} | {ours:,.1f} | {' | '.join(cells)} |")
    if ratios:
        lines += ["", f"Ratio to CUTLASS: geometric mean {geometric_mean(ratios):.2f}, worst {min(ratios):.2f}."]
    return lines


def drawn(result):
    """Stages drawn at random: a row a type and kind, then those far behind."""
    def kind(stage):
        found = re.search(r"groups(\d+)", stage)
        if not found:
            return "dense"
        return "depthwise" if int(found[1]) == int(re.search(r"c(\d+)", stage)[1]) else "groups"
    rows = [row for row in result["rows"] if row["ratio"]]
    parts = {}
    for row in rows:
        dtype = row["stage"].split(":")[0] if ":" in row["stage"] else "f32"
        parts.setdefault((dtype, kind(row["stage"])), []).append(row["ratio"])
    parts["all", ""] = [row["ratio"] for row in rows]
    lines = ["| type | kind | stages | geometric mean | worst | under 1.0 | under 0.8 |",
             "|---|---|---:|---:|---:|---:|---:|"]
    for (dtype, name), ratios in sorted(parts.items(), key=lambda part: (part[0][0] == "all", part[0])):
        lines.append(f"| {dtype} | {name} | {len(ratios)} | {geometric_mean(ratios):.2f} | {min(ratios):.2f} "
                     f"| {sum(r < 1 for r in ratios)} | {sum(r < 0.8 for r in ratios)} |")
    behind = sorted((row for row in rows if row["ratio"] < 0.8), key=lambda row: row["ratio"])
    if behind:
        lines += ["", "Under 0.8:", "", *by_cudnn({"rows": behind})]
    return lines


def slow_paths(machines):
    """Stages that were on slow kernels once or are, as last measured; cuDNN where it runs the same."""
    lines = []
    for machine in machines:
        result = machine.results.get("slow-paths")
        if not result or not machine.is_gpu():
            continue
        lines += [f"| {machine.short} | kernel | µs | TFLOP/s | of peak | cuDNN, µs | measured |",
                  "|---|---|---:|---:|---:|---:|---|"]
        newer = {row["stage"]: (row, other) for name in ("groups", "f32-targets")
                 for other in [machine.results.get(name, {"rows": []})] for row in other["rows"]}
        for row in result["rows"]:
            row, source = newer.get(row["stage"], (row, result))
            ours, cudnn = row["convoy"], peer(row, "cudnn")
            lines.append(f"| `{row['stage']}` | {row['kernel']} | {ours['median_us']:,.1f} | {tflops(row):.2f} "
                         f"| {100 * ours['share_of_peak']:.2f} % | "
                         + (f"{cudnn['median_us']:,.1f} " if cudnn else "") + f"| {days([source])} |")
    return lines


SECTIONS = (  # page, heading, record, table
    ("README", "Targets: convolution + bias + ReLU + max-pool", "targets", targets),
    ("README", "Targets without the pool", "targets-without-pool", against_best),
    ("README", "Two stages", "two-stages", two_stages),
    *(("lists", f"{title}, f16, beside cuDNN", name, wide) for name, title in LISTS.items()),
    ("lists", "Grouped 3×3 layers of ResNeXt-50", "resnext50", by_cudnn),
    ("lists", "Groups of 16 and 32 channels", "groups", by_cudnn),
    ("lists", "Targets in f32, cuDNN without TF32", "f32-targets", by_cudnn),
    ("lists", "ResNet-50 in f32, cuDNN without TF32", "f32-resnet50", by_cudnn),
    ("lists", "Stages drawn as people use them, beside cuDNN", "people", drawn),
    ("kernels", "Targets by `window`, which Hopper does not choose there", "window-targets", beside_cutlass),
    ("kernels", "Targets by `window` without the pool", "window-without-pool", beside_cutlass),
    ("kernels", "Layers of a spiking VGG-11, T = 4", "spiking-vgg11", times),
    ("kernels", "The same layers without neurons, on four times the images", "spiking-vgg11-floor", times),
    ("kernels", "K sweep: 4096 pixels × 4096 filters, 1×1", "k-sweep", k_sweep),
    ("kernels", "The same number of pixels in other batches", "same-pixels", times),
    ("kernels", "Start, loop and end of a launch", "launch-split", launch_split),
    ("kernels", "Registers, stack, shared memory", "resources", resources),
)


def sections(machine):
    """(page, heading, lines) of one GPU's results."""
    result = machine.results.get("targets", {"rows": []})
    if summarised := summary_table([machine]) + [""] + kinds([machine]):
        versions = next((row["versions"] for row in result["rows"] if "versions" in row), {})
        about = [f"Driver {result['driver']}; copies at {result['copy_bandwidth'] / 1e12:.2f} TB/s; "
                 + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""] if versions else []
        yield "README", "Summary", about + summarised
    for page, heading, name, table in SECTIONS:
        if part := machine.results.get(name):
            yield page, heading, table(part)
        if name == "targets-without-pool" and (bf16 := machine.results.get("targets-bf16")):
            yield page, "Targets in bf16", half_types(bf16, result)
