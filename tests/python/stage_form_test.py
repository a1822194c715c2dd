"""convoy.stage_form: the stages that PyTorch's operators take. No part of a stage is skipped."""

import re
import unittest
from unittest import mock

import convoy
import listed
from convoy import stage_form


class Forms(unittest.TestCase):
    def test_unknown_words(self):
        for text in listed.no_stages():
            for read in (stage_form.form_of, stage_form.stage_of):
                with self.subTest(text), self.assertRaises(convoy.Error):
                    read(text)

    def test_form_refuses_every_part_that_it_does_not_know(self):
        for rider, said in (("norm", "'norm'"), ("keep(pre)", "'keep'"), ("if", r"'if\(1\)'"), ("if+soft", "'soft'"),
                            ("if+t2", "'t'"), ("if+hold+t2", "'t', 'hold'")):  # fmt: skip
            with self.subTest(rider), self.assertRaisesRegex(convoy.Error, f"a stage with {said}, .*convoy.Plan"):
                stage_form.form_of(f"n1h8c4k6r3+{rider}")
        with mock.patch.object(stage_form, "_KNOWN", stage_form._KNOWN - {"pool"}):  # as if a pool were new
            with self.assertRaisesRegex(convoy.Error, "a stage with 'pool'"):
                stage_form.Form("n1h8c4k6r3+max2")
        with mock.patch.object(stage_form, "_ACTS", ("none", "relu")):
            with self.assertRaisesRegex(convoy.Error, r"a stage with 'leaky\(0.1\)'"):
                stage_form.Form("n1h8c4k6r3+leaky(0.1)")

    def test_sizes_of_a_form(self):
        """The formulas for symbolic sizes give what a stage gives."""
        checked = 0
        for stage in listed.drawn(2000, seed=2):
            plain = stage.replace(norm=False, keep=None, act=None, soft=False, t=1, hold=False)
            form = stage_form.Form(str(plain))
            self.assertEqual(form.unpooled(plain.h, plain.w), (plain.p, plain.q), plain)
            self.assertEqual(form.sizes(plain.h, plain.w), (plain.out_h, plain.out_w), plain)
            self.assertEqual(form.of(plain.dtype, plain.n, plain.h, plain.w), plain)
            checked += plain.pool is not None and plain.pool.ceil
        self.assertGreater(checked, 100)

    def test_sizes_come_from_x(self):
        form = stage_form.form_of("n1h1w2c4k6r3+max2")  # smaller than its filter
        self.assertEqual(str(form.of("f16", 3, 8, 9)), "f16:n3h8w9c4k6r3+max2")
        for text in ("h8c4k6r3", "n1c4k6r3", "n1h1c4k6", "n1h1c4k6r3groups3"):
            with self.assertRaises(convoy.Error):
                stage_form.form_of(text)

    def test_no_regular_expression_reads_a_stage(self):
        for path in (listed.SOURCE / "python/convoy").glob("*.py"):
            if path.name != "layer_names.py":  # replaces characters in names
                self.assertIsNone(re.search(r"^\s*import re$|\.index\(\"k\"\)", path.read_text(), re.M), path)


if __name__ == "__main__":
    unittest.main()
