"""The charts in docs/charts: SVG written by hand, text as text, colours for light and dark pages.

Ratios stand on a logarithmic axis: twice as fast and half as fast are equally far from 1.
"""

import math
import re
from xml.sax.saxutils import escape

from stored import peer, plain

STYLE = """\
.page{fill:#fff}text{fill:#1f2328}.dim{fill:#59636e}.grid{stroke:#d1d9e0}.one{stroke:#59636e}
.a{stroke:#0969da}.b{stroke:#bc4c00}.c{stroke:#1a7f37}path{fill:none}.dots{stroke-width:8;stroke-linecap:round}
.boxes{stroke-width:7}.ticks{stroke-width:1.5;stroke-opacity:.6}.mean{stroke-width:4}
.rings{stroke-width:1.7}.line{stroke-width:2}.dash{stroke-dasharray:5 4}
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.dim{fill:#9198a1}.grid{stroke:#30363d}
.one{stroke:#9198a1}.a{stroke:#58a6ff}.b{stroke:#f0883e}.c{stroke:#3fb950}}"""
FONT = 'font-family="system-ui,-apple-system,Segoe UI,DejaVu Sans,sans-serif" font-size="12"'
CHARACTER = 6.9  # width of one of these fonts' characters, generously
ROW = 22
MARKS = (("a", "dots"), ("b", "boxes"), ("c", "rings"))  # a series' colour and form


def number(value):
    return f"{value:.1f}".rstrip("0").rstrip(".")


class Svg:
    def __init__(self, width, height, title):
        self.width, self.height, self.title, self.parts = width, height, title, []

    def add(self, part):
        self.parts.append(part)

    def text(self, x, y, text, cls="", anchor=""):
        cls = f' class="{cls}"' if cls else ""
        anchor = f' text-anchor="{anchor}"' if anchor else ""
        self.add(f'<text x="{number(x)}" y="{number(y)}"{cls}{anchor}>{escape(text)}</text>')

    def path(self, d, cls):
        self.add(f'<path class="{cls}" d="{d}"/>')

    def marks(self, points, form):
        """One mark a point, of the colour and form that MARKS names."""
        colour, kind = form
        if kind == "rings":
            self.path("".join(f"M{number(x - 4)} {number(y)}l4-4 4 4-4 4z" for x, y in points), f"{colour} rings")
        else:  # lines as long as they are wide, and short ones with round ends: some viewers drop empty ones
            back, long = (3.5, "7") if kind == "boxes" else (0, ".01")
            self.path("".join(f"M{number(x - back)} {number(y)}h{long}" for x, y in points), f"{colour} {kind}")

    def done(self):
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" width="{self.width}" '
            f'height="{self.height}" {FONT} role="img"><title>{escape(self.title)}</title><style>{STYLE}</style>'
            f'<rect class="page" width="100%" height="100%"/>\n' + "\n".join(self.parts) + "\n</svg>\n"
        )


class LogAxis:
    def __init__(self, least, most, left, right):
        self.least, self.most = least, most
        self.left, self.scale = left, (right - left) / math.log(most / least)

    def __call__(self, value):
        return self.left + self.scale * math.log(value / self.least)


def ratio_axis(svg, least, most, left, right, top, bottom):
    """Vertical lines at 0.5, 1, 2 ... and their labels below."""
    axis = LogAxis(least, most, left, right)
    values = [value for value in (0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8, 10, 15) if least <= value <= most]
    for value in values:
        svg.path(f"M{number(axis(value))} {top}V{bottom}", "one" if value == 1 else "grid")
        svg.text(axis(value), bottom + 15, f"{value:g}", "dim", "middle")
    return axis


def label(stage):
    """'4 × 32², 64→128, 3×3' of a stage's text."""
    at = {
        key: int(value)
        for key, value in re.findall(r"([nhwckrs])(\d+)", plain(stage).split("+")[0].replace("stride", "u"))
    }
    image = f"{at['h']}²" if at.get("w", at["h"]) == at["h"] else f"{at['h']}×{at['w']}"
    stride = re.search(r"stride(\d+)", stage)
    return f"{at['n']} × {image}, {at['c']}→{at['k']}, {at['r']}×{at.get('s', at['r'])}" + (
        f" /{stride[1]}" if stride else ""
    )


def legend(svg, names, left, y):
    for name, form in zip(names, MARKS):
        svg.marks([(left + 5, y - 4)], form)
        svg.text(left + 15, y, name)
        left += 30 + CHARACTER * len(name)


