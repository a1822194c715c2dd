"""Import, memory, threads, fork, networks, and the examples of the documents."""

import doctest
import gc
import gzip
import os
import subprocess
import sys
import threading
import unittest
from pathlib import Path

import numpy as np

import convoy

SOURCE = Path(__file__).resolve().parents[2]
FASHION = Path("/usr/share/datasets/fashion-mnist")


def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


class Runtime(unittest.TestCase):
    def test_import_needs_neither_numpy_nor_torch(self):
        found = run("import sys, convoy; print([name for name in ('numpy', 'torch', 'jax') if name in sys.modules])")
        self.assertEqual(found.strip(), "[]")
        code = "import time; t = time.perf_counter(); import convoy; print(time.perf_counter() - t)"
        self.assertLess(min(float(run(code)) for _ in range(3)), 0.3)

    def test_memory_stays(self):
        weights, x = np.ones((8, 3, 3, 4), np.float32), np.ones((1, 6, 6, 4), np.float32)

        def turn():
            plan = convoy.Plan("n1h6c4k8r3pad1+relu", weights, threads=1, axes="nhwc")
            plan(x)
            try:
                plan(x[..., :2])
            except convoy.InvalidOperand:
                pass
            try:
                convoy.Stage("n1h6c4k8r99")
            except convoy.Error:
                pass

        for _ in range(1000):
            turn()
        gc.collect()
        before = resident()
        for _ in range(10000):
            turn()
        gc.collect()
        self.assertLess(resident() - before, 2 << 20)

    def test_eight_threads_run_one_plan(self):
        rng = np.random.default_rng(1)
        plan = convoy.Plan("n1h12w11c16k16r3pad1+relu", rng.standard_normal((16, 3, 3, 16)).astype(np.float32))
        images = rng.standard_normal((8, 1, 12, 11, 16)).astype(np.float32)
        wanted = [plan(image) for image in images]
        wrong = []

        def work(number):
            for _ in range(200):
                if not np.array_equal(plan(images[number]), wanted[number]):
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_weights_change_while_others_run(self):
        """Either the change waits its turn by an exception, or a run sees whole weights."""
        x = np.ones((1, 8, 9, 4), np.float32)
        ones = np.ones((4, 1, 1, 4), np.float32)
        plan = convoy.Plan("n1h8w9c4k4r1", ones, threads=1)
        seen, stop = set(), threading.Event()

        def work():
            while not stop.is_set():
                try:
                    seen.update(np.unique(plan(x)).tolist())
                except convoy.Busy:
                    pass

        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for turn in range(500):
            try:
                plan.set_weights(ones * (1 + turn % 2))
            except convoy.Busy as error:
                self.assertRegex(str(error), "under way")
        stop.set()
        for thread in threads:
            thread.join()
        self.assertLessEqual(seen, {4.0, 8.0})

    def test_fork_after_a_run(self):
        plan = convoy.Plan("n4h16w15c16k16r3pad1", np.ones((16, 3, 3, 16), np.float32))
        x = np.ones((4, 16, 15, 16), np.float32)
        y = plan(x)
        child = os.fork()
        if child == 0:
            same = np.array_equal(plan(x), y) and convoy.Network(convoy.demo_model()).classes == 10
            os._exit(0 if same else 1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)

    def test_daemon_threads_at_the_end(self):
        """They are in a run when the interpreter ends: the process ends as if they were not there."""
        code = """
import numpy as np, convoy, threading, time
plan = convoy.Plan("n4h32c16k16r3pad1", np.ones((16, 3, 3, 16), "f"))
network, images = convoy.Network(convoy.demo_model()), np.zeros((200, 28, 28), np.uint8)
x, w = np.ones((4, 32, 32, 16), "f"), np.ones((16, 3, 3, 16), "f")
def work(call):
    while True: call()
for call in (lambda: plan(x), lambda: network(images), lambda: plan.pack(w)):
    threading.Thread(target=work, args=(call,), daemon=True).start()
time.sleep(.05)
"""
        for turn in range(10):
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
            self.assertEqual((done.returncode, done.stderr), (0, ""), turn)

    def test_openmp_where_there_is_none(self):
        code = """
import numpy as np, convoy
w, x = np.ones((16, 3, 3, 16), np.float32), np.ones((4, 16, 15, 16), np.float32)
ways = [convoy.Plan("n4h16w15c16k16r3pad1", w, threads=2, openmp=openmp)(x) for openmp in (False, True)]
print(np.array_equal(*ways), convoy.Network(convoy.demo_model(), threads=2, openmp=True).threads)
"""
        self.assertEqual(run(code).split(), ["True", "2"])

    def test_weights_are_shared(self):
        plans = [convoy.Plan(f"n{n}h8w9c16k16r1", kernel="direct", tile="") for n in (4, 4)]
        packed = plans[0].pack(np.ones((16, 1, 1, 16), np.float32))
        for plan in plans:
            plan.use(packed)
        self.assertEqual(packed.packing, plans[0].packing)
        self.assertEqual(plans[1](np.ones((1, 8, 9, 16), np.float32)).max(), 16)

    def test_explain(self):
        plan = convoy.Plan("n1h8c8k8r3pad1+relu")
        self.assertEqual(repr(plan.explain()), str(plan.explain()))
        self.assertEqual(plan.explain_json()["kernel"], plan.kernel)
        self.assertIn(f"<b>{plan.kernel}</b>", plan._repr_html_())
        self.assertIn(plan.kernel, repr(plan))

    @unittest.skipUnless(FASHION.is_dir(), "dataset-fashion-mnist is not installed")
    def test_fashion(self):
        images = np.frombuffer(gzip.open(FASHION / "t10k-images-idx3-ubyte.gz").read(), np.uint8, offset=16)
        truth = np.frombuffer(gzip.open(FASHION / "t10k-labels-idx1-ubyte.gz").read(), np.uint8, offset=8)
        network = convoy.Network(convoy.demo_model())
        labels = network.labels(images.reshape(-1, 28, 28))
        np.testing.assert_array_equal(labels, network(images.reshape(-1, 28, 28)).argmax(1))
        self.assertGreater((labels == truth).mean(), 0.9)

    def test_vectors(self):
        """The input of a network of linear layers, as PyTorch has it: [N, C]."""
        weights = np.arange(24, dtype=np.float32).reshape(3, 8)
        network = convoy.Network.from_text("input f32:h1c8\nflatten\nfc k3\n", {"fc.weight": weights})
        x = np.random.default_rng(4).integers(-4, 5, (5, 8)).astype(np.float32)
        self.assertEqual(network(x).tolist(), (x @ weights.T).tolist())
        self.assertEqual(network(x.reshape(5, 1, 1, 8)).tolist(), network(x).tolist())
        with self.assertRaisesRegex(convoy.InvalidOperand, r"f32\[5,7\].* expected f32\[N,1,1,8\] \(or \[N,8\]\)"):
            network(np.ascontiguousarray(x[:, :7]))
        image = convoy.Network.from_text("input f32:h2c2\nflatten\nfc k3\n", {"fc.weight": weights[:, :8]})
        with self.assertRaisesRegex(convoy.InvalidOperand, "expected f32.N,2,2,2., dense"):
            image(x)

    def test_weights_rounded_to_f16(self):
        text, x = "input f32:h4c1\nflatten\nfc k2\n", np.ones((1, 4, 4), np.float32)
        weights = np.random.default_rng(3).standard_normal((2, 16)).astype(np.float32)
        rounded = weights.astype(np.float16).astype(np.float32)
        made = {name: convoy.Network.from_text(text, {"fc.weight": given}, weights=of)(x).tolist()
                for name, given, of in (("f16", weights, "f16"), ("rounded", rounded, "f32"), ("f32", weights, "f32"))}
        self.assertEqual(made["f16"], made["rounded"])
        self.assertNotEqual(made["f16"], made["f32"])

    def test_interfaces(self):
        """What has an array interface alone, and what speaks DLPack before version 1."""
        plan = convoy.Plan("n1h2w3c4k4r1", np.eye(4, dtype=np.float32).reshape(4, 1, 1, 4))
        x = np.arange(24, dtype=np.float32).reshape(1, 2, 3, 4)

        class Interface:
            __array_interface__ = x.__array_interface__

        class Old:
            def __dlpack__(self):
                return x.__dlpack__()

            def __dlpack_device__(self):
                return x.__dlpack_device__()

        for other in (Interface(), Old(), memoryview(x)):
            y = plan(other)
            self.assertIsInstance(y, convoy.Tensor)
            np.testing.assert_array_equal(np.asarray(y), x)
            np.testing.assert_array_equal(np.from_dlpack(y), x)
            np.testing.assert_array_equal(np.asarray(plan(y)), x)


