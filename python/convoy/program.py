"""The program `convoy` that the package contains, and functions that run it and return its records."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ._core import Error, Stage

_FOLDER = Path(__file__).resolve().parent


def program() -> Path:
    """Returns the path of the program `convoy`."""
    return _FOLDER / "bin" / "convoy"


def demo_model() -> str:
    """Returns the path of the demo's model folder: a spiking network for Fashion-MNIST.

    Its images are 28x28 u8 pixels of one channel; it has ten classes.

    Example:
        >>> convoy.Network(convoy.demo_model()).classes
        10
    """
    return str(_FOLDER / "models" / "fashion-scnn")


def main() -> None:
    """Replaces this process by the program `convoy`: the console script of the package."""
    # Python ignores SIGPIPE, and the program would inherit that. `convoy explain ... | head` must end quietly.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program(), ["convoy", *sys.argv[1:]])


def _records(*words: object, passing: tuple[int, ...] = (0,)) -> Any:
    """Runs the program and returns its JSON. Raises Error with its message if its exit code is not in `passing`."""
    done = subprocess.run([str(program()), *map(str, words)], capture_output=True, text=True)
    if done.returncode not in passing:
        raise Error(done.stderr.strip() or f"convoy {words[0]}: exit code {done.returncode}")
    return json.loads(done.stdout)


def _stages(stages: str | Stage | Iterable[str | Stage]) -> list[str]:
    """Returns the program's arguments for one stage or several."""
    several = [stages] if isinstance(stages, (str, Stage)) else stages
    if not isinstance(several, Iterable):
        raise Error(f"stages: {several!r}, expected a stage, its text, or a list of them.")
    return [word for stage in several for word in ("--stage", str(stage))]


def devices(measure: bool = False) -> dict[str, Any]:
    """Lists the devices of this machine, and for each unusable one the reason.

    The function runs `convoy devices --json` (docs/use/cli/devices.md).

    Args:
        measure: Also measure the peak of multiply-adds and the speed of a copy, which takes some tenths of a second.

    Returns:
        The program's record, with one dict per device in "devices".

    Raises:
        Error: The program failed.

    Example:
        >>> convoy.devices()["devices"][0]["device"]
        'cpu'
    """
    return _records("devices", "--json", *([] if measure else ["--no-measure"]))


def verify(
    stages: str | Stage | Iterable[str | Stage] | None = None,
    *,
    device: str = "cpu",
    random: int | None = None,
    seed: int = 1,
    kernel: str = "",
    tile: str = "",
) -> dict[str, Any]:
    """Compares the results of kernels with the oracle, a slow and simple implementation of every stage.

    The function runs `convoy verify --json` (docs/use/cli/verify.md). A failed comparison does not raise: read
    "passed" in the record.

    Args:
        stages: A stage, its text, or several of them. None: random stages are drawn.
        device: "cpu", "cuda" or, for example, "cuda:1".
        random: The smallest number of stages to draw. None: 200 if no stages are given, else none.
        seed: The seed of the random draws.
        kernel: Check only the kernel of this name. "": every kernel that takes the stage.
        tile: Check only the tile of this name. "": every tile.

    Returns:
        The program's record, with "passed", a bool.

    Raises:
        Error: A stage is illegal, or the program cannot run it.

    Example:
        >>> convoy.verify("n1h8c8k8r3pad1+relu")["passed"]
        True
    """
    given = _stages(stages) if stages is not None else []
    if stages is not None and not given:
        raise Error("stages: an empty sequence, expected one or more stages. To check random ones, leave stages out.")
    words = ["verify", "--json", "--device", device, "--seed", seed, *given]
    words += ["--random", random] if random is not None else []
    words += ["--kernel", kernel] if kernel else []
    words += ["--tile", tile] if tile else []
    return _records(*words, passing=(0, 1))


def bench(
    stages: str | Stage | Iterable[str | Stage],
    *,
    device: str = "cpu",
    threads: int = 0,
    seconds: float = 0.1,
    rounds: int = 5,
    unfused: bool = False,
) -> dict[str, Any]:
    """Measures how fast stages run.

    The function runs `convoy bench --json -` (docs/use/cli/bench.md).

    Args:
        stages: A stage, its text, or several of them.
        device: "cpu", "cuda" or, for example, "cuda:1".
        threads: The number of CPU threads. 0: the environment variable CONVOY_NUM_THREADS or, if it is not set, every
            core.
        seconds: How long each stage is measured in each round.
        rounds: The largest number of rounds. Fewer are made if the times are stable.
        unfused: Also measure each stage as a chain of separate passes: convolution, bias, activation, pool.

    Returns:
        The program's record, with one dict per stage in "rows". Times are in microseconds, for example
        rows[0]["convoy"]["median_us"].

    Raises:
        Error: A stage is illegal, or the program cannot run it.

    Example:
        >>> rows = convoy.bench("n1h8c8k8r3pad1+relu", rounds=1, seconds=0.01)["rows"]
        >>> rows[0]["convoy"]["median_us"] > 0
        True
    """
    words = ["bench", "--json", "-", "--device", device, "--seconds", seconds, "--rounds", rounds]
    words += ["--threads", threads] if threads else []
    words += ["--unfused"] if unfused else []
    return _records(*words, *_stages(stages))
