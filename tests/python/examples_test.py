"""examples/python runs: the scripts, and the code of the notebook's cells one after the other."""

import contextlib
import importlib.util
import io
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

import convoy  # noqa: F401

FOLDER = Path(__file__).resolve().parents[2] / "examples/python"


def has(module):
    return importlib.util.find_spec(module) is not None


class Examples(unittest.TestCase):
    def script(self, name):
        done = subprocess.run([sys.executable, "-P", str(FOLDER / name)], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    @unittest.skipUnless(has("numpy"), "NumPy is not installed")
    def test_plan_on_numpy(self):
        out = self.script("plan_on_numpy.py")
        self.assertIn("the same bits for fewer images: True", out)
        self.assertIn("Kernels", out)

    @unittest.skipUnless(has("torch"), "PyTorch is not installed")
    def test_fuse_a_model(self):
        out = self.script("fuse_a_model.py")
        self.assertRegex(out, r"n8h32w32c3k32r3pad1\+bias\+relu\+max2 +\w+")
        self.assertRegex(out, r"largest difference of the logits: \d\.\de-\d+\nPyTorch .* ms, fused .* ms")

    def cells(self):
        notebook = json.loads((FOLDER / "tour.ipynb").read_text())
        self.assertEqual((notebook["nbformat"], notebook["nbformat_minor"]), (4, 5))
        return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]

    def run_cells(self, without):
        """Each cell's code, but for those that import one of these modules."""
        names = {"__name__": "__main__"}
        for cell in self.cells():
            code = "".join(cell["source"])
            if not any(f"import {module}" in code for module in without):
                out = io.StringIO()
                with contextlib.redirect_stdout(out):
                    exec(compile(code, "tour.ipynb", "exec"), names)
                stored = "".join("".join(one.get("text", [])) for one in cell["outputs"])
                self.assertEqual(bool(stored), bool(out.getvalue()), code)
        return names

    @unittest.skipUnless(has("numpy") and has("torch"), "NumPy or PyTorch is not installed")
    def test_notebook(self):
        plots = ["matplotlib"] if not has("matplotlib") else []
        names = self.run_cells(plots)
        self.assertEqual(len(names["rows"]), len(names["stages"]))
        if plots:
            self.skipTest("matplotlib is not installed: the notebook's cells ran without the plot")

    def test_notebook_has_outputs(self):
        cells = self.cells()
        self.assertTrue(any("image/png" in one.get("data", {}) for cell in cells for one in cell["outputs"]))
        self.assertEqual([cell["execution_count"] for cell in cells], list(range(1, len(cells) + 1)))


os.environ.setdefault("MPLBACKEND", "Agg")

if __name__ == "__main__":
    unittest.main()
