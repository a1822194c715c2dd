"""Arrays of the libraries that the documents name, by their real packages, and objects that only speak a protocol."""

import gc
import os
import subprocess
import sys
import unittest
from pathlib import Path

import numpy as np

import convoy

try:
    import torch
except ImportError:
    torch = None
try:
    import jax
    import jax.numpy as jnp
except ImportError:
    jax = None

STAGE = convoy.Stage("n2h8w7c3k4r3pad1+bias+relu")
RNG = np.random.default_rng(5)
WEIGHTS = RNG.standard_normal(STAGE.w_shape).astype(np.float32)
X = RNG.standard_normal(STAGE.x_shape).astype(np.float32)
BIAS = RNG.standard_normal(4).astype(np.float32)


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def plan():
    return convoy.Plan(STAGE, WEIGHTS, axes="nhwc")


class OnGpu:
    """What a GPU's array that knows no DLPack has: of Numba, of PyCUDA. Nothing may read its address."""

    def __init__(self, **facts):
        self.__cuda_array_interface__ = dict(version=3, shape=STAGE.x_shape, typestr="<f4", strides=None,
                                             data=(0x7F0000000000, False)) | facts  # fmt: skip


class Consumer(unittest.TestCase):
    """convoy.Tensor.__dlpack__ as the array API standard has it."""

    def setUp(self):
        self.y = plan()(memoryview(X), BIAS)
        self.assertIsInstance(self.y, convoy.Tensor)
        self.wanted = plan()(X, BIAS)

    def test_without_max_version_the_form_before_version_1(self):
        self.assertIn('"dltensor"', repr(self.y.__dlpack__()))
        self.assertIn('"dltensor"', repr(self.y.__dlpack__(max_version=None)))
        self.assertIn('"dltensor"', repr(self.y.__dlpack__(max_version=(0, 8))))
        for version in ((1, 0), (1, 1), (1, 9), (2, 0)):
            self.assertIn('"dltensor_versioned"', repr(self.y.__dlpack__(max_version=version)))

    def test_a_capsule_of_either_form_is_read(self):
        for arguments in ({}, {"max_version": (1, 1)}, {"copy": True}, {"copy": True, "max_version": (1, 0)},
                          {"copy": False, "dl_device": (1, 0)}, {"stream": None}):  # fmt: skip

            class Holder:
                def __init__(self, capsule):
                    self.capsule = capsule

                def __dlpack__(self, **_):
                    return self.capsule

                def __dlpack_device__(self):
                    return 1, 0

            if "max_version" in arguments and np.lib.NumpyVersion(np.__version__) < "2.1.0":
                continue  # it asks for the form before version 1 alone
            with self.subTest(arguments):
                np.testing.assert_array_equal(np.from_dlpack(Holder(self.y.__dlpack__(**arguments))), self.wanted)

    def test_a_copy_is_a_copy(self):
        def address(array):
            return array.__array_interface__["data"][0]

        shared = address(np.asarray(self.y))
        for copy, same in ((None, True), (False, True), (True, False)):
            got = np.from_dlpack(type("Given", (), {"__dlpack__": lambda _, c=copy, **k: self.y.__dlpack__(copy=c),
                                                    "__dlpack_device__": lambda _: (1, 0)})())  # fmt: skip
            self.assertEqual(address(got) == shared, same, copy)
            np.testing.assert_array_equal(got, self.wanted)

    def test_what_it_refuses(self):
        with self.assertRaisesRegex(BufferError, r"dl_device: \(2, 0\).*on \(1, 0\).*Expected"):
            self.y.__dlpack__(dl_device=(2, 0))
        for wrong in ("cpu", (1,), (1, 2, 3), (1, "0")):
            with self.assertRaisesRegex(TypeError, "dl_device: .*expected a tuple of two integers"):
                self.y.__dlpack__(dl_device=wrong)
        with self.assertRaisesRegex(TypeError, "max_version"):
            self.y.__dlpack__(max_version=1)

    def test_capsules_that_nobody_takes_leave_no_memory(self):
        x = memoryview(np.ones((16, 32, 32, 1), np.float32))
        big = convoy.Plan("n16h32c1k64r1", np.ones((64, 1, 1, 1), np.float32))(x)  # 4 MiB
        before = resident()
        for _ in range(100):
            big.__dlpack__(copy=True), big.__dlpack__(copy=True, max_version=(1, 1))
        self.assertLess(resident() - before, 100 << 20)


