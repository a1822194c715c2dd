"""Compares the fast form with SpikingJelly: logits by both routes, and gradients if both pool in the same way."""

import torch

from . import batched_net
from .spiking_net import SpikingNet

COPIES = 3


def check(networks):
    """Compares networks with two surrogates. Ends the program if a difference is too large."""
    for network in networks:
        for surrogate, through_reset in (("atan", False), ("sigmoid", True)):
            compare(network, surrogate, through_reset)


def compare(network, surrogate, through_reset):
    """Compares one network. Ends the program if a difference is too large."""
    torch.manual_seed(0)
    # The weights are larger than at the start of training, so that every layer fires.
    params = batched_net.initial(network, COPIES, 5, torch.device("cpu"), gain=8)
    params = {n: p.double().requires_grad_() for n, p in params.items()}
    x = torch.rand(6, *network.image, dtype=torch.double) * 2 - 1
    logits, grads = [], None
    for route in ("first", "membrane"):
        gradients = batched_net.Gradients(surrogate, 1.5, route, through_reset)
        logits.append(batched_net.forward(network, params, x, gradients))
        if route == "first":
            grads = torch.autograd.grad(logits[0].square().sum(), list(params.values()))
    worst_logit = worst_grad = 0.0
    for s in range(COPIES):
        net = SpikingNet(network, surrogate, 1.5, through_reset).double()
        net.load_state_dict({n: p[s].detach() for n, p in params.items()})
        expected = net(x.permute(0, 3, 1, 2))
        expected.square().sum().backward()
        worst_logit = max([worst_logit, *((expected - found[s]).abs().max().item() for found in logits)])
        slow = dict(net.named_parameters())
        for n, g in zip(params, grads):
            if not slow[n].grad.abs().max() > 0:
                raise SystemExit(f"{n}: SpikingJelly's gradient is zero, expected another value to compare with.")
            worst_grad = max(worst_grad, ((g[s] - slow[n].grad).abs().max() / slow[n].grad.abs().max()).item())
    print(
        f"{network.text.splitlines()[0].lstrip('# ')}, {surrogate}{', through the reset' if through_reset else ''}: "
        f"largest difference: logits {worst_logit:.1e}, gradients {worst_grad:.1e} of the largest"
    )
    if worst_logit > 1e-12 or worst_grad > 1e-12:
        raise SystemExit("The fast form and SpikingJelly differ by more than 1e-12, expected less.")
