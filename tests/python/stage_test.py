"""The parts of convoy.Stage as objects: from text to objects to keywords and back, and what is refused."""

import copy
import pickle
import unittest

import convoy
import listed


class Parts(unittest.TestCase):
    def test_every_part_has_its_name(self):
        stage = convoy.Stage("f16:n2h9w8c4k6r3s2stride2x1pad1x2x0x1dil1x2groups2out(f32)+bias+norm+lif(2.5,0.1)+soft"
                             "+t3+hold+max3x2s2p1ceil+keep(act,idx)+strict")  # fmt: skip
        self.assertEqual({name: getattr(stage, name) for name in listed.KEYWORDS}, dict(
            dtype="f16", n=2, h=9, w=8, c=4, k=6, r=3, s=2, stride=(2, 1), pad=(1, 2, 0, 1), dil=(1, 2), groups=2,
            layout="nhwc", out="f32", bias=True, norm=True, act=convoy.Activation("lif(2.5,0.1)"), soft=True, t=3,
            hold=True, pool=convoy.Pool((3, 2), 2, 1, ceil=True), keep=convoy.Keep("act,idx"),
            strict=True))  # fmt: skip
        self.assertEqual((stage.act.kind, stage.act.tau, stage.act.threshold), ("lif", 2.5, 0.1))
        self.assertEqual((stage.act.lo, stage.act.hi, stage.act.slope, stage.act.is_neuron), (0, 0, 0, True))
        pool, keep = stage.pool, stage.keep
        self.assertEqual((pool.window, pool.stride, pool.pad, pool.dil, pool.ceil),
                         ((3, 2), (2, 2), (1, 1), (1, 1), True))  # fmt: skip
        self.assertEqual((keep.pre, keep.act, keep.idx), (False, True, True))

    def test_defaults(self):
        stage = convoy.Stage("n1h8c4k6r3")
        self.assertEqual((stage.w, stage.s, stage.stride, stage.pad, stage.dil), (8, 3, (1, 1), (0,) * 4, (1, 1)))
        self.assertEqual((stage.out, stage.pool), (None, None))
        self.assertEqual((stage.act, stage.keep), (convoy.Activation(), convoy.Keep()))
        self.assertFalse(stage.act or stage.keep)
        self.assertEqual((stage.act.kind, repr(stage.act), repr(stage.keep)), ("none", "none", "keep()"))
        self.assertEqual(convoy.Stage("u8:n1h8c4k6r3").output_dtype, "f32")

    def test_there_are_no_other_keywords(self):
        with self.assertRaisesRegex(convoy.Error, "found the keyword 'add', expected one of: ") as caught:
            convoy.Stage(add=True)
        self.assertEqual(str(caught.exception).rpartition(": ")[2].split(", "), listed.KEYWORDS)
        with self.assertRaisesRegex(convoy.Error, "found the keyword 'add'"):
            convoy.Stage("n1h8c4k6r3").replace(add=True)

    def test_numbers_are_those_of_the_text(self):
        for text, name, value in (("clip(-1e30,0.1)", "lo", -1e30), ("clip(-1e30,0.1)", "hi", 0.1),
                                  ("clip(-inf,inf)", "hi", float("inf")), ("leaky(0.1)", "slope", 0.1),
                                  ("leaky(0.12345678901)", "slope", 0.12345679), ("if(0.7)", "threshold", 0.7),
                                  ("lif(3.3,1e-20)", "tau", 3.3), ("lif", "tau", 2),
                                  ("lif", "threshold", 1)):  # fmt: skip
            self.assertEqual(getattr(convoy.Activation(text), name), value, text)

    def test_objects_are_values(self):
        values = [*map(convoy.Activation, ("none", "relu", "relu6", "clip(0,1)", "leaky(0.1)", "if(2)", "lif")),
                  *map(convoy.Pool, (2, "2s1", (2, 3), "3p1", "2ceil")), *map(convoy.Keep, ("", "pre", ("idx", "pre")))]
        self.assertEqual(len(set(values)), len(values))
        for value in values:
            again = type(value)(repr(value))
            for same in (copy.copy(value), copy.deepcopy(value), pickle.loads(pickle.dumps(value)), again):
                self.assertEqual(same, value)
                self.assertEqual((hash(same), repr(same), bool(same)), (hash(value), repr(value), bool(value)))
            self.assertNotEqual(value, repr(value))
        for value, name in ((values[0], "kind"), (convoy.Pool(2), "window"), (convoy.Keep(), "pre"),
                            (convoy.Stage("n1h8c4k6r3"), "n")):  # fmt: skip
            with self.assertRaises(AttributeError):
                setattr(value, name, 3)
            with self.assertRaises(AttributeError):
                value.other = 3

    def test_ways_to_say_the_same(self):
        for same in (2, (2, 2), [2], "2", "max2", "2x2", "max2s2"):
            self.assertEqual(convoy.Pool(same), convoy.Pool(2))
            self.assertEqual(convoy.Stage(h=8, c=4, k=6, r=3, pool=same).pool, convoy.Pool(2))
        self.assertEqual(convoy.Pool(3, 2, 1, 1, True), convoy.Pool("max3s2p1ceil"))
        for same in (("act", "idx"), "act,idx", "keep(act,idx)", ["idx", "act"]):
            self.assertEqual(convoy.Keep(same), convoy.Keep("act,idx"))
        sizes = dict(h=8, c=4, k=6, r=3)
        self.assertEqual(convoy.Stage(**sizes, act=None, pool=None, keep=None, out=None), convoy.Stage(**sizes))
        self.assertEqual(convoy.Stage(**sizes, act="none", keep=()), convoy.Stage(**sizes))

    def test_shapes(self):
        stage = convoy.Stage("n2h9w12c4k6r3stride2pad1+bias+max2")
        self.assertEqual((stage.p, stage.q, stage.out_h, stage.out_w), (5, 6, 2, 3))
        self.assertEqual(stage.y_shape, (2, 2, 3, 6))

    def test_what_the_objects_refuse(self):
        for make, pattern in (
            (lambda: convoy.Activation("relu+bias"), "Activation: found 'relu.bias', expected one rider of this kind"),
            (lambda: convoy.Activation("bias"), "Activation: found 'bias'"),
            (lambda: convoy.Activation("max2"), "Activation: found 'max2'"),
            (lambda: convoy.Activation(""), "unknown rider"),
            (lambda: convoy.Activation("silu"), "'silu' is not supported yet"),
            (lambda: convoy.Activation(2.5), "Activation: text is a float"),
            (lambda: convoy.Pool(2.5), "Pool: window is a float"),
            (lambda: convoy.Pool("2+bias"), "Pool: found 'max2.bias'"),
            (lambda: convoy.Pool((1, 2, 3)), "expected"),
            (lambda: convoy.Pool(2, stride=0), "stride is 0x0, expected at least 1"),
            (lambda: convoy.Pool(2, ceil="no"), "Pool: ceil is a str, expected True or False"),
            (lambda: convoy.Pool("max2s1", 2), "expected"),
            (lambda: convoy.Keep("y"), "expected pre, act or idx"),
            (lambda: convoy.Keep(("pre", "pre")), "'pre' is given twice"),
            (lambda: convoy.Stage(h=8, c=4, k=6, r=3, act="relu+max2"), "found 'relu.max2'"),
            (lambda: convoy.Stage(h=8, c=4, k=6, r=3, pool="2+strict"), "found 'max2.strict'"),
            (lambda: convoy.Stage.keywords_of(3), "stage: an int, expected a convoy.Stage or its text"),
        ):  # fmt: skip
            with self.subTest(pattern), self.assertRaisesRegex(convoy.Error, pattern):
                make()


