"""from_nir: NIR graphs (https://neuroir.org, the package `nir` 1.0.8) as model folders.

NIR's neurons are differential equations, and Convoy computes one Euler step of length dt per time step. An IF neuron,
dv/dt = r i, adds dt r i to v. A LIF neuron, tau dv/dt = v_leak - v + r i, adds dt/tau (v_leak - v + r i). Neurons in
model folders add x, and (x - v)/tau. Therefore membranes and threshold are divided by the largest magnitude of dt r in
their layer (LIF: of r), in double, and the threshold is rounded to fp32 once. If r is one positive number, no weight
changes. If r differs between channels or is negative, weights and bias of the channel are multiplied by the ratio of
its r to the largest one and rounded to fp32 once, which is exact for a power of two. A dt r within 2^-23 of 1 counts as
1, because r = 1/dt may have been rounded to fp32.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from . import model_folder
from ._core import Error, FileError, FileNotFound, InvalidFile, Network, Stage
from .layer_names import layer_names, shown
from .nir_format import library, refuse
from .records import a_kind

_MOST_STEPS = 65536  # include/convoy/network.hpp


def _numbers(name: str, word: str, value: Any) -> Any:
    """Returns the value as an array of finite doubles."""
    try:
        if value is None:
            raise TypeError
        if hasattr(value, "detach"):  # a tensor of PyTorch
            value = value.detach().cpu().double().numpy()
        values = np.asarray(value, np.float64)
    except Exception:
        raise refuse(name, f"{word} is {a_kind(value)}, expected numbers") from None
    if not np.isfinite(values).all():
        raise refuse(name, f"{word} holds {values[~np.isfinite(values)].flat[0]}, expected finite numbers")
    return values


def _whole(name: str, word: str, value: Any, least: int, counts: tuple[int, ...]) -> list[int]:
    """Returns the value as whole numbers. Raises Error if one is too small or their number is not in `counts`."""
    values = _numbers(name, word, value).reshape(-1)
    if len(values) not in counts or (values != np.floor(values)).any() or (values < least).any():
        wanted = " or ".join(str(count) for count in counts)
        raise refuse(name, f"{word} is {values.tolist()}, expected {wanted} whole numbers from {least} on")
    return [int(v) for v in values]


def _pair(name: str, word: str, value: Any, least: int) -> tuple[int, int]:
    """Returns one or two whole numbers as a pair."""
    values = _whole(name, word, value, least, (1, 2))
    return values[0], values[-1]


def _float32(name: str, word: str, values: Any) -> Any:
    """Returns the values rounded to fp32. Raises Error if one is outside the range of fp32."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = np.array(values, np.float32, order="C")
    if not np.isfinite(rounded).all() or ((rounded == 0) & (values != 0)).any():
        raise refuse(name, f"{word} holds numbers outside the range of fp32 (the largest is {np.abs(values).max():g}), "
                           "expected numbers that fp32 can hold")  # fmt: skip
    return rounded


def _decimal(value: Any) -> str:
    """Returns the shortest decimal number that fp32 reads back as the value."""
    return np.format_float_positional(np.float32(value), trim="-")


@dataclass
class _Layer:
    """A layer of the model folder."""

    name: str  # the node's name
    stage: Stage
    weight: Any  # doubles
    bias: Any  # doubles, or None
    linear: bool

    @property
    def sizes(self) -> tuple[int, int, int]:
        """The sizes of the output: channels, height, width."""
        return self.stage.k, self.stage.out_h, self.stage.out_w


