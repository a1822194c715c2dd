"""Models of PyTorch as model folders, and model folders as NIR graphs and back."""

import doctest
import json
import os
import pathlib
import tempfile
import unittest

import numpy as np

import convoy

try:
    import torch
    from torch import fx, nn

    import convoy.exporting
except ImportError:
    torch = None
try:
    import nir

    import convoy.nir_format
except ImportError:
    nir = None


def chain(names):
    """A graph that calls the modules of these names one after the other."""
    graph = fx.Graph()
    x = graph.placeholder("x")
    for name in names:
        x = graph.call_module(name, (x,))
    graph.output(x)
    return graph


def tensor(array):
    return torch.from_dlpack(array) if not isinstance(array, torch.Tensor) else array


@unittest.skipIf(torch is None, "PyTorch is not installed")
class Export(unittest.TestCase):
    def model(self):
        torch.manual_seed(1)
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=(1, 2), bias=False), nn.BatchNorm2d(8), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Conv2d(8, 6, 3, stride=2, groups=2), nn.Hardtanh(-0.5, 2),
                             nn.Flatten(), nn.Dropout(), nn.Linear(6 * 3 * 4, 10)).eval()  # fmt: skip

    def test_a_row_of_layers(self):
        model, x = self.model(), torch.randn(4, 3, 16, 16)
        model[1].running_mean.normal_()
        for form in ("safetensors", "text"):
            with tempfile.TemporaryDirectory() as folder:
                network = convoy.export(model, folder, x, form=form)
                with torch.no_grad():
                    wanted = model(x)
                found = tensor(network(x.permute(0, 2, 3, 1).contiguous()))
                torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
                with open(f"{folder}/network.txt") as file:
                    self.assertIn("0 k8r3pad1x2+bias+relu+max2\n4 k6r3stride2groups2+bias+clip(-0.5,2)\nflatten\n",
                                  file.read())  # fmt: skip
                self.assertEqual("model.safetensors" in os.listdir(folder), form == "safetensors")

    def test_pixels(self):
        model, x = self.model(), torch.randint(0, 256, (4, 16, 16, 3), dtype=torch.uint8)
        mean, std = torch.tensor([0.5, 0.4, 0.3]), torch.tensor([0.2, 0.3, 0.4])
        with tempfile.TemporaryDirectory() as folder:
            given = ((x / 255 - mean) / std).permute(0, 3, 1, 2)
            network = convoy.export(model, folder, given, pixels=True, mean=mean, std=std)
            with torch.no_grad():
                torch.testing.assert_close(tensor(network(x)), model(given), rtol=1e-4, atol=1e-4)

    def test_a_last_layer_of_pixels(self):
        for layers in ([nn.Conv2d(3, 8, 3)], [nn.Conv2d(3, 8, 3), nn.ReLU(), nn.MaxPool2d(2)]):
            model, x = nn.Sequential(*layers).eval(), torch.randn(2, 3, 8, 9)
            with tempfile.TemporaryDirectory() as folder:
                network = convoy.export(model, folder, x)
            with torch.no_grad():
                wanted = model(x).permute(0, 2, 3, 1).flatten(1)
            given = tensor(network(x.permute(0, 2, 3, 1).contiguous()))
            torch.testing.assert_close(given, wanted, rtol=1e-4, atol=1e-4)

    def test_a_layer_that_is_called_twice(self):
        layer = nn.Conv2d(1, 1, 3, padding=1)
        with tempfile.TemporaryDirectory() as folder, self.assertRaisesRegex(convoy.Error, "0: called a second time"):
            convoy.export(nn.Sequential(layer, nn.ReLU(), layer).eval(), folder, torch.randn(1, 1, 6, 6))

    def test_values_that_are_no_sample(self):
        with self.assertRaisesRegex(convoy.Error, "sample: a NoneType, expected a tensor"):
            convoy.export(nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), "nowhere", None)
        with self.assertRaisesRegex(convoy.Error, "model: an int, expected a torch.nn.Module"):
            convoy.export(3, "nowhere", torch.zeros(1, 3, 8, 8))

    def test_models_and_samples_that_cannot_be_computed(self):
        class Branches(nn.Module):
            def forward(self, x):
                return x if x.sum() > 0 else -x

        one, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU()).eval(), torch.randn(1, 3, 8, 8)
        for model, sample, said in (
            (one, x[:, :1], r"sample: float32 \[1, 1, 8, 8\] on cpu, .* layer 0, a Conv2d, .*float32 \[N, 3, H, W\]"),
            (one, x[..., :2], r"expected float32 \[N, 3, H, W\], H and W at least the filter's"),
            (one, x.double(), "sample: torch.float64, expected float32"),
            (nn.Conv2d(3, 8, 3).double().eval(), x, "expected float64, the type of the model's weights"),
            (nn.Conv2d(3, 8, 3, device="meta").eval(), x, "model: weight is on the meta device"),
            (one, x.to("meta"), "sample: on the meta device"),
            (Branches().eval(), x, "a Branches that torch.fx cannot trace.*Export a part of it"),
        ):
            with self.subTest(said), self.assertRaisesRegex(convoy.Error, said):
                convoy.export(model, "nowhere", sample)

    def test_names_that_are_no_file_names(self):
        class Odd(nn.Module):
            def __init__(self):
                super().__init__()
                self.add_module("my conv#1/é", nn.Conv2d(3, 4, 3))

            def forward(self, x):
                return getattr(self, "my conv#1/é")(x)

        with tempfile.TemporaryDirectory() as folder:
            network = convoy.export(Odd().eval(), folder, torch.randn(2, 3, 8, 8))
            self.assertEqual([layer.name for layer in network.layers], ["my.conv.1/é"])

    def test_names_that_network_txt_cannot_hold(self):
        """Each layer gets a legal name of its own, and its weights."""
        for names in (["input", "steps"], ["flatten", "x"], ["a b", "a/b"], ["a/b", "a b_2"], ["#", "/"],
                      ["é" * 150, "y"], ["z" * 300, "z" * 301]):  # fmt: skip
            model = nn.Module()
            for name in names:
                model.add_module(name, nn.Conv2d(2, 2, 1))
            model = fx.GraphModule(model, chain(names)).eval()
            x = torch.randn(2, 2, 4, 4)
            with self.subTest(names), tempfile.TemporaryDirectory() as folder, torch.no_grad():
                network = convoy.export(model, folder, x)
                found = tensor(network(x.movedim(1, -1).contiguous()))
                torch.testing.assert_close(found.reshape(2, 4, 4, 2).movedim(-1, 1), model(x), rtol=1e-5, atol=1e-5)
                self.assertEqual(len({layer.name for layer in network.layers}), 2)

    def test_over_a_folder_of_other_files(self):
        """Nothing of the network that was there before is read."""
        x = torch.randn(2, 3, 8, 8)
        with tempfile.TemporaryDirectory() as folder:
            for form in ("safetensors", "text"):
                for bias in (False, True):
                    for name, shape in (("0.weight", (4, 3, 3, 3)), ("0.bias", (4,))):
                        np.save(f"{folder}/{name}.npy", np.full(shape, 7, np.float32))
                        pathlib.Path(folder, f"{name}.txt").write_text("7 " * np.prod(shape))
                    model = nn.Sequential(nn.Conv2d(3, 4, 3, bias=bias)).eval()
                    with self.subTest(form=form, bias=bias), torch.no_grad():
                        network = convoy.export(model, folder, x, form=form)
                        found = tensor(network(x.movedim(1, -1).contiguous()))
                        torch.testing.assert_close(found.reshape(2, 6, 6, 4).movedim(-1, 1), model(x))

    def test_where_nothing_can_be_written(self):
        model, x = nn.Sequential(nn.Conv2d(3, 8, 3)).eval(), torch.randn(1, 3, 8, 8)
        with tempfile.NamedTemporaryFile() as file:
            for folder in (file.name, file.name + "/below", "/proc/none/model"):
                with self.subTest(folder), self.assertRaisesRegex(convoy.Error, "Name a folder that this user may"):
                    convoy.export(model, folder, x)
        with self.assertRaisesRegex(convoy.Error, "form: 'pickle', expected 'safetensors' or 'text'"):
            convoy.export(model, "nowhere", x, form="pickle")

    def test_refusals_name_the_layer(self):
        class Twice(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 3, 1)

            def forward(self, x):
                return self.conv(x) + x

        x = torch.randn(2, 3, 8, 8)
        with tempfile.TemporaryDirectory() as folder:
            for model, said in (
                (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(2)), "1: an AvgPool2d"),
                (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1, padding_mode="reflect")), "0: padding_mode 'reflect'"),
                (Twice(), "read by 2 layers .*expected 1"),
                (nn.Sequential(nn.Flatten()), "no layers"),
                (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten()), "Flatten: no layer follows it, expected Linear"),
            ):
                with self.assertRaisesRegex(convoy.Error, said):
                    convoy.export(model.eval(), folder, x)
            with self.assertRaisesRegex(convoy.Error, "training mode"):
                convoy.export(self.model().train(), folder, x)
            self.assertEqual(os.listdir(folder), [])

    def test_spiking(self):
        try:
            from spikingjelly.activation_based import functional, layer, neuron
        except ImportError:
            self.skipTest("SpikingJelly is not installed")
        torch.manual_seed(2)
        model = nn.Sequential(layer.Conv2d(1, 8, 3), neuron.IFNode(0.3), layer.MaxPool2d(2), layer.Flatten(),
                              layer.Linear(8 * 9, 5), neuron.LIFNode(v_threshold=0.2, v_reset=None)).eval()  # fmt: skip
        functional.set_step_mode(model, "m")
        x = torch.rand(6, 1, 8, 8)
        with tempfile.TemporaryDirectory() as folder:
            network = convoy.export(model, folder, x.unsqueeze(0).expand(4, -1, -1, -1, -1))
            self.assertEqual(model[1].v, 0.0)
            with torch.no_grad():
                wanted = model(x.unsqueeze(0).expand(4, -1, -1, -1, -1)).mean(0)
            self.assertGreater(float(wanted.sum()), 0)
            torch.testing.assert_close(tensor(network(x.permute(0, 2, 3, 1).contiguous())), wanted, rtol=0, atol=0)
            functional.reset_net(model)
            with self.assertRaisesRegex(convoy.Error, "input of its own in each step"):
                convoy.export(model, folder, torch.rand(4, 6, 1, 8, 8))

    def test_docstrings(self):
        self.assertEqual(doctest.testmod(convoy.exporting).failed, 0)


