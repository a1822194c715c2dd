"""Reads network.txt for training: u8 images, convolutions, then linear layers, IF or LIF neurons, 2x2 max-pools.

This is a part of the grammar in docs/use/model-folders.md. A line with other parts of the grammar is refused.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from . import grammar
from .idx import DataError

EXPECTED = "Expected k<K>[r<R>][pad<P>]+bias[+if(th) | +lif(tau,th)][+soft][+max2]"
POOL = grammar.parts("+max2")["pool"]


@dataclass(frozen=True)
class Neuron:
    """The neuron of a layer."""

    leaky: bool
    tau: float
    threshold: float
    soft: bool = False


@dataclass(frozen=True)
class Layer:
    """A convolution or linear layer."""

    name: str
    weight: tuple  # shape: (K, C, R, S), or (K, C) after "flatten"
    pad: int
    neuron: Neuron | None
    pool: bool
    out: tuple  # height and width after the pool

    @property
    def is_linear(self):
        """Whether this is a linear layer."""
        return len(self.weight) == 2


@dataclass(frozen=True)
class Network:
    """A network without its parameters."""

    image: tuple  # height, width, channels
    mean: tuple
    std: tuple
    steps: int
    layers: tuple
    text: str

    @property
    def shapes(self):
        """The shapes of the parameters: {'conv1.weight': (8, 1, 5, 5), 'conv1.bias': (8,), ...}."""
        return {
            layer.name + leaf: shape
            for layer in self.layers
            for leaf, shape in ((".weight", layer.weight), (".bias", layer.weight[:1]))
        }

    @property
    def convolutions(self):
        """The convolutions."""
        return [layer for layer in self.layers if not layer.is_linear]

    @property
    def linear(self):
        """The linear layers."""
        return [layer for layer in self.layers if layer.is_linear]


def others(parts, *known):
    """Returns the names of a stage's parts beside the known ones."""
    return [key for key, value in parts.items() if key not in known and value != grammar.DEFAULTS.get(key)]


def layer_of(name, text, parts, size, flat):
    """Returns the layer of a line, and the size of its output. size: that of its input. flat: after "flatten"."""
    h, w, c = size
    r, (pad, *pads), pool = parts.get("r", 1), parts["pad"], parts["pool"]
    kind, numbers = parts["act"] or ("", ())
    wrong = others(parts, "k", "r", "s", "pad", "bias", "act", "soft", "pool") or "k" not in parts or not parts["bias"]
    wrong = wrong or parts.get("s", r) != r or pads != [pad] * 3 or pool not in (None, POOL)
    if wrong or kind not in ("", "if", "lif") or (parts["soft"] and not kind):
        raise DataError(f'layer {name} "{text}". {EXPECTED}')
    neuron = Neuron(kind == "lif", numbers[0] if kind == "lif" else 1.0, numbers[-1], parts["soft"]) if kind else None
    k = parts["k"]
    if flat:
        if r > 1 or pad or pool:
            raise DataError(f'layer {name} "{text}": a linear layer, expected no r, pad and max2')
        return Layer(name, (k, h * w * c), 0, neuron, False, (1, 1)), (1, 1, k)
    p, q = h + 2 * pad - r + 1, w + 2 * pad - r + 1
    if p < 1 or q < 1 or pool and (p % 2 or q % 2):
        raise DataError(f"layer {name} gives {p}x{q}, expected at least 1x1, and even sizes for max2")
    if pool:
        p, q = p // 2, q // 2
    return Layer(name, (k, c, r, r), pad, neuron, bool(pool), (p, q)), (p, q, k)


def parse(text, steps=None):
    """Returns the Network that a text describes. `steps`, if given, replaces the text's number of steps."""
    try:
        source, given_steps, lines = grammar.network(text)
    except ValueError as error:
        raise DataError(f"{error}. {EXPECTED}, after a name") from None
    if source["dtype"] != "u8" or others(source, "dtype", "h", "w", "c", "mean", "std") or "c" not in source:
        raise DataError("expected the line input u8:h<H>w<W>c<C> [mean(...)] [std(...)]")
    image = size = source["h"], source["w"], source["c"]
    mean, std = source["mean"] or (0.0,), source["std"] or (1.0,)
    if any(len(values) not in (1, size[2]) for values in (mean, std)):
        raise DataError(f'"input": expected one number, or {size[2]}, in mean and std')
    layers, flat = [], False
    for name, stage, parts in lines:
        if stage is None and flat:
            raise DataError('a second line "flatten", expected one')
        if stage is None:
            flat = True
            continue
        layer, size = layer_of(name, stage, parts, size, flat)
        layers.append(layer)
    if len(layers) < 2 or not layers[-1].is_linear or layers[0].is_linear:
        raise DataError("expected convolutions, \"flatten\" and linear layers, at least one of each")
    if layers[-1].neuron or not all(layer.neuron for layer in layers[:-1]):
        raise DataError("expected a neuron in each layer except the last, and none in the last")
    steps = steps or given_steps or 1
    return Network(image, mean, std, steps, tuple(layers), with_steps(text, steps))


def with_steps(text, steps):
    """Returns a network.txt with this number of steps, in a line after the input."""
    kept = []
    for line in text.splitlines():
        word = (line.split("#")[0].split() or [""])[0]
        kept += [line] * (word != "steps") + [f"steps {steps}"] * (word == "input")
    return "\n".join(kept) + "\n"


def read(path, steps=None):
    """Returns the Network of a network.txt or of a model folder. Raises DataError."""
    path = Path(path)
    path = path / "network.txt" if path.is_dir() else path
    try:
        text = path.read_text()
    except OSError as error:
        raise DataError(f"{error}. Expected a model folder or a network.txt.") from None
    try:
        return parse(text, steps)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def parameters(network):
    """Returns the number of parameters."""
    return sum(math.prod(shape) for shape in network.shapes.values())