class _Neuron:
    """A node's arrays as numbers, one per channel of the layer before it."""

    def __init__(self, name: str, node: Any, layer: _Layer, dt: float) -> None:
        self.name, self.node, self.layer, self.dt = name, node, layer, dt

    def channels(self, word: str) -> Any:
        """Returns one number per channel. Raises Error if numbers differ within a channel."""
        values = _numbers(self.name, word, getattr(self.node, word, None))
        k, h, w = self.layer.sizes
        if values.size == 1:
            return np.full(k, values.reshape(-1)[0])
        if values.size not in (k, k * h * w) or values.shape[0] not in (k, values.size):
            raise refuse(self.name, f"{word} has the shape {list(values.shape)}, expected one number, [{k}], or "
                                    f"[{k}, {h}, {w}], the output's shape of {shown(self.layer.name)}")  # fmt: skip
        values = values.reshape(k, -1)
        if (values != values[:, :1]).any():
            channel = int((values != values[:, :1]).any(1).argmax())
            raise refuse(self.name, f"{word} is from {values[channel].min():g} to {values[channel].max():g} in channel "
                                    f"{channel}, expected one number per channel")  # fmt: skip
        return values[:, 0]

    def only(self, word: str) -> float:
        """Returns the number that all neurons have. Raises Error if they differ."""
        values = self.channels(word)
        if (values != values[0]).any():
            raise refuse(self.name, f"{word} differs from neuron to neuron, {values.min():g} to {values.max():g}, "
                                    "expected one number")  # fmt: skip
        return float(values[0])

    def zero(self, word: str) -> None:
        """Raises Error if the number is not 0."""
        if (value := self.only(word)) != 0:
            raise refuse(self.name, f"{word} is {value:g}, expected 0")

    def ride(self, leaky: bool) -> None:
        """Appends the neuron to the layer, and multiplies the layer's weights if that is necessary."""
        scale = self.channels("r")
        threshold, tau = self.only("v_threshold"), 1.0
        self.zero("v_reset")
        if leaky:
            self.zero("v_leak")
            tau = self.only("tau") / self.dt
            if not 1 <= np.float32(tau) < np.inf:
                raise refuse(self.name, f"tau {self.only('tau'):g} is {tau:g} steps of dt={self.dt:g}, expected at "
                                        "least one step")  # fmt: skip
        else:
            scale = scale * self.dt
        scale = np.where(np.abs(scale - 1) <= 2.0**-23, 1.0, scale)
        largest = float(np.abs(scale).max()) or 1.0
        ratios = scale / largest
        if (ratios != 1).any():
            layer = self.layer
            layer.weight = layer.weight * ratios.reshape([-1] + [1] * (layer.weight.ndim - 1))
            layer.bias = layer.bias * ratios if layer.bias is not None else None
        below = _float32(self.name, f"v_threshold divided by {'r' if leaky else 'dt r'}", np.array(threshold / largest))
        above = np.nextafter(below[()], np.float32(np.inf))
        act = f"lif({_decimal(tau)},{_decimal(above)})" if leaky else f"if({_decimal(above)})"
        self.layer.stage = self.layer.stage.replace(act=act)


