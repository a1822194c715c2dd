"""Convoy runs a convolution and the parts that follow it as one kernel: y = pool(act(conv(x, w) + bias)).

A `Stage` describes a computation. A `Plan` binds a stage to a device and a kernel; you call it with arrays of NumPy,
PyTorch, JAX, CuPy and other libraries. A `Network` runs the layers of a model folder on images; a `GraphBuilder` builds
one operator by operator. docs/use/arrays.md describes the arrays that a plan takes.

Example:
    >>> import numpy as np
    >>> plan = convoy.Plan("n1h4c1k1r1+relu+max2", np.full((1, 1, 1, 1), 2, np.float32))
    >>> plan(np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)).ravel().tolist()
    [10.0, 14.0, 26.0, 30.0]
"""

from importlib import import_module as _import_module
from typing import Any as _Any

from ._core import (
    Activation,
    Busy,
    DeviceError,
    Error,
    FileError,
    FileNotFound,
    GraphBuilder,
    InternalError,
    InvalidFile,
    InvalidOperand,
    Keep,
    LayerReport,
    MovedFrom,
    Network,
    NetworkLayer,
    NetworkText,
    NoDevice,
    NoWeights,
    NoWorkspace,
    OutOfMemory,
    Plan,
    Pool,
    Port,
    Stage,
    Tensor,
    Unsupported,
    Weights,
    __version__,
)
from .program import bench, demo_model, devices, verify
from .records import Outputs, Text
from .tuning import tune

__all__ = [
    "Activation",
    "Busy",
    "DeviceError",
    "Error",
    "FileError",
    "FileNotFound",
    "GraphBuilder",
    "InternalError",
    "InvalidFile",
    "InvalidOperand",
    "Keep",
    "LayerReport",
    "MovedFrom",
    "Network",
    "NetworkLayer",
    "NetworkText",
    "NoDevice",
    "NoWeights",
    "NoWorkspace",
    "OutOfMemory",
    "Outputs",
    "Plan",
    "Pool",
    "Port",
    "Stage",
    "Tensor",
    "Text",
    "Unsupported",
    "Weights",
    "__version__",
    "bench",
    "demo_model",
    "devices",
    "export",
    "from_nir",
    "fuse",
    "to_nir",
    "tune",
    "verify",
]


def fuse(model: _Any, sample: _Any, **options: _Any) -> _Any:
    """Returns a PyTorch model whose convolutions run as stages, together with the layers that follow them.

    The function is convoy.fusing.fuse, whose help says more. It needs PyTorch.

    Args:
        model: A torch.nn.Module in eval mode.
        sample: An input of a typical size: a tensor, or a tuple of the model's arguments.
        **options: linear=True: fuse Linear layers too. tolerance=None: the largest difference allowed on the sample,
            as a part of the largest value; None: depends on the type. show=True: print the report. frozen=False:
            with True, pack the weights once and do not look for changes.

    Returns:
        A module that shares the parameters and the state_dict of `model`. Its attribute `report` has the table.

    Raises:
        Error: The model cannot be traced, it keeps something between calls, or its results differ on the sample.
        ImportError: PyTorch is not installed.
    """
    from .fusing import fuse as fused

    return fused(model, sample, **options)


def export(model: _Any, folder: _Any, sample: _Any, **options: _Any) -> Network:
    """Writes a PyTorch model as a model folder and returns it as a `Network`.

    The function is convoy.exporting.export, whose help says more. It needs PyTorch and NumPy.

    Args:
        model: A torch.nn.Module in eval mode: a sequence of layers without branches.
        folder: The folder to write, a path.
        sample: A tensor of images [N, C, H, W] or [N, C], f32.
        **options: form="safetensors": write one file of parameters; "text": one text file per parameter.
            pixels=False: with True, the network reads u8 images. mean, std: with pixels=True, the normalisation of
            pixels / 255.

    Returns:
        The `Network`, read back from the folder.

    Raises:
        Error: The model has a layer that a model folder cannot hold, or the network's results differ.
        ImportError: PyTorch or NumPy is not installed.
    """
    from .exporting import export as exported

    return exported(model, folder, sample, **options)


def to_nir(folder: _Any) -> _Any:
    """Returns the nir.NIRGraph of a model folder.

    The function is convoy.nir_format.to_nir, whose help says more. It needs NumPy and the package `nir`.

    Args:
        folder: The model folder, a path.

    Returns:
        The graph, for time steps of dt = 1. nir.write(path, graph) writes it to a file.

    Raises:
        Error: The folder has a layer that NIR cannot hold, or the package `nir` is not installed.
    """
    from .nir_format import to_nir as made

    return made(folder)


def from_nir(graph: _Any, folder: _Any, **options: _Any) -> Network:
    """Writes a nir.NIRGraph as a model folder and returns it as a `Network`.

    The function is convoy.nir_reading.from_nir, whose help says more. It needs NumPy and the package `nir`.

    Args:
        graph: A nir.NIRGraph, or the path of its file.
        folder: The folder to write, a path.
        **options: steps (required): the number of time steps. dt=1.0: the length of a step in the unit of tau.
            form="safetensors": write one file of parameters; "text": one text file per parameter.

    Returns:
        The `Network`, read back from the folder.

    Raises:
        Error: The graph has a node that a model folder cannot hold, or the package `nir` is not installed.
    """
    from .nir_reading import from_nir as made

    return made(graph, folder, **options)


def __getattr__(name: str) -> _Any:
    """Imports convoy.torch, which needs PyTorch, and convoy.ray at their first use."""
    if name in ("torch", "ray"):
        return _import_module(f"convoy.{name}")
    raise AttributeError(f"module 'convoy' has no attribute '{name}'")


# Where a user finds them, and pickle.
for _name in __all__:
    if isinstance(globals()[_name], type):
        globals()[_name].__module__ = "convoy"
del _name