def ratios(title, subtitle, rows, series):
    """A row a stage, a mark a series; the first series' figures stand at the right. series: {name: [ratio or None]}."""
    left, width, top = 212, 720, 68
    bottom = top + ROW * len(rows)
    svg = Svg(width, bottom + 24, title)
    svg.text(12, 20, title)
    svg.text(12, 37, subtitle, "dim")
    legend(svg, series, 12, 55)
    values = [value for column in series.values() for value in column if value]
    axis = ratio_axis(svg, min(0.9, min(values) * 0.95), max(values) * 1.1, left, width - 52, top, bottom)
    for i, row in enumerate(rows):
        y = top + ROW * i + ROW / 2
        svg.text(left - 12, y + 4, row, "", "end")
    for place, (column, form) in enumerate(zip(series.values(), MARKS)):
        y = top + ROW / 2 + 5 * (place - (len(series) - 1) / 2)  # a little apart, so that no mark hides another
        svg.marks([(axis(v), y + ROW * i) for i, v in enumerate(column) if v], form)
    for i, value in enumerate(next(iter(series.values()))):
        svg.text(width - 12, top + ROW * i + ROW / 2 + 4, f"{value:.2f}", "", "end")
    return svg.done()


def spread(title, subtitle, rows):
    """A row a list: a thin line a stage, a thick one the geometric mean. rows: (label, colour, ratios, mean)."""
    left, width, top = 232, 720, 48
    bottom = top + ROW * len(rows)
    svg = Svg(width, bottom + 24, title)
    svg.text(12, 20, title)
    svg.text(12, 37, subtitle, "dim")
    values = [value for row in rows for value in row[2]]
    axis = ratio_axis(svg, min(0.9, min(values) * 0.95), max(values) * 1.05, left, width - 52, top, bottom)
    for i, (name, colour, column, mean) in enumerate(rows):
        y = top + ROW * i
        svg.text(left - 12, y + ROW / 2 + 4, name, "", "end")
        places = sorted({round(axis(v)) for v in column})
        steps = [b - a for a, b in zip(places, places[1:])]
        svg.path(f"M{places[0]} {y + 5}v12" + "".join(f"m{step}-12v12" for step in steps), f"{colour} ticks")
        svg.path(f"M{number(axis(mean))} {y + 2}v18", f"{colour} mean")
        svg.text(width - 12, y + ROW / 2 + 4, f"{mean:.2f}", "", "end")
    return svg.done()


def cpu_targets(machines):
    machines = [machine for machine in machines if "targets-cpu-default-2t" in machine.results][:len(MARKS)]
    rows = machines[0].results["targets-cpu-default-2t"]["rows"]
    series = {
        machine.short: [row["ratio"] for row in machine.results["targets-cpu-default-2t"]["rows"]]
        for machine in machines
    }
    return ratios(
        "CPU: fastest other library's time / Convoy's, target stages with bias, ReLU and max-pool",
        "fp32, default mode, two threads; fastest of PyTorch, ONNX Runtime, OpenVINO; "
        f"numbers at the right: {machines[0].short}",
        [label(row["stage"]) for row in rows],
        series,
    )


def cpu_lists(machines, lists):
    rows = []
    for name, title in lists.items():
        for machine, (colour, _) in zip(
            [m for m in machines if f"{name}-default-2t" in m.results and not m.is_gpu()], MARKS
        ):
            result = machine.results[f"{name}-default-2t"]
            rows.append(
                (
                    f"{title}: {machine.short}",
                    colour,
                    [row["ratio"] for row in result["rows"]],
                    result["geometric_mean"],
                )
            )
    return spread("CPU: fastest other library's time / Convoy's, every layer of the networks",
                  "thin lines: one per layer; thick line and number: geometric mean; fp32, default mode, two threads",
                  rows)


def gpu_targets(machine):
    result = machine.results["targets"]["rows"]
    bare = {plain(row["stage"]): row["ratio"]
            for row in machine.results.get("targets-without-pool", {"rows": []})["rows"]}
    alone = [found["ratio"] if (found := peer(row, "cudnn without pool")) else None for row in result]
    series = {"whole stage": [row["ratio"] for row in result],
              "against cuDNN without its pool": alone,
              "both without pool": [bare.get(re.sub(r"\+max.*", "", plain(row["stage"]))) for row in result]}
    return ratios(
        f"{machine.short}: fastest other library's time / Convoy's, target stages, fp16",
        "fastest of cuDNN, torch.compile and XLA in the same rounds; numbers at the right: the whole stage",
        [label(row["stage"]) for row in result],
        {name: column for name, column in series.items() if any(column)},
    )


def gpu_lists(machine, lists):
    rows = [(title, "a", [row["ratio"] for row in result["rows"] if row["ratio"]], result["geometric_mean"])
            for name, title in lists.items() if (result := machine.results.get(name))]
    return spread(f"{machine.short}: cuDNN's time / Convoy's, every layer of five networks, fp16",
                  "thin lines: one per layer; thick line and number: geometric mean", rows)


def free_place(x, y, width, taken):
    """Where a label of this width finds room near a point: the nearest of places around it that hits nothing."""
    for far in range(9, 70, 6):
        for angle in range(0, 360, 30):
            a, b = x + far * 1.2 * math.cos(math.radians(angle)), y - far * math.sin(math.radians(angle))
            box = (a - width / 2 - 1, b - 7, a + width / 2 + 1, b + 7)
            if not any(box[0] < t[2] and t[0] < box[2] and box[1] < t[3] and t[1] < box[3] for t in taken):
                return a, b, box
    raise ValueError("no room for a label")


