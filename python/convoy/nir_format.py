"""to_nir: model folders as NIR graphs (https://neuroir.org, the package `nir` 1.0.8).

Layers that NIR cannot describe are refused by name: pools (there is no max-pool), activations, soft resets, groups,
paddings that differ from side to side, u8 images with their mean and std, and branches. The number of time steps is not
part of a graph: to_nir leaves it out, and from_nir (nir_reading.py) takes it as an argument. NIR's neurons fire above
the threshold, Convoy's neurons at the threshold and above. Therefore to_nir writes the largest fp32 number below the
threshold, and from_nir reads the smallest one above it. No spike changes for membranes in fp32.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from . import model_folder
from ._core import Error, FileError, Network, Stage, Unsupported
from .layer_names import shown
from .stage_text import parts

_NEURON = re.compile(r"(if|lif)\(([^)]*)\)")


_NO_WORD = {"+max": "a max-pool, for which NIR has no node", "+relu": "ReLU, for which NIR has no node",
            "+clip": "a clip, for which NIR has no node", "+leaky": "a leaky ReLU, for which NIR has no node",
            "+soft": "a soft reset; NIR's neurons are set to v_reset",
            "batchnorm(": "a batch-norm, for which NIR has no node; write it folded",
            "from(": "several inputs"}  # fmt: skip


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
    network = Network(os.fspath(folder))  # its errors name the file and the line
    # Lines are split at the blanks and line ends that Network knows, because a name may contain other ones.
    lines = [re.findall(r"[^ \t\r]+", line.split("#")[0])
             for line in (folder / "network.txt").read_bytes().decode("utf-8-sig").split("\n")]  # fmt: skip
    lines = [words for words in lines if words]
    for name, *words in lines[1:]:
        for said, why in _NO_WORD.items():
            if any(said in word for word in words):
                raise refuse(name, why)
    if network.dtype != "f32" or len(lines[0]) > 2:
        raise refuse("input", f"{' '.join(lines[0][1:])}, expected f32 without mean and std, as in a graph")
    h, w, c = network.image_shape
    nodes: dict[str, Any] = {"input": nir.Input(np.array([c, h, w]))}
    layers = {name for name, *_ in lines[1:]} - {"steps", "flatten"}

    def add(name: str, node: Any, layer: bool = False) -> None:
        """Adds a node under a unique name: layers may have names such as "output" or "a.neuron" too."""
        while name in nodes or (not layer and name in layers):
            name += "_"
        nodes[name] = node

    flat = 0
    for name, *words in lines[1:]:
        if name == "steps":
            continue
        if name == "flatten":
            add("flatten", nir.Flatten({"input": np.array([c, h, w])}, 0, -1))
            flat = c * h * w
            continue
        text = f"n1h1w1c{flat}{words[0].replace('+', 'r1+', 1) if '+' in words[0] else words[0] + 'r1'}"
        stage = Stage(text if flat else f"n1h{h}w{w}c{c}{words[0]}")
        shape = (stage.k, flat) if flat else (stage.k, stage.c // stage.groups, stage.r, stage.s)
        try:
            weight = model_folder.read(folder, f"{name}.weight", shape)
            bias = np.zeros(stage.k, np.float32)
            if stage.bias:
                bias = model_folder.read(folder, f"{name}.bias", (stage.k,))
        except (OSError, ValueError) as error:  # Network has read the folder, so it has changed since
            raise FileError(f"{folder}: {error}. Another program may be writing to the folder: try again.") from error
        if flat:
            add(name, nir.Affine(weight, bias), True)
        else:
            top, left, bottom, right = stage.pad
            if stage.groups != 1 or (top, left) != (bottom, right):
                raise refuse(name, f"{stage}: groups, or a padding that differs from side to side")
            add(name, nir.Conv2d((h, w), weight, tuple(stage.stride), (top, left), tuple(stage.dil), 1, bias), True)
        h, w = (1, 1) if flat else stage.y_shape[-3:-1]
        c, flat = stage.k, stage.k * bool(flat)
        if found := next((m for rider in parts(str(stage))[1] if (m := _NEURON.fullmatch(rider))), None):
            numbers = [float(number) for number in found[2].split(",")]
            sizes = (c,) if flat else (c, h, w)
            below = np.nextafter(np.float32(numbers[-1]), np.float32(-np.inf))
            ones, zeros = np.ones(sizes, np.float32), np.zeros(sizes, np.float32)
            if found[1] == "if":
                add(f"{name}.neuron", nir.IF(ones, ones * below, zeros))
            else:
                add(f"{name}.neuron", nir.LIF(ones * np.float32(numbers[0]), ones, zeros, ones * below, zeros))
    add("output", nir.Output(np.array([c] if flat else [c, h, w])))
    names = list(nodes)
    try:
        return nir.NIRGraph(nodes, list(zip(names, names[1:], strict=False)))
    except Exception as error:  # nir 1.0.8 uses a filter's height as its width too
        raise Unsupported(f"{folder}: nir does not take the graph ({error}). One cause is a filter with padding whose "
                          "height differs from its width. Run this network without converting "
                          "it.") from error  # fmt: skip
