"""convoy.fuse and what a graph does not see: changes of the model after fusing, and hooks."""

import copy
import pickle
import types
import unittest

import convoy

try:
    import torch
    import torch.nn.utils.prune

    import convoy.fusing
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from torch import nn

TEMPERATURE = 1.0


def scaled(x):
    return x * TEMPERATURE


class Block(nn.Module):
    factor = 1.0

    def __init__(self, a, b):
        super().__init__()
        self.conv, self.norm, self.act = nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()
        self.scale, self.config, self.sizes = 1.0, types.SimpleNamespace(gain=1.0), [1, {"shift": 0.0}]

    def gained(self, x):
        return x * self.config.gain + self.sizes[1]["shift"]

    def forward(self, x):
        return scaled(self.gained(self.act(self.norm(self.conv(x)))) * self.scale * self.factor)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.several = Block(3, 4), nn.Sequential(Block(4, 4), Block(4, 4))
        self.branches = nn.ModuleDict({"a": nn.Conv2d(4, 4, 1), "b": nn.Conv2d(4, 4, 1)})
        self.pool, self.fc, self.which = nn.MaxPool2d(2), nn.Linear(4, 5), "a"

    def forward(self, x):
        x = self.pool(self.branches[self.which](self.several(self.one(x))))
        return self.fc(x.mean((2, 3)))


def fused_of(model, *sample, **options):
    return convoy.fuse(model.eval(), sample, show=False, **options)


def patched(module):
    own = module.forward
    module.forward = lambda x: own(x) * 2


def patched_class(kind, name, value):
    def change(_):
        kept = vars(kind).get(name)
        setattr(kind, name, value)
        return lambda: setattr(kind, name, kept) if kept is not None else delattr(kind, name)

    return change


def patched_global(_):
    globals()["TEMPERATURE"] = 2.0
    return lambda: globals().update(TEMPERATURE=1.0)


def moved(sequential):
    first = sequential._modules.pop("0")
    sequential._modules["0"] = first


CHANGES = {  # how to change a Net, and the name that the error has; a function to undo what is not the model's
    "dilation": (lambda m: setattr(m.one.conv, "dilation", (2, 2)), r"one\.conv\.dilation .*found \(2, 2\)"),
    "stride": (lambda m: setattr(m.one.conv, "stride", (2, 2)), r"one\.conv\.stride"),
    "padding": (lambda m: setattr(m.one.conv, "padding", (0, 0)), r"one\.conv\.padding"),
    "padding_mode": (lambda m: setattr(m.one.conv, "padding_mode", "circular"), r"padding_mode .*found 'circular'"),
    "groups": (lambda m: setattr(m.several[0].conv, "groups", 2), r"several\.0\.conv\.groups"),
    "bias": (lambda m: setattr(m.one.conv, "bias", None), r"one\.conv\.bias .*found None, expected a tensor"),
    "statistics": (lambda m: setattr(m.one.norm, "running_mean", None), r"one\.norm\.running_mean"),
    "attribute": (lambda m: setattr(m.one, "scale", 4.0), r"one\.scale .*found 4.0, expected 1.0"),
    "another class": (lambda m: setattr(m.one.act, "__class__", nn.Identity), r"one\.act was made an Identity"),
    "config": (lambda m: setattr(m.one.config, "gain", 3.0), r"one\.config\.gain"),
    "in a list": (lambda m: m.one.sizes[1].update(shift=1.0), r"one\.sizes\.1\.shift"),
    "a list": (lambda m: m.one.sizes.append(2), r"one\.sizes"),
    "switch": (lambda m: setattr(m, "which", "b"), r"which .*found 'b', expected 'a'"),
    "appended": (lambda m: m.several.append(nn.ReLU()), r"the layer several\.2 was added"),
    "inserted": (lambda m: m.several.insert(0, nn.ReLU()), r"several\."),
    "deleted": (lambda m: m.several.__delitem__(1), r"several"),
    "moved": (lambda m: moved(m.several), r"the layer several\.1 was moved"),
    "in a dict": (lambda m: m.branches.update({"a": nn.Conv2d(4, 4, 1)}), r"the layer branches\.a was replaced"),
    "added by name": (lambda m: m.one.add_module("more", nn.ReLU()), r"one\.more was added"),
    "leaf's forward": (lambda m: patched(m.one.conv), r"one\.conv\.forward"),
    "block's forward": (lambda m: patched(m.one), r"one\.forward"),
    "root's forward": (patched, r"fuse: forward"),
    "a method": (lambda m: setattr(m.one, "gained", lambda x: -x), r"one\.gained"),
    "class's forward": (patched_class(Block, "forward", lambda self, x: self.conv(x)), r"Block\.forward, of the class"),
    "class's attribute": (patched_class(Block, "factor", 2.0), r"Block\.factor, of the class"),
    "class of PyTorch": (patched_class(nn.BatchNorm2d, "forward", lambda self, x: x), r"BatchNorm2d\.forward"),
    "base of PyTorch": (patched_class(nn.Module, "__call__", lambda self, x: x), r"Module\.__call__"),
    "a global": (patched_global, r"the global TEMPERATURE"),
    "parametrized": (lambda m: nn.utils.parametrizations.weight_norm(m.one.conv), r"one\.conv"),
    "another": (lambda m: nn.utils.parametrize.register_parametrization(m.fc, "weight", nn.Identity()), "fc"),
    "pruned": (lambda m: torch.nn.utils.prune.random_unstructured(m.one.conv, "weight", 0.5), r"one\.conv"),
}  # fmt: skip
HOOKS = ("register_forward_hook", "register_forward_pre_hook", "register_full_backward_hook",
         "register_full_backward_pre_hook")  # fmt: skip


