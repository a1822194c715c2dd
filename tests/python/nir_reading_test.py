"""from_nir: NIR's equations beside what the network computes, graphs of SpikingJelly, names and refusals."""

import doctest
import itertools
import os
import tempfile
import unittest

import numpy as np

import convoy
from convoy.layer_names import layer_names

try:
    import nir
except ImportError:
    nir = None


def row(*nodes, shape, names=None):
    """A graph of nodes in a row, unchecked."""
    names = ["input", *(names or [f"n{i}" for i in range(len(nodes))]), "output"]
    nodes = [nir.Input(np.array(shape)), *nodes, nir.Output(np.array([1]))]
    return nir.NIRGraph(dict(zip(names, nodes, strict=True)), list(itertools.pairwise(names)), type_check=False)


def by_nir(x, weight, bias, node, steps, dt):
    """The mean of the spikes of a linear layer and its neurons, by NIR's equations in double."""
    current, v, sums = x.astype(np.float64) @ weight.T.astype(np.float64) + bias, 0.0, 0.0
    for _ in range(steps):
        if isinstance(node, nir.IF):
            v = v + dt * node.r * current
        else:
            v = v + dt / node.tau * (node.v_leak - v + node.r * current)
        fired = v > node.v_threshold
        v, sums = np.where(fired, node.v_reset, v), sums + fired
    return sums / steps


def conv(weight, **options):
    given = {"input_shape": (6, 6), "stride": 1, "padding": 1, "dilation": 1, "groups": 1, "bias": None}
    return nir.Conv2d(weight=weight, **given | options)


