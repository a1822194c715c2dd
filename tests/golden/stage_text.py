"""Stages' text (docs/use/stages.md) to a dict, as far as the golden cases use it. Illegal text: an assertion."""

import re

AXES = re.compile(r"(stride|groups|nchw|pad|dil|out\(|n|h|w|c|k|r|s)((?:\d+(?:x\d+)*)?)")
POOL = re.compile(r"max(\d+(?:x\d+)?)(?:s(\d+(?:x\d+)?))?(?:p(\d+(?:x\d+)?))?(?:d(\d+(?:x\d+)?))?(ceil)?$")


def pair(text, default=None):
    if text is None:
        return default
    parts = [int(p) for p in text.split("x")]
    return (parts * 2 if len(parts) == 1 else parts)[:2]


def parse(text):
    """{'dtype', 'n', 'h', ..., 'stride': [h, w], 'pad': [top, left, bottom, right], 'act': (name, numbers), ...}"""
    dtype, _, rest = text.rpartition(":")
    head, *riders = re.split(r"\+(?![\d.])", rest)
    stage = dict(dtype=dtype or "f32", n=1, stride=[1, 1], pad=[0, 0, 0, 0], dil=[1, 1], groups=1, nchw=False, out=None,
                 bias=False, norm=False, act=None, soft=False, t=1, hold=False, pool=None, keep=[],
                 strict=False)  # fmt: skip
    at = 0
    while at < len(head):
        match = AXES.match(head, at)
        assert match, f"{text}: column {at + 1}"
        key, value = match.groups()
        at = match.end()
        if key == "out(":
            stage["out"], at = head[at : head.index(")", at)], head.index(")", at) + 1
        elif key == "nchw":
            stage["nchw"] = True
        elif key in ("stride", "dil"):
            stage[key] = pair(value)
        elif key == "pad":
            parts = [int(p) for p in value.split("x")]
            stage["pad"] = {1: parts * 4, 2: parts * 2, 4: parts}[len(parts)]
        else:
            stage[key] = int(value)
    if "h" in stage:
        stage.setdefault("w", stage["h"])
    if "r" in stage:
        stage.setdefault("s", stage["r"])
    for rider in riders:
        name, _, numbers = rider.partition("(")
        numbers = numbers.rstrip(")")
        if rider in ("bias", "norm", "soft", "hold", "strict"):
            stage[rider] = True
        elif name in ("relu", "relu6", "clip", "leaky", "if", "lif"):
            stage["act"] = (name, [float(v) for v in numbers.split(",") if v])
        elif name == "keep":
            stage["keep"] = numbers.split(",")
        elif rider[0] == "t":
            stage["t"] = int(rider[1:])
        else:
            match = POOL.match(rider)
            assert match, f"{text}: rider {rider}"
            window = pair(match[1])
            stage["pool"] = dict(window=window, stride=pair(match[2], window), pad=pair(match[3], [0, 0]),
                                 dil=pair(match[4], [1, 1]), ceil=bool(match[5]))  # fmt: skip
    return stage
