"""Trains many copies of a spiking network together: every parameter has a leading dimension S.

The networks are so small that one copy leaves a GPU idle; S copies cost little more than one. The code uses only matrix
products, because a grouped convolution with 8 channels per group is slow. check.py compares it with spiking_net.py.
"""

import math

import torch
import torch.nn.functional as F


def initial(network, copies, seed, device, gain=1.0):
    """Returns parameters {'conv1.weight': [S, K, C, R, S], 'conv1.bias': [S, K], ...} for the start of training.

    They are drawn uniformly, as those of PyTorch's layers. Copy s depends on `seed + s` only. `gain` multiplies the
    bound of the weights' distribution.
    """
    params = {name: torch.empty(copies, *shape) for name, shape in network.shapes.items()}
    for s in range(copies):
        generator = torch.Generator().manual_seed(seed + s)
        for layer in network.layers:
            bound = 1 / math.sqrt(math.prod(layer.weight[1:]))
            for leaf, scale in ((".weight", gain), (".bias", 1.0)):
                params[layer.name + leaf][s].uniform_(-bound * scale, bound * scale, generator=generator)
    return {name: p.to(device) for name, p in params.items()}


class Spike:
    """The step function: 1 for v >= 0, else 0. Its gradient is that of one of SpikingJelly's surrogates.

    atan: atan(pi/2 alpha v)/pi + 1/2. sigmoid: 1 / (1 + exp(-alpha v)).
    """

    def __init__(self, surrogate="atan", alpha=2.0):
        self.surrogate, self.alpha = surrogate, alpha

    def __call__(self, v):
        if self.surrogate == "atan":
            soft = torch.atan((0.5 * math.pi * self.alpha) * v) / math.pi
        else:
            soft = torch.sigmoid(self.alpha * v)
        return (v >= 0).to(v.dtype) + (soft - soft.detach())


class Gradients:
    """Replaces the derivatives that a spiking network does not have, in the backward pass.

    Args:
        surrogate: "atan" or "sigmoid".
        alpha: The parameter of the surrogate.
        route: The neuron that gets the gradient of a pool of spikes. Pooled spikes are
            spike(max v - th) = max spike(v - th): both have the same value. "membrane": the gradient reaches the neuron
            nearest to the threshold. "first": the first of a window of equal spikes, as in PyTorch's max-pool. No other
            part of the recipe is worth as much accuracy as "membrane".
        through_reset: Whether a gradient also flows through the reset.
    """

    def __init__(self, surrogate="atan", alpha=2.0, route="membrane", through_reset=False):
        self.spike, self.route, self.through_reset = Spike(surrogate, alpha), route, through_reset


def fire(currents, neuron, gradients, pool=None):
    """Returns the spikes of integrate-and-fire neurons, one tensor per step; pooled if `pool` is given.

    currents: one tensor per step. pool(x) takes the maximum over each window.
    """
    v, out, spike = 0.0, [], gradients.spike
    for current in currents:
        v = v + (current - v) / neuron.tau if neuron.leaky else v + current
        fired = spike(v - neuron.threshold)
        if pool is None:
            out.append(fired)
        elif gradients.route == "membrane":
            out.append(spike(pool(v) - neuron.threshold))
        else:
            out.append(pool(fired))
        reset = fired if gradients.through_reset else fired.detach()
        v = v - reset * neuron.threshold if neuron.soft else v * (1 - reset)
    return out


