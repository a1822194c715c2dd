"""Model folders to and from NIR (https://neuroir.org, the package `nir` 1.0.8), as far as it can carry them.

What NIR has no word for is refused by name: pools (there is no max-pool), activations, soft resets, groups, paddings
that differ from side to side, u8 images and their mean and std, branches. Steps are not part of a graph: to_nir leaves
them out, from_nir is told. NIR's neurons fire above the threshold, Convoy's from it on: the threshold written is the
largest fp32 number below, and the one read the smallest above, which is the same for every membrane in fp32.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np

from . import model_folder
from ._core import Error, Network, Stage
from .records import a_kind
from .stage_text import parts

_NEURON = re.compile(r"(if|lif)\(([^)]*)\)")


_NO_WORD = {"+max": "a max-pool, for which NIR has no node", "+relu": "ReLU, for which NIR has no node",
            "+clip": "a clip, for which NIR has no node", "+leaky": "a leaky ReLU, for which NIR has no node",
            "+soft": "a soft reset; NIR's neurons are set to v_reset",
            "batchnorm(": "a batch-norm, for which NIR has no node; write it folded",
            "from(": "several inputs"}  # fmt: skip


def _refuse(where: str, found: str) -> Error:
    return Error(f"{where}: {found}. NIR 1.0.8 and a model folder share Conv2d and linear layers with a bias, Flatten, "
                 "and IF and LIF neurons with a hard reset to 0; run this one as it is.")  # fmt: skip


def _library() -> Any:
    try:
        import nir
    except ImportError as missing:
        raise Error(f"nir: {missing}. Install it: pip install nir==1.0.8") from missing
    return nir


def to_nir(folder: str | os.PathLike) -> Any:
    """The nir.NIRGraph of a model folder; nir.write(path, graph) makes a file of it.

    Raises Error that names the layer which NIR can't hold, and why.

    >>> import convoy
    >>> convoy.to_nir(convoy.demo_model())
    Traceback (most recent call last):
    convoy.Error: conv1: a max-pool, for which NIR has no node...
    """
    nir = _library()
    folder = Path(folder)
    network = Network(os.fspath(folder))  # its errors name the file and the line
    lines = [line.split("#")[0].split() for line in (folder / "network.txt").read_text("utf-8-sig").splitlines()]
    lines = [words for words in lines if words]
    for name, *words in lines[1:]:
        for said, why in _NO_WORD.items():
            if any(said in word for word in words):
                raise _refuse(name, why)
    if network.dtype != "f32" or len(lines[0]) > 2:
        raise _refuse("input", f"{' '.join(lines[0][1:])}; a graph's values are float32, without mean and std")
    h, w, c = network.image_shape
    nodes: dict[str, Any] = {"input": nir.Input(np.array([c, h, w]))}
    flat = 0
    for name, *words in lines[1:]:
        if name == "steps":
            continue
        if name == "flatten":
            nodes["flatten"] = nir.Flatten({"input": np.array([c, h, w])}, 0, -1)
            flat = c * h * w
            continue
        text = f"n1h1w1c{flat}{words[0].replace('+', 'r1+', 1) if '+' in words[0] else words[0] + 'r1'}"
        stage = Stage(text if flat else f"n1h{h}w{w}c{c}{words[0]}")
        shape = (stage.k, flat) if flat else (stage.k, stage.c // stage.groups, stage.r, stage.s)
        weight = model_folder.read(folder, f"{name}.weight", shape)
        bias = model_folder.read(folder, f"{name}.bias", (stage.k,)) if stage.bias else np.zeros(stage.k, np.float32)
        if flat:
            nodes[name] = nir.Affine(weight, bias)
        else:
            top, left, bottom, right = stage.pad
            if stage.groups != 1 or (top, left) != (bottom, right):
                raise _refuse(name, f"{stage}: groups, or a padding that differs from side to side")
            nodes[name] = nir.Conv2d((h, w), weight, tuple(stage.stride), (top, left), tuple(stage.dil), 1, bias)
        h, w = (1, 1) if flat else stage.y_shape[-3:-1]
        c, flat = stage.k, stage.k * bool(flat)
        if found := next((m for rider in parts(str(stage))[1] if (m := _NEURON.fullmatch(rider))), None):
            numbers = [float(number) for number in found[2].split(",")]
            sizes = (c,) if flat else (c, h, w)
            below = np.nextafter(np.float32(numbers[-1]), np.float32(-np.inf))
            ones, zeros = np.ones(sizes, np.float32), np.zeros(sizes, np.float32)
            if found[1] == "if":
                nodes[f"{name}.neuron"] = nir.IF(ones, ones * below, zeros)
            else:
                nodes[f"{name}.neuron"] = nir.LIF(ones * np.float32(numbers[0]), ones, zeros, ones * below, zeros)
    nodes["output"] = nir.Output(np.array([c] if flat else [c, h, w]))
    names = list(nodes)
    return nir.NIRGraph(nodes, list(zip(names, names[1:], strict=False)))


def _only(name: str, word: str, values: Any) -> float:
    """The one number that an array holds everywhere."""
    values = np.asarray(values, np.float32)
    if values.size == 0 or not (values == values.flat[0]).all():
        raise _refuse(name, f"{word} differs from neuron to neuron")
    return float(values.flat[0])


def _decimal(value: float) -> str:
    return np.format_float_positional(np.float32(value), trim="-")


def _rider(nir: Any, name: str, node: Any, dt: float) -> str:
    if _only(name, "r", node.r) != 1 or _only(name, "v_reset", node.v_reset) != 0:
        raise _refuse(name, "r other than 1, or v_reset other than 0")
    above = np.nextafter(np.float32(_only(name, "v_threshold", node.v_threshold)), np.float32(np.inf))
    if isinstance(node, nir.IF):
        return f"if({_decimal(above)})"
    if _only(name, "v_leak", node.v_leak) != 0:
        raise _refuse(name, "v_leak other than 0")
    return f"lif({_decimal(_only(name, 'tau', node.tau) / dt)},{_decimal(above)})"


def _pair(value: Any) -> tuple[int, int]:
    values = [int(v) for v in np.atleast_1d(value)]
    return values[0], values[-1]


def from_nir(graph: Any, folder: str | os.PathLike, *, steps: int, dt: float = 1.0,
             form: str = "safetensors") -> Network:  # fmt: skip
    """Writes a nir.NIRGraph, or the file of one, as a model folder; returns the Network read back.

    steps: time steps, with the same input in each. dt: a step's length in the unit of LIF's tau; a step is Euler's,
    v += dt/tau (x - v). Raises Error that names the node which a model folder can't hold, and why.
    """
    nir = _library()
    graph = nir.read(os.fspath(graph)) if isinstance(graph, (str, os.PathLike)) else graph
    follow: dict[str, list[str]] = {}
    for source, target in graph.edges:
        follow.setdefault(source, []).append(target)
    at = next((name for name, node in graph.nodes.items() if isinstance(node, nir.Input)), None)
    if at is None:
        raise _refuse("graph", "no Input node")
    sizes = [int(size) for size in np.atleast_1d(graph.nodes[at].input_type["input"])]
    if len(sizes) not in (1, 3):
        raise _refuse(at, f"an input of {sizes}, expected [C, H, W] or [C]")
    c, h, w = sizes if len(sizes) == 3 else (sizes[0], 1, 1)
    lines, parameters, seen = [f"input f32:h{h}w{w}c{c}", f"steps {steps}"], {}, {at}
    while True:
        nexts = follow.get(at, [])
        if len(nexts) != 1 or nexts[0] in seen:
            raise _refuse(at, f"{len(nexts)} nodes behind it, or a loop; expected a row of nodes to an Output")
        at = nexts[0]
        seen.add(at)
        node = graph.nodes[at]
        name = at.replace("/", ".")
        if isinstance(node, nir.Output):
            break
        if isinstance(node, nir.Flatten):
            lines += ["flatten"] * ("flatten" not in lines)
        elif isinstance(node, (nir.Affine, nir.Linear)):
            lines += ["flatten"] * ("flatten" not in lines)
            bias = getattr(node, "bias", None)
            lines.append(f"{name} k{node.weight.shape[0]}" + "+bias" * (bias is not None))
            parameters[f"{name}.weight"] = node.weight
            if bias is not None:
                parameters[f"{name}.bias"] = bias
        elif isinstance(node, nir.Conv2d):
            if isinstance(node.padding, str) and node.padding != "valid":
                raise _refuse(at, f"padding '{node.padding}', expected numbers")
            pad, stride, dil = (_pair(v) for v in (0 if isinstance(node.padding, str) else node.padding, node.stride,
                                                  node.dilation))  # fmt: skip
            k, _, r, s = node.weight.shape
            lines.append(f"{name} k{k}r{r}s{s}stride{stride[0]}x{stride[1]}pad{pad[0]}x{pad[1]}dil{dil[0]}x{dil[1]}"
                         f"groups{node.groups}+bias")  # fmt: skip
            parameters |= {f"{name}.weight": node.weight, f"{name}.bias": node.bias}
        elif isinstance(node, (nir.IF, nir.LIF)) and "+if" not in lines[-1] and "+lif" not in lines[-1] and parameters:
            lines[-1] += "+" + _rider(nir, at, node, dt)
        else:
            raise _refuse(at, f"{a_kind(node)}" + " behind no layer" * isinstance(node, (nir.IF, nir.LIF)))
    text = "\n".join(lines) + "\n"
    arrays = {name: np.ascontiguousarray(value, np.float32) for name, value in parameters.items()}
    Network.from_text(text, arrays)  # before anything is written
    try:
        model_folder.write(folder, text, arrays, form)
    except OSError as error:
        raise Error(f"{error.filename}: {error.strerror}. Name a folder that this user may write to.") from error
    return Network(os.fspath(folder))
