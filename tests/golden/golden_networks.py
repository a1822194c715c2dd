"""Golden networks: model folders with seeded weights, images, and what PyTorch and SpikingJelly make of them.

networks/<name>/ holds network.txt, the parameters, images (IDX, u8, [N,H,W] or [N,H,W,C]), labels.idx1-ubyte (the
arg-max), logits.npy [N, 10], and for the first four images <layer>.y.npy: what the layer hands on, [T,4,H,W,C] or
[T,4,K]; u8 for spikes, without T in a network without time. Computed in float64. Images whose membranes come within
MARGIN of a threshold or whose best two logits are close were left out, so that fp32 must give the same spikes.

fashion-scnn/labels.npy, fashion-scnn-b/ and rgb-scnn/labels.npy: the labels u8 [10000] that the shipped networks, and
a second one trained with another seed, give to the Fashion-MNIST test images in PyTorch's fp32.
"""

import struct
from pathlib import Path

import numpy as np
import torch

import torch_stage
from training import description, grammar, idx, spiking_net

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
IMAGES, KEPT, MARGIN, LOGIT_MARGIN = 64, 4, 4e-6, 1e-3

NETWORKS = {
    "scnn2": """\
# Colour images, leaky neurons with soft reset, five steps
input u8:h32w32c3 mean(0.5,0.45,0.4) std(0.5,0.25,0.3)
steps 5
conv1 k12r3pad1+bias+lif(2,1)+soft+max2
conv2 k20r3pad1+bias+lif(2,1)+soft+max2
conv3 k24r3pad1+bias+lif(2,1)+soft+max2
flatten
fc1 k10+bias
""",
    "dense": """\
# No time: convolutions and linear layers with ReLU; conv2 has no bias
input u8:h20w20c1 mean(0.5) std(0.5)
conv1 k8r3pad1+bias+relu+max2
conv2 k16r3pad1+relu+max2
flatten
fc1 k32+bias+relu
fc2 k10+bias
""",
}


def read(text):
    """(input dict, steps, [(name, stage or None for flatten)]) of a network.txt."""
    source, steps, layers = grammar.network(text)
    normalisation = {key: torch.tensor(source[key]).double() for key in ("mean", "std")}
    return source | normalisation, steps, [(name, stage) for name, _, stage in layers]


def pictures(rng, count, h, w, c):
    """u8 images [count, h, w, c] with structure: a few waves and noise."""
    y, x = np.mgrid[:h, :w] / max(h, w)
    out = np.zeros((count, h, w, c))
    for image in out:
        for channel in range(c):
            for _ in range(4):
                fy, fx, phase = rng.uniform(-4, 4), rng.uniform(-4, 4), rng.uniform(0, 6.3)
                image[:, :, channel] += rng.uniform(0.3, 1) * np.sin(6.28 * (fy * y + fx * x) + phase)
    out += 0.3 * rng.standard_normal(out.shape)
    return np.clip(128 + 60 * out, 0, 255).astype(np.uint8)


def layer_inputs(source, images):
    """[1, N, C, H, W] normalised; the same in every step."""
    x = torch.from_numpy(np.moveaxis(images, -1, 1).astype(np.float64))
    return ((x / 255 - source["mean"][:, None, None]) / source["std"][:, None, None])[None]


def run_layer(stage, x, params, steps):
    """One layer on x [T or 1, N, ...]; a linear layer is a 1x1 stage. `run` of torch_stage, y as it is handed on."""
    flat = x.dim() == 3
    if flat:
        x = x[..., None, None]
    stage = dict(stage, t=steps or 1, hold=len(x) == 1 and (steps or 1) > 1)
    weight = params["weight"][..., None, None] if flat else params["weight"]
    got = torch_stage.run(stage, x, weight, params.get("bias"))
    if flat:
        got["y"] = got["y"][..., 0, 0]
    return got


def draw_layer(stage, x, rng, steps):
    """Weights for inputs x, scaled so that a quarter of the neurons fire, or that values stay near 1."""
    channels = x.shape[2]
    taps = (stage["k"], channels) if x.dim() == 3 else (stage["k"], channels, stage["r"], stage["s"])
    raw = rng.standard_normal(taps) / np.sqrt(np.prod(taps[1:]))
    spiking = stage["act"] is not None and stage["act"][0] in ("if", "lif")
    bias = rng.standard_normal(stage["k"]) * 0.1

    def at(gain):
        params = {"weight": torch.from_numpy(raw * gain).float().double()}
        if stage["bias"]:
            params["bias"] = torch.from_numpy(bias).float().double()
        return params

    if not spiking:
        plain = run_layer(dict(stage, act=None, pool=None), x, at(1.0), steps)["pre"]
        return at(1.0 / plain.std().item())
    low, high = 0.1, 100.0
    for _ in range(20):
        gain = (low * high) ** 0.5
        rate = run_layer(stage, x, at(gain), steps)["act"].mean().item()
        low, high = (gain, high) if rate < 0.25 else (low, gain)
    return at(gain)