def window_max(x, dim):
    """Returns the maxima of 2x2 windows in two dimensions from `dim`. The first of equal maxima gets the gradient."""
    h, w = x.shape[dim : dim + 2]
    x = x.unflatten(dim + 1, (w // 2, 2)).unflatten(dim, (h // 2, 2))
    rows = [x.select(dim + 1, i) for i in range(2)]
    a, b, c, d = (r.select(dim + 2, j) for r in rows for j in range(2))
    # `where`, not `maximum`: the latter splits the gradient of a tie.
    top = torch.where(b > a, b, a)
    low = torch.where(d > c, d, c)
    return torch.where(low > top, low, top)


def first_layer(network, params, x):
    """Returns sums [B, P, Q, S, K] of the first convolution. One product serves all copies and steps."""
    layer = network.layers[0]
    k, c, r, s = layer.weight
    copies, batch = params[layer.name + ".bias"].shape[0], x.shape[0]
    x = F.pad(x, (0, 0) + (layer.pad,) * 4)
    cols = x.unfold(1, r, 1).unfold(2, s, 1)
    p, q = cols.shape[1:3]
    cols = cols.reshape(batch * p * q, c * r * s)
    weight = params[layer.name + ".weight"].reshape(copies * k, c * r * s)
    return (cols @ weight.t() + params[layer.name + ".bias"].reshape(-1)).view(batch, p, q, copies, k)


def convolution(layer, params, maps):
    """Returns sums [S, M, P, Q, K] of maps [S, M, H, W, C] by im2col, whose columns have the order (r, s, c)."""
    k, c, r, s = layer.weight
    copies, many = maps.shape[:2]
    maps = F.pad(maps, (0, 0) + (layer.pad,) * 4) if layer.pad else maps
    p, q = maps.shape[2] - r + 1, maps.shape[3] - s + 1
    cols = torch.stack([maps[:, :, i : i + p, j : j + q] for i in range(r) for j in range(s)], dim=4)
    cols = cols.reshape(copies, many * p * q, r * s * c)
    weight = params[layer.name + ".weight"].permute(0, 3, 4, 2, 1).reshape(copies, r * s * c, k)
    return torch.baddbmm(params[layer.name + ".bias"][:, None], cols, weight).view(copies, many, p, q, k)


def product(layer, params, x):
    """Returns sums [S, M, K] of x [S, M, C]."""
    return torch.baddbmm(params[layer.name + ".bias"][:, None], x, params[layer.name + ".weight"].transpose(1, 2))


def forward(network, params, x, gradients):
    """Returns mean logits [S, B, classes] for normalised images x [B, H, W, C], which are the input of each step."""
    first, steps, batch = network.layers[0], network.steps, x.shape[0]
    copies = params[first.name + ".bias"].shape[0]
    current = first_layer(network, params, x)
    spikes = fire([current] * steps, first.neuron, gradients, (lambda v: window_max(v, 1)) if first.pool else None)
    # Maps are [S, T * B, H, W, C] from here on.
    maps = torch.stack(spikes).flatten(0, 1).permute(3, 0, 1, 2, 4)
    for layer in network.convolutions[1:]:
        current = convolution(layer, params, maps)
        pool = (lambda v: window_max(v, 2)) if layer.pool else None
        spikes = fire(current.unflatten(1, (steps, batch)).unbind(1), layer.neuron, gradients, pool)
        maps = torch.stack(spikes, dim=1).flatten(1, 2)
    # PyTorch's order is channels before rows and columns.
    y = maps.permute(0, 1, 4, 2, 3).reshape(copies, steps * batch, -1)
    for layer in network.linear[:-1]:
        current = product(layer, params, y).unflatten(1, (steps, batch)).unbind(1)
        y = torch.stack(fire(current, layer.neuron, gradients), dim=1).flatten(1, 2)
    # The last layer is linear: its mean over the steps is its value at the mean of the spikes.
    return product(network.layers[-1], params, y.unflatten(1, (steps, batch)).mean(1))


def cross_entropy(logits, labels):
    """Returns the sum over the copies of the mean cross-entropy. logits [S, B, classes], labels [B]."""
    copies, batch = logits.shape[:2]
    return (
        -torch.log_softmax(logits, -1).gather(2, labels.expand(copies, batch)[..., None])[..., 0].mean(1).sum()
    )


def distillation(logits, taught, temperature=3.0):
    """Returns the sum over the copies of the mean KL divergence to the teacher's logits [B, classes]."""
    soft = F.softmax(taught / temperature, -1)
    kl = (soft * (torch.log_softmax(taught / temperature, -1) - torch.log_softmax(logits / temperature, -1))).sum(-1)
    return temperature**2 * kl.mean(1).sum()


@torch.no_grad()
def predict(network, params, images, normalise, batch=500):
    """Returns labels [S, N] of u8 images [N, H, W, C], computed in true fp32 whatever precision training uses."""
    tf32 = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        chunks = [forward(network, params, normalise(c), Gradients()).argmax(-1) for c in images.split(batch)]
    finally:
        torch.backends.cuda.matmul.allow_tf32 = tf32
    return torch.cat(chunks, dim=1)
