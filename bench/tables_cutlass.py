"""The tables of docs/lab/cutlass-pooled.md, from what bench/cutlass_profile.py and bench/targets_gpu.py wrote."""

from stored import geometric_mean, peer

CUTLASS = "cutlass "  # begins the names of its tiles


def megabytes(value):
    return f"{value / 1e6:,.1f}"


def pipeline(machines):
    """A row a kernel of each way to run the two stages; the way's own time in the bench in its first."""
    for machine in machines:
        result = machine.results.get("cutlass-pooled")
        if not result:
            continue
        yield f"{result['machine']}, ncu {result['ncu']}. `{result['stages'][0]}`, then `{result['stages'][1]}`."
        yield ""
        yield ("| way | its time, µs | kernel | µs in ncu | L2, MB | read, MB | written, MB | reductions, million "
               "| registers | threads × CTAs | warps of 64: most, met |")
        yield "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        for row in result["rows"]:
            for i, kernel in enumerate(row["kernels"]):
                way = f"| {row['way']} | **{row['us']:.1f}** " if i == 0 else "| | "
                warps = [f"{kernel[key] * 0.64:.0f}" for key in ("occupancy", "achieved")]
                yield (f"{way}| {kernel['kernel']} | {kernel['us']:.1f} | {megabytes(kernel['l2_bytes'])} "
                       f"| {megabytes(kernel['read_bytes'])} | {megabytes(kernel['written_bytes'])} "
                       f"| {32 * kernel['red_instructions'] / 1e6:.1f} | {kernel['registers']:.0f} "
                       f"| {kernel['threads']:.0f} × {kernel['ctas']:,.0f} | {', '.join(warps)} |")
            totals = [sum(kernel[key] for kernel in row["kernels"]) for key in
                      ("us", "l2_bytes", "read_bytes", "written_bytes")]
            if len(row["kernels"]) > 1:
                yield (f"| | | *all {len(row['kernels'])}* | {totals[0]:.1f} | "
                       + " | ".join(map(megabytes, totals[1:])) + " | | | | |")


def peers(machines):
    """Plain convolutions of CUTLASS, of each stage the best of the tiles."""
    for machine in machines:
        result = machine.results.get("cutlass")
        if not result:
            continue
        names = sorted({p["name"] for row in result["rows"] for p in row["peers"] if p["name"].startswith(CUTLASS)},
                       key=lambda name: [int(size) for size in name.removeprefix(CUTLASS).split("x")])
        yield "| stage | " + " | ".join(f"{name.removeprefix(CUTLASS)}, µs" for name in names) + (
            " | cuDNN without pool, µs | whole stage by Convoy, µs | best of the four / Convoy |")
        yield "|---|" + "---:|" * (len(names) + 3)
        ratios, left = [], []
        for row in result["rows"]:
            found = {name: p["median_us"] for name in names if (p := peer(row, name))}
            if not found:
                left.append(f"`{row['stage']}`")
                continue
            best, ours = min(found.values()), row["convoy"]["median_us"]
            ratios.append(best / ours)
            cells = [f"**{found[name]:.1f}**" if found.get(name) == best else f"{found[name]:.1f}" for name in names]
            cudnn = peer(row, "cudnn without pool")
            yield (f"| `{row['stage']}` | {' | '.join(cells)} | {cudnn['median_us']:.1f} | {row['kernel']} {ours:.1f} "
                   f"| {best / ours:.2f} |")
        yield ""
        yield (f"From {result['processes']} processes. Geometric mean {geometric_mean(ratios):.2f}, minimum "
               f"{min(ratios):.2f}.")
        yield "Left out, because C or K is no multiple of 8:"
        yield from (f"{stage}{'.' if stage == left[-1] else ','}" for stage in left)
