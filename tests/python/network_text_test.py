"""convoy.NetworkText: the lines of a network.txt as objects, and back."""

import copy
import pickle
import unittest

import convoy
import listed

BRANCHES = """\
# Two paths
input u8:h32c3 mean(0.5) std(0.25,0.1,0.25)
steps 3
stem    k16r3pad1+bias+relu+max2
wide    k32r3pad1+bias+relu
narrow  k16r1+relu batchnorm(narrow_bn) from(stem)
both    r3k32stride2pad1+bias+lif+soft from(wide,narrow)
flatten
fc1     k64+bias+if(0.5)   # a comment
fc2     k10+bias
"""


class Text(unittest.TestCase):
    def test_layers(self):
        text = convoy.NetworkText(BRANCHES)
        self.assertEqual((text.dtype, text.h, text.w, text.c, text.steps), ("u8", 32, 32, 3, 3))
        self.assertEqual((text.mean, text.std), ((0.5,), (0.25, 0.1, 0.25)))
        stem, wide, narrow, both, flatten, fc1, fc2 = text.layers
        self.assertEqual([layer.name for layer in text.layers], "stem wide narrow both flatten fc1 fc2".split())
        self.assertEqual(stem.stage, convoy.Stage("n1h32c3k16r3pad1+bias+relu+max2"))
        self.assertEqual((wide.from_, narrow.from_, both.from_), ((), ("stem",), ("wide", "narrow")))
        self.assertEqual((wide.batchnorm, narrow.batchnorm, narrow.stage.bias), ("", "narrow_bn", True))
        self.assertEqual(both.stage, convoy.Stage("n1h16c48k32r3stride2pad1+bias+lif+soft+t3+hold"))
        self.assertEqual((flatten.flatten, flatten.stage, stem.flatten), (True, None, False))
        self.assertEqual([layer.linear for layer in text.layers], [False] * 5 + [True] * 2)
        self.assertEqual(fc1.stage, convoy.Stage("n1h1c2048k64r1+bias+if(0.5)+t3"))
        self.assertEqual(str(fc1), "fc1 k64+bias+if(0.5)")
        self.assertEqual(str(both), "both k32r3stride2pad1+bias+lif(2,1)+soft from(wide,narrow)")
        self.assertEqual(fc2.stage.y_shape, (1, 1, 1, 10))
        self.assertEqual(repr(text), "<convoy.NetworkText u8:h32w32c3, 7 layers>")
        self.assertEqual(repr(fc2), "<convoy.NetworkLayer fc2 k10+bias>")
        for name in ("stage", "name", "other"):
            with self.assertRaises(AttributeError):
                setattr(fc2, name, None)

    def test_back_to_text(self):
        texts = [path.read_text() for path in (*listed.SOURCE.glob("models/*/network.txt"),
                                               *listed.SOURCE.glob("tests/golden/**/network.txt"))]  # fmt: skip
        self.assertGreaterEqual(len(texts), 5)
        texts += [BRANCHES, "input bf16:h3w4c1\nflatten\na k2\nb k3 from(a)\nc k4 from(a,b)\n",
                  "input f32:c2h7w6 mean(0) std(3e-5,7)\nsteps 65536\na k2r3s1pad1x2x0x1groups2+leaky(0.1)+strict\n"]
        for given in texts:
            text = convoy.NetworkText(given)
            again = convoy.NetworkText(str(text))
            self.assertEqual(str(again), str(text))
            self.assertEqual((again, hash(again)), (text, hash(text)))
            for one, other in zip(again.layers, text.layers, strict=True):
                for name in ("name", "stage", "flatten", "linear", "batchnorm", "from_"):
                    self.assertEqual(getattr(one, name), getattr(other, name))
            for same in (copy.deepcopy(text), pickle.loads(pickle.dumps(text))):
                self.assertEqual(same, text)
        self.assertEqual(str(convoy.NetworkText(BRANCHES)).splitlines()[:2],
                         ["input u8:h32w32c3 mean(0.5) std(0.25,0.1,0.25)", "steps 3"])  # fmt: skip

    def test_layers_of_drawn_stages(self):
        for stage in listed.drawn(300, seed=5):
            plain = stage.replace(keep=None, norm=False, layout="nhwc", out=None, dtype="f32", n=1, hold=stage.t > 1)
            head = f"input f32:h{plain.h}w{plain.w}c{plain.c}\n" + f"steps {plain.t}\n" * (plain.t > 1)
            (layer,) = convoy.NetworkText(f"{head}a {plain.layer_text()}\n").layers
            self.assertEqual(layer.stage, plain)

    def test_as_a_network_reads_it(self):
        network = convoy.Network(convoy.demo_model())
        with open(f"{convoy.demo_model()}/network.txt") as file:
            text = convoy.NetworkText(file.read())
        self.assertEqual([str(layer.stage) for layer in text.layers if not layer.flatten],
                         [layer.stage for layer in network.layers])  # fmt: skip

    def test_errors_name_the_line(self):
        good = "input f32:h4c1\nconv k2r3\n"
        for text, pattern in ((good + "a k3r1+silu\n", "mine:3: .*'silu' is not supported yet"),
                              (good + "a k3r1 join(b)\n", 'mine:3: "join.b.": expected the end of the line'),
                              (good + "a k3r1+norm\n", "mine:3: a: found norm"), ("", "mine: empty"),
                              (good.replace("r3", "r5"), "mine:2: ")):  # fmt: skip
            with self.subTest(text), self.assertRaisesRegex(convoy.Error, pattern):
                convoy.NetworkText(text, "mine")
        for wrong, pattern in ((b"input", "text: a bytes, expected the content"), ("\udcff", "lone surrogate")):
            with self.assertRaisesRegex(convoy.Error, pattern):
                convoy.NetworkText(wrong)
        for rider in (*listed.NO_RIDERS, *listed.TWICE):
            with self.subTest(rider), self.assertRaises(convoy.Error):
                convoy.NetworkText(f"{good}a k3r1+{rider}\n")


if __name__ == "__main__":
    unittest.main()
