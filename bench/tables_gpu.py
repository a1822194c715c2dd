"""The GPU's tables, from what bench/targets_gpu.py and bench/resources.py wrote."""

import re

from stored import geometric_mean, peer

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
    processes = result.get("processes", 1)
    return (f"Geometric mean of the ratios **{result['geometric_mean']:.2f}**, least {result['least_ratio']:.2f}; "
            f"of {processes} process{'es' if processes > 1 else ''}.")


def spiking(machines):
    """A spiking network on a GPU, from bench/snn_gpu.py."""
    lines = []
    for machine in machines:
        result = machine.results.get("snn-gpu")
        if not machine.is_gpu() or not result:
            continue
        name = result["rows"][0]["kernel"]
        single = min((row["images"] for row in result["from_host"] if row["processes"] == 1), default=0)
        rest = f" (of one from {single:,} images on)" if single else ""
        lines += [f"{machine.short}, {result['model']}, one launch of `{name}`, median of {result['processes']} "
                  f"processes{rest}. On the device: from u8 images to labels there. From the host: from images to "
                  "labels in its "
                  f"memory, {result['from_host'][0]['threads']} threads.", "",
                  "| images | on the device, µs | million images/s | stage by stage, µs | from the host, u8, µs | u8, "
                  "page-locked | f32 |", "|---:|---:|---:|---:|---:|---:|---:|"]
        device = {row["images"]: row for row in result["rows"]}
        host = {row["images"]: row for row in result["from_host"]}
        for images in sorted({*device, *host}):
            there, here = device.get(images), host.get(images)
            cells = [f"{there['median_us']:,.1f}", f"{images / there['median_us']:.2f}",
                     f"{there['stage_by_stage_us']:,.0f}"] if there else [""] * 3
            cells += [f"{1e6 * here[key]:,.0f}" for key in
                      ("seconds", "pinned_u8_seconds", "pageable_f32_seconds")] if here else [""] * 3
            lines.append(f"| {images:,} | " + " | ".join(cells) + " |")
        if "peers" in result:
            lines += [""] + spiking_peers(result)
    return lines


def device_times(result):
    """Microseconds of Convoy on the device by the number of images, as text."""
    return {str(row["images"]): row["median_us"] for row in result["rows"]}


def spiking_sentence(machines):
    lines = []
    for machine in machines:
        result = machine.results.get("snn-gpu")
        if machine.is_gpu() and result and "peers" in result:
            ours, one = device_times(result)["10000"], 1e6 * result["run"]["one_image_seconds"]
            peers = result["peers"]["times"].values()
            lines += ["", f"{machine.short}: 10,000 images on the device in {ours:.0f} µs, one image from the host and "
                          f"back in {one:.1f} µs: {min(of['device_us']['10000'] for of in peers) / ours:.0f} and "
                          f"{min(of['host_us']['one_image'] for of in peers) / one:.1f} times as fast as the best of "
                          "PyTorch and SpikingJelly."]
    return lines


def spiking_peers(result):
    """The same network in other libraries, from bench/peers_snn_gpu.py; their times over Convoy's in brackets."""
    device = device_times(result)
    of_images = {row["images"]: row for row in result["from_host"]}
    host = {"one_image": 1e6 * result["run"]["one_image_seconds"],
            **{key: 1e6 * of_images[10000][f"{key}_seconds"] for key in ("pinned_u8", "pageable_f32")}}
    versions, times = result["peers"]["versions"], result["peers"]["times"]
    batches = list(next(iter(times.values()))["device_us"])
    lines = [f"Beside them, in the same run (PyTorch {versions['torch']}, cuDNN {versions['cudnn']}; f32 without TF32; "
             "their time over Convoy's in brackets). On the device: replays of a CUDA graph, which spares them Python. "
             "From the host: graphs too, one u8 image and 10,000, page-locked, and 10,000 in f32.", "",
             "| µs | " + " | ".join(f"{int(n):,} on the device" for n in batches)
             + " | one from the host | 10,000 u8 | 10,000 f32 | one call from Python, 10,000 |",
             "|---|" + "---:|" * (len(batches) + 4),
             "| Convoy | " + " | ".join(f"{us:,.1f}" for us in [device[n] for n in batches] + list(host.values()))
             + " | |"]
    for name, of in times.items():
        cells = [f"{of['device_us'][n]:,.0f} ({of['device_us'][n] / device[n]:.1f})" for n in batches]
        cells += [f"{of['host_us'][key]:,.0f} ({of['host_us'][key] / us:.1f})" for key, us in host.items()]
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {of['call_us']['10000']:,.0f} |")
    return lines


