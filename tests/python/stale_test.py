"""Weights that change under convoy.torch, whoever writes them, and frozen ones that must not."""

import copy
import multiprocessing
import unittest

import convoy

try:
    import torch

    import convoy.torch as ct
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

F = torch.nn.functional
nn = torch.nn
TEXT = "n1h8c3k4r3pad1"
SPIKES = "n1h8c3k4r3pad1+if(0.5)+soft+t2+hold"


def spikes(x, weight):
    """Of an integrate-and-fire neuron of threshold 0.5 with a soft reset, two steps of x."""
    z, v, found = F.conv2d(x, weight, padding=1), 0.0, []
    for _ in range(2):
        v = v + z
        s = (v >= 0.5).float()
        v = v - s * 0.5
        found.append(s)
    return torch.stack(found)


class Subjects:
    """The weights in every form that stages take them in, and the check that each call has them as they are."""

    def __init__(self, test):
        torch.manual_seed(1)
        self.test, self.x = test, torch.randn(2, 3, 8, 8)
        self.module = ct.StageModule(TEXT)
        self.matrix = nn.Parameter(torch.randn(4, 27))  # Muon takes nothing else
        self.model = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
                                   nn.Linear(256, 3)).eval()  # fmt: skip
        self.model[1].running_var.uniform_(0.5, 2)
        self.fused = convoy.fuse(self.model, self.x, show=False)
        self.check("at first")

    def parameters(self, matrices=False):
        if matrices:
            return [self.matrix, self.model[4].weight]
        return [self.module.weight, self.matrix, *self.model.parameters()]

    def check(self, what, grad=False):
        weight = self.matrix.view(4, 3, 3, 3)
        with torch.set_grad_enabled(grad):
            pairs = [(self.module(self.x), F.conv2d(self.x, self.module.weight, padding=1)),
                     (ct.stage(TEXT, self.x, weight), F.conv2d(self.x, weight, padding=1)),
                     (ct.spike(SPIKES, self.x, weight)[0].mean((2, 3, 4)), spikes(self.x, weight).mean((2, 3, 4))),
                     (self.fused(self.x), self.model(self.x))]  # fmt: skip
        for name, (mine, theirs) in zip(("StageModule", "stage", "spike", "fused"), pairs, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=2e-3, msg=lambda m, n=name: f"{what}, {n}: {m}")


VARIANTS = ({}, {"foreach": True}, {"foreach": False}, {"fused": True}, {"capturable": True})


class Optimizers(unittest.TestCase):
    def test_every_one(self):
        found = [kind for kind in vars(torch.optim).values() if isinstance(kind, type)
                 and issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer]  # fmt: skip
        self.assertGreaterEqual(len(found), 14)
        subjects, ran, fused = Subjects(self), [], []
        start = [p.detach().clone() for p in subjects.parameters()]
        for kind in found:
            for options in VARIANTS:
                parameters = subjects.parameters(matrices=kind.__name__ == "Muon")
                try:
                    optimizer = kind(parameters, lr=0.03, **options)
                except (TypeError, RuntimeError, ValueError):  # has no such variant
                    continue
                what = f"{kind.__name__} {options}"
                with torch.no_grad():
                    for parameter, value in zip(subjects.parameters(), start, strict=True):
                        parameter.copy_(value)
                subjects.check(what)
                try:
                    for step in range(2):
                        self.step(optimizer, parameters, kind.__name__)
                        subjects.check(f"{what}, step {step}", grad=bool(step))
                except (AssertionError, RuntimeError) as error:
                    if "capturable" in options and "capturable" in str(error):  # of accelerators only
                        continue
                    raise
                moved = (parameters[0].detach() - start[subjects.parameters().index(parameters[0])
                         if parameters[0] is not subjects.matrix else 1]).abs().max()  # fmt: skip
                self.assertGreater(float(moved), 1e-4, what)
                ran.append(kind.__name__)
                fused += [kind.__name__] * ("fused" in options)
        self.assertEqual(set(ran), {kind.__name__ for kind in found})
        self.assertLessEqual({"SGD", "Adam", "AdamW", "Adagrad"}, set(fused))

    def step(self, optimizer, parameters, name):
        for parameter in parameters:
            gradient = torch.randn_like(parameter)
            parameter.grad = gradient.to_sparse(1) if name == "SparseAdam" else gradient
        if name == "LBFGS":
            def closure():
                for parameter in parameters:
                    parameter.grad = parameter.detach().clone()
                return sum((parameter.detach() ** 2).sum() for parameter in parameters) / 2

            optimizer.step(closure)
        else:
            optimizer.step()

    def test_compiled_steps(self):
        subjects = Subjects(self)
        for kind in (torch.optim.SGD, torch.optim.Adam):
            optimizer = kind(subjects.parameters(), lr=0.03)
            step = torch.compile(optimizer.step, backend="aot_eager")
            for _ in range(2):
                for parameter in subjects.parameters():
                    parameter.grad = torch.randn_like(parameter)
                step()
                subjects.check(f"compiled {kind.__name__}")