class Numpy(unittest.TestCase):
    def test_results_are_its_own(self):
        y = plan()(X, BIAS)
        self.assertIs(type(y), np.ndarray)
        wide = np.zeros((2, 8, 7, 9), np.float32)
        wide[..., 2:5] = X
        np.testing.assert_array_equal(plan()(wide[..., 2:5], BIAS), y)
        np.testing.assert_array_equal(plan()(X[::-1][:1], BIAS), y[::-1][:1])
        np.testing.assert_array_equal(np.from_dlpack(plan()(memoryview(X), BIAS)), y)

    def test_an_array_interface_alone(self):
        for name, wrong, expected in (
            ("mask", np.ones(1), "has a mask"),
            ("data", None, "no 'data'"),
            ("shape", None, "no 'shape'"),
            ("shape", (2, 8, 7, -3), "axis 3 has -3 elements"),
            ("strides", (4,), "4 sizes and 1 strides"),
            ("data", (0, False), "elements but no memory"),
            ("typestr", "<f8", "'<f8'"),
        ):
            fake = type("Fake", (), {"__array_interface__": X.__array_interface__ | {name: wrong}})()
            with self.subTest(name), self.assertRaisesRegex(convoy.InvalidOperand, f"^x: .*{expected}"):
                plan()(fake, BIAS)

    def test_a_gpu_array_is_refused_by_the_cpu(self):
        """In a process of its own: it was a segmentation fault."""
        code = """
import numpy as np, convoy
from libraries_test import OnGpu, plan, X, BIAS
for call in (lambda: plan()(OnGpu(), BIAS), lambda: plan()(X, BIAS, out=OnGpu()), lambda: plan().set_weights(OnGpu()),
             lambda: convoy.Network(convoy.demo_model()).labels(OnGpu()),
             lambda: convoy.Network.from_text("input f32:h4c1\\nflatten\\nfc k2\\n", {"fc.weight": OnGpu()})):
    try: call()
    except convoy.InvalidOperand as error: print("refused", "an OnGpu on a GPU" in str(error))
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parent)
        self.assertEqual((done.returncode, done.stdout.split()), (0, ["refused", "True"] * 5), done.stderr[-2000:])

    def test_an_object_of_both_interfaces_is_read_where_the_plan_is(self):
        both = OnGpu()
        both.__array_interface__ = X.__array_interface__
        np.testing.assert_array_equal(np.asarray(plan()(both, BIAS)), plan()(X, BIAS))


@unittest.skipUnless(jax, "JAX is not installed")
class Jax(unittest.TestCase):
    def test_results_are_its_own(self):
        wanted = plan()(X, BIAS)
        y = plan()(jnp.asarray(X), jnp.asarray(BIAS))
        self.assertIsInstance(y, jax.Array)
        np.testing.assert_array_equal(np.asarray(y), wanted)
        np.testing.assert_array_equal(np.asarray(jnp.asarray(wanted) * 2), np.asarray(y * 2))
        kept = convoy.Plan("n1h4c1k1r1+relu+keep(pre,idx)+max2", np.ones((1, 1, 1, 1), np.float32))
        x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
        for mine, its in zip(kept(x), kept(jnp.asarray(x))):
            self.assertEqual(mine is None, its is None)
            if mine is not None:
                self.assertIsInstance(its, jax.Array)
                np.testing.assert_array_equal(np.asarray(its), mine)

    def test_between_jitted_functions(self):
        twice, wanted = jax.jit(lambda v: v * 1.0 + 0.0), plan()(X, BIAS)
        for _ in range(20):
            y = twice(plan()(twice(jnp.asarray(X)), jnp.asarray(BIAS)))
            np.testing.assert_array_equal(np.asarray(y), wanted)

    def test_work_that_is_still_under_way(self):
        """JAX returns before it has computed: the values must be there when a plan reads them."""
        slow = jax.jit(lambda v: jax.lax.fori_loop(0, 300, lambda _, w: jnp.sin(w @ v.T @ v), v))
        x = jnp.asarray(RNG.standard_normal((160, 160)).astype(np.float32))
        one = convoy.Plan("n1h160c1k1r1", np.ones((1, 1, 1, 1), np.float32))
        for _ in range(5):
            made = slow(x)
            y = one(made.reshape(1, 160, 160, 1))
            np.testing.assert_array_equal(np.asarray(y)[0, :, :, 0], np.asarray(made))

    def test_types(self):
        for name, dtype in (("bf16", jnp.bfloat16), ("f16", jnp.float16), ("f32", jnp.float32)):
            one = convoy.Plan(f"{name}:n2h8w7c3k3r1", np.eye(3, dtype=np.float32).reshape(3, 1, 1, 3), axes="nhwc")
            x = jnp.asarray(X).astype(dtype)
            y = one(x)
            self.assertEqual((type(y), y.dtype), (type(x), x.dtype))
            self.assertTrue(bool((y == x).all()), name)

    def test_its_arrays_are_never_written(self):
        out = jnp.zeros(STAGE.y_shape, jnp.float32)
        with self.assertRaisesRegex(convoy.InvalidOperand, "out: an array of JAX, which never changes"):
            plan()(jnp.asarray(X), jnp.asarray(BIAS), out=out)
        self.assertEqual(float(abs(out).max()), 0)

    def test_a_tracer_is_refused(self):
        with self.assertRaisesRegex(convoy.InvalidOperand, "^x: "):
            jax.jit(lambda v: plan()(v, BIAS))(jnp.asarray(X))

    def test_networks(self):
        network = convoy.Network(convoy.demo_model())
        images = RNG.integers(0, 256, (50, 28, 28)).astype(np.uint8)
        for call in (network, network.labels):
            y = call(jnp.asarray(images))
            self.assertIsInstance(y, jax.Array)
            np.testing.assert_array_equal(np.asarray(y), call(images))


class Evil:
    """An array of one value, whose __dlpack__ runs what it is given."""

    def __init__(self, array, action):
        self.array, self.action = array, action

    def __dlpack__(self, **arguments):
        self.action()
        return self.array.__dlpack__(**arguments)

    def __dlpack_device__(self):
        return 1, 0


class KeptAlive(unittest.TestCase):
    """What a call has taken stays, whatever code in Python, in this or another thread, does meanwhile."""

    TEXT = "input f32:h4c1\na k64r3pad1\nb k64r3pad1+bias\n"

    def parameters(self):
        rng = np.random.default_rng(2)
        return {"a.weight": rng.standard_normal((64, 1, 3, 3)).astype(np.float32),
                "b.weight": rng.standard_normal((64, 64, 3, 3)).astype(np.float32),
                "b.bias": np.ones(64, np.float32)}  # fmt: skip

    def check_from_text(self, of_library):
        x = np.ones((1, 4, 4, 1), np.float32)
        wanted = convoy.Network.from_text(self.TEXT, self.parameters())(x)
        for action in ("pop", "clear", "replace", "grow"):
            given, hold = {name: of_library(value) for name, value in self.parameters().items()}, []

            def change(given=given, hold=hold, action=action):
                if action == "pop":
                    given.pop("b.weight", None), given.pop("a.weight", None)
                elif action == "clear":
                    given.clear()
                elif action == "replace":
                    given["b.weight"] = given["a.weight"] = None
                else:
                    given.update({f"more{i}": i for i in range(1000)})
                gc.collect()
                hold.extend(of_library(np.full((64, 64, 3, 3), 7, np.float32)) for _ in range(4))

            for place in ("a.weight", "b.bias"):
                values = dict(self.parameters())
                evil = {**given, place: Evil(values[place], change)}
                given.clear(), given.update(evil)
                try:
                    got = convoy.Network.from_text(self.TEXT, given)(x)
                    np.testing.assert_array_equal(got, wanted, f"{action} by {place}")
                finally:
                    given.clear(), given.update({n: of_library(v) for n, v in values.items()})

    def test_a_dict_that_a_parameter_changes(self):
        self.check_from_text(np.copy)

    def test_norms_sequence(self):
        one = convoy.Plan("n1h2c2k2r1+norm", np.eye(2, dtype=np.float32).reshape(2, 1, 1, 2))
        x = np.ones((1, 2, 2, 2), np.float32)

        class Made:
            def __len__(self):
                return 2

            def __getitem__(self, i):
                return np.full(2, 3 - i, np.float32)  # nothing else holds it

        np.testing.assert_array_equal(one(x, norm=Made()), np.full((1, 2, 2, 2), 5, np.float32))

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_tensors(self):
        self.check_from_text(torch.tensor)

    @unittest.skipUnless(torch, "PyTorch is not installed")
    def test_a_tensor_that_another_operand_changes(self):
        """Read after it was freed, that was: refused, or as it was."""
        for name in ("resize", "set", "data"):
            x = torch.tensor(X)

            def change(x=x, name=name):
                if name == "resize":
                    x.untyped_storage().resize_(0)
                elif name == "set":
                    x.set_(torch.zeros(1, 1, 1, 3))
                else:
                    x.data = torch.zeros(2, 8, 7, 3)

            with self.subTest(name), self.assertRaisesRegex(convoy.InvalidOperand, "^x: "):
                plan()(x, Evil(BIAS, change))
            given = {name: torch.tensor(value) for name, value in self.parameters().items()}
            weight = given["b.weight"]

            def shrink(weight=weight, name=name):
                if name == "resize":
                    weight.untyped_storage().resize_(0)
                elif name == "set":
                    weight.set_(torch.zeros(3))
                else:
                    weight.data = torch.zeros(64, 64, 3, 3)

            given["b.bias"] = Evil(np.ones(64, np.float32), shrink)
            with self.subTest(name), self.assertRaisesRegex(convoy.InvalidOperand, "^b.weight: "):
                convoy.Network.from_text(self.TEXT, given)


if __name__ == "__main__":
    unittest.main()
