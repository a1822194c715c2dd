"""A network in PyTorch and SpikingJelly, as it is deployed: the reference for the fast form and the shipped models."""

import numpy as np
import torch
from spikingjelly.activation_based import functional, layer, neuron, surrogate
from torch import nn

from .data import Normalise
from .weights import read_weights


class SpikingNet(nn.Module):
    """A network that maps normalised images [N, C, H, W] to mean logits [N, classes]. Each step has the same input."""

    def __init__(self, network, gradient="atan", alpha=2.0, through_reset=False):
        super().__init__()
        self.network = network

        def cell(of):
            """Returns the SpikingJelly neuron of a layer."""
            function = surrogate.ATan(alpha) if gradient == "atan" else surrogate.Sigmoid(alpha)
            options = {
                "v_threshold": of.threshold,
                "v_reset": None if of.soft else 0.0,
                "surrogate_function": function,
                "detach_reset": not through_reset,
            }
            return neuron.LIFNode(tau=of.tau, decay_input=True, **options) if of.leaky else neuron.IFNode(**options)

        operators = []
        for of in network.layers:
            if of.is_linear:
                if not any(isinstance(o, layer.Flatten) for o in operators):
                    operators.append(layer.Flatten())
                sums = layer.Linear(of.weight[1], of.weight[0])
            else:
                sums = layer.Conv2d(of.weight[1], of.weight[0], of.weight[2], padding=of.pad)
            self.add_module(of.name, sums)  # the parameters get the names of the model's files
            operators.append(sums)
            if of.neuron:
                operators.append(cell(of.neuron))
            if of.pool:
                operators.append(layer.MaxPool2d(2, 2))
        # A list in a list registers no submodule a second time, so state_dict names each parameter once.
        self.operators = [operators]

    def forward(self, x):
        """Returns the mean logits of images."""
        out = 0.0
        for operator in self.operators[0]:
            functional.reset_net(operator)
        for _ in range(self.network.steps):
            y = x
            for operator in self.operators[0]:
                y = operator(y)
            out = out + y
        return out / self.network.steps


@torch.no_grad()
def predict(folder, network, images, batch=500):
    """Returns the labels [N] u8 of a model folder for u8 images [N, H, W, C], computed on the CPU in fp32."""
    net = SpikingNet(network).eval()
    net.load_state_dict(read_weights(folder, network))
    normalise = Normalise(network, "cpu")
    labels = []
    for start in range(0, len(images), batch):
        x = normalise(torch.from_numpy(images[start : start + batch].copy())).permute(0, 3, 1, 2).contiguous()
        labels.append(net(x).argmax(1))
    return torch.cat(labels).numpy().astype(np.uint8)