@unittest.skipIf(nir is None, "nir is not installed")
class FromNir(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder, self.rng = folder.name, np.random.default_rng(5)

    def read(self, graph, **options):
        return convoy.from_nir(graph, self.folder + "/model", **{"steps": 3} | options)

    def text(self):
        with open(self.folder + "/model/network.txt", encoding="utf-8") as file:
            return file.read()

    def test_first_spikes(self):
        """One neuron with a constant input fires for the first time in the step in which NIR's equation does."""
        one = np.ones(1)
        cases = [(nir.IF(one * r, one * threshold), x, dt) for r, threshold, x, dt in (
            (1, 1, 0.0625, 1), (1, 1, 0.3, 1e-3), (1e4, 1, 0.3, 1e-4), (1e3, 0.3, 0.3, 1e-3), (2, 1, 0.3, 0.5),
            (-1, 1, -0.3, 1), (1, 1e6, 0.3, 1e3), (1e-30, 1e-30, 0.3, 1))]  # fmt: skip
        cases += [(nir.LIF(one * tau, one * r, one * 0, one), 1.2, dt) for tau, r, dt in (
            (2, 1, 1), (2e-4, 1, 1e-4), (5e-3, 1, 1e-3), (2e-4, 2, 1e-4), (1e-3, 1, 1e-3), (3, 3, 1))]  # fmt: skip
        for node, x, dt in cases:
            wanted, v = 0, 0.0
            while v <= node.v_threshold[0]:
                wanted += 1
                v += dt * node.r[0] * x if isinstance(node, nir.IF) else dt / node.tau[0] * (node.r[0] * x - v)
            graph, image = row(nir.Linear(np.ones((1, 1), np.float32)), node, shape=[1]), np.full((1, 1), x, np.float32)
            with self.subTest(node=node, x=x, dt=dt, first=wanted):
                if wanted > 1:
                    self.assertEqual(self.read(graph, steps=wanted - 1, dt=dt)(image)[0, 0], 0)
                self.assertGreater(self.read(graph, steps=wanted, dt=dt)(image)[0, 0], 0)

    def test_neurons_by_their_equations(self):
        """Rows of r of every kind: positive, per neuron, negative, 0, in single precision."""
        x, steps = self.rng.standard_normal((50, 6)).astype(np.float32), 7
        weight, bias = self.rng.standard_normal((4, 6)).astype(np.float32), self.rng.standard_normal(4)
        ones = np.ones(4)
        single = np.float32(1 / 3e-4) * ones.astype(np.float32)
        kinds = (ones, ones * 3, -ones, ones * 0, np.array([1, 2, -4, 0.3]), single)
        for r, dt in itertools.product(kinds, (1.0, 3e-4, 0.7)):
            lif = nir.LIF(ones * 2.5 * dt, r, ones * 0, ones * 0.9)
            for node in (nir.IF(r, ones * 0.9 * max(1, dt * abs(r).max())), lif):
                with self.subTest(node=node, dt=dt):
                    found = self.read(row(nir.Affine(weight, bias), node, shape=[6]), steps=steps, dt=dt)(x)
                    wanted = by_nir(x, weight, bias, node, steps, dt)
                    np.testing.assert_array_equal(np.round(found * steps), np.round(wanted * steps))

    def test_one_r_changes_no_weight(self):
        weight, one = self.rng.standard_normal((3, 2)).astype(np.float32), np.ones(3)
        for r, dt, rider in ((1e4, 1e-4, "+if(1)"), (np.float32(1 / 3e-4), 3e-4, "+if(1)"), (1, 1e-3, "+if(1000)"),
                             (3, 1, "+if(0.33333334)")):  # fmt: skip
            with self.subTest(r=r, dt=dt):
                below = np.nextafter(np.float32(1), np.float32(0)) if rider == "+if(1)" else one[0]
                self.read(row(nir.Linear(weight), nir.IF(one * r, one * below), shape=[2]), dt=dt)
                if rider == "+if(1)":
                    self.assertIn(f"n0 k3{rider}\n", self.text())
                stored = convoy.nir_format.model_folder.read(self.folder + "/model", "n0.weight", (3, 2))
                np.testing.assert_array_equal(stored, weight)

    def test_a_convolution_with_an_r_per_channel(self):
        weight = self.rng.standard_normal((4, 2, 3, 3)).astype(np.float32)
        ones, r = np.ones((4, 6, 6)), np.array([0.5, 1, -2, 4])[:, None, None]
        x = self.rng.standard_normal((5, 6, 6, 2)).astype(np.float32)
        lif = [nir.LIF(ones * 2, ones * by, ones * 0, ones) for by in (r, 1)]
        given = self.read(row(conv(weight), lif[0], shape=[2, 6, 6]))(x)
        wanted = self.read(row(conv(weight * r[..., None]), lif[1], shape=[2, 6, 6]))(x)
        np.testing.assert_array_equal(given, wanted)
        self.assertGreater(wanted.sum(), 0)

    def test_shapes_of_arrays(self):
        """Scalars, one number per channel, one per neuron, before a Flatten or behind it: the same network."""
        weight, x = self.rng.standard_normal((4, 2, 3, 3)).astype(np.float32), np.ones((1, 6, 6, 2), np.float32)
        flatten = nir.Flatten({"input": np.array([4, 6, 6])}, 0, -1)
        last = nir.Linear(self.rng.standard_normal((3, 144)))
        found = []
        for shape in ((), (1,), (4,), (4, 1, 1), (4, 6, 6), (144,)):
            lif = nir.LIF(*(np.full(shape, v) for v in (2.0, 1.0, 0.0, 0.5)))
            for nodes in ((conv(weight), lif, flatten, last), (conv(weight), flatten, lif, last)):
                found.append(self.read(row(*nodes, shape=[2, 6, 6]))(x))
        for one in found:
            np.testing.assert_array_equal(one, found[0])

    def test_same_padding_and_no_bias(self):
        for sizes, dilation in (((3, 3), 1), ((2, 4), 1), ((3, 2), (1, 2))):
            weight = self.rng.standard_normal((4, 2, *sizes)).astype(np.float32)
            dils = np.broadcast_to(dilation, 2)
            both = [d * (size - 1) for d, size in zip(dils, sizes, strict=True)]
            x = self.rng.standard_normal((1, 6, 6, 2)).astype(np.float32)
            found = self.read(row(conv(weight, padding="same", dilation=dilation), shape=[2, 6, 6]))(x)
            padded = np.pad(x[0], [*((size // 2, size - size // 2) for size in both), (0, 0)])
            wanted = sum(padded[i * dils[0] :, j * dils[1] :][:6, :6] @ weight[:, :, i, j].T
                         for i in range(sizes[0]) for j in range(sizes[1]))  # fmt: skip
            np.testing.assert_allclose(found, wanted.reshape(1, -1), rtol=1e-4, atol=1e-4)
            self.assertNotIn("bias", self.text())

    def test_names(self):
        one, three = np.eye(2, dtype=np.float32), 3 * np.eye(2, dtype=np.float32)
        for names in (["a/b", "a.b"], ["a b", "a/b"], ["steps", "x"], ["flatten", "steps"], ["#1", "#2"], ["", " "],
                      ["a" * 300, "a" * 301], ["é" * 150, "b"], ["..", "b"], ["a\nsteps 9", "b"], ["a\0", "a\x85"],
                      ["\ud800", "\u2028"], ["from(x)", "batchnorm(y)"]):  # fmt: skip
            with self.subTest(names=names):
                for form in ("safetensors", "text"):
                    graph = row(nir.Linear(one), nir.Linear(three), shape=[2], names=names)
                    network = self.read(graph, steps=1, form=form)
                    self.assertEqual(network(np.array([[1, 0]], np.float32))[0, 0], 3)
                    self.assertEqual([layer.name for layer in network.layers], list(layer_names(names).values()))

    def test_refusals_name_node_and_number(self):
        w, ones = np.ones((4, 2, 3, 3), np.float32), np.ones((4, 6, 6))
        one = np.ones(2)
        lif = nir.LIF(ones * 2, ones, ones * 0, ones)
        two = nir.Linear(np.eye(2, dtype=np.float32))
        flatten = nir.Flatten({"input": np.array([4, 6, 6])}, 0, -1)
        image = [2, 6, 6]
        linear = [2]
        for nodes, shape, said in (
            ((two, nir.IF(one, one, one * 0.2)), linear, "n1: v_reset is 0.2, expected 0"),
            ((two, nir.LIF(one, one, one * 0.5, one)), linear, "n1: v_leak is 0.5, expected 0"),
            ((two, nir.LIF(one / 2, one, one * 0, one)), linear, "n1: tau 0.5 is 0.5 steps of dt=1"),
            ((two, nir.LIF(one * 2, one, one * 0, one * [1, 3])), linear, "n1: v_threshold differs .* 1 to 3"),
            ((two, nir.IF(one * np.nan, one)), linear, "n1: r holds nan"),
            ((two, nir.IF(one * 1e-300, one)), linear, "n1: v_threshold divided by dt r holds numbers outside"),
            ((two, nir.IF(np.ones(3), np.ones(3))), linear, r"n1: r has the shape \[3\], expected one number, \[2\]"),
            ((two, nir.IF(one, one), nir.IF(one, one)), linear, "n2: an IF after another neuron"),
            ((lif, conv(w)), image, "n0: a LIF without a layer before it"),
            ((conv(w), nir.IF(ones * np.arange(6), ones)), image, "n1: r is from 0 to 5 in channel 0"),
            ((conv(w), flatten), image, "n1: no layer after it"),
            ((conv(w), nir.Flatten({"input": np.array([4, 6, 6])}, 0, 1)), image, "n1: start_dim 0, end_dim 1"),
            ((conv(w, stride=2, padding="same"),), image, r"n0: padding 'same' with stride \[2, 2\]"),
            ((conv(w, padding=(1, 1, 2)),), image, r"n0: padding is \[1.0, 1.0, 2.0\]"),
            ((conv(w, stride=(1.5, 1)),), image, r"n0: stride is \[1.5, 1.0\]"),
            ((conv(w, input_shape=(5, 6)),), image, r"n0: input_shape is \[5, 6\], expected \[6, 6\]"),
            ((conv(w, bias=np.ones(3)),), image, r"n0: bias has the shape \[3\], expected \[4\]"),
            ((conv(w * np.inf),), image, "n0: weight holds inf"),
            ((conv(w.astype(np.float64) * 1e39),), image, "n0: weight holds numbers outside the range of fp32"),
            ((conv(w), ), [3, 6, 6], r"n0: weight has the shape \[4, 2, 3, 3\], expected \[K, 3/1, R, S\]"),
            ((conv(w, padding=0), ), [2, 2, 2], "n0: input_shape"),
            ((two, conv(w)), linear, "n1: a Conv2d whose input is a vector of 2"),
            ((two,), [1, 2, 6, 6], r"input: shape is \[1.0, 2.0, 6.0, 6.0\]"),
            ((nir.Linear(np.ones((2, 3))),), linear, r"n0: weight has the shape \[2, 3\], expected \[K, 2\]"),
            ((nir.AvgPool2d(2, 2, 0),), image, "n0: an AvgPool2d"),
            ((), linear, "graph: no layer"),
        ):  # fmt: skip
            with self.subTest(said), self.assertRaisesRegex(convoy.Error, said):
                self.read(row(*nodes, shape=shape))
        self.assertEqual(os.listdir(self.folder), [])

    def test_graphs_that_are_no_row(self):
        node = {"input": nir.Input(np.array([2])), "a": nir.Linear(np.eye(2)), "b": nir.Linear(np.eye(2)),
                "output": nir.Output(np.array([2])), "x": nir.Linear(np.eye(2))}  # fmt: skip
        edges = [("input", "a"), ("a", "b"), ("b", "output")]
        for more, said in (([], "x: it is not"), ([("x", "b")], "b: 2 nodes before it"), ([("b", "a")], "2 nodes"),
                           ([("b", "none")], "graph: the edge .'b', 'none'."), ([3], "graph: the edge 3")):  # fmt: skip
            graph = nir.NIRGraph(dict(node), list(edges), type_check=False)
            graph.edges += more
            with self.subTest(more), self.assertRaisesRegex(convoy.Error, said):
                self.read(graph)
        graph = nir.NIRGraph(node | {"x": nir.Input(np.array([2]))}, edges, type_check=False)
        with self.assertRaisesRegex(convoy.Error, "graph: 2 Input nodes"):
            self.read(graph)

    def test_arguments(self):
        graph = row(nir.Linear(np.eye(2)), shape=[2])
        foreign = self.folder + "/foreign"
        with open(foreign, "w") as file:
            file.write("not a graph")
        for given, options, said in (
            (self.folder + "/none.nir", {}, "none.nir: no such file"),
            (foreign, {}, "foreign: OSError: .*Check the file's name"),
            (self.folder, {}, "Check the file's name"),
            (None, {}, "graph: a NoneType, expected a nir.NIRGraph"),
            (3, {}, "graph: an int"),
            (nir.Linear(np.eye(2)), {}, "graph: a Linear"),
            (graph, {"dt": 0}, "dt: 0, expected a finite number above 0"),
            (graph, {"dt": -1.0}, "dt: -1.0"),
            (graph, {"dt": float("nan")}, "dt: nan"),
            (graph, {"dt": "1"}, "dt: '1'"),
            (graph, {"steps": 0}, "steps: 0, expected a whole number of time steps"),
            (graph, {"steps": 1.5}, "steps: 1.5"),
            (graph, {"form": "pickle"}, "form: 'pickle'"),
        ):
            with self.subTest(said), self.assertRaisesRegex(convoy.Error, said):
                self.read(given, **options)

    def test_layers_named_as_nodes_of_the_graph(self):
        text = "input f32:h1w1c2\nflatten\noutput k2+if(0.5)\noutput.neuron k2\n"
        arrays = {f"{name}.weight": self.rng.standard_normal((2, 2)) for name in ("output", "output.neuron")}
        convoy.nir_format.model_folder.write(self.folder, text, arrays)
        x = self.rng.standard_normal((9, 1, 1, 2)).astype(np.float32)
        again = self.read(convoy.to_nir(self.folder), steps=1)
        np.testing.assert_array_equal(again(x), convoy.Network(self.folder)(x))

    def test_spikingjelly(self):
        try:
            import torch
            from spikingjelly.activation_based import functional, layer, neuron
            from spikingjelly.activation_based.nir_exchange import export_to_nir
        except ImportError as missing:
            self.skipTest(str(missing))
        torch.manual_seed(0)
        kinds = {"IF": neuron.IFNode, "LIF": lambda: neuron.LIFNode(3.0), "PLIF": neuron.ParametricLIFNode,
                 "LIF without decay": lambda: neuron.LIFNode(4.0, decay_input=False),
                 "PLIF without decay": lambda: neuron.ParametricLIFNode(decay_input=False)}  # fmt: skip
        x = torch.rand(4, 2, 6, 6)
        for (name, kind), dt in itertools.product(kinds.items(), (1e-4, 3e-3)):
            model = torch.nn.Sequential(layer.Conv2d(2, 4, 3, padding=1), kind(), layer.Flatten(), layer.Linear(144, 9),
                                        kind()).eval()  # fmt: skip
            for module in (model[0], model[3]):
                module.weight.data *= 6
            graph = export_to_nir(model, x, dt=dt)
            functional.reset_net(model)
            with torch.no_grad():
                wanted = sum(model(x) for _ in range(6)) / 6
            with self.subTest(name, dt=dt):
                self.assertGreater(wanted.sum(), 0)
                found = self.read(graph, steps=6, dt=dt)(x.permute(0, 2, 3, 1).contiguous().numpy())
                np.testing.assert_array_equal(np.round(found * 6), np.round(wanted.numpy() * 6))


class LayerNames(unittest.TestCase):
    def test_names_are_unique_and_legal(self):
        names = ["a b", "a/b", "a.b", "a.b_2", "input", "input_2", "é" * 120, "é" * 121, "", "layer"]
        given = layer_names(names)
        self.assertEqual(len(set(given.values())), len(names))
        self.assertEqual([given[n] for n in ("a.b", "a.b_2", "input_2", "layer")], ["a.b", "a.b_2", "input_2", "layer"])
        self.assertEqual((given["a/b"], given["é" * 121]), ("a/b", "é" * 121))
        self.assertEqual(doctest.testmod(convoy.layer_names).failed, 0)


if __name__ == "__main__":
    unittest.main()
