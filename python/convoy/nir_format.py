"""to_nir: model folders as NIR graphs (https://neuroir.org, the package `nir` 1.0.8).

Layers that NIR cannot describe are refused by name: pools (there is no max-pool), activations, soft resets, groups,
paddings that differ from side to side, u8 images with their mean and std, and branches. The number of time steps is not
part of a graph: to_nir leaves it out, and from_nir (nir_reading.py) takes it as an argument. NIR's neurons fire above
the threshold, Convoy's neurons at the threshold and above. Therefore to_nir writes the largest fp32 number below the
threshold, and from_nir reads the smallest one above it. No spike changes for membranes in fp32.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from . import model_folder
from ._core import Error, FileError, Network, NetworkLayer, NetworkText, Stage, Unsupported
from .layer_names import shown

# The keywords of the stages that a graph can hold. A stage with another one is refused.
_KNOWN = {"n", "h", "w", "c", "k", "r", "s", "stride", "pad", "dil", "bias", "act", "t", "hold", "strict"}
_WHY = {"pool": "a max-pool, for which NIR has no node", "relu": "ReLU, for which NIR has no node",
        "relu6": "ReLU6, for which NIR has no node", "clip": "a clip, for which NIR has no node",
        "leaky": "a leaky ReLU, for which NIR has no node", "soft": "a soft reset; NIR's neurons are set to v_reset",
        "pad": "a padding that differs from side to side", "from": "several inputs",
        "batchnorm": "a batch-norm, for which NIR has no node; write it folded"}  # fmt: skip


def refuse(where: str, found: str) -> Error:
    """Returns the Error for a layer or node that NIR or a model folder cannot hold."""
    return Error(f"{shown(where)}: {found}. NIR 1.0.8 and model folders have these in common: Conv2d and linear layers "
                 "with a bias, Flatten, and IF and LIF neurons with a hard reset to 0. Change the network to these, or "
                 "run it without converting it.")  # fmt: skip


def library() -> Any:
    """Returns the module nir. Raises Error if it is not installed."""
    try:
        import nir
    except ImportError as missing:
        raise Unsupported(f"nir: {missing}. Install it: pip install nir==1.0.8") from missing
    return nir


def _check(layer: NetworkLayer) -> None:
    """Raises Error if a graph cannot hold the layer."""
    stage = layer.stage
    top, left, bottom, right = stage.pad
    found = [name for name in Stage.keywords_of(stage) if name not in _KNOWN]
    found += [stage.act.kind] * (stage.act.kind not in ("none", "if", "lif"))
    found += ["pad"] * ((top, left) != (bottom, right)) + ["batchnorm"] * bool(layer.batchnorm)
    found += ["from"] * bool(layer.from_)
    if found:
        raise refuse(layer.name, _WHY.get(found[0], f"'{found[0]}' in {stage}, which to_nir cannot write"))


def to_nir(folder: str | os.PathLike) -> Any:
    """Returns the nir.NIRGraph of a model folder.

    nir.write(path, graph) writes the graph to a file. Its time constants tau are in time steps, which is the dt = 1
    that from_nir reads by default.

    Args:
        folder: The model folder, a path.

    Returns:
        The graph.

    Raises:
        Error: NIR cannot hold a layer (the message names the layer and the reason), the folder cannot be read, or the
            package `nir` is not installed.

    Example:
        >>> import convoy
        >>> convoy.to_nir(convoy.demo_model())
        Traceback (most recent call last):
        convoy.Error: conv1: a max-pool, for which NIR has no node...
    """
    nir = library()
    folder = Path(folder)
    Network(os.fspath(folder))  # its errors name the file and the line
    path = folder / "network.txt"
    text = NetworkText(path.read_bytes().decode("utf-8", "replace"), os.fspath(path))  # comments may be of any bytes
    for layer in text.layers:
        if not layer.flatten:
            _check(layer)
    if text.dtype != "f32" or text.mean or text.std:
        found = str(text).splitlines()[0].removeprefix("input ")
        raise refuse("input", f"{found}, expected f32 without mean and std, as in a graph")
    sizes = (text.c, text.h, text.w)  # of the next layer's input
    nodes: dict[str, Any] = {"input": nir.Input(np.array(sizes))}
    layers = {layer.name for layer in text.layers if not layer.flatten}

    def add(name: str, node: Any, layer: bool = False) -> None:
        """Adds a node under a unique name: layers may have names such as "output" or "a.neuron" too."""
        while name in nodes or (not layer and name in layers):
            name += "_"
        nodes[name] = node

    for layer in text.layers:
        if layer.flatten:
            add("flatten", nir.Flatten({"input": np.array(sizes)}, 0, -1))
            continue
        name, stage = layer.name, layer.stage
        shape = (stage.k, stage.c) if layer.linear else (stage.k, stage.c, stage.r, stage.s)
        try:
            weight = model_folder.read(folder, f"{name}.weight", shape)
            bias = np.zeros(stage.k, np.float32)
            if stage.bias:
                bias = model_folder.read(folder, f"{name}.bias", (stage.k,))
        except (OSError, ValueError) as error:  # Network has read the folder, so it has changed since
            raise FileError(f"{folder}: {error}. Another program may be writing to the folder: try again.") from error
        if layer.linear:
            add(name, nir.Affine(weight, bias), True)
            sizes = (stage.k,)
        else:
            add(name, nir.Conv2d((stage.h, stage.w), weight, stage.stride, stage.pad[:2], stage.dil, 1, bias), True)
            sizes = (stage.k, stage.out_h, stage.out_w)
        if stage.act:
            below = np.nextafter(np.float32(stage.act.threshold), np.float32(-np.inf))
            ones, zeros = np.ones(sizes, np.float32), np.zeros(sizes, np.float32)
            if stage.act.kind == "if":
                add(f"{name}.neuron", nir.IF(ones, ones * below, zeros))
            else:
                tau = ones * np.float32(stage.act.tau)
                add(f"{name}.neuron", nir.LIF(tau, ones, zeros, ones * below, zeros))
    add("output", nir.Output(np.array(sizes)))
    names = list(nodes)
    try:
        return nir.NIRGraph(nodes, list(zip(names, names[1:], strict=False)))
    except Exception as error:  # nir 1.0.8 uses a filter's height as its width too
        raise Unsupported(f"{folder}: nir does not take the graph ({error}). One cause is a filter with padding whose "
                          "height differs from its width. Run this network without converting "
                          "it.") from error  # fmt: skip
