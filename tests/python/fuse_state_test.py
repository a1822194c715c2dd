"""convoy.fuse: state that a forward keeps, modes that it switches, its arguments, and copies for several GPUs."""

import collections
import copy
import pickle
import random
import unittest

import convoy

try:
    import torch

    import convoy.fusing
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None

from torch import nn

F = nn.functional
SEEN = []


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.pool, self.fc = nn.MaxPool2d(2), nn.Linear(4, 5)
        self.gain = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("shift", torch.tensor(0.5))

    def forward(self, x):
        return self.fc(self.pool(self.one(x)).mean((2, 3))) * self.gain + self.one[0].weight.mean() + self.shift


def fused_of(model, *sample, **options):
    return convoy.fuse(model.eval(), sample, show=False, **options)


def stateful(forward, **given):
    class Stateful(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3, padding=1)
            for name, value in given.items():
                if isinstance(value, torch.Tensor):
                    self.register_buffer(name, value)
                else:
                    setattr(self, name, value)

    Stateful.forward = forward
    return Stateful().eval()


class Meter:
    def __init__(self):
        self.total = 0

    def add(self):
        self.total += 1


def written_attribute(self, x):
    self.kept = self.conv(x)
    return F.relu(self.kept)


def written_buffer(self, x):
    self.state.copy_(x[:1, :1, :1, :1].reshape(1))
    return self.conv(x)


def counted(self, x):
    self.count += 1
    return self.conv(x) / self.count


def counted_buffer(self, x):
    self.state += 1
    return self.conv(x) / self.state


def streamed(self, x):
    x = torch.cat([self.tail, x], 3)
    self.tail = x[..., -2:]
    return self.conv(x)


def written_in_list(self, x):
    self.kept.append(self.conv(x))
    return self.kept[-1]


def written_in_dict(self, x):
    self.kept["y"] = self.conv(x)
    return self.kept["y"]


def metered(self, x):
    self.meter.add()
    return self.conv(x)


def of_class(self, x):
    type(self).calls = getattr(type(self), "calls", 0) + 1
    return self.conv(x)


def of_global(self, x):
    SEEN.append(0)
    return self.conv(x)


def of_default(self, x, cache=[]):  # noqa: B006
    cache.append(1)
    return self.conv(x)


def of_iterator(self, x):
    return self.conv(x) * float(next(self.steps))


def constrained(self, x):
    self.conv.weight.data = torch.clamp(self.conv.weight.data, -0.1, 0.1)
    return self.conv(x)


def written_then_branched(self, x):
    self.kept = self.conv(x)
    return self.kept if self.kept.sum() > 0 else -self.kept


STATES = {
    "attribute": (written_attribute, {"kept": None}, "kept"),
    "buffer": (written_buffer, {"state": torch.zeros(1)}, "state"),
    "counter": (counted, {"count": 0}, "count"),
    "counting buffer": (counted_buffer, {"state": torch.zeros(())}, "state"),
    "stream": (streamed, {"tail": torch.zeros(2, 3, 12, 2)}, "tail"),
    "list": (written_in_list, {"kept": []}, "kept"),
    "deque": (written_in_list, {"kept": collections.deque(maxlen=2)}, "kept"),
    "dict": (written_in_dict, {"kept": {}}, "kept"),
    "object": (metered, {"meter": Meter()}, r"meter\.total"),
    "class": (of_class, {}, r"Stateful\.calls"),
    "global": (of_global, {}, "SEEN"),
    "default": (of_default, {}, "forward"),
    "iterator": (of_iterator, {"steps": iter([1, 2, 3, 4])}, "steps"),
    "weights": (constrained, {}, r"conv\.weight"),
    "branch": (written_then_branched, {"kept": None}, "kept"),
}


