"""One stage as PyTorch and SpikingJelly compute it, in float64 and NCHW: the judge of Convoy's oracle."""

import torch
import torch.nn.functional as F
from spikingjelly.activation_based import neuron

ROUND = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


def rounded(x, dtype):
    """x [...] float64, rounded once to the type that is named, as float64."""
    return x.to(ROUND[dtype]).double()


def activation(name, numbers):
    return {
        "relu": torch.relu,
        "relu6": F.relu6,
        "clip": lambda v: torch.clamp(v, *numbers),
        "leaky": lambda v: F.leaky_relu(v, torch.tensor(numbers[0], dtype=torch.float32).item()),
    }[name]


def make_neuron(act, soft):
    name, numbers = act
    reset = None if soft else 0.0
    if name == "if":
        return neuron.IFNode(v_threshold=numbers[0], v_reset=reset)
    tau, threshold = numbers
    return neuron.LIFNode(tau=tau, decay_input=True, v_threshold=threshold, v_reset=reset)


def convolve(stage, x, w, bias):
    top, left, bottom, right = stage["pad"]
    return F.conv2d(F.pad(x, (left, right, top, bottom)), w, bias, stage["stride"], 0, stage["dil"], stage["groups"])


def pooled(stage, x):
    """(max-pool of x, its indices in the plane); x and None where the stage has no pool."""
    pool = stage["pool"]
    if pool is None:
        return x, None
    return F.max_pool2d(x, pool["window"], pool["stride"], pool["pad"], pool["dil"], pool["ceil"], return_indices=True)


@torch.no_grad()
def run(stage, x, w, bias=None, scale=None, shift=None, v=None):
    """{'y', 'pre', 'act', 'idx', 'v_out', 'margin'} of x [T, N, C, H, W] (T = 1 where held or without a neuron).

    All [T, N, K, ...] but v_out [N, K, P, Q]. margin: the least distance of a membrane to its threshold; None without.
    """
    out = stage["out"] or ("f32" if stage["dtype"] == "u8" else stage["dtype"])
    if scale is not None:
        x = x * scale[:, None, None] + shift[:, None, None]
    conv = torch.stack([convolve(stage, step, w, bias) for step in x])
    act = stage["act"]
    margin = v_out = None
    if act and act[0] in ("if", "lif"):
        cell = make_neuron(act, stage["soft"])
        before = torch.zeros_like(conv[0]) if v is None else v
        cell.v = before.clone()
        pre, spikes = [], []
        for t in range(stage["t"]):
            current = conv[0 if stage["hold"] else t]
            # SpikingJelly does not show the charged membrane, so it is formed here and held against what it does show.
            charged = before + (current if act[0] == "if" else (current - before) / cell.tau)
            fired = cell(current)
            assert torch.equal(fired, (charged >= cell.v_threshold).double())
            before = cell.v.clone()
            reset = charged - fired * cell.v_threshold if stage["soft"] else charged * (1 - fired)
            assert torch.allclose(before, reset, rtol=0, atol=1e-12)
            pre.append(charged)
            spikes.append(fired)
        pre, acted, v_out = torch.stack(pre), torch.stack(spikes), cell.v
        margin = (pre - cell.v_threshold).abs().min().item()
    else:
        pre = conv
        acted = activation(*act)(conv) if act else conv
    acted = rounded(acted, out)
    y, idx = zip(*(pooled(stage, step) for step in acted))
    return dict(
        y=torch.stack(y),
        pre=rounded(pre, out),
        act=acted,
        idx=None if idx[0] is None else torch.stack(idx),
        v_out=v_out,
        margin=margin,
    )