@unittest.skipIf(nir is None, "nir is not installed")
class Nir(unittest.TestCase):
    TEXT = "input f32:h7w6c2\nsteps 3\nconv k4r3stride2x1pad1+bias+if(0.7)\nflatten\nfc k5+bias+lif(2.5,0.1)\nout k3\n"

    def folder(self, folder, text=TEXT):
        rng = np.random.default_rng(3)
        shapes = {"conv.weight": (4, 2, 3, 3), "conv.bias": (4,), "fc.weight": (5, 4 * 4 * 6), "fc.bias": (5,),
                  "out.weight": (3, 5)}  # fmt: skip
        convoy.nir_format.model_folder.write(folder, text, {n: rng.standard_normal(s) * 0.5 for n, s in shapes.items()})
        return convoy.Network(folder)

    def test_there_and_back(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
            network = self.folder(one)
            nir.write(f"{other}/graph.nir", convoy.to_nir(one))
            again = convoy.from_nir(f"{other}/graph.nir", other, steps=3)
            x = np.random.default_rng(4).standard_normal((20, 7, 6, 2)).astype(np.float32)
            self.assertTrue((network(x) == again(x)).all())
            self.assertGreater(np.abs(network(x)).max(), 0)
            with open(f"{other}/network.txt") as file:
                self.assertIn("+if(0.7)\n", file.read())  # the threshold went there and back to the bit

    def test_fires_from_the_threshold_on(self):
        """NIR's rule, v > v_threshold, on a membrane that is the threshold itself."""
        with tempfile.TemporaryDirectory() as folder:
            self.folder(folder)
            node = convoy.to_nir(folder).nodes["conv.neuron"]
            self.assertTrue((np.float32(0.7) > node.v_threshold).all())
            self.assertFalse((np.nextafter(np.float32(0.7), np.float32(0)) > node.v_threshold).any())

    def test_neurons_that_leave_their_numbers_out(self):
        with tempfile.TemporaryDirectory() as folder:
            for rider, tau, threshold in (("if", None, 1), ("lif", 2, 1), ("lif(3)", 3, 1), ("if(1e+30)", None, 1e30)):
                self.folder(folder, self.TEXT.replace("if(0.7)", rider))
                node = convoy.to_nir(folder).nodes["conv.neuron"]
                below = np.nextafter(np.float32(threshold), np.float32(-np.inf))
                self.assertTrue((node.v_threshold == below).all(), rider)
                self.assertTrue(tau is None or (node.tau == tau).all(), rider)

    def test_reads_what_a_network_reads(self):
        """Sizes in any order, no type, lines of any length, a mark at the beginning, safetensors of halves."""
        with tempfile.TemporaryDirectory() as folder:
            network = self.folder(folder, "input c2h7w6\nconv k4r3+bias\n")
            graph = convoy.to_nir(folder)
            self.assertEqual(graph.nodes["input"].input_type["input"].tolist(), [2, 7, 6])
            weights, bias = graph.nodes["conv"].weight.astype(np.float16), graph.nodes["conv"].bias
            with open(folder + "/conv.bias.txt", "w", encoding="utf-8-sig") as file:
                file.write("{:.9g} {:.9g}\n{:.9g}\n{:.9g}".format(*bias))
            data = weights.tobytes()
            header = json.dumps({"conv.weight": {"dtype": "F16", "shape": weights.shape,
                                                 "data_offsets": [0, len(data)]}}).encode()  # fmt: skip
            with open(folder + "/model.safetensors", "wb") as file:
                file.write(len(header).to_bytes(8, "little") + header + data)
            again, node = convoy.Network(folder), convoy.to_nir(folder).nodes["conv"]
            self.assertEqual(again.classes, network.classes)
            self.assertTrue((node.weight == weights).all() and (node.bias == bias).all())

    def test_refusals_name_the_layer(self):
        with self.assertRaisesRegex(convoy.Error, "conv1: a max-pool, for which NIR has no node"):
            convoy.to_nir(convoy.demo_model())
        with tempfile.TemporaryDirectory() as folder:
            for old, new, said in (("+if(0.7)", "+relu", "conv: ReLU,"), ("+if(0.7)", "+relu6", "conv: ReLU6"),
                                   ("+if(0.7)", "+clip(0,1)", "conv: a clip"),
                                   ("+if(0.7)", "+leaky(0.1)", "conv: a leaky ReLU"),
                                   ("+if(0.7)", "+if(0.7)+soft", "a soft reset"),
                                   ("out k3", "out k3 from(fc)", "out: several inputs"),
                                   ("f32:h7w6c2", "f32:h7w6c2 mean(1)", "input: .*without mean")):  # fmt: skip
                self.folder(folder, self.TEXT.replace(old, new))
                with self.assertRaisesRegex(convoy.Error, said):
                    convoy.to_nir(folder)
            for line, said in (("k4r3groups2", "conv: 'groups' in "), ("k4r3pad1x1x0x1", "differs from side to side"),
                               ("k4r3 batchnorm(bn)", "conv: a batch-norm"), ("k4r3+bias+max2", "conv: a max-pool")):
                with self.assertRaisesRegex(convoy.Error, said):
                    convoy.nir_format._check(convoy.NetworkText(f"input f32:h7w6c2\nconv {line}\n").layers[0])
            self.folder(folder)
            ones = np.ones((4, 4, 6), np.float32)
            for node, said in ((nir.CubaLIF(ones, ones, ones, ones, ones, ones * 0, ones), "conv.neuron: a CubaLIF"),
                               (nir.IF(ones, ones, ones * 2), "conv.neuron: v_reset is 2, expected 0"),
                               (nir.IF(ones, np.arange(96.0).reshape(4, 4, 6), ones * 0), "from 0 to 23")):  # fmt: skip
                graph = convoy.to_nir(folder)
                graph.nodes["conv.neuron"] = node
                with self.assertRaisesRegex(convoy.Error, said):
                    convoy.from_nir(graph, folder + "/other", steps=2)
            self.assertFalse(os.path.exists(folder + "/other"))


if __name__ == "__main__":
    unittest.main()