class State(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        self.x = torch.randn(2, 3, 12, 12)

    def test_what_forward_writes_is_refused_before_it_is_written(self):
        for name, (forward, given, said) in STATES.items():
            with self.subTest(name):
                model = stateful(forward, **copy.deepcopy(given))
                before = {key: copy.copy(value) for key, value in model.__dict__.items() if key in given}
                values = {key: value.clone() for key, value in model.state_dict().items()}
                states = torch.get_rng_state(), random.getstate()
                try:
                    with self.assertRaisesRegex(convoy.Error, f"its forward writes .*{said}.*Return the value"):
                        fused_of(model, self.x)
                    if name == "iterator":
                        self.assertEqual(next(model.steps), 1)
                        before.clear()
                    for key, value in before.items():
                        now = model.__dict__[key]
                        self.assertEqual(repr(vars(now)) if hasattr(now, "total") else repr(now),
                                         repr(vars(value)) if hasattr(value, "total") else repr(value))  # fmt: skip
                    for key, value in model.state_dict().items():
                        self.assertTrue(torch.equal(value, values[key]), key)
                    self.assertEqual((SEEN, of_default.__defaults__), ([], ([],)))
                    self.assertFalse(hasattr(type(model), "calls"))
                    self.assertTrue(torch.equal(states[0], torch.get_rng_state()) and states[1] == random.getstate())
                finally:
                    SEEN.clear()
                    of_default.__defaults__[0].clear()

    def test_modes_inside_forward(self):
        def within(context):
            def forward(self, x):
                y = self.conv(x)
                with context():
                    y = F.relu(y) * 2
                return y

            return forward

        @torch.no_grad()
        def decorated(self, x):
            return self.conv(x)

        for name, context in {
            "no_grad": torch.no_grad, "enable_grad": torch.enable_grad, "inference_mode": torch.inference_mode,
            "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
            "autocast, off": lambda: torch.autocast("cpu", enabled=False),
            "set_grad_enabled": lambda: torch.set_grad_enabled(False),
        }.items():  # fmt: skip
            with self.subTest(name), self.assertRaisesRegex(convoy.Error, "its forward switches .* inside forward"):
                fused_of(stateful(within(context)), self.x)
        with self.assertRaisesRegex(convoy.Error, "its forward switches no_grad"):
            fused_of(stateful(decorated), self.x)

    def test_random_numbers(self):
        def constant(self, x):
            return self.conv(x) + 1e-6 * torch.rand(1)

        def drawn(self, x):
            return self.conv(x) + torch.randn_like(x[:, :1])

        def branched(self, x):
            return self.conv(x) if random.random() < 2 else x

        for forward in (constant, branched):
            model = stateful(forward)
            before = torch.get_rng_state(), random.getstate()
            with self.assertRaisesRegex(convoy.Error, "its forward draws random numbers"):
                fused_of(model, self.x)
            self.assertTrue(torch.equal(before[0], torch.get_rng_state()) and before[1] == random.getstate())
        model = stateful(drawn)
        fused = fused_of(model, self.x)
        torch.manual_seed(1)
        found = fused(self.x)
        torch.manual_seed(1)
        torch.testing.assert_close(found, model(self.x), rtol=1e-4, atol=1e-4)
        self.assertFalse(torch.equal(fused(self.x), found))

    def test_constants(self):
        """A buffer that forward computes with is read at each call; one that decides what it does is a constant."""

        def computed(self, x):
            return self.conv(x) * (self.state + 1) + torch.tensor([2.0])

        model = stateful(computed, state=torch.ones(1))
        fused = fused_of(model, self.x)
        self.assertFalse([name for name in model.__dict__ if "constant" in name])
        model.state.fill_(3)
        torch.testing.assert_close(fused(self.x), model(self.x), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(copy.deepcopy(fused)(self.x), model(self.x), rtol=1e-4, atol=1e-4)

        def decided(self, x):
            return self.conv(x) if self.state > 0 else x

        model = stateful(decided, state=torch.ones(1))
        fused = fused_of(model, self.x)
        fused(self.x)
        model.state.fill_(-1)
        with self.assertRaisesRegex(convoy.Error, "the tensor state was changed after fusing"):
            fused(self.x)


class Messages(unittest.TestCase):
    def setUp(self):
        self.x = torch.randn(2, 3, 8, 8)

    def test_arguments_that_may_be_none(self):
        class Skip(nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = nn.Conv2d(3, 3, 1)

            def forward(self, x, skip=None):
                y = self.conv(x)
                return y + skip if skip is not None else y

        model = Skip().eval()
        alone, both = fused_of(model, self.x), fused_of(model, self.x, self.x)
        for call in (lambda: alone(self.x), lambda: alone(self.x, None), lambda: alone(self.x, skip=None)):
            torch.testing.assert_close(call(), model(self.x))
        for call in (lambda: both(self.x, self.x), lambda: both(x=self.x, skip=self.x)):
            torch.testing.assert_close(call(), model(self.x, self.x))
        for call in (lambda: alone(self.x, self.x), lambda: alone(self.x, skip=self.x)):
            with self.assertRaisesRegex(convoy.Error, "skip: a Tensor, expected none, as in the sample"):
                call()
        for call in (lambda: both(self.x), lambda: both(self.x, None)):
            with self.assertRaisesRegex(convoy.Error, "skip: none, expected a value, as in the sample"):
                call()
        with self.assertRaisesRegex(convoy.Error, "arguments: .*expected those of the model's forward"):
            both(self.x, self.x, self.x)

    def test_refusals(self):
        class Named(nn.Module):
            def forward(self, x, *, scale):
                return x * scale

        with self.assertRaisesRegex(convoy.Error, "takes scale by keyword only.*Wrap the model"):
            fused_of(Named(), self.x)
        inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
        whole = nn.Sequential(fused_of(inner, self.x), nn.Conv2d(4, 4, 3), nn.ReLU()).eval()
        fused = fused_of(whole, self.x)
        self.assertEqual([(row.names, bool(row.kernel)) for row in fused.report.rows], [("0", False), ("1 2", True)])
        self.assertIn("a fused model", fused.report.rows[0].reason)
        torch.testing.assert_close(fused(self.x), whole(self.x), rtol=1e-4, atol=1e-4)
        with self.assertRaisesRegex(convoy.Error, "a fused model, expected one of PyTorch's layers"):
            fused_of(fused, self.x)

    def test_frozen(self):
        model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
        fused = fused_of(model, self.x)
        self.assertFalse(fused.frozen or "frozen" in repr(fused) or "frozen" in str(fused.report))
        if "frozen" not in str(torch.ops.convoy.stage.default._schema):
            self.skipTest("convoy.torch has no frozen weights")
        with torch.no_grad():
            fused = fused_of(model, self.x, frozen=True)
            for one in (fused, copy.deepcopy(fused), pickle.loads(pickle.dumps(fused))):
                self.assertTrue(one.frozen and "frozen" in repr(one) and "frozen" in str(one.report))
                torch.testing.assert_close(one(self.x), model(self.x), rtol=1e-4, atol=1e-4)
            fused.train()  # the model itself, whose weights may change
            model[0].weight.mul_(2)
            torch.testing.assert_close(fused(self.x), model(self.x))
            with self.assertRaisesRegex(convoy.InvalidOperand, "changed since the stage was frozen"):
                fused.eval()(self.x)


def replicas(network, count):
    """torch.nn.parallel.replicate on one device: copies of the parameters that autograd knows, set as attributes."""
    modules = list(network.modules())
    index = {module: place for place, module in enumerate(modules)}
    made = []
    for _ in range(count):
        copies = [module._replicate_for_data_parallel() for module in modules]
        for module, replica in zip(modules, copies, strict=True):
            replica._former_parameters = collections.OrderedDict()
            for key, child in module._modules.items():
                if child is None:
                    replica._modules[key] = None
                else:
                    setattr(replica, key, copies[index[child]])
            for key, parameter in module._parameters.items():
                if parameter is None:
                    replica._parameters[key] = None
                else:
                    setattr(replica, key, parameter.clone())
                    replica._former_parameters[key] = getattr(replica, key)
            for key, buffer in module._buffers.items():
                if buffer is None:
                    replica._buffers[key] = None
                else:
                    setattr(replica, key, buffer.clone())
        made.append(copies[0])
    return made


class Devices(unittest.TestCase):
    def test_replicas_have_layers_of_their_own(self):
        model, x = Net().eval(), torch.randn(2, 3, 12, 12)
        fused = fused_of(model, x)
        first, second = replicas(fused, 2)
        wanted = model(x)
        with torch.no_grad():
            for module in second.modules():
                for parameter in module._former_parameters.values():
                    parameter.zero_()
        torch.testing.assert_close(first(x), wanted, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(second(x), torch.zeros_like(wanted) + 0.5)
        torch.testing.assert_close(fused(x), wanted, rtol=1e-4, atol=1e-4)
        first, _ = replicas(fused, 2)
        first(x).sum().backward()
        mine = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        model.zero_grad()
        model(x).sum().backward()
        for one, other in zip(mine, (p.grad for p in model.parameters() if p.grad is not None), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)
        fused.train()
        first, _ = replicas(fused, 2)
        torch.testing.assert_close(first(x), model(x), rtol=1e-4, atol=1e-4)

    @unittest.skipIf(torch.cuda.device_count() < 2, "fewer than two GPUs")
    def test_data_parallel(self):
        model, x = Net().eval().cuda(0), torch.randn(4, 3, 12, 12, device="cuda:0")
        fused = fused_of(model, x)
        with torch.no_grad():
            for _ in range(2):
                found = nn.DataParallel(fused, [0, 1])(x)
                torch.testing.assert_close(found, model(x), rtol=1e-3, atol=1e-3)


if __name__ == "__main__":
    unittest.main()