def with_apart(rows, lines):
    """The table and, where it was measured, a column more: the ratio with a tiny foreign kernel behind each launch."""
    if not any(row.get("apart_ratio") for row in rows):
        return lines
    cells = [" apart |", "---:|"] + [f" {row['apart_ratio']:.2f} |" if row.get("apart_ratio") else " |" for row in rows]
    return [line + cell for line, cell in zip(lines, cells)]


def targets(result):
    lines = ["| stage | kernel, tile | µs | GHz | TFLOP/s | of peak | floor, µs | time / floor | best peer, µs | ratio "
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
    lines = ["| stage | kernel, tile | µs | TFLOP/s | best peer, µs | ratio |", "|---|---|---:|---:|---|---:|"]
    for row in result["rows"]:
        best = peer(row, row["best_peer"])
        lines.append(f"| `{row['stage']}` | {kernel(row)} | {row['convoy']['median_us']:.1f} | {tflops(row):.0f} "
                     f"| {best['name']} {best['median_us']:.1f} | **{row['ratio']:.2f}** |")
    return with_apart(result["rows"], lines) + ["", summary(result)]


def half_types(bf16, f16):
    lines = ["| stage | bf16, µs | f16, µs | bf16 / f16 |", "|---|---:|---:|---:|"]
    # In the same rounds where they were measured so.
    times = {row["stage"]: row["convoy"]["median_us"] for row in f16["rows"] + bf16["rows"]}
    for row in (row for row in bf16["rows"] if row["stage"].startswith("bf16:")):
        same = times[row["stage"].replace("bf16:", "f16:")]
        ours = row["convoy"]["median_us"]
        lines.append(f"| `{row['stage']}` | {ours:.1f} | {same:.1f} | {ours / same:.3f} |")
    return lines


def wide(name, result):
    under = [row for row in result["rows"] if row["ratio"] and row["ratio"] < 1]
    lines = [f"**{name}**: {len(result['rows'])} stages, geometric mean {result['geometric_mean']:.2f}, least "
             f"{result['least_ratio']:.2f}, {len(under)} under 1.0" + (":" if under else "."), ""]
    lines += [f"- `{row['stage']}` {row['ratio']:.2f}: {kernel(row)} {row['convoy']['median_us']:.1f} µs, "
              f"{row['best_peer']} {peer(row, row['best_peer'])['median_us']:.1f} µs" for row in under]
    return lines + ([""] if under else [])


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
        f"A line through the cycles: {head:,.0f} for launch, prologue and epilogue, {slope:,.0f} for 64 "
        f"channels and nine taps; the farthest point lies {worst:,.0f} off.",
    ]


