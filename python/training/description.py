"""Reads network.txt for training: u8 images, convolutions, then linear layers, IF or LIF neurons, 2x2 max-pools.

This is a part of the grammar in docs/use/model-folders.md. A line with other parts of the grammar is refused.
"""

import math
import re
from dataclasses import dataclass
from pathlib import Path

from .idx import DataError

NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?"
INPUT = re.compile(rf"u8:h(\d+)w(\d+)c(\d+)((?: (?:mean|std)\({NUMBER}(?:,{NUMBER})*\))*)")
LAYER = re.compile(r"k(\d+)(?:r(\d+))?(?:pad(\d+))?")
EXPECTED = "Expected k<K>[r<R>][pad<P>]+bias[+if(th) | +lif(tau,th)][+soft][+max2]"


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


def parse_neuron(riders):
    """Returns the neuron among a layer's riders, or None."""
    for rider in riders:
        if found := re.fullmatch(rf"if(?:\(({NUMBER})\))?", rider):
            return Neuron(False, 1.0, float(found[1] or 1), "soft" in riders)
        if found := re.fullmatch(rf"lif(?:\(({NUMBER}),({NUMBER})\))?", rider):
            return Neuron(True, float(found[1] or 2), float(found[2] or 1), "soft" in riders)
    return None


def parse_layer(name, text, size, flat):
    """Returns the layer of a line, and the size of its output. size: that of its input. flat: after "flatten"."""
    head, *riders = text.split("+")
    found = LAYER.fullmatch(head)
    neuron = parse_neuron(riders)
    known = {"bias", "soft", "max2"}
    rest = [r for r in riders if r not in known and not re.match(r"l?if", r)]
    if not found or rest or "bias" not in riders or ("soft" in riders and not neuron) or len(set(riders)) < len(riders):
        raise DataError(f'layer {name} "{text}". {EXPECTED}')
    h, w, c = size
    k, r, pad = int(found[1]), int(found[2] or 1), int(found[3] or 0)
    if flat:
        if r > 1 or pad or "max2" in riders:
            raise DataError(f'layer {name} "{text}": a linear layer, expected no r, pad and max2')
        return Layer(name, (k, h * w * c), 0, neuron, False, (1, 1)), (1, 1, k)
    p, q = h + 2 * pad - r + 1, w + 2 * pad - r + 1
    pool = "max2" in riders
    if p < 1 or q < 1 or pool and (p % 2 or q % 2):
        raise DataError(f"layer {name} gives {p}x{q}, expected at least 1x1, and even sizes for max2")
    if pool:
        p, q = p // 2, q // 2
    return Layer(name, (k, c, r, r), pad, neuron, pool, (p, q)), (p, q, k)


def parse(text, steps=None):
    """Returns the Network that a text describes. `steps`, if given, replaces the text's number of steps."""
    network, layers, kept, flat = {"steps": 1}, [], [], False
    size = None
    for line in text.splitlines():
        words = line.split("#")[0].split()
        if words and words[0] == "steps":
            network["steps"] = int(words[1])
            if network["steps"] < 1:
                raise DataError(f'"{line}": expected 1 or more')
            continue
        kept.append(line)
        if not words:
            continue
        if words[0] == "input":
            found = INPUT.fullmatch(" ".join(words[1:]))
            if not found:
                raise DataError(f'"{line}": expected input u8:h<H>w<W>c<C> [mean(...)] [std(...)]')
            size = tuple(int(found[i]) for i in (1, 2, 3))
            values = {key: tuple(map(float, v.split(","))) for key, v in re.findall(r"(\w+)\(([^)]*)\)", found[4])}
            at = len(kept)  # "steps" follows it
            network |= {"image": size, "mean": values.get("mean", (0.0,)), "std": values.get("std", (1.0,))}
            if any(len(v) not in (1, size[2]) for v in values.values()):
                raise DataError(f'"{line}": expected one number, or {size[2]}, in mean and std')
        elif size is None:
            raise DataError(f'"{line}": it comes before the line "input", expected after it')
        elif words == ["flatten"] and not flat:
            flat = True
        elif len(words) == 2:
            layer, size = parse_layer(words[0], words[1], size, flat)
            layers.append(layer)
        else:
            raise DataError(f'"{line}". {EXPECTED}, after a name')
    if len(layers) < 2 or not layers[-1].is_linear or layers[0].is_linear:
        raise DataError("expected convolutions, \"flatten\" and linear layers, at least one of each")
    if layers[-1].neuron or not all(layer.neuron for layer in layers[:-1]):
        raise DataError("expected a neuron in each layer except the last, and none in the last")
    network["steps"] = steps or network["steps"]
    kept.insert(at, f"steps {network['steps']}")
    return Network(layers=tuple(layers), text="\n".join(kept) + "\n", **network)


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
    except (ValueError, IndexError, OverflowError) as error:
        raise DataError(f"{path}: a number is missing or wrong ({error}).") from None


def parameters(network):
    """Returns the number of parameters."""
    return sum(math.prod(shape) for shape in network.shapes.values())