class _Row:
    """The layers that a graph's nodes become, in order."""

    def __init__(self, nir: Any, at: str, node: Any, dt: float) -> None:
        self._nir, self._dt = nir, dt
        try:
            sizes = _whole(at, "shape", node.input_type["input"], 1, (1, 3))
        except (AttributeError, KeyError, TypeError):
            raise refuse(at, "it has no shape, expected [C, H, W] or [C]") from None
        self.image = sizes if len(sizes) == 3 else [*sizes, 1, 1]
        self.sizes = tuple(self.image)  # of the next node's input: channels, height, width
        self.vector = len(sizes) == 1
        self.flattened = ""  # the Flatten that no layer follows yet
        self.layers: list[_Layer] = []

    def add(self, name: str, node: Any) -> None:
        """Adds a node. Raises Error if a model folder cannot hold it."""
        nir = self._nir
        if isinstance(node, nir.Flatten):
            self._flatten(name, node)
        elif isinstance(node, (nir.Affine, nir.Linear)):
            self._linear(name, node)
        elif isinstance(node, nir.Conv2d):
            self._conv(name, node)
        elif isinstance(node, (nir.IF, nir.LIF)):
            if not self.layers:
                raise refuse(name, f"{a_kind(node)} without a layer before it, expected a layer before each neuron")
            if self.layers[-1].stage.act:
                raise refuse(name, f"{a_kind(node)} after another neuron, expected a layer before each neuron")
            _Neuron(name, node, self.layers[-1], self._dt).ride(isinstance(node, nir.LIF))
        else:
            raise refuse(name, a_kind(node))

    def end(self, name: str) -> None:
        """Ends the graph at the Output of this name. Raises Error if the layers do not make a network."""
        if not self.layers:
            raise refuse("graph", "no layer between the Input and the Output, expected at least one")
        c, h, w = self.sizes
        if self.flattened and c > 1 and h * w > 1:
            raise refuse(self.flattened, f"no layer after it, so the values of {shown(name)} have the order C, H, W, "
                                         "expected the order of a network's outputs, H, W, C")  # fmt: skip

    def _flatten(self, name: str, node: Any) -> None:
        """Adds a Flatten."""
        start, end = (_whole(name, word, getattr(node, word, None), -3, (1,))[0] for word in ("start_dim", "end_dim"))
        # If start_dim is 1, the writer counts the batch as axis 0. Only a layer of all values can follow.
        if not self.vector and (start not in (-3, 0, 1) or end not in (-1, 2)):
            raise refuse(name, f"start_dim {start}, end_dim {end} of an input [C, H, W], expected 0 and -1")
        if not self.vector:
            self.vector, self.flattened = True, name

    def _bias(self, name: str, node: Any, k: int) -> Any:
        """Returns the node's bias [K] in double, or None."""
        if (bias := getattr(node, "bias", None)) is None:
            return None
        values = _numbers(name, "bias", bias)
        if values.size != k:
            raise refuse(name, f"bias has the shape {list(values.shape)}, expected [{k}]")
        return values.reshape(k)

    def _linear(self, name: str, node: Any) -> None:
        """Adds a linear layer."""
        weight, inputs = _numbers(name, "weight", node.weight), int(np.prod(self.sizes))
        if weight.ndim != 2 or weight.shape[1] != inputs or not len(weight):
            raise refuse(name, f"weight has the shape {list(weight.shape)}, expected [K, {inputs}]: its input is "
                               f"{list(self.sizes)}")  # fmt: skip
        bias = self._bias(name, node, len(weight))
        stage = Stage(h=1, c=inputs, k=len(weight), r=1, bias=bias is not None)
        self.layers.append(_Layer(name, stage, weight, bias, True))
        self.sizes, self.vector, self.flattened = self.layers[-1].sizes, True, ""

    def _conv(self, name: str, node: Any) -> None:
        """Adds a convolution."""
        c, h, w = self.sizes
        if self.vector:
            raise refuse(name, f"a Conv2d whose input is a vector of {c * h * w} values, expected an input [C, H, W]")
        weight = _numbers(name, "weight", node.weight)
        (groups,) = _whole(name, "groups", node.groups, 1, (1,))
        if weight.ndim != 4 or weight.shape[1] * groups != c or not weight.size:
            raise refuse(name, f"weight has the shape {list(weight.shape)}, expected [K, {c}/{groups}, R, S]: its "
                               f"input is {list(self.sizes)}, its groups {groups}")  # fmt: skip
        if node.input_shape is not None and _pair(name, "input_shape", node.input_shape, 1) != (h, w):
            raise refuse(name, f"input_shape is {np.asarray(node.input_shape).tolist()}, expected {[h, w]}, the "
                               "output's size of the layer before it")  # fmt: skip
        k, _, r, s = weight.shape
        stride, dil = _pair(name, "stride", node.stride, 1), _pair(name, "dilation", node.dilation, 1)
        pad, bias = self._padding(name, node, (r, s), stride, dil), self._bias(name, node, k)
        try:
            stage = Stage(h=h, w=w, c=c, k=k, r=r, s=s, stride=stride, pad=pad, dil=dil, groups=groups,
                          bias=bias is not None)  # fmt: skip
        except Error as error:
            raise refuse(name, str(error).rstrip(".")) from None
        self.layers.append(_Layer(name, stage, weight, bias, False))
        self.sizes = self.layers[-1].sizes

    def _padding(self, name: str, node: Any, filters: Any, stride: Any, dil: Any) -> tuple[int, ...]:
        """Returns the padding (height, width) or (top, left, bottom, right)."""
        padding = node.padding.decode() if isinstance(node.padding, bytes) else node.padding
        if not isinstance(padding, str):
            return _pair(name, "padding", padding, 0)
        if padding == "valid":
            return 0, 0
        if padding != "same":
            raise refuse(name, f"padding '{padding}', expected numbers, 'same' or 'valid'")
        if stride != (1, 1):
            raise refuse(name, f"padding 'same' with stride {list(stride)}, expected stride 1, as in PyTorch")
        both = [d * (size - 1) for d, size in zip(dil, filters, strict=True)]
        before = [size // 2 for size in both]  # an odd pixel is added at the end, as in PyTorch
        return *before, both[0] - before[0], both[1] - before[1]

    def text(self, steps: int) -> tuple[str, dict[str, Any]]:
        """Returns network.txt and its parameters."""
        c, h, w = self.image
        lines, parameters = [f"input f32:h{h}w{w}c{c}", f"steps {steps}"], {}
        names = layer_names(layer.name for layer in self.layers)
        for layer in self.layers:
            if layer.linear and "flatten" not in lines:
                lines.append("flatten")
            name = names[layer.name]
            lines.append(f"{name} {layer.stage.layer_text(layer.linear)}")
            parameters[f"{name}.weight"] = _float32(layer.name, "weight", layer.weight)
            if layer.bias is not None:
                parameters[f"{name}.bias"] = _float32(layer.name, "bias", layer.bias)
        return "\n".join(lines) + "\n", parameters


def _graph(nir: Any, graph: Any) -> Any:
    """Returns the NIRGraph, after reading it if `graph` is a path."""
    if isinstance(graph, (str, os.PathLike)):
        path = os.fspath(graph)
        if not os.path.exists(path):
            raise FileNotFound(f"{path}: no such file, expected a file that nir.write made. Check its name.")
        try:
            # nir's own checks are left out: they assume square filters, and the checks here say more.
            graph = nir.read(path, type_check=False)
        except Exception as error:  # errors of h5py, and any error of nir that another file causes
            raise InvalidFile(f"{path}: {type(error).__name__}: {error}. Expected a graph of nir 1.0.8 that nir.write "
                              "made. Check the file's name.") from error  # fmt: skip
    if not isinstance(graph, nir.NIRGraph):
        raise Error(f"graph: {a_kind(graph)}, expected a nir.NIRGraph or the path of its file.")
    return graph


def _row(nir: Any, graph: Any) -> list[str]:
    """Returns the names of the nodes from the Input to the Output, in order."""
    follow: dict[str, list[str]] = {name: [] for name in graph.nodes}
    before: dict[str, int] = dict.fromkeys(graph.nodes, 0)
    for edge in graph.edges:
        try:
            source, target = edge
            follow[source].append(target)
            before[target] += 1
        except (KeyError, TypeError, ValueError):
            raise refuse("graph", f"the edge {edge!r}, expected the names of two of its nodes") from None
    inputs = [name for name, node in graph.nodes.items() if isinstance(node, nir.Input)]
    if len(inputs) != 1:
        raise refuse("graph", f"{len(inputs)} Input nodes, expected one")
    row = [inputs[0]]
    while not isinstance(graph.nodes[row[-1]], nir.Output):
        nexts = follow[row[-1]]
        if len(nexts) != 1 or nexts[0] in row:
            raise refuse(row[-1], f"{len(nexts)} nodes after it or a loop, expected a chain of nodes up to an Output")
        if before[nexts[0]] != 1:
            raise refuse(nexts[0], f"{before[nexts[0]]} nodes before it, expected one")
        row.append(nexts[0])
    if left := [name for name in graph.nodes if name not in row]:
        raise refuse(left[0], "it is not between the Input and the Output, expected one chain of all nodes")
    return row


def from_nir(graph: Any, folder: str | os.PathLike, *, steps: int, dt: float = 1.0,
             form: str = "safetensors") -> Network:  # fmt: skip
    """Writes a nir.NIRGraph as a model folder and returns it as a Network, read back from the folder.

    Each time step is one Euler step of length dt: an IF neuron adds dt r x to its membrane v, a LIF neuron
    dt/tau (r x - v). If dt r (LIF: r) is one positive number other than 1, the threshold is divided by it and rounded
    to fp32. If it differs between channels, their weights are multiplied, which is exact for powers of two. Names of
    nodes that network.txt cannot hold are changed, as convoy.layer_names.layer_names describes.

    Args:
        graph: A nir.NIRGraph, or the path of a file that nir.write made.
        folder: The folder to write, a path.
        steps: The number of time steps, 1 to 65536. Each step has the same input.
        dt: The length of a time step in the unit of tau. SpikingJelly and snnTorch write graphs for 1e-4.
        form: "safetensors": one file for all parameters. "text": one text file per parameter.

    Returns:
        The `Network`.

    Raises:
        Error: A model folder cannot hold a node (the message names the node and the reason), an argument is wrong, or
            the package `nir` is not installed.
    """
    nir = library()
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or not 1 <= steps <= _MOST_STEPS:
        raise Error(f"steps: {steps!r}, expected a whole number of time steps, 1 to {_MOST_STEPS}.")
    if isinstance(dt, bool) or not isinstance(dt, (int, float, np.number)) or not 0 < dt < np.inf:
        raise Error(f"dt: {dt!r}, expected a finite number above 0, the length of a step in the unit of tau.")
    if form not in ("safetensors", "text"):
        raise Error(f"form: {form!r}, expected 'safetensors' or 'text'.")
    graph = _graph(nir, graph)
    first, *nodes, last = _row(nir, graph)
    row = _Row(nir, first, graph.nodes[first], float(dt))
    for name in nodes:
        row.add(name, graph.nodes[name])
    row.end(last)
    text, arrays = row.text(int(steps))
    Network.from_text(text, arrays)  # raises Error before anything is written
    try:
        model_folder.write(folder, text, arrays, form)
    except OSError as error:
        raise FileError(f"{error.filename}: {error.strerror}. Name a folder that this user may write to.") from error
    return Network(os.fspath(folder))
