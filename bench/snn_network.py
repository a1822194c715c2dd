"""A spiking model folder as a PyTorch module: what the workers that time other libraries share.

Reads models like models/fashion-scnn: if() neurons with hard reset, max2 pools, the same image in every step.
"""

import gzip
import re

import numpy as np
import torch
import torch.nn.functional as F


class Layer:
    """One line of network.txt with its weights."""

    def __init__(self, folder, name, text, shape):
        fields = dict(re.findall(r"([a-z]+)(\d+)", text.split("+")[0]))
        riders = text.split("+")[1:]
        self.name, self.k = name, int(fields["k"])
        self.r = int(fields["r"]) if "r" in fields else 0  # 0: linear
        self.pad = int(fields.get("pad", 0))
        self.pool = "max2" in riders
        neuron = [rider for rider in riders if rider.startswith("if(")]
        if set(riders) - {"bias", "max2"} - set(neuron):
            raise SystemExit(f"{name}: {text}: expected only bias, if(th) and max2")
        self.threshold = float(neuron[0][3:-1]) if neuron else None
        w = np.loadtxt(folder / f"{name}.weight.txt", dtype=np.float64).astype(np.float32)
        self.w = w.reshape((self.k, shape[0], self.r, self.r) if self.r else (self.k, -1))
        self.b = np.loadtxt(folder / f"{name}.bias.txt", dtype=np.float64).astype(np.float32)


def read_model(folder):
    shape, steps, mean, std, layers = None, 1, 0.0, 1.0, []
    for line in (folder / "network.txt").read_text().splitlines():
        words = line.split("#")[0].split()
        if not words or words[0] == "flatten":
            continue
        if words[0] == "input":
            h, w, c = (int(n) for n in re.match(r"u8:h(\d+)w(\d+)c(\d+)", words[1]).groups())
            shape = (c, h, w)
            for word in words[2:]:
                key, value = word[:-1].split("(")
                mean, std = (float(value), std) if key == "mean" else (mean, float(value))
        elif words[0] == "steps":
            steps = int(words[1])
        else:
            layers.append(Layer(folder, words[0], words[1], shape))
            shape = (layers[-1].k,)
    return steps, mean, std, layers


class Network(torch.nn.Module):
    """The unrolled graph, the first convolution once."""

    def __init__(self, steps, layers, channels_last=True):
        super().__init__()
        self.steps, self.layers = steps, layers
        for layer in layers:
            w = torch.tensor(layer.w)
            if channels_last and layer.r and layer.w.shape[1] > 1:
                w = w.contiguous(memory_format=torch.channels_last)
            self.register_buffer(layer.name + "_w", w)
            self.register_buffer(layer.name + "_b", torch.tensor(layer.b))

    def apply_layer(self, layer, x):
        w, b = getattr(self, layer.name + "_w"), getattr(self, layer.name + "_b")
        if layer.r:
            return F.conv2d(x, w, b, padding=layer.pad)
        return F.linear(x.flatten(1), w, b)

    def forward(self, x):
        held = self.apply_layer(self.layers[0], x)
        membranes, total = {}, None
        for _ in range(self.steps):
            y = held
            for i, layer in enumerate(self.layers):
                if i:
                    y = self.apply_layer(layer, y)
                if layer.threshold is not None:
                    v = membranes[i] + y if i in membranes else y
                    spike = v >= layer.threshold
                    membranes[i] = torch.where(spike, 0.0, v)
                    y = spike.to(torch.float32)
                if layer.pool:
                    y = F.max_pool2d(y, 2)
            total = y if total is None else total + y
        return (total / self.steps).argmax(1)


def images_of(path):
    """u8 [n, 1, h, w] of an IDX file, packed or not."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rb") as file:
        data = file.read()
    n, h, w = (int.from_bytes(data[4 * i:4 * i + 4], "big") for i in (1, 2, 3))
    return np.frombuffer(data, np.uint8, offset=16).reshape(n, 1, h, w)
