"""Draws validation accuracy and loss over the epochs as an SVG for light and dark pages."""

WIDTH, HEIGHT = 640, 300
LEFT, RIGHT, TOP, BOTTOM = 48, 592, 48, 262
STYLE = """\
.page{fill:#fff}text{fill:#1f2328;font:12px system-ui,sans-serif}.grid{stroke:#d1d9e0}path{fill:none;stroke-width:2}
.mean{stroke:#0969da}.best{stroke:#1a7f37}.loss{stroke:#bc4c00;stroke-dasharray:5 4}
@media(prefers-color-scheme:dark){.page{fill:#0d1117}text{fill:#e6edf3}.grid{stroke:#30363d}
.mean{stroke:#58a6ff}.best{stroke:#3fb950}.loss{stroke:#f0883e}}"""


def axis(values):
    """Returns (lower end, upper end) of an axis, with some room around the values; it is never empty."""
    least, most = min(values), max(values)
    room = 0.05 * (most - least) or 0.01
    return least - room, most + room


def place(value, ends, low, high):
    """Returns the position of a value between the pixels low and high."""
    return low + (high - low) * (value - ends[0]) / (ends[1] - ends[0])


def curves(history):
    """Returns the SVG. history: a list of {"epoch", "loss", "mean", "best"}. The loss has the axis at the right."""
    epochs = axis([point["epoch"] for point in history])
    accuracy = axis([point[key] for point in history for key in ("mean", "best")])
    loss = axis([point["loss"] for point in history])
    parts = []
    for i in range(5):
        y = BOTTOM - (BOTTOM - TOP) * i / 4
        share, value = (ends[0] + (ends[1] - ends[0]) * i / 4 for ends in (accuracy, loss))
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{RIGHT}" style="stroke-width:1"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{share * 100:.1f}</text>')
        parts.append(f'<text x="{RIGHT + 6}" y="{y + 4:.1f}">{value:.3f}</text>')
    for key, ends in (("mean", accuracy), ("best", accuracy), ("loss", loss)):
        points = [
            f"{place(p['epoch'], epochs, LEFT, RIGHT):.1f} {place(p[key], ends, BOTTOM, TOP):.1f}" for p in history
        ]
        parts.append(f'<path class="{key}" d="M{"L".join(points)}"/>')
    names = ((LEFT, "mean", "validation accuracy, mean, %"), (260, "best", "the best"), (380, "loss", "loss"))
    for x, key, name in names:
        parts.append(f'<path class="{key}" d="M{x} 28h22"/><text x="{x + 28}" y="32">{name}</text>')
    for point in (history[0], history[-1]):
        x = place(point["epoch"], epochs, LEFT, RIGHT)
        parts.append(f'<text x="{x:.1f}" y="{BOTTOM + 18}" text-anchor="middle">{point["epoch"]}</text>')
    parts.append(f'<text x="{(LEFT + RIGHT) / 2}" y="{BOTTOM + 18}" text-anchor="middle">epoch</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'role="img"><title>Training</title><style>{STYLE}</style><rect class="page" width="100%" height="100%"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )
