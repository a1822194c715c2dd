"""The table of docs/learn/ladder.md, and those of every stage, from what `convoy ladder --json` wrote."""


def factor(row, key="factor"):
    return f"{row[key]:.2f}" if row.get(key) else ""


def launches(row):
    """Registers, spilled bytes, shared KiB, CTAs and occupancy of the kernel that multiplies."""
    of = row["launches"][0]
    spilled = f" + {of['spilled_bytes']} B" if of["spilled_bytes"] else ""
    return (f"{of['registers']}{spilled} | {of['shared_bytes'] / 1024:g} | {of['ctas']} | "
            f"{100 * of['occupancy']:.0f} %")


def rungs(stage):
    """Which optimisation gave what, as the document says and as it was measured."""
    yield ("| kernel | adds | µs | TFLOP/s | of peak | times the rung before | claimed | error | registers "
           "| shared, KiB "
           "| CTAs | occupancy |")
    yield "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"
    for row in stage["rungs"]:
        yield (f"| {row['kernel']} | {row['adds']} | {row['median_us']:,.1f} | {row['tflops']:.1f} "
               f"| {100 * row['share_of_peak']:.1f} % | {factor(row)} | {factor(row, 'claimed')} | {row['error']:.1e} "
               f"| {launches(row)} |")


def ablation(stage):
    """The last rung without one thing. Nothing where the stage has no such tiles."""
    rows = [row for row in stage["rungs"] if "without" in row]
    if len(rows) < 2:
        return
    whole = next(row for row in stage["rungs"] if row["kernel"] == rows[-1]["without"]["kernel"])
    yield f"`{whole['kernel']}`, {whole['median_us']:,.1f} µs, without one thing:"
    yield ""
    yield "| without | µs | times as long | registers | shared, KiB | CTAs | occupancy |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        other = row["without"]
        yield (f"| {row['adds']} | {other['median_us']:,.1f} | {other['factor']:.2f} | {launches(other)} |")


def whole_ladder(stage):
    first, last = stage["rungs"][0], stage["rungs"][-1]
    best = min(stage["rungs"], key=lambda row: row["median_us"])
    return (f"From `{first['kernel']}` to the fastest, `{best['kernel']}`: "
            f"{first['median_us'] / best['median_us']:,.0f} times as fast. `{last['kernel']}` errs "
            f"{last['error'] / stage['rungs'][-2]['error']:.1f} times as much as `{stage['rungs'][-2]['kernel']}`."
            if not stage["left_out"] else
            f"From `{first['kernel']}` to the fastest, `{best['kernel']}`: "
            f"{first['median_us'] / best['median_us']:,.0f} times as fast.")


def ladders(machines):
    lines = []
    for machine in machines:
        result = machine.results.get("ladder")
        if not result:
            continue
        for stage in result["stages"]:
            lines += [f"### {machine.short}: `{stage['stage']}`", "", *rungs(stage), "", whole_ladder(stage), ""]
            taken_away = list(ablation(stage))
            lines += taken_away + [""] if taken_away else []
    return lines[:-1]


def one_ladder(machines):
    """The first stage in one table, and what the whole ladder gives on every stage."""
    lines = []
    for machine in machines:
        result = machine.results.get("ladder")
        if not result:
            continue
        first = result["stages"][0]
        lines += [f"{machine.short}, {result['date'][:10]}, `{first['stage']}`:", "",
                  "| kernel | adds | µs | TFLOP/s | times as fast as the rung before | `ladder_9_bounds` without it, "
                  "times as long | error | registers | occupancy |", "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
        for row in first["rungs"]:
            of, adds = row["launches"][0], row["adds"].replace("a thread an output", "one thread per output")
            lines.append(f"| {row['kernel']} | {adds} | {row['median_us']:,.1f} | {row['tflops']:.1f} | "
                         f"{factor(row)} | {factor(row.get('without', {}))} | {row['error']:.1e} | {of['registers']} | "
                         f"{100 * of['occupancy']:.0f} % |")
        lines += ["", "The whole ladder, from rung 0 to the fastest rung:", ""]
        for stage in result["stages"]:
            us = [row["median_us"] for row in stage["rungs"]]
            lines.append(f"- `{stage['stage']}`: {us[0] / min(us):,.0f} times as fast, {min(us):,.1f} µs")
    return lines
