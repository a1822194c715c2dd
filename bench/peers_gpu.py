#!/usr/bin/env python3
"""Times one stage in other libraries, on a GPU: a worker that `convoy bench --device cuda --peers` talks to.

Reads one JSON object a line from standard input, answers with one on standard output:
  {"op": "prepare", "stage": {...}, "apart": false}
      -> {"peers": [...], "partial": [...], "apart": [...], "left_out": [...], "versions": {...}, "method": "..."}
  {"op": "time", "peer": NAME, "seconds": 0.03, "apart": false}  -> {"samples": [seconds, ...]}

Peers: cuDNN through PyTorch (its algorithm chosen by measurement), its fused convolution + bias + ReLU followed by a
compiled pool, torch.compile with max-autotune, XLA through JAX, and for a 1x1 stage without riders cuBLAS. `partial`
ones do less than the stage: the convolution alone, or without the pool. Stages with a neuron: steps as PyTorch
operations, compiled or not, and SpikingJelly's multi-step layers on its own GPU kernels, behind cuDNN. All run the
stage's type, f32 without TF32, in NHWC on normal inputs, over buffers that together exceed the L2 three times, as
replays of a CUDA graph (XLA: peers_xla.py). `apart`: a kernel that writes one word stands between a stage and the
next, so that they can't overlap; XLA can't be timed so. Each peer's result is compared with PyTorch in fp32. A stage's
"then" is a stage that follows it.

CONVOY_GPU_PEERS chooses among cudnn,alone,chain,compile,xla,cublas,spikingjelly (default: all) and cutlass: four tiles
of CUTLASS 2.x's convolution + bias + ReLU, without the pool (peers_cutlass.py says how to make them). XLA runs in a
process of its own: a kernel that fails there must not take the others along. CONVOY_PEERS_LOG names a file for what
the libraries print. CONVOY_PEERS_HISTORY names one for the times of former processes: a peer that was
a tenth behind the best there is left out.
"""

import argparse
import json
import math
import os
import statistics
import sys

import peers_cutlass
import peers_xla
from peer_timing import buffers_of, launches_of, samples_of

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
for name in ("IF", "LIF"):  # SpikingJelly's own kernels; by itself it takes PyTorch's operations outside of training
    os.environ.setdefault(f"SJ_{name}_CUDA_IMPLEMENTATION", "triton")
ASKED = os.environ.get("CONVOY_GPU_PEERS", "cudnn,alone,chain,compile,xla,cublas,spikingjelly").split(",")
PARTIAL = ("cudnn without pool", "cudnn convolution alone")  # do less than the stage
CUTLASS = "cutlass "  # and the tile
METHOD = (
    "peers: as ours, replays of a CUDA graph of the same number of launches over buffers that together exceed the "
    "L2 three times"
)


def neuron(stage):
    return stage["act"] in ("if", "lif")


