"""The tables of docs/use/fuse.md: each row's layers are fused, and the report says what the row says."""

import inspect
import re
import unittest
from pathlib import Path

import convoy

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from torch import nn

from convoy import fusing

F = nn.functional
PAGE = Path(__file__).resolve().parents[2] / "docs/use/fuse.md"


def hooked(module):
    module.register_forward_hook(lambda *_: None)
    return module


def rows(kind):
    """The cells of the table behind the mark `rows: kind`, without their quotes."""
    table = re.search(rf"<!-- rows: {kind} -->\n\n\|[^\n]*\n\|[^\n]*\n((?:\|[^\n]*\n)+)", PAGE.read_text())
    return [tuple(re.findall(r"`([^`]*)`", line)) for line in table[1].splitlines()]


class Written(nn.Module):
    """A model whose forward is an expression of x and its layers conv and linear."""

    def __init__(self, expression):
        super().__init__()
        self.conv, self.linear = nn.Conv2d(4, 8, 3), nn.Linear(576, 8)
        self.expression = compile(expression, "docs/use/fuse.md", "eval")

    def forward(self, x):
        return eval(self.expression, globals(), {"x": x, "conv": self.conv, "linear": self.linear})


class Given(nn.Module):
    """A model whose forward is this function of it and x."""

    def __init__(self, function):
        super().__init__()
        self.conv, self.calls, self.function = nn.Conv2d(4, 8, 3), 0, function

    def forward(self, x):
        return self.function(self, x)


class ByKeyword(nn.Module):
    def forward(self, x, *, y):
        return x + y


def counted(self, x):
    self.calls += 1
    return self.conv(x)


def without_gradients(self, x):
    with torch.no_grad():
        return self.conv(x)


def replaced():
    model = nn.Sequential(nn.Conv2d(4, 8, 3))
    model.forward = lambda x: x
    return model


# By the first cell of the table of refused models, up to its comma or colon: models of that kind.
REFUSED = {
    "in training mode": [lambda: nn.Conv2d(4, 8, 3)],
    "control flow that depends on values or sizes": [lambda: Given(lambda _, x: x if x.sum() > 0 else -x)],
    "compiled or scripted": [lambda: torch.compile(nn.Sequential(nn.Conv2d(4, 8, 3)))],
    "hooks on the model itself or on all modules": [lambda: hooked(nn.Sequential(nn.Conv2d(4, 8, 3))), replaced],
    "a forward that keeps or counts something": [lambda: Given(counted)],
    "`no_grad`": [lambda: Given(without_gradients)],
    "`torch.randn(...)` inside forward": [
        lambda: Given(lambda self, x: self.conv(x) + torch.randn(1))],
    "arguments by keyword only": [ByKeyword],
}  # fmt: skip


def report_of(layers, **options):
    torch.manual_seed(3)
    if layers.startswith(("nn.", "hooked(")):
        model = eval(f"nn.Sequential({layers})")
    else:
        model = Written(layers)
    x = torch.randn(2, 4, 12, 12)
    model.eval()
    fused = convoy.fuse(model, x, show=False, **options)
    with torch.no_grad():
        torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-4)
    return fused.report.rows


class FusePage(unittest.TestCase):
    def test_arguments(self):
        """The table has every argument of fuse with its default."""
        table = PAGE.read_text().partition("| argument of `fuse` | default | meaning |\n|---|---|---|\n")[2]
        found = re.findall(r"^\| `(\w+)` \|\s*`?(\w*)`?\s*\|", table.partition("\n\n")[0], re.M)
        wanted = [(name, "" if one.default is one.empty else str(one.default))
                  for name, one in inspect.signature(fusing.fuse).parameters.items()]  # fmt: skip
        self.assertEqual(found, wanted)

    def test_layers_that_become_a_stage(self):
        found = rows("stages")
        self.assertGreater(len(found), 15)
        for layers, text in found:
            with self.subTest(layers):
                (row,) = report_of(layers)
                self.assertEqual(row.reason, "")
                self.assertTrue(row.kernel)
                self.assertTrue(row.stage.endswith(text), row.stage)

    def test_layers_with_a_line(self):
        found = rows("told")
        self.assertGreater(len(found), 10)
        for layers, reason in found:
            with self.subTest(layers):
                self.assertEqual([row.reason for row in report_of(layers) if row.reason], [reason])
        (row,) = report_of("nn.Flatten(), nn.Linear(576, 8)", linear=False)
        self.assertEqual(row.reason, "linear=False")

    def test_layers_without_a_line(self):
        found = rows("untold")
        self.assertGreater(len(found), 7)
        for (layers,) in found:
            for one in re.split(r", (?=nn\.)", layers) if "Flatten" not in layers else [layers]:
                with self.subTest(one):
                    self.assertEqual(report_of(one), [])

    def test_refused_models(self):
        table = PAGE.read_text().partition("| model | remedy |\n|---|---|\n")[2].partition("\n\n")[0]
        cells = [re.split(r"[,:] | \|", line.removeprefix("| "))[0] for line in table.splitlines()]
        self.assertEqual(cells, list(REFUSED))
        for cell, makers in REFUSED.items():
            for make in makers:
                model = make()
                if cell != "in training mode":
                    model.eval()
                with self.subTest(cell), self.assertRaises(convoy.Error) as caught:
                    convoy.fuse(model, torch.randn(2, 4, 12, 12), show=False)
                self.assertRegex(str(caught.exception), "^model: ")

    def test_a_layer_between_ends_the_stage(self):
        (row,) = report_of("nn.Conv2d(4, 8, 3), nn.Dropout(), nn.ReLU()")
        self.assertTrue(row.stage.endswith("+bias"), row.stage)
        (row,) = report_of("F.relu(conv(x)) + x.mean()")
        self.assertTrue(row.stage.endswith("+relu"), row.stage)


if __name__ == "__main__":
    unittest.main()
