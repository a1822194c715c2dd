"""The network as it is deployed, in PyTorch and SpikingJelly: the judge of the fast form and of what is shipped."""

from pathlib import Path

import numpy as np
import torch
from spikingjelly.activation_based import functional, layer, neuron, surrogate
from torch import nn

from .batched_net import SHAPES, STEPS
from .data import DataError, normalise


class SpikingNet(nn.Module):
    """Images [N, 1, 28, 28], normalised, shown in each of STEPS steps, to mean logits [N, 10]."""

    def __init__(self, alpha=2.0):
        super().__init__()

        def cell():
            return neuron.IFNode(
                v_threshold=1.0, v_reset=0.0, surrogate_function=surrogate.ATan(alpha), detach_reset=True
            )

        self.conv1, self.if1, self.pool1 = layer.Conv2d(1, 8, 5), cell(), layer.MaxPool2d(2, 2)
        self.conv2, self.if2, self.pool2 = layer.Conv2d(8, 16, 5), cell(), layer.MaxPool2d(2, 2)
        self.flatten = layer.Flatten()
        self.fc1, self.if3 = layer.Linear(256, 128), cell()
        self.fc2, self.if4 = layer.Linear(128, 96), cell()
        self.fc3 = layer.Linear(96, 10)

    def forward(self, x):
        functional.reset_net(self)
        out = 0.0
        for _ in range(STEPS):
            y = self.pool1(self.if1(self.conv1(x)))
            y = self.pool2(self.if2(self.conv2(y)))
            y = self.if3(self.fc1(self.flatten(y)))
            out = out + self.fc3(self.if4(self.fc2(y)))
        return out / STEPS


def write_weights(folder, params):
    """Writes {'conv1.weight': tensor, ...}, one flattened text file a parameter, digits enough to read fp32 back."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for name, value in params.items():
        np.savetxt(folder / f"{name}.txt", value.detach().cpu().float().numpy().reshape(-1), fmt="%.9g")


def read_weights(folder):
    """The parameters in a model folder, as a state dict for SpikingNet."""
    state = {}
    for name, shape in SHAPES.items():
        for leaf, expected in ((".weight", shape), (".bias", shape[:1])):
            path = Path(folder) / f"{name}{leaf}.txt"
            try:
                values = np.loadtxt(path, dtype=np.float32, ndmin=1)
            except (OSError, ValueError) as error:
                raise DataError(f"{path}: {error}") from None
            if values.size != np.prod(expected):
                raise DataError(
                    f"{path}: {values.size} values, expected {np.prod(expected)} for shape {expected}. "
                    "Was the file cut short?"
                )
            state[name + leaf] = torch.from_numpy(values.reshape(expected))
    return state


@torch.no_grad()
def predict(folder, images, batch=500):
    """Labels [N] u8 that the model folder gives to u8 images [N, 28, 28]; on the CPU, in fp32."""
    net = SpikingNet().eval()
    net.load_state_dict(read_weights(folder))
    labels = []
    for start in range(0, len(images), batch):
        x = torch.from_numpy(images[start : start + batch].copy())[:, None]
        labels.append(net(normalise(x)).argmax(1))
    return torch.cat(labels).numpy().astype(np.uint8)
