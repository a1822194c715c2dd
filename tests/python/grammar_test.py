"""python/training/grammar.py, the reader for machines without the package, reads what convoy reads, and no more."""

import importlib.util
import struct
import sys
import unittest

import convoy
import listed

# The training tools are not installed. Their folder's parent has the package's sources too, so it is not on the path.
folder = listed.SOURCE / "python/training"
spec = importlib.util.spec_from_file_location("training", folder / "__init__.py",
                                              submodule_search_locations=[str(folder)])  # fmt: skip
sys.modules["training"] = importlib.util.module_from_spec(spec)

from training import description, grammar  # noqa: E402


def f32(value):
    return struct.pack("f", value)


class Grammar(unittest.TestCase):
    def same(self, parts, stage):
        """Every part that the reader found is that of the stage, and the stage has no other."""
        self.assertEqual({*parts} - {"nchw", "layout"}, {*listed.KEYWORDS} - {"layout"}, stage)
        for name in ("dtype", "n", "h", "w", "c", "k", "r", "s", "stride", "pad", "dil", "groups", "bias", "norm",
                     "soft", "t", "hold", "strict"):  # fmt: skip
            self.assertEqual(parts[name], getattr(stage, name), f"{stage}: {name}")
        self.assertEqual(parts["nchw"], stage.layout == "nchw", stage)
        self.assertEqual(parts["out"] if parts["out"] != stage.dtype else None, stage.out, stage)
        self.assertEqual({*parts["keep"]}, {name for name in ("pre", "act", "idx") if getattr(stage.keep, name)}, stage)
        name, numbers = parts["act"] or ("none", ())
        act = stage.act
        wanted = {"clip": (act.lo, act.hi), "leaky": (act.slope,), "if": (act.threshold,),
                  "lif": (act.tau, act.threshold)}  # fmt: skip
        self.assertEqual(name, act.kind, stage)
        self.assertEqual([f32(v) for v in numbers], [f32(v) for v in wanted.get(name, ())], stage)
        pool = stage.pool and {name: getattr(stage.pool, name) for name in ("window", "stride", "pad", "dil", "ceil")}
        self.assertEqual(parts["pool"], pool, stage)

    def test_stages(self):
        for stage in (*listed.listed(), *listed.drawn(3000, seed=3)):
            self.same(grammar.parts(str(stage)), stage)
        for text in ("r3h8k6n1c4", "n1h8c4k6r3+max2s2x2+if", "u8:n1h8w9c4k6r3s1pad1x2out(f16)+lif(3)+bias",
                     "n1h8c4k6r3+keep(idx,pre)+max2+strict", "n1h8c4k6r3+clip(-.5,1.)",
                     "n1h8c4k6r3+leaky(1e-3)"):  # fmt: skip
            self.same(grammar.parts(text), convoy.Stage(text))

    def test_networks(self):
        paths = [*listed.SOURCE.glob("models/*/network.txt"), *listed.SOURCE.glob("tests/golden/**/network.txt")]
        self.assertGreaterEqual(len(paths), 5)
        for path in paths:
            wanted = convoy.NetworkText(path.read_text())
            source, steps, layers = grammar.network(path.read_text())
            self.assertEqual((source["dtype"], source["h"], source["w"], source["c"], steps or 1),
                             (wanted.dtype, wanted.h, wanted.w, wanted.c, wanted.steps))  # fmt: skip
            self.assertEqual((source["mean"], source["std"]), (wanted.mean, wanted.std))
            self.assertEqual([name for name, *_ in layers], [layer.name for layer in wanted.layers])
            for (_, text, parts), layer in zip(layers, wanted.layers, strict=True):
                self.assertEqual(text is None, layer.flatten)
                if not layer.flatten:
                    follows = {name: getattr(layer.stage, name) for name in ("dtype", "n", "h", "w", "c", "t", "hold")}
                    linear = {"r": 1, "s": 1} if layer.linear else {}
                    self.same(linear | parts | follows, layer.stage)

    def test_what_it_does_not_know(self):
        for text in listed.no_stages():
            with self.subTest(text), self.assertRaises(ValueError):
                grammar.parts(text)

    def test_lines_that_it_does_not_know(self):
        good = "input f32:h8c1\nconv k2r3\n"
        grammar.network(good)
        texts = [good + line for line in ("a k3r1 batchnorm(b)", "a k3r1 from(conv)", "pool max2", "a r3", "a h8k3r1",
                                          "a f32:k3r1", "a k3r1+silu", "steps 2", "input f32:h8c1", "flatten now",
                                          "flatten k3", "lone")]  # fmt: skip
        texts += ["input f32:h8c1" + more for more in (" mean(1) mean(1)", " scale(2)", " mean()", "\nsteps 0",
                                                       "\nsteps", "\nsteps 2 3", "\nsteps 2\nsteps 2")]  # fmt: skip
        for text in (*texts, "steps 2\n" + good, "", "input"):
            with self.subTest(text), self.assertRaises(ValueError):
                grammar.network(text)

    def test_networks_that_are_not_trained(self):
        """The training tools refuse every part that they do not train."""
        text = "input u8:h12c2\nconv k4r5+bias+if(1)+max2\nflatten\nfc k10+bias\n"
        description.parse(text)
        for old, *several in (
            ("k4r5", "k4r5stride2", "k4r5s3", "k4r5dil2", "k4r5groups2", "k4r5nchw", "k4r5out(f32)", "k4r5pad1x2"),
            ("k4r5", "n1k4r5", "f16:k4r5", "c2k4r5"), ("max2", "max2s1", "max2ceil", "max3"),
            ("max2", "max2+strict", "max2+norm", "max2+keep(pre)", "max2+silu", "max2 from(conv)"),
            ("+if(1)", "+relu", "+if(1)+t2", "+if(1)+hold"), ("+bias+if", "+if"), ("fc k10+bias", "fc k10+bias+max2"),
            ("k10", "k10r3", "k10pad1"), ("u8:h12c2", "f32:h12c2", "u8:h12c2k3"), ("flatten\n", "flatten\nflatten\n"),
        ):  # fmt: skip
            for new in several:
                with self.subTest(new), self.assertRaises(description.DataError):
                    description.parse(text.replace(old, new, 1))


if __name__ == "__main__":
    unittest.main()
