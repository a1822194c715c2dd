"""convoy.tune: measures the kernels and tiles of a stage, or of every stage of a network, and saves the fastest."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ._core import Error, Network, Stage, _tune_network, _tune_stage


def tune(
    target: Stage | str | Network,
    *,
    batches: Iterable[int] = (),
    device: str | None = None,
    threads: int | None = None,
    seconds: float = 0.3,
    save: bool = True,
) -> dict[str, Any]:
    """Measures the kernels and tiles of a stage or a network and saves the fastest in the tuning cache.

    Plans and networks that are made later use it, in every program of the same build (docs/use/cli/tune.md). Results
    never change a bit. The object that was given does not change: make it again. A network is measured on its device,
    with its number of threads; the cache is written once, at the end.

    Args:
        target: A `Stage` or its text, or a `Network`: every stage of it is measured.
        batches: With a network, the values of `Network(..., batch=)` of the networks that will use the results. Empty:
            the number that the network has.
        device: With a stage, "cpu", "cuda" or, for example, "cuda:1". None: "cpu".
        threads: With a stage, the largest number of CPU threads. None or 0: as `Plan` chooses.
        seconds: How long each tile is measured, above 0.
        save: Save the fastest. False: measure only.

    Returns:
        A dict with one dict per stage in "stages", and the cache's path in "saved_to" if it was written. Each has the
        text of the "stage", its "arithmetic", and "rows", the fastest first, with times in seconds. With a network,
        each also has the names of the "layers" that run it, and the "batch".

    Raises:
        Error: The stage is illegal, a batch or `seconds` is out of range, an argument belongs to the other kind, or
            the cache cannot be written.
        NoDevice: This machine does not have the device.
        Unsupported: No kernel takes the stage.

    Example:
        >>> result = convoy.tune("n1h8c8k8r3pad1+relu", seconds=0.001, save=False)
        >>> result["stages"][0]["stage"], result["stages"][0]["rows"][0]["chosen"]
        ('n1h8w8c8k8r3pad1+relu', True)
    """
    if isinstance(target, Network):
        if device is not None or threads is not None:
            raise Error("device, threads: given with a Network, expected neither: it has its own. Leave them out.")
        return _tune_network(target, list(batches), seconds, save)
    if list(batches):
        raise Error("batches: given with a stage, expected none: a stage has its own n. Leave them out.")
    return _tune_stage(target, device or "cpu", threads or 0, seconds, save)