def _write(parameter):
    parameter.detach().mul_(-2)


class Writers(unittest.TestCase):
    """Writes that move no version counter that the stage could look at."""

    def test_all(self):
        subjects = Subjects(self)
        module, matrix = subjects.module, subjects.matrix
        weights = [module.weight, matrix, *subjects.model.parameters()]

        def each(write):
            return lambda: [write(parameter) for parameter in weights]

        def alias(parameter):
            other = torch.empty(0)
            other.set_(parameter.detach().untyped_storage(), 0, parameter.shape)
            other.add_(0.25)

        def numpy(parameter):
            array = parameter.detach().numpy()
            array *= 1.5

        def statistics():
            F.batch_norm(torch.randn(4, 4, 3, 3) * 2 + 1, subjects.model[1].running_mean,
                         subjects.model[1].running_var, training=True, momentum=0.5)  # fmt: skip

        def last_element(parameter):
            parameter.data.view(-1)[-1] += 1

        def merged(parameter):
            parameter.data += 0.1 * torch.randn_like(parameter)

        for name, write in {
            "data.mul_": each(lambda p: p.data.mul_(-0.5)),
            "data.copy_": each(lambda p: p.data.copy_(torch.randn_like(p))),
            "LoRA": each(merged), "set_": each(alias), "numpy": each(numpy), "one element": each(last_element),
            "batch_norm": statistics,
        }.items():  # fmt: skip
            write()
            subjects.check(name)
            subjects.check(name, grad=True)
        for again in range(3):  # a view made afresh at each call
            matrix.data.add_(0.2)
            y = ct.stage(TEXT, subjects.x, matrix.data.view(4, 3, 3, 3))
            wanted = F.conv2d(subjects.x, matrix.view(4, 3, 3, 3), padding=1)
            torch.testing.assert_close(y, wanted, rtol=1e-3, atol=1e-3, msg=f"data, {again}")

    def test_another_process(self):
        weight = torch.randn(4, 3, 3, 3).share_memory_()
        x = torch.randn(2, 3, 8, 8)
        ct.stage(TEXT, x, weight)
        child = multiprocessing.get_context("fork").Process(target=_write, args=(weight,))
        before = weight.clone()
        child.start()
        child.join()
        self.assertTrue(torch.equal(weight, before * -2))
        torch.testing.assert_close(ct.stage(TEXT, x, weight), F.conv2d(x, weight, padding=1), rtol=1e-4, atol=1e-4)

    def test_a_storage_that_was_emptied(self):
        """As sharded training does it between calls: refused while it is empty, right when it is filled again."""
        x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
        norm, size = [torch.rand(4) + 0.5 for _ in range(4)], weight.untyped_storage().nbytes()
        runs = (lambda: ct.stage(TEXT, x, weight), lambda: ct.spike(SPIKES, x, weight)[0],
                lambda: torch.ops.convoy.stage_norm(x, weight, None, *norm, None, 1e-5, TEXT + "+bias"),
                lambda: ct.folded(weight, None, *norm, None, 1e-5)[0])  # fmt: skip
        before, value = [run().clone() for run in runs], weight.clone()
        weight.untyped_storage().resize_(0)
        for run in runs:
            with self.assertRaisesRegex(convoy.InvalidOperand, "storage"):
                run()
        weight.untyped_storage().resize_(size)
        weight.copy_(value)
        for run, wanted in zip(runs, before, strict=True):
            self.assertTrue(torch.equal(run(), wanted))

    def test_functional_call_and_inference_tensors(self):
        module, x = ct.StageModule(TEXT), torch.randn(2, 3, 8, 8)
        for _ in range(3):
            weight = torch.randn(4, 3, 3, 3)
            y = torch.func.functional_call(module, {"weight": weight}, (x,))
            torch.testing.assert_close(y, F.conv2d(x, weight, padding=1), rtol=1e-4, atol=1e-4)
        with torch.inference_mode():
            weight = torch.randn(4, 3, 3, 3)
            for _ in range(2):
                weight.add_(1)
                wanted = F.conv2d(x, weight, padding=1)
                torch.testing.assert_close(ct.stage(TEXT, x, weight), wanted, rtol=1e-4, atol=1e-3)

    def test_compiled(self):
        """Inductor's view of a linear layer's weight has a version counter of its own."""
        torch.manual_seed(2)
        model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
        x = torch.randn(2, 6)
        fused = convoy.fuse(model, x, show=False)
        for backend in ("aot_eager", "inductor"):
            torch._dynamo.reset()
            compiled = torch.compile(fused, fullgraph=True, backend=backend)
            for _ in range(3):
                with torch.no_grad():
                    torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-5)
                    for parameter in model.parameters():
                        parameter.add_(0.1 * torch.randn_like(parameter))


