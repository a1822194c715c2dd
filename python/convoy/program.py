"""The program `convoy` that the package brings, and what it measures as records."""

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
    """The path of the program."""
    return _FOLDER / "bin" / "convoy"


def demo_model() -> str:
    """The folder of the spiking network for Fashion-MNIST (28x28 u8 images, ten classes).

    >>> convoy.Network(convoy.demo_model()).classes
    10
    """
    return str(_FOLDER / "models" / "fashion-scnn")


def main() -> None:
    """The console script `convoy`: becomes the program."""
    # Python ignores SIGPIPE, and the program would: `convoy explain ... | head` is no error.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execv(program(), ["convoy", *sys.argv[1:]])


def _records(*words: object, passing: tuple[int, ...] = (0,)) -> Any:
    """The program's JSON. Raises Error with its message where it can't do what it is asked."""
    done = subprocess.run([str(program()), *map(str, words)], capture_output=True, text=True)
    if done.returncode not in passing:
        raise Error(done.stderr.strip() or f"convoy {words[0]}: exit code {done.returncode}")
    return json.loads(done.stdout)


def _stages(stages: str | Stage | Iterable[str | Stage]) -> list[str]:
    several = [stages] if isinstance(stages, (str, Stage)) else stages
    if not isinstance(several, Iterable):
        raise Error(f"stages: {several!r}, expected a stage, its text, or several of them")
    return [word for stage in several for word in ("--stage", str(stage))]


def devices(measure: bool = False) -> dict[str, Any]:
    """What is here, what is usable and why not, as `convoy devices --json` tells it (the program runs).

    measure: also the FMA peak and the speed of a copy, which takes some tenths of a second.

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
    """Compares every kernel with the oracle (the program runs `convoy verify --json`, docs/use/cli/verify.md).

    Without stages it draws `random` ones. Read "passed" of the record: a failure is no exception.

    >>> convoy.verify("n1h8c8k8r3pad1+relu")["passed"]
    True
    """
    given = _stages(stages) if stages is not None else []
    if stages is not None and not given:
        raise Error("stages: none in it, expected one or more; leave it out for drawn ones")
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
    """Measures how fast stages run (the program runs `convoy bench --json -`, docs/use/cli/bench.md).

    A record a stage in "rows": median_us and so on. unfused: beside the same as a chain of passes.

    >>> rows = convoy.bench("n1h8c8k8r3pad1+relu", rounds=1, seconds=0.01)["rows"]
    >>> rows[0]["convoy"]["median_us"] > 0
    True
    """
    words = ["bench", "--json", "-", "--device", device, "--seconds", seconds, "--rounds", rounds]
    words += ["--threads", threads] if threads else []
    words += ["--unfused"] if unfused else []
    return _records(*words, *_stages(stages))
