"""Many copies of the spiking network at once, for training: every parameter has a leading dimension S.

The network is so small that one copy leaves a GPU idle; S copies cost little more than one. Written with matrix
products only (a grouped convolution with 8 channels a group is slow), and checked against spiking_net.py.
"""

import math

import torch
import torch.nn.functional as F

from .data import normalise

SHAPES = {"conv1": (8, 1, 5, 5), "conv2": (16, 8, 5, 5), "fc1": (128, 256), "fc2": (96, 128), "fc3": (10, 96)}
STEPS = 2
THRESHOLD = 1.0


def initial(copies, seed, device):
    """Parameters {'conv1.weight': [S, 8, 1, 5, 5], 'conv1.bias': [S, 8], ...}, uniform as PyTorch's layers start.

    Copy s depends on `seed + s` only.
    """
    params = {}
    for name, shape in SHAPES.items():
        params[name + ".weight"] = torch.empty(copies, *shape)
        params[name + ".bias"] = torch.empty(copies, shape[0])
    for s in range(copies):
        generator = torch.Generator().manual_seed(seed + s)
        for name, shape in SHAPES.items():
            bound = 1 / math.sqrt(math.prod(shape[1:]))
            for leaf in (".weight", ".bias"):
                params[name + leaf][s].uniform_(-bound, bound, generator=generator)
    return {name: p.to(device) for name, p in params.items()}


def spike(v, alpha):
    """1 where v >= 0; its gradient is that of atan(pi/2 alpha v)/pi + 1/2 (SpikingJelly's ATan)."""
    soft = torch.atan((0.5 * math.pi * alpha) * v) / math.pi
    return (v >= 0).to(v.dtype) + (soft - soft.detach())


def neuron(currents, alpha, pool=None, route="membrane"):
    """Spikes of integrate-and-fire neurons with hard reset, one tensor a step; pooled where `pool` is given.

    currents: a list of STEPS tensors. pool(x) takes the maximum over each window. Pooled spikes are
    spike(max v - th) = max spike(v - th): the same value, but the gradient then reaches the neuron nearest to the
    threshold (route "membrane") and not the first of a window of equal spikes (route "first", PyTorch's max-pool).
    That is worth more accuracy than anything else in the recipe. No gradient flows through the reset.
    """
    v, out = 0.0, []
    for current in currents:
        v = v + current
        fired = spike(v - THRESHOLD, alpha)
        if pool is None:
            out.append(fired)
        elif route == "membrane":
            out.append(spike(pool(v) - THRESHOLD, alpha))
        else:
            out.append(pool(fired))
        v = v * (1 - fired.detach())
    return out


def window_max(x, dim):
    """Maximum over 2x2 windows of the two dimensions from `dim`; the maximum's gradient goes to the first."""
    h, w = x.shape[dim : dim + 2]
    x = x.unflatten(dim + 1, (w // 2, 2)).unflatten(dim, (h // 2, 2))
    rows = [x.select(dim + 1, i) for i in range(2)]
    a, b, c, d = (r.select(dim + 2, j) for r in rows for j in range(2))
    # `where`, not `maximum`: the latter splits the gradient of a tie.
    top = torch.where(b > a, b, a)
    low = torch.where(d > c, d, c)
    return torch.where(low > top, low, top)


def forward(params, x, alpha=2.0, route="membrane"):
    """Mean logits [S, B, 10] for normalised images x [B, 28, 28], shown in each step."""
    copies, batch = params["conv1.bias"].shape[0], x.shape[0]

    # First convolution: the images are the same for all copies and steps, so one product serves all.
    cols = x.unfold(1, 5, 1).unfold(2, 5, 1).reshape(batch * 576, 25)
    current = cols @ params["conv1.weight"].reshape(copies * 8, 25).t() + params["conv1.bias"].reshape(-1)
    current = current.view(batch, 24, 24, copies * 8)
    pooled = neuron([current] * STEPS, alpha, lambda v: window_max(v, 1), route)

    # Second: im2col [S, T * B * 64, 200], the 200 in the order (r, s, c).
    maps = torch.stack(pooled).view(STEPS * batch, 12, 12, copies, 8)
    cols = torch.stack([maps[:, r : r + 8, s : s + 8] for r in range(5) for s in range(5)], dim=4)
    cols = cols.permute(3, 0, 1, 2, 4, 5).reshape(copies, STEPS * batch * 64, 200)
    weight = params["conv2.weight"].permute(0, 3, 4, 2, 1).reshape(copies, 200, 16)
    current = torch.baddbmm(params["conv2.bias"][:, None], cols, weight)
    current = current.view(copies, STEPS, batch, 8, 8, 16).unbind(1)
    pooled = neuron(current, alpha, lambda v: window_max(v, 2), route)

    y = torch.stack([p.permute(0, 1, 4, 2, 3).reshape(copies, batch, 256) for p in pooled], dim=1)
    for name in ("fc1", "fc2"):
        current = torch.baddbmm(
            params[name + ".bias"][:, None], y.flatten(1, 2), params[name + ".weight"].transpose(1, 2)
        )
        y = torch.stack(neuron(current.view(copies, STEPS, batch, -1).unbind(1), alpha), dim=1)
    # The last layer is linear: its mean over the steps is its value at the mean of the spikes.
    return torch.baddbmm(params["fc3.bias"][:, None], y.mean(1), params["fc3.weight"].transpose(1, 2))


def distillation_loss(logits, labels, taught, weight=0.9, temperature=3.0):
    """Sum over the copies of the mean loss: weight x KL to the teacher at `temperature` + (1 - weight) x cross-entropy.

    logits [S, B, 10], labels [B], taught [B, 10]: the teacher's logits.
    """
    copies, batch = logits.shape[:2]
    soft = F.softmax(taught / temperature, -1)
    kl = (soft * (torch.log_softmax(taught / temperature, -1) - torch.log_softmax(logits / temperature, -1))).sum(-1)
    hard = -torch.log_softmax(logits, -1).gather(2, labels.expand(copies, batch)[..., None])[..., 0]
    return (weight * temperature**2 * kl + (1 - weight) * hard).mean(1).sum()


@torch.no_grad()
def predict(params, images, batch=500):
    """Labels [S, N] of u8 images [N, 28, 28] in true fp32, whatever precision training uses."""
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        chunks = [forward(params, normalise(c)).argmax(-1) for c in images.split(batch)]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32
    return torch.cat(chunks, dim=1)
