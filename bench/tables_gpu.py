"""The GPU part of docs/performance.md, from what bench/targets_gpu.py and bench/resources.py wrote."""

import json


def load(folder, name):
    path = folder / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def peer(row, name):
    return next((p for p in row["peers"] if p["name"] == name), None)


def tflops(row):
    return row["gflops"] / 1e3


def kernel(row):
    return f"{row['kernel']} {row['tile']}".replace(f"{row['kernel']} {row['kernel']}", row["kernel"])


def summary(result):
    processes = result.get("processes", 1)
    return (f"Geometric mean of the ratios **{result['geometric_mean']:.2f}**, least {result['least_ratio']:.2f}; "
            f"of {processes} process{'es' if processes > 1 else ''}.")


def targets(result):
    lines = ["| stage | kernel, tile | µs | GHz | TFLOP/s | of peak | floor, µs | time / floor | best peer, µs | ratio "
             "| cuDNN without its pool, µs | ratio |", "|---|---|---:|---:|---:|---:|---:|---:|---|---:|---:|---:|"]
    for row in result["rows"]:
        ours, floor = row["convoy"], row["floor_us"]
        best = peer(row, row["best_peer"])
        alone = peer(row, "cudnn without pool")
        bound = "math" if row["gflops"] * ours["median_us"] / row["peak_gflops"] >= 0.999 * floor else "memory"
        lines.append(f"| `{row['stage']}` | {kernel(row)} | {ours['median_us']:.1f} | {row['clock_ghz']:.2f} "
                     f"| {tflops(row):.0f} | {100 * ours['share_of_peak']:.0f} % | {floor:.1f} ({bound}) "
                     f"| {ours['median_us'] / floor:.2f} | {best['name']} {best['median_us']:.1f} | **{row['ratio']:.2f}** "
                     + (f"| {alone['median_us']:.1f} | {alone['ratio']:.2f} |" if alone else "| | |"))
    return lines + ["", summary(result)]


def against_best(result):
    lines = ["| stage | kernel, tile | µs | TFLOP/s | best peer, µs | ratio |", "|---|---|---:|---:|---|---:|"]
    for row in result["rows"]:
        best = peer(row, row["best_peer"])
        lines.append(f"| `{row['stage']}` | {kernel(row)} | {row['convoy']['median_us']:.1f} | {tflops(row):.0f} "
                     f"| {best['name']} {best['median_us']:.1f} | **{row['ratio']:.2f}** |")
    return lines + ["", summary(result)]


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
    return lines + ["", f"A line through the cycles: {head:,.0f} for launch, prologue and epilogue, {slope:,.0f} for 64 "
                    f"channels and nine taps; the farthest point lies {worst:,.0f} off."]


def two_stages(result):
    lines = [f"`{result['first']}`, then `{result['second']}`.", "", "| what | µs | time / one launch |", "|---|---:|---:|"]
    one = result["microseconds"]["one launch"]
    return lines + [f"| {name} | {us:.1f} | {us / one:.2f} |"
                    for name, us in sorted(result["microseconds"].items(), key=lambda item: item[1])]


def resources(result):
    lines = ["| kernel | variants | registers | stack, bytes | static shared, bytes | threads | CTAs by registers |",
             "|---|---:|---:|---:|---:|---:|---:|"]
    families = {}
    for row in result["kernels"]:
        families.setdefault(row["kernel"].split("<")[0], []).append(row)
    span = lambda values: "–".join(str(v) for v in sorted({min(values), max(values)}))
    for family, rows in families.items():
        cells = [span([row[key] for row in rows]) for key in ("registers", "stack_bytes", "static_shared_bytes")]
        fixed = [row for row in rows if row["threads"]]
        cells += [span([row[key] for row in fixed]) if fixed else "" for key in ("threads", "ctas")]
        lines.append(f"| {family} | {len(rows)} | {' | '.join(cells)} |")
    return lines


def section(folder):
    """The lines of one GPU's results; none where targets_gpu.py has not written there."""
    result = load(folder, "targets")
    if not result or "copy_bandwidth" not in result:
        return []
    versions = next((row["versions"] for row in result["rows"] if "versions" in row), {})
    lines = [f"### {result['machine']}", "",
             f"Driver {result['driver']}; copies at {result['copy_bandwidth'] / 1e12:.2f} TB/s; "
             + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".", ""]

    def add(title, name, table):
        part = load(folder, name)
        if part:
            lines.extend([f"#### {title}", ""] + table(part) + [""])

    add("Targets: convolution + bias + ReLU + max-pool", "targets", targets)
    add("The same without the pool", "targets-without-pool", against_best)
    add("The same in bf16", "targets-bf16", lambda part: half_types(part, result))
    add("Two stages", "two-stages", two_stages)
    lists = [(name, load(folder, name)) for name in ("resnet50", "vgg16", "mobilenetv2", "yolov8n", "unet")]
    if any(part for _, part in lists):
        lines += ["#### Wide lists, f16", ""]
        for name, part in lists:
            lines += wide(name, part) if part and "geometric_mean" in part else []
    add("K sweep: 4096 pixels × 4096 filters, 1×1", "k-sweep", k_sweep)
    add("The same number of pixels in other batches", "same-pixels", times)
    add("Head, loop and tail of a launch", "launch-split", launch_split)
    add("Registers, stack, shared memory", "resources", resources)
    return lines


def tables(root):
    lines = []
    for folder in sorted((root / "bench/results").iterdir()):
        lines += section(folder) if folder.is_dir() else []
    return "\n".join(lines)
