#!/usr/bin/env python3
"""Times one stage in other libraries, on a GPU: a worker that `convoy bench --device cuda --peers` talks to.

Reads one JSON object a line from standard input, answers with one on standard output:
  {"op": "prepare", "stage": {...}, "threads": 2}  -> {"peers": [...], "partial": [...], "left_out": [...]}
  {"op": "time", "peer": NAME, "seconds": 0.03}    -> {"samples": [seconds, ...]}

Peers: cuDNN through PyTorch (its algorithm chosen by measurement), torch.compile with max-autotune,
XLA through JAX, and for a 1x1 stage without riders cuBLAS. `partial` ones do less than the stage:
the convolution alone, or without the pool. All run the stage's type in NHWC on normal inputs, over
buffers that together exceed the L2 three times, as replays of a CUDA graph (XLA: one jitted call).
Each peer's result is compared with PyTorch in fp32. A stage's "then" is a stage that follows it.

CONVOY_GPU_PEERS chooses among cudnn,alone,compile,xla,cublas (default: all). XLA runs in a process of its
own: a kernel that fails there must not take the others along. CONVOY_PEERS_LOG names a file for what
the libraries print. CONVOY_PEERS_HISTORY names one for the times of former processes: a peer that was
a tenth behind the best there is left out.
"""

import json
import math
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
ASKED = os.environ.get("CONVOY_GPU_PEERS", "cudnn,alone,compile,xla,cublas").split(",")
LAUNCHES = 24  # of a graph, at least
PARTIAL = ("cudnn without pool", "cudnn convolution alone")  # do less than the stage


def moved_by(stage):
    """Bytes of an input and an output."""
    if stage.get("then"):
        return moved_by(stage["then"]) + 2 * stage["n"] * stage["h"] * stage["w"] * stage["c"]
    (top, left, bottom, right), (sh, sw), (dh, dw) = stage["pad"], stage["stride"], stage["dil"]
    p = (stage["h"] + top + bottom - dh * (stage["r"] - 1) - 1) // sh + 1
    q = (stage["w"] + left + right - dw * (stage["s"] - 1) - 1) // sw + 1
    if stage["pool"]:
        pool = stage["pool"]
        p, q = ((size + 2 * pad - d * (window - 1) - 1) // stride + 1 for size, pad, d, window, stride in
                zip((p, q), pool["pad"], pool["dil"], pool["window"], pool["stride"]))
    return 2 * stage["n"] * (stage["h"] * stage["w"] * stage["c"] + p * q * stage["k"])