def roofline(machine):
    result = machine.results["targets"]
    rows = result["rows"]
    peak = max(row["peak_gflops"] for row in rows) / 1e3  # at the highest clock
    held = min(row["peak_gflops"] for row in rows) / 1e3
    bandwidth = result["copy_bandwidth"] / 1e12
    points = [(row["gflops"] * row["convoy"]["median_us"] * 1e3 / row["bytes"], row["gflops"] / 1e3) for row in rows]
    left, right, top, bottom, width = 56, 520, 70, 450, 780
    svg = Svg(width, bottom + 40, f"{machine.short}: roofline of the target stages, fp16")
    svg.text(12, 20, svg.title)
    svg.text(
        12, 37, "TFLOP/s over operations per byte of x, weights and y, each counted once; both axes logarithmic", "dim"
    )
    across = LogAxis(min(x for x, _ in points) / 1.5, max(x for x, _ in points) * 1.5, left, right)
    up = LogAxis(min(y for _, y in points) / 1.5, peak * 1.3, bottom, top)
    for value in (1, 3, 10, 30, 100, 300, 1000, 3000):
        if across.least <= value <= across.most:
            svg.path(f"M{number(across(value))} {top}V{bottom}", "grid")
            svg.text(across(value), bottom + 15, f"{value}", "dim", "middle")
        if up.least <= value <= up.most:
            svg.path(f"M{left} {number(up(value))}H{right}", "grid")
            svg.text(left - 6, up(value) + 4, f"{value}", "dim", "end")
    svg.text((left + right) / 2, bottom + 32, "FLOP / byte", "dim", "middle")
    ridge, cheap = peak / bandwidth, max(across.least, up.least / bandwidth)
    svg.path(
        f"M{number(across(cheap))} {number(up(cheap * bandwidth))}L{number(across(ridge))} {number(up(peak))}H{right}",
        "b line",
    )
    svg.path(f"M{number(across(held / bandwidth))} {number(up(held))}H{right}", "b dash")
    svg.text(
        right,
        top - 6,
        f"{peak:.0f} TFLOP/s at {max(r['clock_ghz'] for r in rows):.2f} GHz; dashed: {held:.0f} at "
        f"{min(r['clock_ghz'] for r in rows):.2f}, the lowest clock that power left",
        "dim",
        "end",
    )
    middle = math.sqrt(cheap * ridge)
    slope = -math.degrees(math.atan(math.log(10) * up.scale * -1 / (math.log(10) * across.scale)))
    x, y = across(middle), up(middle * bandwidth) - 8
    svg.add(
        f'<text class="dim" text-anchor="middle" '
        f'transform="translate({number(x)} {number(y)}) rotate({number(slope)})">'
        f"{bandwidth:.2f} TB/s, a copy</text>"
    )
    spots = [(across(x), up(y)) for x, y in points]
    svg.marks(spots, MARKS[0])
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in spots]
    taken += [(left, up(level) - 2, right, up(level) + 2) for level in (peak, held)]
    for i, (x, y) in enumerate(spots, 1):
        a, b, box = free_place(x, y, 7.5 * len(str(i)), taken)
        taken.append(box)
        if math.hypot(a - x, b - y) > 16:
            svg.path(f"M{number(x)} {number(y)}L{number(a + (x - a) * 0.35)} {number(b + (y - b) * 0.35)}", "one")
        svg.text(a, b + 4, str(i), "", "middle")
        svg.text(right + 36, top + 8 + 23 * (i - 1), str(i), "", "end")
        svg.text(
            right + 44, top + 8 + 23 * (i - 1), f"{label(rows[i - 1]['stage'])}: {rows[i - 1]['gflops'] / 1e3:.0f}"
        )
    return svg.done()


def charts(machines, cpu_wide, gpu_wide):
    """File name: SVG, and what it shows in words. A chart without records is left out."""
    made = {}
    cpus = [machine for machine in machines if not machine.is_gpu()]
    if any("targets-cpu-default-2t" in machine.results for machine in cpus):
        made["cpu-targets.svg"] = (cpu_targets(cpus), "Speedup over the fastest other library of the target stages on "
                                                      "CPUs")
    if any(f"{name}-default-2t" in machine.results for machine in cpus for name in cpu_wide):
        made["cpu-lists.svg"] = (cpu_lists(cpus, cpu_wide), "Speedups of every layer of five networks on CPUs")
    for machine in machines:
        if machine.is_gpu() and "targets" in machine.results:
            short = machine.short
            made[f"{machine.name}-targets.svg"] = (gpu_targets(machine), "Speedup over the fastest other library of "
                                                                         f"the target stages on an {short}")
            if any(name in machine.results for name in gpu_wide):
                made[f"{machine.name}-lists.svg"] = (gpu_lists(machine, gpu_wide), "Speedups over cuDNN of every layer "
                                                                                   f"of five networks on an {short}")
            made[f"{machine.name}-roofline.svg"] = (roofline(machine), "Roofline: TFLOP/s over FLOP per byte of the "
                                                                       f"target stages on an {short}")
    return made