def evaluate(layers, source, steps, images, params=None, rng=None):
    """(logits [N, K], {layer: y}, margins [N]) of u8 images [N, H, W, C]; draws the parameters that are missing."""
    x = layer_inputs(source, images)
    outputs, margins, rates = {}, torch.full((len(images),), float("inf"), dtype=torch.float64), {}
    for name, stage in layers:
        if stage is None:
            x = x.flatten(2)
            continue
        if name not in params:
            params[name] = draw_layer(stage, x, rng, steps)
        got = run_layer(stage, x, params[name], steps)
        if got["margin"] is not None:
            threshold = torch_stage.make_neuron(stage["act"], stage["soft"]).v_threshold
            margins = torch.minimum(margins, (got["pre"] - threshold).abs().amin((0, 2, 3, 4)))
            rates[name] = round(got["act"].mean().item(), 3)
        x = outputs[name] = got["y"]
    return x.mean(0), outputs, margins, rates


def write_idx(path, array):
    path.write_bytes(
        struct.pack(f">{1 + array.ndim}I", 0x800 + array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    )


def make_network(name, text):
    source, steps, layers = read(text)
    rng = np.random.default_rng([sum(name.encode()), 7])
    params = {}
    h, w, c = source["h"], source["w"], source["c"]
    evaluate(layers, source, steps, pictures(rng, 32, h, w, c), params, rng)
    # fc1 of a random network prefers one class: centring the logits makes every class appear.
    last = layers[-1][0]
    params[last]["bias"] -= evaluate(layers, source, steps, pictures(rng, 64, h, w, c), params)[0].mean(0)
    params[last]["bias"] = params[last]["bias"].float().double()

    kept = []
    while sum(map(len, kept)) < IMAGES:
        images = pictures(rng, 32, h, w, c)
        logits, _, margins, _ = evaluate(layers, source, steps, images, params)
        best = logits.topk(2, dim=1).values
        good = (margins > MARGIN) & (best[:, 0] - best[:, 1] > LOGIT_MARGIN)
        kept.append(images[good.numpy()])
    images = np.concatenate(kept)[:IMAGES]
    logits, outputs, margins, rates = evaluate(layers, source, steps, images, params)

    folder = HERE / "networks" / name
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / "network.txt").write_text(text)
    for layer, values in params.items():
        for leaf, value in values.items():
            np.savetxt(folder / f"{layer}.{leaf}.txt", value.float().numpy().reshape(-1), fmt="%.9g")
    if c == 1:
        write_idx(folder / "images.idx3-ubyte", images[..., 0])
    else:
        write_idx(folder / "images.idx4-ubyte", images)
    labels = logits.argmax(1).numpy()
    write_idx(folder / "labels.idx1-ubyte", labels)
    np.save(folder / "logits.npy", logits.float().numpy())
    for layer, stage in layers:
        if stage is None or layer == last:
            continue
        y = outputs[layer][:, :KEPT]
        y = (y.movedim(2, -1) if y.dim() == 5 else y).numpy()
        y = y.astype(np.uint8) if steps else y[0].astype(np.float32)
        np.save(folder / f"{layer}.y.npy", np.ascontiguousarray(y))
    print(
        f"{name}: firing rates {rates}, smallest margin {margins.min().item():.1e}, "
        f"labels {np.bincount(labels, minlength=10).tolist()}"
    )


def make_networks():
    for name, text in NETWORKS.items():
        make_network(name, text)


def make_fashion():
    images, _ = idx.read_set(idx.find_folder(None), "t10k")
    for model in (ROOT / "models/fashion-scnn", HERE / "fashion-scnn-b", ROOT / "models/rgb-scnn"):
        network, out = description.read(model), model.name
        labels = spiking_net.predict(model, network, idx.images_for(network.image, images))
        (HERE / out).mkdir(exist_ok=True)
        np.save(HERE / out / "labels.npy", labels)
        print(f"{out}: labels {np.bincount(labels, minlength=10).tolist()}")
