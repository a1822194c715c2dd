"""The table of bench/results/sm_80, from what bench/resources.py read in the machine code for 8.0."""

import re

# Of a multiprocessor: warps, and KB of shared memory, of which each CTA takes one more than it asks for.
GPUS = {"8.0": (64, 164), "8.6, 8.9": (48, 100)}
WINDOW = re.compile(r"window<(\w+), WindowShape<WindowTile\{(\d+), (\d+), (\d+), \d+, (\d+), [^}]*\}>, (\w+)>")
PIXEL_BYTES = 64  # of a row of a window tile's slot


def held(row, gpu, shared_bytes):
    """CTAs that a multiprocessor holds at once."""
    warps, kilobytes = GPUS[gpu]
    fit = [row["ctas"], warps * 32 // row["threads"]]
    if shared_bytes:
        fit.append(kilobytes * 1024 // (shared_bytes + 1024))
    return min(fit)


def grouped(rows):
    """Variants of a family by one name; a window tile is one by itself. {name: (shared bytes or None, rows)}."""
    found = {}
    for row in rows:
        tile = WINDOW.match(row["kernel"])
        if tile:
            dtype, m, n, warp_m, slots, visit = tile.groups()
            dtype = dtype.replace("float", "f32")
            how = {"Optimized": "", "Unlimited": ".narrow.shared" if warp_m == "16" else ".narrow"}
            label = f"window {dtype} {m}x{n}{how.get(visit, '.' + visit.lower())}"
            found[label] = ((int(m) + int(n)) * PIXEL_BYTES * int(slots), [row])
        else:
            found.setdefault(row["kernel"].split("<")[0], (None, []))[1].append(row)
    return found


def span(values):
    return "–".join(str(v) for v in sorted({min(values), max(values)}))


def table(machines):
    """A row a kernel, or a family of them."""
    result = next((m.results["resources"] for m in machines if m.name == "sm_80" and "resources" in m.results), None)
    if not result:
        return []
    lines = [f"{result['compiler']}, machine code for 8.0, which 8.6 and 8.9 run too.", "",
             "| kernel | variants | registers | stack, bytes | mainloops | of them spill | threads | shared, KB "
             "| CTAs on 8.0 | on 8.6, 8.9 | warps on 8.0 | on 8.6, 8.9 |",
             "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
    for name, (shared, rows) in grouped(result["kernels"]).items():
        cells = [span([row[key] for row in rows]) for key in ("registers", "stack_bytes")]
        cells += [str(sum(row["mainloops"] for row in rows) or ""),
                  str(sum(row["mainloop_spills"] > 0 for row in rows))]
        fixed = [row for row in rows if row["threads"]]
        if fixed:
            ctas = {gpu: [held(row, gpu, shared) for row in fixed] for gpu in GPUS}
            warps = {gpu: [c * row["threads"] // 32 for c, row in zip(ctas[gpu], fixed)] for gpu in GPUS}
            cells += [span([row["threads"] for row in fixed]), f"{shared / 1024:.0f}" if shared else ""]
            cells += [span(ctas[gpu]) for gpu in GPUS] + [f"{span(warps[gpu])} of {GPUS[gpu][0]}" for gpu in GPUS]
        else:
            cells += [""] * 6
        lines.append(f"| {name} | {len(rows)} | {' | '.join(cells)} |")
    return lines
