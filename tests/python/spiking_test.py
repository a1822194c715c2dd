"""Spiking stages in PyTorch: convoy.torch.spike and its gradients, and convoy.fuse on SpikingJelly's own networks."""

import copy
import doctest
import sys
import types
import unittest

import convoy

try:
    import torch

    from convoy.fusing_spikes import Later, charge_of, neuron_of
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None
try:
    from spikingjelly.activation_based import functional, layer, neuron, surrogate
    from spikingjelly.activation_based.model import parametric_lif_net
except ImportError:
    raise unittest.SkipTest("SpikingJelly is not installed") from None

from torch import nn

F = nn.functional


def example(name):
    """A module of SpikingJelly's examples, without what its training script imports."""
    for missing in ("matplotlib", "matplotlib.pyplot", "torchvision", "torchvision.transforms",
                    "torchvision.datasets", "torch.utils.tensorboard"):  # fmt: skip
        try:
            __import__(missing)
        except ImportError:
            sys.modules[missing] = types.ModuleType(missing)
            sys.modules[missing].SummaryWriter = None
    return __import__(f"spikingjelly.activation_based.examples.{name}", fromlist=[name])


def lively(model, gain=1.0):
    """In eval mode, its norms and weights such that neurons fire."""
    generator = torch.Generator().manual_seed(7)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.copy_(torch.randn(module.num_features, generator=generator) * 0.1)
            module.running_var.copy_(torch.rand(module.num_features, generator=generator) * 0.05 + 0.02)
            module.bias.data.copy_(torch.randn(module.num_features, generator=generator) * 0.2)
        if isinstance(module, nn.Linear):
            module.weight.data.mul_(4 * gain)
    return model.eval()


def node(leaky, soft, **options):
    options |= {"v_reset": None if soft else 0.0}
    return neuron.LIFNode(tau=2.5, **options) if leaky else neuron.IFNode(**options)