class Changes(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(6)
        self.x = torch.randn(2, 3, 12, 12)

    def close(self, found, wanted):
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)

    def test_changes_are_named(self):
        for name, (change, said) in CHANGES.items():
            with self.subTest(name):
                model = Net().eval()
                fused = fused_of(model, self.x)
                self.close(fused(self.x), model(self.x))
                undo = change(model)
                try:
                    with self.assertRaisesRegex(convoy.Error, "after fusing") as found:
                        convoy.fusing.Fused.forward(fused, self.x)
                    self.assertRegex(str(found.exception), said)
                    if name != "pruned":  # PyTorch copies no such layer
                        with self.assertRaisesRegex(convoy.Error, "after fusing"):
                            copy.deepcopy(fused).forward(self.x)
                finally:
                    if isinstance(undo, types.FunctionType):
                        undo()

    def test_changes_of_pools_and_activations(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(4, 4, 1),
                              nn.Hardtanh(-1, 1)).eval()  # fmt: skip
        for layer, name, value in ((1, "negative_slope", 0.2), (2, "kernel_size", 3), (2, "ceil_mode", True),
                                   (2, "return_indices", True), (2, "padding", 1), (4, "min_val", 0.0)):  # fmt: skip
            fused, kept = fused_of(model, self.x), getattr(model[layer], name)
            setattr(model[layer], name, value)
            with self.assertRaisesRegex(convoy.Error, rf"fuse: {layer}\.{name} was changed after fusing"):
                fused(self.x)
            setattr(model[layer], name, kept)
            self.close(fused(self.x), model(self.x))

    def test_what_may_change(self):
        """Weights, equal values in other objects, training, eps: no error, and the model's results."""
        model = Net().eval()
        fused = fused_of(model, self.x)
        model.one.scale, model.one.conv.padding = float("1.0"), tuple([1, 1])
        model.one.norm.eps, model.one.norm.momentum = 0.1, 0.5
        scale = model.one.__dict__.pop("scale")
        model.one.scale = scale  # in another order
        with torch.no_grad():
            model.one.conv.weight.mul_(1.5)
        model.load_state_dict(Net().state_dict(), assign=True)
        self.close(fused(self.x), model(self.x))
        for again in (copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
            self.close(again(self.x), model(self.x))
            with self.assertRaisesRegex(convoy.Error, "the layer several.0 was replaced after fusing"):
                again.original.several[0] = nn.Identity()
                again(self.x)
        copied = copy.deepcopy(fused)
        copied.original.several[0] = nn.Identity()  # before its first call
        with self.assertRaisesRegex(convoy.Error, "the layer several.0 was replaced after fusing"):
            copied(self.x)
        model.several.train()
        with self.assertRaisesRegex(convoy.Error, "the layer several was put in training mode.*Call eval"):
            fused(self.x)
        model.several.eval()
        model.one.norm.train()  # a layer of a stage: by its batch
        self.close(fused(self.x), model(self.x))
        model.train()  # the model, not the fused one: as it was
        before = model.one.norm.running_mean.clone()
        fused(self.x)
        self.assertFalse(torch.equal(before, model.one.norm.running_mean))

    def test_compiled(self):
        for change in ("dilation", "appended", "root's forward", "switch", "class's forward"):
            with self.subTest(change):
                torch._dynamo.reset()
                model = Net().eval()
                fused = fused_of(model, self.x)
                compiled = torch.compile(fused, fullgraph=True, backend="aot_eager")
                with torch.no_grad():
                    self.close(compiled(self.x), model(self.x))
                    undo = CHANGES[change][0](model)
                    try:
                        with self.assertRaisesRegex(convoy.Error, CHANGES[change][1]):
                            compiled(self.x)
                    finally:
                        if isinstance(undo, types.FunctionType):
                            undo()
        torch._dynamo.reset()
        model = Net().eval()
        compiled = torch.compile(fused_of(model, self.x), fullgraph=True, backend="aot_eager")
        with torch.no_grad():
            compiled(self.x)
            with model.several.register_forward_hook(lambda *_: None), self.assertRaisesRegex(convoy.Error, "hooks"):
                compiled(self.x)
            self.close(compiled(self.x), model(self.x))

    def test_the_model_itself_is_compiled(self):
        # torch.compile(model) writes an attribute to the model, and model.compile() another one.
        model = Net().eval()
        fused = fused_of(model, self.x)
        torch.compile(model, backend="aot_eager")
        with torch.no_grad():
            self.close(fused(self.x), model(self.x))
            model.compile(backend="aot_eager")
            model.several.compile(backend="aot_eager")
            self.close(fused(self.x), Net.forward(model, self.x))

    def test_hooks_after_fusing(self):
        model = Net().eval()
        fused = fused_of(model, self.x)
        for name in ("", "one", "several", "several.1", "one.conv", "branches", "branches.b", "fc", "one.act"):
            for kind in HOOKS:
                with getattr(model.get_submodule(name), kind)(lambda *_: None), self.subTest((name, kind)):
                    with self.assertRaisesRegex(convoy.Error, f"{name or 'the model, a Net,'} was given hooks"):
                        fused(self.x)
        for kind in ("forward_hook", "forward_pre_hook", "full_backward_hook", "full_backward_pre_hook"):
            register = getattr(nn.modules.module, f"register_module_{kind}")
            with register(lambda *_: None):
                with self.assertRaisesRegex(convoy.Error, "hook on all modules"):
                    fused(self.x)
                with self.assertRaisesRegex(convoy.Error, "hook on all modules"):
                    fused_of(Net(), self.x)
        seen = []
        with fused.register_forward_hook(lambda *_: seen.append(0)):
            fused(self.x)
        self.assertEqual(seen, [0])
        self.close(fused(self.x), model(self.x))

    def test_hooks_before_fusing(self):
        """Called at each call as in the model, with tensors, and not by fuse itself."""
        for name in ("one", "several", "several.1", "one.conv", "fc", "one.act"):
            for change in (lambda y: None, lambda y: y * 3):
                with self.subTest(name):
                    model, seen = Net().eval(), []

                    def hook(module, given, y, seen=seen, change=change):
                        seen.append(y)
                        return change(y)

                    model.get_submodule(name).register_forward_hook(hook)
                    fused = fused_of(model, self.x)
                    self.assertEqual(seen, [])
                    self.close(fused(self.x), model(self.x))
                    self.assertEqual([type(one) for one in seen], [torch.Tensor] * 2)
                    if name != "one.act":  # of which a stage is made without it
                        self.assertIn("hooks", str(fused.report))
        for kind in HOOKS:
            model = Net().eval()
            getattr(model, kind)(lambda *_: None)
            with self.assertRaisesRegex(convoy.Error, "a Net with hooks of its own.*put them on the fused model"):
                fused_of(model, self.x)
        model, seen = Net().eval(), []
        model.several.register_full_backward_hook(lambda m, given, gave: seen.append(gave[0]))
        fused_of(model, self.x)(self.x.requires_grad_()).sum().backward()
        self.assertEqual(len(seen), 1)

    def test_a_root_whose_forward_was_replaced(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 1)).eval()
        patched(model)
        with self.assertRaisesRegex(convoy.Error, "whose forward was replaced on the object"):
            fused_of(model, self.x)
        model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()).eval()
        patched(model[0])
        fused = fused_of(model, self.x)
        self.assertIn("its forward was replaced", fused.report.rows[0].reason)
        self.close(fused(self.x), model(self.x))


if __name__ == "__main__":
    unittest.main()