class Frozen(unittest.TestCase):
    def test_refuses_what_it_sees(self):
        x = torch.randn(2, 3, 8, 8)
        module = ct.StageModule(TEXT).freeze()
        self.assertIn("frozen", repr(module))
        with self.assertRaisesRegex(convoy.InvalidOperand, "requires a gradient, expected none of a frozen stage"):
            module(x)
        with torch.no_grad():
            first = module(x)
            self.assertTrue(torch.equal(module(x), first))
            module.weight.mul_(2)
            with self.assertRaisesRegex(convoy.InvalidOperand, "changed since the stage was frozen"):
                module(x)
            torch.testing.assert_close(module.freeze()(x), 2 * first, rtol=1e-5, atol=1e-5)
            for changed in (lambda: torch.randn(4, 3, 3, 3), lambda: module.weight.data.to(torch.bfloat16)):
                module.weight.data = changed()
                with self.assertRaisesRegex(convoy.InvalidOperand, "another storage, type or shape"):
                    module(x)
                module.freeze()(x.to(module.weight.dtype))
            module.freeze(False).float()
            other = copy.deepcopy(module.freeze())
            self.assertTrue(torch.equal(other(x), module(x)))
            self.assertTrue(other.frozen)

    def test_memory_that_is_used_again(self):
        """A frozen weight is forgotten with its tensor: another one in the same memory is packed anew."""
        x = torch.randn(2, 3, 8, 8)
        mean, var = torch.zeros(4), torch.ones(4)
        scaled = 1 / (1 + 1e-5) ** 0.5

        def normed(weight):
            return torch.ops.convoy.stage_norm(x, weight, None, None, None, mean, var, None, 1e-5, TEXT + "+bias", True)

        def module(weight):
            made = ct.StageModule(TEXT)
            made.weight.data = weight
            return made.freeze()(x)

        ways = {"stage": (lambda weight: ct.stage(TEXT, x, weight, frozen=True), 1), "module": (module, 1),
                "norm": (normed, scaled)}  # fmt: skip
        for name, (way, factor) in ways.items():
            addresses = set()
            with self.subTest(name), torch.no_grad():
                for turn in range(60):
                    weight = torch.randn(4, 3, 3, 3)
                    addresses.add(weight.data_ptr())
                    for _ in range(turn // 20):  # version counters differ, too
                        weight.mul_(1.5)
                    wanted = factor * F.conv2d(x, weight, padding=1)
                    torch.testing.assert_close(way(weight), wanted, rtol=1e-3, atol=1e-3,
                                               msg=lambda text, turn=turn: f"turn {turn}: {text}")
                    del weight
                self.assertLess(len(addresses), 60, "no memory was used again")

    def test_optimizers(self):
        x, weight = torch.randn(2, 3, 8, 8), nn.Parameter(torch.randn(4, 3, 3, 3))
        optimizer = torch.optim.Adam([weight], fused=True)
        with torch.no_grad():
            ct.stage(TEXT, x, weight, frozen=True)
            weight.grad = None
            optimizer.step()  # steps on nothing
            ct.stage(TEXT, x, weight, frozen=True)
            weight.grad = torch.ones_like(weight)
            optimizer.step()
            with self.assertRaisesRegex(convoy.InvalidOperand, "Adam has stepped on it"):
                ct.stage(TEXT, x, weight, frozen=True)
            wanted = F.conv2d(x, weight, padding=1)
            for frozen in (False, True):
                torch.testing.assert_close(ct.stage(TEXT, x, weight, frozen=frozen), wanted, rtol=1e-4, atol=1e-4)

    def test_is_not_compared(self):
        """What frozen means: a write that nothing tells of is not seen."""
        x, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
        first = ct.stage(TEXT, x, weight, frozen=True)
        weight.data.mul_(2)
        self.assertTrue(torch.equal(ct.stage(TEXT, x, weight, frozen=True), first))
        torch.testing.assert_close(ct.stage(TEXT, x, weight), 2 * first, rtol=1e-5, atol=1e-5)

    def test_operators(self):
        x, weight, held = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3), torch.randn(2, 3, 8, 8)
        norm = [torch.rand(4) + 0.5 for _ in range(4)]

        def stage_norm():
            return torch.ops.convoy.stage_norm(x, weight, None, *norm, None, 1e-5, TEXT + "+bias", True)

        runs = (stage_norm, lambda: ct.spike(SPIKES, held, weight, frozen=True)[0])
        for run, changed in zip(runs, (norm[1], weight), strict=True):
            self.assertTrue(torch.equal(run(), run()))
            changed.add_(1)
            with self.assertRaisesRegex(convoy.InvalidOperand, "changed since the stage was frozen"):
                run()
        with self.assertRaisesRegex(convoy.InvalidOperand, "requires a gradient"):
            ct.spike(SPIKES, held, weight.clone().requires_grad_(), frozen=True)


if __name__ == "__main__":
    unittest.main()