class Networks(unittest.TestCase):
    def near(self, model, sample, runs):
        """Images in which a membrane comes so near the threshold that rounding decides; no other may differ."""
        images, membranes = set(), {}

        def look(module, given, spikes):
            h, facts = membranes.get(module, 0.0), neuron_of(module)
            bound = 2e-6 * float(given[0].abs().max())
            steps = (given[0], spikes) if facts.multi else (given[0][None], spikes[None])
            for z, s in zip(*steps, strict=True):
                h = charge_of(facts, h, z)
                images.update(int(i) for i in ((h - facts.threshold).abs() < bound).flatten(1).any(1).nonzero())
                h = h - s * facts.threshold if facts.soft else h * (1 - s)
            membranes[module] = h

        hooks = [module.register_forward_hook(look) for module in model.modules() if hasattr(module, "v_threshold")]
        for _ in range(runs):
            model(sample)
        functional.reset_net(model)
        for hook in hooks:
            hook.remove()
        return images

    def same(self, model, sample, runs=2, alive=True):
        """Image by image, over several calls without a reset; and the membranes. Returns the fused one."""
        fused = convoy.fuse(model, sample, show=False)
        self.assertFalse([row for row in fused.report.rows if row.reason], str(fused.report))
        with torch.no_grad():
            near = self.near(model, sample, runs)
        for _ in range(2):
            theirs, mine = [], []
            with torch.no_grad():
                for out, run in ((theirs, model), (mine, fused)):
                    for _ in range(runs):
                        out.append(run(sample).clone())
                    out += [m.v.clone() for m in model.modules() if hasattr(m, "v_threshold")]
                    functional.reset_net(run)
            for place, (one, other) in enumerate(zip(theirs, mine, strict=True)):
                bound = 0 if place < runs else 1e-3 * float(one.abs().max())
                axis = int(place < runs and one.shape[0] != fused.report.batch)
                differ = ((one - other).abs() > bound).movedim(axis, 0).flatten(1).any(1).nonzero().flatten()
                self.assertLessEqual({int(i) for i in differ}, near)
        if alive:
            self.assertLess(len(near), fused.report.batch, "no image is compared to the bit")
        self.assertGreater(sum(float(out.sum()) for out in theirs[:runs]), 0 if alive else -1)
        return fused

    def test_fashion_mnist(self):
        torch.manual_seed(3)
        model = lively(example("conv_fashion_mnist").CSNN(4, 16))
        x = torch.rand(16, 1, 28, 28)
        fused = self.same(model, x)
        rows = fused.report.rows
        self.assertEqual([len(row.names.split()) for row in rows], [4, 4, 2, 2])
        self.assertEqual(rows[0].stage, "n16h28w28c1k16r3pad1+bias+if(1)+t4+hold+max2")
        self.assertIn("spike_chain, in a network", rows[1].kernel)
        self.assertIn("spikes that differ on the sample: 0 of", str(fused.report))
        self.assertEqual(list(fused.state_dict()), list(model.state_dict()))
        with torch.no_grad():
            fused(x)
            self.assertIsInstance(model.conv_fc[2].v, Later)  # not computed until somebody looks
            self.assertEqual(list(model.conv_fc[2].v.shape), [16, 16, 28, 28])
            functional.reset_net(fused)
            self.assertEqual(model.conv_fc[2].v, 0.0)
            fused(x)
            model.conv_fc[0].weight.mul_(1.1)
            with self.assertRaisesRegex(convoy.Error, "have changed since it ran"):
                model.conv_fc[2].v + 1
            functional.reset_net(fused)
            changed = fused(x)
            functional.reset_net(fused)
            self.assertTrue(torch.equal(changed, model(x)))
            functional.reset_net(model)
            again = copy.deepcopy(fused)
            self.assertTrue(torch.equal(again(x), changed))
        model.conv_fc[2].v_threshold = 0.5
        with self.assertRaisesRegex(convoy.Error, "changed after fusing.*Fuse the model again"):
            fused(x)

    def test_float64(self):
        """Not a stage's type: the layers themselves."""
        torch.manual_seed(3)
        model = lively(example("conv_fashion_mnist").CSNN(4, 4))
        x = torch.rand(2, 1, 28, 28)
        fused = convoy.fuse(model, x, show=False).double()
        with torch.no_grad():
            functional.reset_net(fused)
            found = fused(x.double())
            functional.reset_net(fused)
            self.assertTrue(torch.equal(found, model(x.double())))
            functional.reset_net(fused)

    def test_training(self):
        torch.manual_seed(4)
        model = lively(example("conv_fashion_mnist").CSNN(3, 4))
        x = torch.rand(2, 1, 28, 28)
        fused = self.same(model, x)
        grads = []
        for run in (model, fused):  # in eval mode: by the stages, with SpikingJelly's surrogate
            model.zero_grad()
            run(x).square().sum().backward()
            functional.reset_net(run)
            grads.append([p.grad.clone() for p in model.parameters()])
        for theirs, mine in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-3 * float(theirs.abs().max()))
        fused.train()
        before = model.conv_fc[1].running_mean.clone()
        fused(x)
        functional.reset_net(fused)
        self.assertFalse(torch.equal(before, model.conv_fc[1].running_mean))
        fused.eval()
        with torch.no_grad():
            found = fused(x)
            functional.reset_net(fused)
            self.assertTrue(torch.equal(found, model(x)))

    def test_other_examples(self):
        torch.manual_seed(5)
        images = torch.rand(3, 1, 28, 28)
        self.same(lively(example("lif_fc_mnist").SNN(2.0)), images * 3, runs=4)  # one step a call
        kinds = ((neuron.LIFNode, {"tau": 2.0, "surrogate_function": surrogate.ATan(), "detach_reset": True}),
                 (neuron.IFNode, {"v_reset": None}))  # fmt: skip
        for kind, options in kinds:
            for net, x in ((parametric_lif_net.MNISTNet, images.unsqueeze(0).repeat(3, 1, 1, 1, 1)),
                           (parametric_lif_net.CIFAR10Net, torch.rand(2, 1, 3, 32, 32)),
                           (parametric_lif_net.DVSGestureNet, torch.rand(2, 1, 2, 128, 128))):  # fmt: skip
                model = lively(net(8, kind, **options), 3)
                functional.set_step_mode(model, "m")
                self.same(model, x, alive=False)

    def test_held_inputs(self):
        class Steps(nn.Module):
            def __init__(self):
                super().__init__()
                self.body = nn.Sequential(layer.Conv2d(2, 4, 3), neuron.IFNode(v_threshold=0.3), layer.MaxPool2d(2))
                functional.set_step_mode(self, "m")

            def forward(self, x):
                return self.body(x.unsqueeze(0).repeat(3, 1, 1, 1, 1))

        x = torch.rand(2, 2, 9, 9)
        self.assertIn("+t3+hold", self.same(Steps().eval(), x).report.rows[0].stage)
        expanded = x.unsqueeze(0).expand(5, -1, -1, -1, -1)
        self.assertIn("+t5+hold", self.same(Steps().eval().body, expanded).report.rows[0].stage)
        self.assertNotIn("hold", self.same(Steps().eval().body, expanded.contiguous()).report.rows[0].stage)

    def test_threshold_cases_are_counted(self):
        """Sums that meet the threshold exactly in one order of summation, and miss it by a rounding in another."""
        torch.manual_seed(6)
        model = nn.Sequential(layer.Conv2d(64, 16, 3, bias=False), neuron.IFNode(), layer.MaxPool2d(2)).eval()
        functional.set_step_mode(model, "m")
        model[0].weight.data = (torch.rand(16, 64, 3, 3) * 0.002).round(decimals=4)
        x = torch.rand(3, 16, 64, 14, 14)
        with torch.no_grad():
            sums = F.conv2d(x.flatten(0, 1), model[0].weight)
            model[1].v_threshold = float(sums.median())  # many sums lie near it
        fused = convoy.fuse(model, x, show=False)
        spikes = fused.report.spikes
        self.assertLess(spikes.differ, spikes.of * 1e-3)
        self.assertLessEqual(set(fused.report.images), spikes.images)
        self.assertRegex(str(fused.report), r"spikes that differ on the sample: \d+ of \d+")

    def test_reset_values(self):
        for value in (0.4, -0.25, torch.tensor(0.4)):
            for mode in ("m", "s"):
                model = nn.Sequential(layer.Conv2d(2, 4, 3), neuron.LIFNode(), layer.Flatten(), nn.Linear(196, 3),
                                      neuron.IFNode(v_threshold=0.5)).eval()  # fmt: skip
                functional.set_step_mode(model, mode)
                for one in (model[1], model[4]):
                    one.set_reset_value("v", value)
                functional.reset_net(model)
                x = torch.rand(*((3,) if mode == "m" else ()), 2, 2, 9, 9)
                fused = convoy.fuse(model, x, show=False)
                self.assertTrue(all(row.kernel for row in fused.report.rows), str(fused.report))
                with torch.no_grad():
                    for _ in range(2):
                        functional.reset_net(model)
                        found = [fused(x), fused(x)]
                        functional.reset_net(model)
                        for one in found:
                            self.assertTrue(torch.equal(one, model(x)))

    def test_linear_of_pytorch_in_several_steps(self):
        model = nn.Sequential(layer.Flatten(), nn.Linear(18, 5), neuron.LIFNode(), nn.Linear(5, 4, bias=False),
                              neuron.IFNode()).eval()  # fmt: skip
        functional.set_step_mode(model, "m")
        x = 3 * torch.rand(4, 2, 2, 3, 3)
        fused = convoy.fuse(model, x, show=False)
        self.assertEqual([row.names for row in fused.report.rows], ["1 2", "3 4"])
        self.assertTrue(all(row.kernel for row in fused.report.rows))
        functional.reset_net(model)
        found = fused(x)
        functional.reset_net(model)
        self.assertTrue(torch.equal(found, model(x)))

    def test_containers(self):
        for container in (layer.SeqToANNContainer, layer.MultiStepContainer):
            model = nn.Sequential(container(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4)), neuron.IFNode(step_mode="m")).eval()
            x = torch.rand(3, 2, 2, 9, 9)
            fused = convoy.fuse(model, x, show=False)
            self.assertEqual([row.names for row in fused.report.rows], ["0"])
            self.assertRegex(fused.report.rows[0].reason, f"a {container.__name__}, which SpikingJelly runs with all")
            functional.reset_net(model)
            found = fused(x)
            functional.reset_net(model)
            self.assertTrue(torch.equal(found, model(x)))

    def test_what_is_not_fused_says_why(self):
        def reason(make, name="m"):
            model = nn.Sequential(layer.Conv2d(2, 4, 3), make(), layer.MaxPool2d(2)).eval()
            functional.set_step_mode(model, name)
            return convoy.fuse(model, torch.rand(*((2,) if name == "m" else ()), 2, 2, 9, 9), show=False).report.rows[0]

        for make, said in (
            (lambda: neuron.ParametricLIFNode(), "ParametricLIFNode"),
            (lambda: neuron.IFNode(v_reset=0.1), "v_reset is 0.1"),
            (lambda: neuron.LIFNode(decay_input=False), "decay_input is False"),
            (lambda: neuron.IFNode(store_v_seq=True), "store_v_seq"),
            (lambda: neuron.IFNode(surrogate_function=surrogate.Sigmoid(spiking=False)), "does not spike"),
        ):  # fmt: skip
            self.assertIn(said, reason(make).reason)
        model = nn.Sequential(layer.Conv2d(2, 4, 3, step_mode="m"), layer.BatchNorm2d(4, step_mode="m")).eval()
        rows = convoy.fuse(model, torch.rand(2, 2, 2, 9, 9), show=False).report.rows
        self.assertIn("no neuron", rows[0].reason)

    def test_snntorch(self):
        try:
            import snntorch
        except ImportError:
            self.skipTest("snnTorch is not installed")

        model = nn.Sequential(nn.Conv2d(1, 4, 3), snntorch.Leaky(0.9, init_hidden=True), nn.MaxPool2d(2)).eval()
        x = torch.rand(2, 1, 9, 9)
        fused = convoy.fuse(model, x, show=False)
        late = "snnTorch's Leaky: it fires if its membrane is above the threshold, and resets it one step later"
        self.assertRegex(fused.report.rows[1].reason, late)
        prompt = nn.Sequential(nn.Conv2d(1, 4, 3), snntorch.Leaky(0.9, init_hidden=True, reset_delay=False)).eval()
        self.assertNotIn("one step later", convoy.fuse(prompt, x, show=False).report.rows[1].reason)
        with torch.no_grad():
            model[1].reset_mem()
            wanted = [model(x) for _ in range(3)]
            model[1].reset_mem()
            for one in wanted:
                self.assertTrue(torch.equal(fused(x), one))


class Documents(unittest.TestCase):
    def test_docstrings(self):
        done = doctest.testmod(convoy.spiking)
        self.assertEqual(done.failed, 0)
        self.assertGreater(done.attempted, 2)


if __name__ == "__main__":
    unittest.main()