def two_stages(result):
    lines = [
        f"`{result['first']}`, then `{result['second']}`.",
        "",
        "| what | µs | time / one launch |",
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
    """Geometric means and least ratios of each machine whose targets were measured."""
    lines = []
    for machine in machines:
        targets_of = machine.results.get("targets")
        if not machine.is_gpu() or not targets_of:
            continue
        alone = [found["ratio"] for row in targets_of["rows"] if (found := peer(row, "cudnn without pool"))]
        rows = [("Target stages, against the best of cuDNN, `torch.compile` and XLA", targets_of),
                ("The same, against cuDNN's convolution + bias + ReLU alone, without its pool",
                 listed(alone)),
                ("Target stages without pools, against cuDNN", machine.results.get("targets-without-pool"))]
        apart = [row["apart_ratio"] for row in targets_of["rows"] if row.get("apart_ratio")]
        if apart:
            rows.insert(1, ("The same, a tiny foreign kernel between launches", listed(apart)))
        rows += [(f"{title}, against cuDNN", machine.results.get(name)) for name, title in LISTS.items()]
        lines += [f"| {machine.short}, fp16 | stages | geometric mean | least |", "|---|---:|---:|---:|"]
        lines += [f"| {title} | {len(result['rows'])} | {result['geometric_mean']:.2f} | {result['least_ratio']:.2f} |"
                  for title, result in rows if result]
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
    lines = ["| stage | tile | µs | best of CUTLASS's tiles | its µs | ratio | cuDNN, µs | ratio |",
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
        lines += ["", f"To CUTLASS: geometric mean {geometric_mean(ratios):.2f}, least {min(ratios):.2f}."]
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
    lines = ["| type | kind | stages | geometric mean | least | under 1.0 | under 0.8 |",
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
        lines += [f"| {machine.short} | kernel | µs | TFLOP/s | of peak | cuDNN, µs |", "|---|---|---:|---:|---:|---:|"]
        newer = {row["stage"]: row for name in ("groups", "f32-targets")
                 for row in machine.results.get(name, {"rows": []})["rows"]}
        for row in result["rows"]:
            row = newer.get(row["stage"], row)
            ours, cudnn = row["convoy"], peer(row, "cudnn")
            lines.append(f"| `{row['stage']}` | {row['kernel']} | {ours['median_us']:,.1f} | {tflops(row):.2f} "
                         f"| {100 * ours['share_of_peak']:.2f} % | "
                         + (f"{cudnn['median_us']:,.1f} |" if cudnn else "|"))
    return lines


def section(machine):
    """The lines of one GPU's results."""
    result = machine.results["targets"]
    versions = next((row["versions"] for row in result["rows"] if "versions" in row), {})
    lines = [f"Driver {result['driver']}; copies at {result['copy_bandwidth'] / 1e12:.2f} TB/s; "
             + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]

    def add(title, name, table):
        part = machine.results.get(name)
        if part:
            lines.extend([f"### {title}", ""] + table(part) + [""])

    add("Targets: convolution + bias + ReLU + max-pool", "targets", targets)
    add("The same without the pool", "targets-without-pool", against_best)
    add("The same in bf16", "targets-bf16", lambda part: half_types(part, result))
    add("Two stages", "two-stages", two_stages)
    lists = [(title, machine.results.get(name)) for name, title in LISTS.items()]
    if any(part for _, part in lists):
        lines += ["### Wide lists, f16", ""]
        for title, part in lists:
            lines += wide(title, part) if part and "geometric_mean" in part else []
    add("Grouped 3×3 layers of ResNeXt-50", "resnext50", by_cudnn)
    add("Groups of 16 and 32 channels", "groups", by_cudnn)
    add("Targets in f32, cuDNN without TF32", "f32-targets", by_cudnn)
    add("ResNet-50 in f32, cuDNN without TF32", "f32-resnet50", by_cudnn)
    add("Stages drawn as people use them, beside cuDNN", "people", drawn)
    add("Targets by `window`, which Hopper does not choose there", "window-targets", beside_cutlass)
    add("The same without the pool", "window-without-pool", beside_cutlass)
    add("Layers of a spiking VGG-11, T = 4", "spiking-vgg11", times)
    add("The same without neurons, on four times the images", "spiking-vgg11-floor", times)
    add("K sweep: 4096 pixels × 4096 filters, 1×1", "k-sweep", k_sweep)
    add("The same number of pixels in other batches", "same-pixels", times)
    add("Start, loop and end of a launch", "launch-split", launch_split)
    add("Registers, stack, shared memory", "resources", resources)
    return lines[:-1]