class Torch:
    """Eager through cuDNN, compiled, and cuBLAS."""

    def __init__(self):
        import torch
        self.torch = torch
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False  # f32 is fp32
        torch.set_grad_enabled(False)
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size

    def open(self, stage):
        torch = self.torch
        torch.manual_seed(1)
        dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[stage["dtype"]]

        def make(*shape):
            return torch.randn(*shape, device="cuda", dtype=dtype)

        last = torch.channels_last
        self.s, self.layers = stage, []  # of each stage: itself, weights, bias
        for s in [stage] + ([stage["then"]] if stage.get("then") else []):
            fan = s["c"] // s["groups"] * s["r"] * s["s"]
            w = (make(s["k"], s["c"] // s["groups"], s["r"], s["s"]) / math.sqrt(fan)).to(memory_format=last)
            self.layers.append((s, w, make(s["k"]) if s["bias"] else None))
        images = stage["n"] * (1 if stage["hold"] or not neuron(stage) else stage["t"])
        self.xs = [make(images, stage["c"], stage["h"], stage["w"]).to(memory_format=last)
                   for _ in range(buffers_of(stage | {"n": images}, self.l2))]

    def spikes(self, s, y):
        """Of the sums [T*N,K,P,Q] of all steps, or of [N,K,P,Q] that are held for T."""
        torch = self.torch
        sums = [y] * s["t"] if s["hold"] else y.view(s["t"], -1, *y.shape[1:]).unbind()
        v, fired = torch.zeros_like(sums[0], dtype=torch.float32), []
        for x in sums:
            v = v + (x - v) / s["tau"] if s["act"] == "lif" else v + x
            spike = (v >= s["threshold"]).to(v.dtype)
            v = v - spike * s["threshold"] if s["soft"] else v * (1 - spike)
            fired.append(spike.to(y.dtype))
        return torch.cat(fired)

    def spikingjelly(self):
        """Its own kernels, which take membranes of fp32 alone: a neuron's module makes them of the input's type."""
        from spikingjelly.activation_based.functional import neuron as of
        s, w, b = self.layers[0]
        if s["hold"]:
            raise RuntimeError("held input has no layer")
        reset = None if s["soft"] else 0.0

        def run(x):
            y = self.conv(s, w, b, x).unflatten(0, (s["t"], -1))
            v = self.torch.zeros_like(y[0], dtype=self.torch.float32)
            if s["act"] == "lif":
                spikes = of.lif_multi_step(y, v, s["tau"], True, s["threshold"], reset)[0]
            else:
                spikes = of.if_multi_step(y, v, s["threshold"], reset)[0]
            return self.pool(s, spikes.flatten(0, 1))
        return run

    def activate(self, s, y):
        if neuron(s):
            return self.spikes(s, y)
        f = self.torch.nn.functional
        return {
            "": lambda: y,
            "relu": lambda: f.relu(y),
            "relu6": lambda: f.relu6(y),
            "clip": lambda: self.torch.clamp(y, s["lo"], s["hi"]),
            "leaky": lambda: f.leaky_relu(y, s["slope"]),
        }[s["act"]]()

    def pool(self, s, y):
        p = s["pool"]
        return (
            self.torch.nn.functional.max_pool2d(y, p["window"], p["stride"], p["pad"], p["dil"], p["ceil"]) if p else y
        )

    def conv(self, s, w, b, x):
        f = self.torch.nn.functional
        top, left, bottom, right = s["pad"]
        if (top, left) != (bottom, right):
            x, pad = f.pad(x, (left, right, top, bottom)), 0
        else:
            pad = (top, left)
        return f.conv2d(x, w, b, s["stride"], pad, s["dil"], s["groups"])

    def fusable(self, s):
        return s["act"] == "relu" and s["bias"] and s["pad"][:2] == s["pad"][2:]

    def fused(self, s, w, b, x):
        """cuDNN's own convolution + bias + ReLU, where the stage has that."""
        if not self.fusable(s):
            return self.activate(s, self.conv(s, w, b, x))
        return self.torch.cudnn_convolution_relu(x, w, b, s["stride"], s["pad"][:2], s["dil"], s["groups"])

    def chain(self, x, pools=True, fused=True):
        for s, w, b in self.layers:
            x = self.fused(s, w, b, x) if fused else self.activate(s, self.conv(s, w, b, x))
            x = self.pool(s, x) if pools else x
        return x

    def compiled(self):
        self.torch._dynamo.reset()
        return self.torch.compile(
            lambda x: self.chain(x, fused=False), mode="max-autotune-no-cudagraphs", dynamic=False
        )

    def compiled_pools(self):
        """cuDNN's fused convolutions, each followed by a pool that the compiler made."""
        self.torch._dynamo.reset()
        pools = [self.torch.compile(lambda y, s=s: self.pool(s, y), mode="max-autotune-no-cudagraphs", dynamic=False)
                 for s, _, _ in self.layers]

        def chain(x):
            for (s, w, b), pool in zip(self.layers, pools):
                x = pool(self.fused(s, w, b, x))
            return x
        return chain

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
        if "chain" in ASKED and all(s["pool"] and self.fusable(s) for s, _, _ in self.layers):
            found["cudnn + compiled pool"] = self.compiled_pools
        if "compile" in ASKED:
            found["torch.compile"] = self.compiled
        if "spikingjelly" in ASKED and single and neuron(s):
            found["spikingjelly"] = self.spikingjelly
        pointwise = (s["r"], s["s"], s["groups"], s["stride"], s["pad"]) == (1, 1, 1, [1, 1], [0] * 4)
        if "cutlass" in ASKED and single:
            why = peers_cutlass.why_not(s)
            for tile in peers_cutlass.tiles():
                found[CUTLASS + tile.name] = lambda tile=tile: self.cutlass(tile, why)
        if "cublas" in ASKED and pointwise and single and not riders and not s["pool"]:
            matrix = w.reshape(s["k"], s["c"]).t()
            found["cublas"] = lambda: lambda x: (x.permute(0, 2, 3, 1).reshape(-1, s["c"]) @ matrix)
        return found

    def cutlass(self, tile, why):
        if why:
            raise RuntimeError(why)
        s, w, b = self.layers[0]
        return lambda x: tile.conv(s, w, b, x)

    def partial(self, name):
        """Whether it does less than the stage."""
        return name in PARTIAL or (name.startswith(CUTLASS) and self.s["pool"] is not None)

    def check(self, name, y):
        """Against fp32 on the first image; of spikes, one in a hundred may differ."""
        s = self.s
        steps = s["t"] if neuron(s) else 1
        first = self.xs[0][:: s["n"]] if steps > 1 and not s["hold"] else self.xs[0][:1]
        want = first.float()
        for layer, w, b in self.layers:
            alone = name == PARTIAL[1]
            want = self.conv(layer, w.float(), None if alone or b is None else b.float(), want)
            want = want if alone else self.activate(layer, want)
            want = want if self.partial(name) else self.pool(layer, want)
        if name == "cublas":
            y = y.reshape(s["n"], s["h"], s["w"], s["k"]).permute(0, 3, 1, 2)
        if neuron(s) and name != PARTIAL[1]:
            differ = (y[:: s["n"]].float() != want).float().mean().item()
            if not differ < 0.01 or not want.any():
                raise RuntimeError(f"wrong result, {100 * differ:.1f} % of the spikes differ")
            return
        error = ((y[:1].float() - want[:1]).abs().max() / want.abs().max()).item()
        if not error < {"f32": 1e-4, "f16": 4e-3, "bf16": 2e-2}[s["dtype"]]:
            raise RuntimeError(f"wrong result, error {error:.1e}")

    def graphs(self, name, function, apart):
        """Functions that give samples of the seconds of one launch: of launches one after the other, and if asked
        for of launches with a tiny kernel behind each."""
        torch = self.torch
        self.check(name, function(self.xs[0]))
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            for _ in range(2):
                start.record()
                function(self.xs[0])
                end.record()
            end.synchronize()
        launches = launches_of(start.elapsed_time(end) * 1e-3, len(self.xs))
        word = torch.zeros(1, device="cuda")
        found = {False: self.captured(function, stream, launches, lambda: None)}
        if apart:
            found[True] = self.captured(function, stream, launches, lambda: word.fill_(1))
        return found

    def captured(self, function, stream, launches, behind):
        torch = self.torch
        with torch.cuda.stream(stream):
            behind()  # once before: a capture loads no kernels
            graph = torch.cuda.CUDAGraph()
            kept = []
            with torch.cuda.graph(graph, stream=stream):
                for i in range(launches):
                    kept.append(function(self.xs[i % len(self.xs)]))
                    behind()
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


class Bench:
    def __init__(self):
        ours = {"cudnn", "alone", "chain", "compile", "cublas", "cutlass", "spikingjelly"}
        self.torch = Torch() if ours & set(ASKED) else None
        self.xla = None
        if "xla" in ASKED:
            self.xla = peers_xla.XlaProcess() if self.torch else peers_xla.Xla()
        self.runs, self.left_out = {}, []  # of a peer: its samples, by whether launches stand apart
        self.path = os.environ.get("CONVOY_PEERS_HISTORY")
        self.history = {}  # of a stage's text: each peer's seconds
        if self.path and os.path.exists(self.path):
            with open(self.path) as file:
                self.history = json.load(file)
        self.former = {}  # of this stage, in former processes
        self.now = {}  # in this one

    def prepare(self, stage, apart=False, l2=60 << 20):
        self.runs, self.left_out = {}, []
        self.now = self.history.setdefault(json.dumps(stage), {})
        self.former = dict(self.now)
        if self.torch:
            self.torch.close()
            self.torch.open(stage)
            for name, make in self.torch.makers().items():
                self.attempt(name, lambda name=name, make=make: self.torch.graphs(name, make(), apart))
        if self.xla and neuron(stage):
            self.left_out.append({"name": "xla", "why": "no neuron is written for it"})
        elif self.xla:
            self.attempt("xla", lambda: {False: self.xla.graph(stage, self.torch.l2 if self.torch else l2)})
        return {"peers": list(self.runs), "partial": [name for name in self.runs if self.partial(name)],
                "apart": [name for name, samples in self.runs.items() if True in samples],
                "left_out": self.left_out, "versions": self.versions(), "method": self.method()}

    def partial(self, name):
        return self.torch is not None and self.torch.partial(name)

    def attempt(self, name, make):
        best = min((seconds for peer, seconds in self.former.items() if not self.partial(peer)), default=math.inf)
        if not self.partial(name) and self.former.get(name, 0) > 1.1 * best:
            why = f"{self.former[name] / best:.2f} x the best in a former process"
            self.left_out.append({"name": name, "why": why})
            return
        try:
            self.runs[name] = make()
        except Exception as error:  # a peer that can't run the stage is named, not hidden
            self.left_out.append({"name": name, "why": (str(error).splitlines() or [repr(error)])[0][:200]})

    def time(self, name, seconds, apart=False):
        samples = self.runs[name][apart](seconds)
        if not apart:
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

    def method(self):
        return "; ".join(([METHOD] if self.torch else []) + ([peers_xla.METHOD] if self.xla else []))


def main():
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    answers = os.fdopen(os.dup(1), "w")
    if "CONVOY_PEERS_LOG" in os.environ:
        os.dup2(os.open(os.environ["CONVOY_PEERS_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    os.dup2(2, 1)  # what a library prints must not mix with our answers
    bench = Bench()
    for line in sys.stdin:
        request = json.loads(line)
        words = {key: value for key, value in request.items() if key in ("stage", "apart", "l2", "seconds")}
        if request["op"] == "prepare":
            answer = bench.prepare(**words)
        else:
            answer = {"samples": bench.time(request["peer"], **words)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