def buffers_of(stage, l2_bytes):
    """How many inputs and outputs exceed the L2 three times; as bench/gpu_runs.cpp has it."""
    return max(8, min(512, 3 * l2_bytes // moved_by(stage) + 1))


class Torch:
    """Eager through cuDNN, compiled, and cuBLAS."""

    def __init__(self):
        import torch
        self.torch = torch
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.set_grad_enabled(False)
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size

    def open(self, stage):
        torch = self.torch
        torch.manual_seed(1)
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16}[stage["dtype"]]
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=dtype)
        last = torch.channels_last
        self.s, self.layers = stage, []  # of each stage: itself, weights, bias
        for s in [stage] + ([stage["then"]] if stage.get("then") else []):
            fan = s["c"] // s["groups"] * s["r"] * s["s"]
            w = (make(s["k"], s["c"] // s["groups"], s["r"], s["s"]) / math.sqrt(fan)).to(memory_format=last)
            self.layers.append((s, w, make(s["k"]) if s["bias"] else None))
        self.xs = [make(stage["n"], stage["c"], stage["h"], stage["w"]).to(memory_format=last)
                   for _ in range(buffers_of(stage, self.l2))]

    def activate(self, s, y):
        f = self.torch.nn.functional
        return {"": lambda: y, "relu": lambda: f.relu(y), "relu6": lambda: f.relu6(y),
                "clip": lambda: self.torch.clamp(y, s["a"], s["b"]), "leaky": lambda: f.leaky_relu(y, s["a"])}[s["act"]]()

    def pool(self, s, y):
        p = s["pool"]
        return self.torch.nn.functional.max_pool2d(y, p["window"], p["stride"], p["pad"], p["dil"], p["ceil"]) if p else y

    def conv(self, s, w, b, x):
        f = self.torch.nn.functional
        top, left, bottom, right = s["pad"]
        if (top, left) != (bottom, right):
            x, pad = f.pad(x, (left, right, top, bottom)), 0
        else:
            pad = (top, left)
        return f.conv2d(x, w, b, s["stride"], pad, s["dil"], s["groups"])

    def fused(self, s, w, b, x):
        """cuDNN's own convolution + bias + ReLU, where the stage has that."""
        if s["act"] != "relu" or not s["bias"] or s["pad"][:2] != s["pad"][2:]:
            return self.activate(s, self.conv(s, w, b, x))
        return self.torch.cudnn_convolution_relu(x, w, b, s["stride"], s["pad"][:2], s["dil"], s["groups"])

    def chain(self, x, pools=True, fused=True):
        for s, w, b in self.layers:
            x = self.fused(s, w, b, x) if fused else self.activate(s, self.conv(s, w, b, x))
            x = self.pool(s, x) if pools else x
        return x

    def compiled(self):
        self.torch._dynamo.reset()
        return self.torch.compile(lambda x: self.chain(x, fused=False), mode="max-autotune-no-cudagraphs", dynamic=False)

    def makers(self):
        s, w, _ = self.layers[0]
        riders = s["bias"] or s["act"]
        single = len(self.layers) == 1
        found = {}
        if "cudnn" in ASKED:
            found["cudnn"] = lambda: self.chain
            if s["pool"] and riders and single:
                found[PARTIAL[0]] = lambda: lambda x: self.chain(x, pools=False)
        if "alone" in ASKED and (s["pool"] or riders) and single:
            found[PARTIAL[1]] = lambda: lambda x: self.conv(s, w, None, x)
        if "compile" in ASKED:
            found["torch.compile"] = self.compiled
        pointwise = (s["r"], s["s"], s["groups"], s["stride"], s["pad"]) == (1, 1, 1, [1, 1], [0] * 4)
        if "cublas" in ASKED and pointwise and single and not riders and not s["pool"]:
            matrix = w.reshape(s["k"], s["c"]).t()
            found["cublas"] = lambda: lambda x: (x.permute(0, 2, 3, 1).reshape(-1, s["c"]) @ matrix)
        return found

    def check(self, name, y):
        """Against fp32 on the first image."""
        torch, s = self.torch, self.s
        tf32 = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False
        want = self.xs[0][:1].float()
        for layer, w, b in self.layers:
            alone = name == PARTIAL[1]
            want = self.conv(layer, w.float(), None if alone or b is None else b.float(), want)
            want = want if alone else self.activate(layer, want)
            want = want if name in PARTIAL else self.pool(layer, want)
        torch.backends.cudnn.allow_tf32 = tf32
        if name == "cublas":
            y = y.reshape(s["n"], s["h"], s["w"], s["k"]).permute(0, 3, 1, 2)
        error = ((y[:1].float() - want).abs().max() / want.abs().max()).item()
        if not error < (4e-3 if s["dtype"] == "f16" else 2e-2):
            raise RuntimeError(f"wrong result, error {error:.1e}")

    def graph(self, name, function):
        """Captured launches over all buffers; gives a function that replays them so many times and
        returns the seconds of one launch."""
        torch = self.torch
        self.check(name, function(self.xs[0]))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(2):
                function(self.xs[0])
            launches = max(LAUNCHES, len(self.xs))
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                kept = [function(self.xs[i % len(self.xs)]) for i in range(launches)]
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def replay(times, _kept=kept):  # what the graph writes to lives as long as it
            with torch.cuda.stream(stream):
                start.record()
                for _ in range(times):
                    graph.replay()
                end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e-3 / times / launches
        return samples_of(replay, launches)

    def close(self):
        self.xs = self.layers = None
        self.torch.cuda.synchronize()
        self.torch.cuda.empty_cache()


class Xla:
    def __init__(self):
        import jax
        self.jax, self.version = jax, jax.__version__

    def stage(self, s, x, w, b):
        jax = self.jax
        lax, jnp = jax.lax, jax.numpy
        top, left, bottom, right = s["pad"]
        y = lax.conv_general_dilated(x, w, s["stride"], [(top, bottom), (left, right)], rhs_dilation=s["dil"],
                                     dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=s["groups"])
        y = y + b if s["bias"] else y
        y = {"": lambda: y, "relu": lambda: jax.nn.relu(y), "relu6": lambda: jax.nn.relu6(y),
             "clip": lambda: jnp.clip(y, s["a"], s["b"]), "leaky": lambda: jax.nn.leaky_relu(y, s["a"])}[s["act"]]()
        p = s["pool"]
        if p and p["ceil"]:
            raise RuntimeError("a pool with ceil")
        return y if not p else lax.reduce_window(
            y, jnp.array(-jnp.inf, y.dtype), lax.max, (1, *p["window"], 1), (1, *p["stride"], 1),
            ((0, 0), (p["pad"][0],) * 2, (p["pad"][1],) * 2, (0, 0)), window_dilation=(1, *p["dil"], 1))

    def inputs(self, stage, l2):
        jax = self.jax
        dtype = {"f16": jax.numpy.float16, "bf16": jax.numpy.bfloat16}[stage["dtype"]]
        # A call is timed on the host, so it must hold more work than the host needs to enqueue it.
        count = max(buffers_of(stage, l2), min(64, (2 << 30) // moved_by(stage)))
        keys = iter(jax.random.split(jax.random.key(0), count + 4))
        draw = jax.jit(lambda key, shape: jax.random.normal(key, shape, dtype), static_argnums=1)
        layers = []
        for s in [stage] + ([stage["then"]] if stage.get("then") else []):
            fan = s["c"] // s["groups"] * s["r"] * s["s"]
            w = draw(next(keys), (s["r"], s["s"], s["c"] // s["groups"], s["k"])) / math.sqrt(fan)
            layers.append((w.astype(dtype), draw(next(keys), (s["k"],))))
        return [draw(next(keys), (stage["n"], stage["h"], stage["w"], stage["c"])) for _ in range(count)], layers

    def graph(self, stage, l2):
        jax = self.jax
        xs, layers = self.inputs(stage, l2)
        launches = len(xs)  # each input once: XLA computes what it is asked for twice only once

        def chain(x, layers):
            for s, (w, b) in zip([stage, stage.get("then")], layers):
                x = self.stage(s, x, w, b)
            return x

        every = jax.jit(lambda xs, layers: [chain(x, layers) for x in xs])
        up = lambda a: a.astype(jax.numpy.float32)
        with jax.default_matmul_precision("float32"):
            want = chain(up(xs[0][:1]), jax.tree.map(up, layers))
        got = jax.block_until_ready(every(xs, layers))[0]
        error = float(abs(up(got[:1]) - want).max() / abs(want).max())
        if not error < (4e-3 if stage["dtype"] == "f16" else 2e-2):
            raise RuntimeError(f"wrong result, error {error:.1e}")

        def replay(times):
            start = time.perf_counter()
            for _ in range(times):
                out = every(xs, layers)
            jax.block_until_ready(out)
            return (time.perf_counter() - start) / times / launches
        return samples_of(replay, launches)


class XlaProcess:
    """The worker again, for XLA alone; a new one after it died."""

    def __init__(self):
        self.child = None

    def ask(self, request):
        if not self.child:
            environment = {**os.environ, "CONVOY_GPU_PEERS": "xla", "CONVOY_PEERS_HISTORY": ""}
            self.child = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                          text=True, env=environment)
        try:
            self.child.stdin.write(json.dumps(request) + "\n")
            self.child.stdin.flush()
            return json.loads(self.child.stdout.readline())
        except (OSError, ValueError):
            self.close()
            raise RuntimeError("XLA's process died") from None

    def graph(self, stage, l2):
        answer = self.ask({"op": "prepare", "stage": stage, "l2": l2})
        if not answer["peers"]:
            self.close()  # a failed kernel leaves its process unusable
            raise RuntimeError(answer["left_out"][0]["why"])
        self.version = answer["versions"]["jax"]
        return lambda seconds: self.ask({"op": "time", "peer": "xla", "seconds": seconds})["samples"]

    def close(self):
        self.child.kill()
        self.child.wait()
        self.child = None


def samples_of(replay, launches):
    """A function that gives the seconds of one launch, five times in about so many seconds, after a
    warm-up as long: the chip is bound by its power."""
    def samples(seconds):
        once = max(replay(1), 1e-7) * launches
        replay(max(1, int(seconds / once)))
        times = max(1, int(seconds / 5 / once))
        return [replay(times) for _ in range(5)]
    return samples


class Bench:
    def __init__(self):
        self.torch = Torch() if {"cudnn", "compile", "cublas"} & set(ASKED) else None
        self.xla = None
        if "xla" in ASKED:
            self.xla = XlaProcess() if self.torch else Xla()
        self.runs, self.left_out = {}, []
        self.path = os.environ.get("CONVOY_PEERS_HISTORY")
        self.history = {}  # of a stage's text: each peer's seconds
        if self.path and os.path.exists(self.path):
            with open(self.path) as file:
                self.history = json.load(file)
        self.former = {}  # of this stage, in former processes
        self.now = {}  # in this one

    def prepare(self, stage, l2=60 << 20):
        self.runs, self.left_out = {}, []
        self.now = self.history.setdefault(json.dumps(stage), {})
        self.former = dict(self.now)
        if self.torch:
            self.torch.close()
            self.torch.open(stage)
            for name, make in self.torch.makers().items():
                self.attempt(name, lambda: self.torch.graph(name, make()))
        if self.xla:
            self.attempt("xla", lambda: self.xla.graph(stage, self.torch.l2 if self.torch else l2))
        partial = [name for name in self.runs if name in PARTIAL]
        return {"peers": list(self.runs), "partial": partial, "left_out": self.left_out, "versions": self.versions()}

    def attempt(self, name, make):
        best = min((seconds for peer, seconds in self.former.items() if peer not in PARTIAL), default=math.inf)
        if name not in PARTIAL and self.former.get(name, 0) > 1.1 * best:
            self.left_out.append({"name": name, "why": f"{self.former[name] / best:.2f} x the best in a former process"})
            return
        try:
            self.runs[name] = make()
        except Exception as error:  # a peer that can't run the stage is named, not hidden
            self.left_out.append({"name": name, "why": (str(error).splitlines() or [repr(error)])[0][:200]})

    def time(self, name, seconds):
        samples = self.runs[name](seconds)
        self.now[name] = min(statistics.median(samples), self.now.get(name, math.inf))
        if self.path:  # at once: this process ends by a signal
            with open(self.path, "w") as file:
                json.dump(self.history, file)
        return samples

    def versions(self):
        found = {}
        if self.torch:
            torch = self.torch.torch
            found = {"torch": torch.__version__, "cudnn": str(torch.backends.cudnn.version())}
        if "xla" in self.runs:
            found["jax"] = self.xla.version
        return found


def main():
    answers = os.fdopen(os.dup(1), "w")
    if "CONVOY_PEERS_LOG" in os.environ:
        os.dup2(os.open(os.environ["CONVOY_PEERS_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)  # what a library prints must not mix with our answers
    bench = Bench()
    for line in sys.stdin:
        request = json.loads(line)
        if request["op"] == "prepare":
            answer = bench.prepare(request["stage"], request.get("l2", 60 << 20))
        else:
            answer = {"samples": bench.time(request["peer"], request["seconds"])}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