class RoundTrips(unittest.TestCase):
    def test_text_to_objects_to_keywords_to_text(self):
        stages = [*listed.listed(), *listed.drawn(3000)]
        self.assertGreater(len(stages), 3500)
        for stage in stages:
            text = str(stage)
            keywords = {name: getattr(stage, name) for name in listed.KEYWORDS}
            texts = dict(act=repr(stage.act), pool=stage.pool and repr(stage.pool), keep=repr(stage.keep))
            for same in (convoy.Stage(**keywords), convoy.Stage(**keywords | texts), stage.replace(),
                         convoy.Stage(**convoy.Stage.keywords_of(text)),
                         stage.replace(n=stage.n + 1).replace(n=stage.n)):  # fmt: skip
                self.assertEqual((same, str(same), hash(same)), (stage, text, hash(stage)))

    def test_drawn_stages_have_every_part(self):
        stages = listed.drawn(3000)
        plain = convoy.Stage("n1h8c4k6r3")
        for name in listed.KEYWORDS:
            self.assertGreater(sum(getattr(stage, name) != getattr(plain, name) for stage in stages), 100, name)
        for kind in ("none", "relu", "relu6", "clip", "leaky", "if", "lif"):
            self.assertGreater(sum(stage.act.kind == kind for stage in stages), 30, kind)

    def test_replace_changes_nothing_else(self):
        stage = convoy.Stage("f16:n2h9w8c4k6r3s2out(f32)+bias+if(1)+t3+hold+max2")
        changed = stage.replace(h=12, r=1, act="relu", t=1, hold=False, out=None)
        self.assertEqual(str(changed), "f16:n2h12w8c4k6r1s2+bias+relu+max2")
        self.assertEqual(str(stage.replace(dtype="f32")), "n2h9w8c4k6r3s2+bias+if(1)+t3+hold+max2")
        with self.assertRaisesRegex(convoy.Error, "hold"):
            stage.replace(act=None)

    def test_parts_of_a_stage(self):
        self.assertEqual(convoy.Stage.keywords_of("k8r5+bias+max2"), dict(k=8, r=5, bias=True, pool=convoy.Pool(2)))
        self.assertEqual(convoy.Stage.keywords_of("n1h4w4s3"), dict(n=1, h=4, w=4, s=3))
        self.assertEqual(convoy.Stage.keywords_of(""), {})
        self.assertEqual(convoy.Stage.keywords_of("f32:+strict"), dict(dtype="f32", strict=True))
        self.assertNotIn("keep", convoy.Stage.keywords_of(convoy.Stage("n1h8c4k6r3")))

    def test_layer_text(self):
        for stage in listed.drawn(300):
            bare = stage.replace(keep=None, norm=False, layout="nhwc", out=None)
            parts = convoy.Stage.keywords_of(bare.layer_text())
            self.assertLessEqual(parts.keys(), {*listed.KEYWORDS} - {"dtype", "n", "h", "w", "c", "t", "hold"})
            sizes = dict(dtype=bare.dtype, n=bare.n, h=bare.h, w=bare.w, c=bare.c, t=bare.t, hold=bare.hold)
            self.assertEqual(convoy.Stage(**sizes, **parts), bare)
        self.assertEqual(convoy.Stage("n1h1c9k12r1+bias+relu").layer_text(linear=True), "k12+bias+relu")

    def test_unknown_words(self):
        for text in listed.no_stages():
            for read in (convoy.Stage, convoy.Stage.keywords_of):
                with self.subTest(text), self.assertRaises(convoy.Error):
                    read(text)


if __name__ == "__main__":
    unittest.main()
