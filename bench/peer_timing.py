"""How the peers on a GPU are timed: what bench/gpu_runs.cpp does for ours."""

import math

LAUNCHES = 24  # of a graph, at least
ENOUGH = 24e-3  # seconds of a graph: slower stages get fewer launches, as choose_replays in src/plan/timing.cpp says


def moved_by(stage):
    """Bytes of an input and an output."""
    if stage.get("then"):
        return moved_by(stage["then"]) + 2 * stage["n"] * stage["h"] * stage["w"] * stage["c"]
    (top, left, bottom, right), (sh, sw), (dh, dw) = stage["pad"], stage["stride"], stage["dil"]
    p = (stage["h"] + top + bottom - dh * (stage["r"] - 1) - 1) // sh + 1
    q = (stage["w"] + left + right - dw * (stage["s"] - 1) - 1) // sw + 1
    if stage["pool"]:
        pool = stage["pool"]
        p, q = ((size + 2 * pad - d * (window - 1) - 1) // stride + 1 for size, pad, d, window, stride in
                zip((p, q), pool["pad"], pool["dil"], pool["window"], pool["stride"]))
    return 2 * stage["n"] * (stage["h"] * stage["w"] * stage["c"] + p * q * stage["k"])


def buffers_of(stage, l2_bytes):
    """How many inputs and outputs exceed the L2 three times; as bench/gpu_runs.cpp has it."""
    return max(8, min(512, 3 * l2_bytes // moved_by(stage) + 1))


def launches_of(once, buffers):
    """How many launches of so many seconds go into a graph."""
    return min(max(LAUNCHES, buffers), max(1, math.ceil(ENOUGH / max(once, 1e-9))))


def samples_of(replay, launches):
    """A function that gives the seconds of one launch, five times in about so many seconds, after a
    warm-up as long: the chip is bound by its power."""
    def samples(seconds):
        once = max(replay(1), 1e-7) * launches
        replay(max(1, int(seconds / once)))
        times = max(1, int(seconds / 5 / once))
        return [replay(times) for _ in range(5)]
    return samples
