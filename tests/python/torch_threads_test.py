"""Stages in PyTorch run on the threads of PyTorch's own operators."""

import subprocess
import sys
import unittest

try:
    import torch
except ImportError:
    raise unittest.SkipTest("PyTorch is not installed") from None


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout.split()


@unittest.skipUnless(torch.backends.openmp.is_available(), "PyTorch without OpenMP")
class OpenMP(unittest.TestCase):
    """On the CPU stages run on the threads of PyTorch's operators."""

    SETUP = """
import os, signal, threading, numpy, torch, convoy.torch
torch.set_num_threads(3)
x, w = torch.randn(8, 16, 64, 64), torch.randn(32, 16, 3, 3)
x = x.to(memory_format=torch.channels_last)
y = torch.nn.functional.conv2d(x, w, padding=1)
x.add(1)
here = lambda: sorted(os.listdir("/proc/self/task"))
def same():
    z = convoy.torch.stage("n1h9c16k32r3pad1", x, w)
    assert convoy.torch.plan("n1h9c16k32r3pad1", x, w).threads > 1
    assert torch.allclose(y, z, 1e-3, 1e-3)
    return z
"""

    def test_no_threads_of_our_own(self):
        code = self.SETUP + "before = here(); same(); x.add(1); same(); print(*before); print(*here())"
        tasks = run(code)
        self.assertGreaterEqual(len(tasks), 6)
        self.assertEqual(tasks[: len(tasks) // 2], tasks[len(tasks) // 2 :])

    def test_fewer_threads_leave_the_team(self):
        """A stage of two threads between operators of three: the team's threads stay."""
        code = self.SETUP + """
plan = convoy.Plan("n8h64c16k32r3pad1", w, threads=2, all_threads=True, openmp=True, axes="nchw", weights_layout="kcrs")
before = here()
assert torch.equal(plan(x), same())
x.add(1)
print(before == here(), plan.threads)
"""
        self.assertEqual(run(code), ["True", "2"])

    def test_other_threads_and_children(self):
        code = self.SETUP + """
z = same()
wrong = []
def work():
    for _ in range(5):
        wrong.extend([1] * (not torch.equal(convoy.torch.stage("n1h9c16k32r3pad1", x, w), z)))
threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
child = os.fork()
if child == 0:
    signal.alarm(60)  # an operator of PyTorch on several threads would hang here
    more = convoy.Plan("n8h64c16k32r3pad1", w, threads=2, openmp=True, axes="nchw", weights_layout="kcrs")
    found = [convoy.torch.stage("n1h9c16k32r3pad1", x, w), more(x)]
    os._exit(0 if all(numpy.array_equal(y.numpy(), z.numpy()) for y in found) else 1)
print(len(wrong), os.waitpid(child, 0)[1])
"""
        self.assertEqual(run(code), ["0", "0"])


if __name__ == "__main__":
    unittest.main()
