#!/usr/bin/env python3
"""Spiking networks of other shapes than the shipped one, by the same commands: three convolutions on
colour images, and linear layers alone. On the CPU, and on a GPU where there is one.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/networks_test.py [unittest options]
"""
import json
import random
import struct
import unittest

from cli_case import CliTest, convoy, idx

IMAGES = 12
NETWORKS = {  # name: sides, channels, network.txt, weights and biases of its layers
    "three": (32, 3, """input u8:h32w32c3 mean(0.5) std(0.25)
steps 6
conv1 k12r3pad1+bias+lif(2,1)+soft+max2
conv2 k20r3pad1+bias+lif(2,1)+soft+max2
conv3 k24r3pad1+bias+lif(2,1)+soft+max2
flatten
fc1 k10+bias
""", {"conv1": (12 * 27, 12), "conv2": (20 * 108, 20), "conv3": (24 * 180, 24), "fc1": (10 * 384, 10)}),
    "dense": (28, 1, """input u8:h28w28c1 mean(0.5) std(0.5)
steps 4
flatten
fc1 k64+bias+if(1)
fc2 k48+bias+lif(3,0.5)+soft
fc3 k10+bias
""", {"fc1": (64 * 784, 64), "fc2": (48 * 64, 48), "fc3": (10 * 48, 10)}),
}


def devices():
    found = convoy("run", "/nowhere", "--device", "cuda")
    return ("cpu",) if "device cuda" in found.stderr else ("cpu", "cuda")


class Networks(CliTest):
    def setUp(self):
        super().setUp()
        self.devices = devices()

    def files(self, name):
        side, channels, text, parameters = NETWORKS[name]
        model = self.make_model(name, text, {})
        draw = random.Random(3)
        for layer, (weights, biases) in parameters.items():
            spread = 2 * (biases / weights) ** 0.5  # of a sum about one
            for kind, count in (("weight", weights), ("bias", biases)):
                (model / f"{layer}.{kind}.txt").write_text(
                    "".join(f"{draw.gauss(0, spread):.9g}\n" for _ in range(count)))
        sizes = (IMAGES, side, side, channels) if channels > 1 else (IMAGES, side, side)
        pixels = b"".join(bytes([draw.randrange(256)]) * (side * channels // 2)  # half rows of one level
                          for _ in range(IMAGES * side * 2))
        images = self.write("images-" + name, idx(0x800 + len(sizes), sizes, pixels))
        labels = self.write("labels-" + name, idx(0x801, (IMAGES,), [0] * IMAGES))
        return model, images, labels

    def test_run_check_dump_and_compare(self):
        for name in NETWORKS:
            model, images, labels = self.files(name)
            outputs = {}
            for device in self.devices:
                with self.subTest(f"{name}, {device}"):
                    out = self.here / f"{name}-{device}.csv"
                    result = self.run_model("--device", device, "--out", out, "--json", "-", model=model,
                                            images=images, labels=labels)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    kernels = {layer["kernel"] for layer in json.loads(result.stdout)["layers"]}
                    if device == "cuda":
                        self.assertEqual(kernels, {"spike_resident"})
                    outputs[device] = [line.split(",")[1] for line in out.read_text().split()[1:]]
                    result = convoy("check", model, "--images", images, "--batch-size", 3, "--device", device)
                    self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                    dumps = self.here / f"{name}-{device}"
                    for words in ([], ["--reference"]):
                        result = convoy("dump", model, dumps, "--images", images, "--img-idx", 2, "--device", device,
                                        *words)
                        self.assertEqual(result.returncode, 0, result.stderr)
                    result = convoy("compare", dumps)
                    self.assertEqual(result.returncode, 0, result.stdout)
            self.assertGreater(len(set(outputs["cpu"])), 1, "all images have one label")
            self.assertEqual(len(set(map(tuple, outputs.values()))), 1, outputs)

    def test_weights_of_f16(self):
        """As the network whose files hold rounded weights."""
        model, images, labels = self.files("dense")
        logits = {}
        for rounded in (False, True):
            if rounded:
                for file in model.glob("*.weight.txt"):
                    values = [struct.unpack("e", struct.pack("e", float(w)))[0] for w in file.read_text().split()]
                    file.write_text("\n".join(map(repr, values)))
            for weights in ("f32", "f16"):
                out = self.here / f"{weights}.npy"
                result = self.run_model("--weights", weights, "--out", out, model=model, images=images, labels=labels)
                self.assertEqual(result.returncode, 0, result.stderr)
                logits[rounded, weights] = out.read_bytes()
        self.assertNotEqual(logits[False, "f32"], logits[False, "f16"])
        self.assertEqual(logits[False, "f16"], logits[True, "f16"])
        self.assertEqual(logits[True, "f32"], logits[True, "f16"])
        self.refused(self.run_model("--weights", "f64"), "f64: expected f32 or f16")
        (model / "fc3.weight.txt").write_text("1e6 " * 480)
        self.refused(self.run_model("--weights", "f16", model=model, images=images, labels=labels),
                     "fc3 has the weight 1e.06, expected less than 65520")


if __name__ == "__main__":
    unittest.main()
