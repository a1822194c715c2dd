"""Muon for stacked networks: momentum, orthogonalised by Newton-Schulz; AdamW for the biases.

Every parameter has a leading dimension S, one slice per network, and every update treats the slices separately. All
state and the table of learning rates are on the device, and `step` reads no value back, so a CUDA graph can capture it.
"""

import math

import torch

# The quintic of K. Jordan's Muon: steep at zero, so five rounds bring singular values near 1 (0.7 to 1.2 is enough).
QUINTIC = (3.4445, -4.7750, 2.0315)


def orthogonalise(g, rounds=5):
    """Returns, for each matrix of g [S, m, n], roughly the nearest semi-orthogonal matrix."""
    wide = g.shape[1] <= g.shape[2]
    x = g if wide else g.transpose(1, 2)
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = QUINTIC
    for _ in range(rounds):
        gram = torch.bmm(x, x.transpose(1, 2))
        poly = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, poly, x, beta=a)
    return x if wide else x.transpose(1, 2)


class Muon:
    """Updates a dict of parameters [S, ...]: Muon for weights (3 or more dimensions), AdamW for the rest ([S, k]).

    The learning rates follow a schedule: a linear warm-up over `warmup`, a share of `steps`, times a cosine that falls
    to 0 over all steps.
    """

    def __init__(self, params, steps, lr=0.02, adam_lr=0.01, weight_decay=0.01, warmup=0.02, momentum=0.95,
                 betas=(0.9, 0.95)):  # fmt: skip
        self.params, self.momentum, self.betas = params, momentum, betas
        self.lr, self.adam_lr, self.weight_decay = lr, adam_lr, weight_decay
        first = next(iter(params.values()))
        self.count = torch.zeros((), dtype=torch.long, device=first.device)
        warm = max(1, int(steps * warmup))
        table = [min(1.0, (i + 1) / warm) * 0.5 * (1 + math.cos(math.pi * i / steps)) for i in range(steps)]
        self.schedule = torch.tensor(table, device=first.device)
        self.state = {
            name: [torch.zeros_like(p)] + ([torch.zeros_like(p)] if p.dim() == 2 else []) for name, p in params.items()
        }

    @torch.no_grad()
    def step(self, grads):
        """Updates the parameters with gradients by name."""
        scale = self.schedule.index_select(0, self.count.clamp(max=len(self.schedule) - 1).view(1))
        self.count += 1
        for name, p in self.params.items():
            g = grads[name]
            if p.dim() > 2:
                (m,) = self.state[name]
                m.lerp_(g, 1 - self.momentum)
                flat = g.lerp(m, self.momentum).reshape(p.shape[0], p.shape[1], -1)
                update = orthogonalise(flat) * max(1, flat.shape[1] / flat.shape[2]) ** 0.5
                p.mul_(1 - self.lr * self.weight_decay * scale)
                p.sub_(update.view_as(p) * (self.lr * scale))
            else:
                m, v = self.state[name]
                m.lerp_(g, 1 - self.betas[0])
                v.lerp_(g * g, 1 - self.betas[1])
                t = self.count.float()
                update = (m / (1 - self.betas[0] ** t)) / ((v / (1 - self.betas[1] ** t)).sqrt() + 1e-8)
                p.mul_(1 - self.adam_lr * self.weight_decay * scale)
                p.sub_(update * (self.adam_lr * scale))

    def tensors(self):
        """Returns all state that changes, as {name: tensor}, to save it and to copy it back."""
        state = {f"{name}.{i}": t for name, moments in self.state.items() for i, t in enumerate(moments)}
        return state | {"count": self.count}
