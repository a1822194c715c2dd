#!/usr/bin/env python3
"""Draws stages as people use them into shapes/people.txt and shapes/people-cpu.txt: sizes of convolutional networks,
all types that GPUs compute in (f32 for CPUs), groups, pools, odd channels.

    python3 bench/people.py            writes the lists anew: the same seeds, the same stages
    python3 bench/people.py --check    exit code 1 if a list is not what its seed says

No stage is chosen by what it takes: what is drawn and legal stays, but for those above 20 GMAC or 200 MB (CPU: 1 GMAC
or 100 MB), which say nothing that smaller ones don't. Measured by bench/targets_gpu.py --parts people and
bench/targets_cpu.py --shapes shapes/people-cpu.txt.
"""

import argparse
import random
import sys
from dataclasses import dataclass
from pathlib import Path

SHAPES = Path(__file__).resolve().parent.parent / "shapes"
COUNT = 200


@dataclass
class List:
    """A file of stages, how it is drawn, and the largest that stay."""

    name: str
    seed: int
    types: tuple
    images: tuple
    most_macs: float
    most_bytes: float


LISTS = (
    List("people.txt", 22, (("f16", 45), ("bf16", 20), ("f32", 35)), (1, 1, 2, 4, 8, 16, 32, 64), 20e9, 200e6),
    List("people-cpu.txt", 23, (("f32", 1),), (1, 1, 1, 2, 4, 8), 1e9, 100e6),
)
SIDES = (7, 8, 10, 13, 14, 16, 20, 24, 26, 28, 32, 40, 48, 52, 56, 64, 80, 96, 112, 128, 160, 224)
CHANNELS = (16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024)
ODD_CHANNELS = (3, 7, 10, 17, 21, 30, 50, 51, 75, 90, 100, 150, 255, 300)


def channels(draw, side):
    """Few where the image is large, as networks have it."""
    if draw.random() < 0.15:
        return draw.choice(ODD_CHANNELS)
    return draw.choice([c for c in CHANNELS if c * side <= 16384])


def draw_stage(draw, of):
    """(text, MACs, bytes), or None where a pool or filter does not fit."""
    dtype = draw.choices(*zip(*of.types, strict=True))[0]
    n = draw.choice(of.images)
    h = draw.choice(SIDES)
    w = h if draw.random() < 0.75 else draw.choice(SIDES)
    c, k = channels(draw, max(h, w)), channels(draw, max(h, w))
    r = draw.choices((1, 3, 5, 7), (30, 55, 10, 5))[0]
    stride, dil, groups = 1, 1, 1
    kind = draw.random()
    if kind < 0.10:  # a network's first layer
        c, r, stride = 3, draw.choice((3, 3, 5, 7)), draw.choice((1, 2))
    elif kind < 0.20:  # depthwise
        k, groups, r, stride = c, c, draw.choice((3, 3, 5)), draw.choice((1, 1, 2))
    elif kind < 0.38:  # groups
        groups = draw.choice((2, 4, 8, 16, 32))
        c = groups * max(1, c // groups)
        k = c if draw.random() < 0.7 else groups * max(1, k // groups)
        r, stride = draw.choice((1, 3, 3, 3, 5)), draw.choice((1, 1, 1, 2))
    elif kind < 0.50:
        stride = 2
    elif kind < 0.55 and r == 3:
        dil = 2
    pad = draw.choices((r // 2 * dil, 0), (9, 1))[0]
    p, q = ((side + 2 * pad - dil * (r - 1) - 1) // stride + 1 for side in (h, w))
    pool = draw.choices(("", "max2", "max3s2p1"), (65, 25, 10))[0]
    if min(p, q) < (2 if pool else 1):
        return None
    act = draw.choices(("relu", "relu6", "leaky(0.1)", ""), (70, 10, 10, 10))[0]
    text = f"{dtype}:n{n}h{h}" + (f"w{w}" if w != h else "") + f"c{c}k{k}r{r}"
    text += (f"stride{stride}" if stride > 1 else "") + (f"pad{pad}" if pad else "") + (f"dil{dil}" if dil > 1 else "")
    text += f"groups{groups}" if groups > 1 else ""
    text += "".join("+" + rider for rider in ("bias" if draw.random() < 0.9 else "", act, pool) if rider)
    text = text.removeprefix("f32:")
    size = 4 if dtype == "f32" else 2
    return text, n * p * q * k * r * r * c // groups, size * (n * h * w * c + n * p * q * k)


def text_of(of):
    draw = random.Random(of.seed)
    found = []
    while len(found) < COUNT:
        drawn = draw_stage(draw, of)
        if drawn and drawn[1] <= of.most_macs and drawn[2] <= of.most_bytes and drawn[0] not in found:
            found.append(drawn[0])
    return f"# {COUNT} stages drawn as people use them: bench/people.py, seed {of.seed}.\n" + "\n".join(found) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    for of in LISTS:
        path, text = SHAPES / of.name, text_of(of)
        if not args.check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            sys.exit(f"{path}: not what bench/people.py draws. Run it.")


if __name__ == "__main__":
    main()
