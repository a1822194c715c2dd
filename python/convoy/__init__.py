"""Convoy: a convolution and everything that follows it, as one kernel.

    y = pool(act(conv(x, w) + bias))

A Stage says what to compute, a Plan binds it to a device and a kernel and is called with arrays of any
library, a Network runs a model folder over images. docs/use/arrays.md has the rest.

    >>> import numpy as np
    >>> plan = convoy.Plan("n1h4c1k1r1+relu+max2", np.full((1, 1, 1, 1), 2, np.float32))
    >>> plan(np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)).ravel().tolist()
    [10.0, 14.0, 26.0, 30.0]
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from ._core import (
    Busy,
    DeviceError,
    Error,
    InternalError,
    InvalidOperand,
    LayerReport,
    MovedFrom,
    Network,
    NoWeights,
    NoWorkspace,
    OutOfMemory,
    Plan,
    Stage,
    Tensor,
    Weights,
    __version__,
)
from .program import bench, demo_model, devices, verify
from .records import Outputs, Text

__all__ = [
    "Busy",
    "DeviceError",
    "Error",
    "InternalError",
    "InvalidOperand",
    "LayerReport",
    "MovedFrom",
    "Network",
    "NoWeights",
    "NoWorkspace",
    "OutOfMemory",
    "Outputs",
    "Plan",
    "Stage",
    "Tensor",
    "Text",
    "Weights",
    "__version__",
    "bench",
    "demo_model",
    "devices",
    "export",
    "from_nir",
    "fuse",
    "to_nir",
    "verify",
]


def fuse(model: _Any, sample: _Any, **options: _Any) -> _Any:
    """An nn.Module whose convolutions run as stages, with what follows them: help(convoy.fusing.fuse). Needs torch."""
    from .fusing import fuse as fused

    return fused(model, sample, **options)


def export(model: _Any, folder: _Any, sample: _Any, **options: _Any) -> Network:
    """Writes a PyTorch model as a model folder: help(convoy.exporting.export). Needs torch."""
    from .exporting import export as exported

    return exported(model, folder, sample, **options)


def to_nir(folder: _Any) -> _Any:
    """The nir.NIRGraph of a model folder: help(convoy.nir_format.to_nir). Needs NumPy and nir."""
    from .nir_format import to_nir as made

    return made(folder)


def from_nir(graph: _Any, folder: _Any, **options: _Any) -> Network:
    """Writes a nir.NIRGraph as a model folder: help(convoy.nir_reading.from_nir). Needs NumPy and nir."""
    from .nir_reading import from_nir as made

    return made(graph, folder, **options)


def __getattr__(name: str) -> _Any:
    """convoy.torch, which imports PyTorch, and convoy.ray, once they are asked for."""
    if name in ("torch", "ray"):
        return _import_module(f"convoy.{name}")
    raise AttributeError(f"module 'convoy' has no attribute '{name}'")


# Where a user finds them, and pickle.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "convoy"
del _name