class Documents(unittest.TestCase):
    @unittest.skipIf(int(np.__version__.split(".")[0]) < 2, "docstrings have NumPy 2's way of showing numbers")
    def test_docstrings(self):
        names = dict(convoy=convoy)
        found = 0
        for module in (convoy, convoy.program, convoy.records):
            done = doctest.testmod(module, extraglobs=names)
            self.assertEqual(done.failed, 0)
            found += done.attempted
        for name in convoy.__all__:
            thing = getattr(convoy, name)
            if getattr(thing, "__module__", "") == "convoy" and thing.__doc__:
                for test in doctest.DocTestFinder(recurse=True).find(thing, name, module=False, extraglobs=names):
                    done = doctest.DocTestRunner().run(test)
                    self.assertEqual(done.failed, 0, test.name)
                    found += done.attempted
        self.assertGreater(found, 30)

    def test_stubs(self):
        text = (Path(convoy.__file__).parent / "_core.pyi").read_text()
        self.assertIn("code: str", text)
        self.assertNotIn("-> object:", text.replace("def __dlpack__(self, **kwargs) -> object:", ""))
        for name in ("class Plan:", "class Stage:", "class Network:", "class InvalidOperand(Error, ValueError):",
                     "class Activation:", "def pool(self) -> Pool | None:", "def from_(self) -> tuple[str, ...]:"):
            self.assertIn(name, text)


if __name__ == "__main__":
    unittest.main()
