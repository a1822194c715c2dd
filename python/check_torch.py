#!/usr/bin/env python3
"""Runs one operator of a network at a time in PyTorch, neurons by SpikingJelly: the worker of `convoy check --torch`.

A request and its answer are a line of JSON each, on standard input and output:

    {"op": "hello"}                                     {"name": "PyTorch 2.9.0, SpikingJelly 0.0.0.0.14"}
    {"op": "run", "kind", "stage", "n", "x_steps",      {"seconds": 0.001}
     "y_shape": [T, N, P, Q, K], "folder"}

Of "run" the folder holds x.bin [x_steps, N, H, W, C], w.bin [K, R, S, C/groups] and bias.bin [K], float32 one
after the other; y.bin is written there and, of a neuron, membrane.bin: what it holds when it decides whether to
fire. x_steps is 1 where the input is the same in each step. What goes wrong is answered with {"error": text}.
"""

import argparse
import json
import statistics
import sys
import time
from array import array
from pathlib import Path

RUNS = 3  # behind one that is not timed


def load():
    """The libraries, or an answer that says what is missing."""
    try:
        import spikingjelly
        import torch
        import torch.nn.functional as functional
        from spikingjelly.activation_based import neuron
    except ImportError as missing:
        raise RuntimeError(f"{sys.executable}: {missing}. Install torch and spikingjelly there, or give another "
                           "interpreter as --torch-python") from missing
    torch.set_grad_enabled(False)
    return spikingjelly, torch, functional, neuron


def version_of(package):
    from importlib.metadata import version

    return version(package)


class Worker:
    def __init__(self):
        _, self.torch, self.functional, self.neuron = load()

    def hello(self):
        return {"name": f"PyTorch {version_of('torch')}, SpikingJelly {version_of('spikingjelly')}"}

    def read(self, path, shape):
        values = array("f")
        values.frombytes(path.read_bytes())
        return self.torch.tensor(values).reshape(shape)

    def sums(self, stage, folder):
        """The convolution, of [M, C, H, W]."""
        k, r, s = stage["k"], stage["r"], stage["s"]
        w = self.read(folder / "w.bin", (k, r, s, stage["c"] // stage["groups"])).permute(0, 3, 1, 2).contiguous()
        bias = self.read(folder / "bias.bin", (k,)) if stage["bias"] else None
        top, left, bottom, right = stage["pad"]

        def run(x):
            if (top, left) != (bottom, right):
                x = self.functional.pad(x, (left, right, top, bottom))
            return self.functional.conv2d(x, w, bias, tuple(stage["stride"]),
                                          (top, left) if (top, left) == (bottom, right) else 0, tuple(stage["dil"]),
                                          stage["groups"])
        return run

    def activation(self, stage):
        act = stage["act"]
        if act == "relu":
            return self.torch.relu
        if act == "relu6":
            return self.functional.relu6
        if act == "clip":
            return lambda x: x.clamp(stage["lo"], stage["hi"])
        if act == "leaky":
            return lambda x: self.functional.leaky_relu(x, stage["slope"])
        raise RuntimeError(f"the activation {act}, which check_torch.py does not know")

    def pool(self, stage):
        pool = stage["pool"]
        low = float("-inf")
        ph, pw = pool["pad"]

        def run(x):
            if ph or pw:  # more than half a window may be padding here
                x = self.functional.pad(x, (pw, pw, ph, ph), value=low)
            return self.functional.max_pool2d(x, tuple(pool["window"]), tuple(pool["stride"]), 0, tuple(pool["dil"]),
                                              pool["ceil"])
        return run

    def neurons(self, stage):
        """Of [T, N, C, H, W]: spikes and membranes of all steps. The latter only tell which spikes are ties."""
        reset, leaky = None if stage["soft"] else 0.0, stage["act"] == "lif"
        if leaky:
            node = self.neuron.LIFNode(tau=stage["tau"], decay_input=True, v_threshold=stage["threshold"],
                                       v_reset=reset)
        else:
            node = self.neuron.IFNode(v_threshold=stage["threshold"], v_reset=reset)

        def run(x):
            node.reset()
            spikes, membranes = [], []
            for step in x:
                before = node.v  # 0.0 at first
                membranes.append(before + (step - before) / stage["tau"] if leaky else before + step)
                spikes.append(node(step))
            return self.torch.stack(spikes), self.torch.stack(membranes)
        return run

    def run(self, request):
        stage, folder, n = request["stage"], Path(request["folder"]), request["n"]
        y_shape, kind = request["y_shape"], request["kind"]
        x = self.read(folder / "x.bin", (request["x_steps"], n, stage["h"], stage["w"], stage["c"]))
        x = x.permute(0, 1, 4, 2, 3).contiguous()
        if kind == "neuron":
            x = x.expand(y_shape[0], *x.shape[1:])
            call = self.neurons(stage)
        else:
            x = x.flatten(0, 1)
            makers = {"conv": lambda: self.sums(stage, folder), "linear": lambda: self.sums(stage, folder),
                      "activation": lambda: self.activation(stage), "pool": lambda: self.pool(stage)}
            if kind not in makers:
                raise RuntimeError(f"an operator of kind {kind}, which check_torch.py does not know")
            call = makers[kind]()
        result, seconds = call(x), []
        for _ in range(RUNS):
            begin = time.perf_counter()
            result = call(x)
            seconds.append(time.perf_counter() - begin)
        if kind == "neuron":
            self.write(folder / "membrane.bin", result[1], y_shape)
            result = result[0]
        self.write(folder / "y.bin", result, y_shape)
        return {"seconds": statistics.median(seconds)}

    def write(self, path, tensor, shape):
        """[.., C, H, W] as [T, N, H, W, C]."""
        steps, n, p, q, k = shape
        tensor = tensor.reshape(steps, n, k, p, q).permute(0, 1, 3, 4, 2).contiguous()
        path.write_bytes(bytes(tensor.untyped_storage()))


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    worker = None
    for line in sys.stdin:
        try:
            worker = worker or Worker()
            request = json.loads(line)
            answer = worker.hello() if request["op"] == "hello" else worker.run(request)
        except Exception as error:  # the program shows it
            answer = {"error": f"{error}"}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
