#!/usr/bin/env python3
"""Compares a spiking network's labels with PyTorch's and SpikingJelly's, on Fashion-MNIST's test and training images.

    bench/snn_labels.py --convoy build/release/bin/convoy --data fashion-mnist --out bench/results/MACHINE

Writes OUT/snn-labels.json: of the shipped weights, of their roundings to f16 (`--weights f16`, in PyTorch too), and of
others, the shipped ones times 1 plus seeded noise, how many labels differ in each set, and how many of those are
threshold cases: in one of the image's neurons a membrane lies within 1e-5 of the threshold (1e-4 with f16), or its best
two logits are so near. Exit code 1 if another label differs.
"""

import argparse
import gzip
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def words():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default=str(ROOT / "build/release/bin/convoy"))
    parser.add_argument("--data", type=Path, required=True, help="folder of Fashion-MNIST's images and labels")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, required=True)
    return parser.parse_args()


ARGS = words() if __name__ == "__main__" else None  # before the imports below: --help needs none of them

import torch  # noqa: E402
from spikingjelly.activation_based import neuron  # noqa: E402

import records  # noqa: E402

MODEL = ROOT / "models/fashion-scnn"
SHAPES = {"conv1": (8, 1, 5, 5), "conv2": (16, 8, 5, 5), "fc1": (128, 256), "fc2": (96, 128), "fc3": (10, 96)}
STEPS, NOISE = 2, 0.05


def numbers(path):
    return torch.tensor([float(word) for word in path.read_text().split()])


class Reference:
    """The network of models/fashion-scnn in PyTorch, and how near its membranes come to their thresholds."""

    def __init__(self, folder, halved):
        self.w = {name: numbers(folder / f"{name}.weight.txt").reshape(shape) for name, shape in SHAPES.items()}
        self.b = {name: numbers(folder / f"{name}.bias.txt") for name in SHAPES}
        if halved:
            self.w = {name: w.half().float() for name, w in self.w.items()}

    def layer(self, name, x, nodes, near):
        if x.dim() == 4:
            sums = torch.nn.functional.conv2d(x, self.w[name], self.b[name])
        else:
            sums = torch.nn.functional.linear(x, self.w[name], self.b[name])
        if name not in nodes:
            return sums
        distance = (nodes[name].v + sums - 1).abs()
        near[0] = torch.minimum(near[0], distance.flatten(1).amin(1))
        spikes = nodes[name](sums)
        return torch.nn.functional.max_pool2d(spikes, 2) if x.dim() == 4 else spikes

    def run(self, pixels):
        """Labels of [n, 28, 28], and for each image the least distance of a membrane or of two logits."""
        x = ((pixels.float() / 255 - 0.5) / 0.5).unsqueeze(1)
        nodes = {name: neuron.IFNode(v_threshold=1.0, v_reset=0.0) for name in list(SHAPES)[:-1]}
        near, total = [torch.full((len(x),), float("inf"))], 0
        for _ in range(STEPS):
            y = x
            for name in SHAPES:
                y = self.layer(name, y.flatten(1) if name == "fc1" else y, nodes, near)
            total = total + y
        best = (total / STEPS).topk(2).values
        return total.argmax(1), torch.minimum(near[0], best[:, 0] - best[:, 1])


def images_of(path):
    data = gzip.decompress(path.read_bytes())
    return torch.frombuffer(bytearray(data[16:]), dtype=torch.uint8).reshape(-1, 28, 28)


def labels_of(args, folder, weights, name):
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch, "labels.csv")
        subprocess.run([args.convoy, "run", folder, "--device", args.device, "--weights", weights, "--images",
                        args.data / f"{name}-images-idx3-ubyte.gz", "--labels",
                        args.data / f"{name}-labels-idx1-ubyte.gz", "--out", out], check=True,
                       stdout=subprocess.DEVNULL)
        return torch.tensor([int(line.split(",")[1]) for line in out.read_text().split()[1:]])


def compared(args, folder, what, weights):
    tolerance = 1e-4 if weights == "f16" else 1e-5
    reference, rows = Reference(folder, weights == "f16"), []
    for name in ("t10k", "train"):
        images = images_of(args.data / f"{name}-images-idx3-ubyte.gz")
        parts = [reference.run(part) for part in images.split(1000)]
        labels, near = torch.cat([part[0] for part in parts]), torch.cat([part[1] for part in parts])
        differ = labels != labels_of(args, folder, weights, name)
        rows.append({"weights": what, "precision": weights, "set": name, "images": len(images),
                     "differ": int(differ.sum()), "threshold_cases": int((differ & (near < tolerance)).sum()),
                     "images_with_threshold_cases": int((near < tolerance).sum())})
        print(rows[-1])
    return rows


def others(folder):
    """The shipped model with other weights."""
    shutil.copytree(MODEL, folder)
    torch.manual_seed(1)
    for name in SHAPES:
        path = folder / f"{name}.weight.txt"
        w = numbers(path)
        w *= 1 + NOISE * torch.randn(w.shape)
        path.write_text("\n".join(f"{value:.9g}" for value in w.tolist()) + "\n")
    return folder


def main(args):
    torch.set_grad_enabled(False)
    record = records.of_program(args.convoy, args.device)
    with tempfile.TemporaryDirectory() as scratch:
        rows = compared(args, MODEL, "shipped", "f32") + compared(args, MODEL, "shipped", "f16")
        rows += compared(args, others(Path(scratch, "others")), "others", "f32")
    report = {**record, "torch": torch.__version__, "device": args.device, "rows": rows}
    (args.out / "snn-labels.json").write_text(json.dumps(report, indent=1) + "\n")
    return int(any(row["differ"] > row["threshold_cases"] for row in rows))


if __name__ == "__main__":
    sys.exit(main(ARGS))
