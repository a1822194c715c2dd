#!/usr/bin/env python3
"""Time the peers of the GPU families on a list of stages: cuDNN, torch.compile and XLA.

    python3 bench/peers_gpu.py --list shapes/targets-gpu.txt --peers cudnn,xla,compile --json out.json

Each figure is the median microseconds of one stage: CUDA-graph replays (for XLA: one jitted call)
over buffer sets that together exceed the L2, normal inputs, after 100 ms of warm-up. `conv` is the
convolution alone, `conv_relu` with bias and ReLU in cuDNN's own fused kernel, `chain` everything the
stage does. Needs PyTorch; JAX only for xla.
"""
import argparse
import json
import math
import re
import statistics
import sys
import time

AXES = re.compile(r"(f16|bf16):n(\d+)h(\d+)(?:w(\d+))?c(\d+)k(\d+)r(\d+)(?:s(\d+))?")


def parse(text):
    """The part of the stage grammar that the GPU lists use; raises ValueError on the rest."""
    head = AXES.match(text)
    if not head:
        raise ValueError(f"{text}: expected f16: or bf16: and the axes n h c k r")
    dtype, n, h, w, c, k, r, s = head.groups()
    stage = dict(text=text, dtype=dtype, n=int(n), h=int(h), w=int(w or h), c=int(c), k=int(k), r=int(r), s=int(s or r),
                 stride=1, pad=0, bias=False, relu=False, pool=None)
    options, *riders = text[head.end():].split("+")
    for name, value in re.findall(r"(stride|pad)(\d+)", options):
        stage[name] = int(value)
    if re.sub(r"(stride|pad)\d+", "", options):
        raise ValueError(f"{text}: this script knows stride<U> and pad<P> only, found {options!r}")
    for rider in riders:
        pool = re.fullmatch(r"max(\d+)(?:s(\d+))?(?:p(\d+))?", rider)
        if pool:
            window, stride, pad = (int(v) if v else None for v in pool.groups())
            stage["pool"] = (window, stride or window, pad or 0)
        elif rider in ("bias", "relu"):
            stage[rider] = True
        else:
            raise ValueError(f"{text}: this script knows bias, relu and max, found {rider!r}")
    return stage


def buffer_sets(stage, l2_bytes):
    p = (stage["h"] + 2 * stage["pad"] - stage["r"]) // stage["stride"] + 1
    q = (stage["w"] + 2 * stage["pad"] - stage["s"]) // stage["stride"] + 1
    if stage["pool"]:
        window, stride, pad = stage["pool"]
        p, q = (p + 2 * pad - window) // stride + 1, (q + 2 * pad - window) // stride + 1
    moved = 2 * stage["n"] * (stage["h"] * stage["w"] * stage["c"] + p * q * stage["k"])
    return max(8, min(128, 3 * l2_bytes // moved + 1))


class Torch:
    def __init__(self):
        import torch
        self.torch = torch
        torch.backends.cudnn.benchmark = True
        self.l2 = torch.cuda.get_device_properties(0).L2_cache_size
        self.version = f"torch {torch.__version__}, cuDNN {torch.backends.cudnn.version()}, {torch.cuda.get_device_name(0)}"

    def tensors(self, stage):
        torch = self.torch
        dtype = torch.float16 if stage["dtype"] == "f16" else torch.bfloat16
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=dtype)
        w = make(stage["k"], stage["c"], stage["r"], stage["s"]) / math.sqrt(stage["c"] * stage["r"] * stage["s"])
        xs = [make(stage["n"], stage["c"], stage["h"], stage["w"]).to(memory_format=torch.channels_last)
              for _ in range(buffer_sets(stage, self.l2))]
        return xs, w.to(memory_format=torch.channels_last), make(stage["k"])

    def time(self, function, xs, measure_ms=60):
        torch = self.torch
        stream = torch.cuda.Stream()
        with torch.no_grad(), torch.cuda.stream(stream):
            for _ in range(3):
                function(xs[0])
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream):
                kept = [function(x) for x in xs]
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

            def replay(times):
                start.record()
                for _ in range(times):
                    graph.replay()
                end.record()
                end.synchronize()
                return start.elapsed_time(end) / times

            once = max(replay(2), 1e-3)
            replay(max(1, int(100 / once)))
            times = max(1, int(measure_ms / 5 / once))
            result = statistics.median(replay(times) for _ in range(5)) / len(xs) * 1e3
            del kept, graph
        return round(result, 2)

    def parts(self, stage, w, b):
        torch = self.torch
        functional = torch.nn.functional
        stride, pad = [stage["stride"]] * 2, [stage["pad"]] * 2
        bias = b if stage["bias"] else None

        def conv(x):
            return functional.conv2d(x, w, None, stride, pad)

        def conv_relu(x):
            if stage["relu"]:
                return torch.cudnn_convolution_relu(x, w, b, stride, pad, [1, 1], 1)
            return functional.conv2d(x, w, bias, stride, pad)

        def chain(x):
            y = conv_relu(x)
            return functional.max_pool2d(y, *stage["pool"]) if stage["pool"] else y

        def plain(x):
            y = functional.conv2d(x, w, bias, stride, pad)
            y = torch.relu(y) if stage["relu"] else y
            return functional.max_pool2d(y, *stage["pool"]) if stage["pool"] else y

        return conv, conv_relu, chain, plain

    def eager(self, stage):
        xs, w, b = self.tensors(stage)
        conv, conv_relu, chain, _ = self.parts(stage, w, b)
        row = {"conv": self.time(conv, xs), "conv_relu": self.time(conv_relu, xs)}
        row["chain"] = self.time(chain, xs) if stage["pool"] else row["conv_relu"]
        return row

    def compiled(self, stage):
        xs, w, b = self.tensors(stage)
        self.torch._dynamo.reset()
        function = self.torch.compile(self.parts(stage, w, b)[3], mode="max-autotune-no-cudagraphs")
        with self.torch.no_grad():
            function(xs[0])
        return {"chain": self.time(function, xs)}


class Xla:
    def __init__(self):
        import jax
        self.jax = jax
        self.version = f"jax {jax.__version__}"

    def chain(self, stage):
        jax, jnp, lax = self.jax, self.jax.numpy, self.jax.lax
        dtype = jnp.float16 if stage["dtype"] == "f16" else jnp.bfloat16
        count = min(24, buffer_sets(stage, 60 << 20))
        keys = jax.random.split(jax.random.key(0), count + 2)
        xs = [jax.random.normal(key, (stage["n"], stage["h"], stage["w"], stage["c"]), dtype) for key in keys[2:]]
        w = jax.random.normal(keys[0], (stage["r"], stage["s"], stage["c"], stage["k"]), dtype) / math.sqrt(stage["c"] * stage["r"] * stage["s"])
        b = jax.random.normal(keys[1], (stage["k"],), dtype)
        pad = [(stage["pad"], stage["pad"])] * 2

        def one(x):
            y = lax.conv_general_dilated(x, w, (stage["stride"],) * 2, pad, dimension_numbers=("NHWC", "HWIO", "NHWC"))
            y = y + b if stage["bias"] else y
            y = jax.nn.relu(y) if stage["relu"] else y
            if stage["pool"]:
                window, stride, margin = stage["pool"]
                y = lax.reduce_window(y, -jnp.inf, lax.max, (1, window, window, 1), (1, stride, stride, 1),
                                      ((0, 0), (margin, margin), (margin, margin), (0, 0)))
            return y

        every = jax.jit(lambda xs: [one(x) for x in xs])
        jax.block_until_ready(every(xs))

        def replay(times):
            start = time.perf_counter()
            for _ in range(times):
                out = every(xs)
            jax.block_until_ready(out)
            return (time.perf_counter() - start) * 1e3 / times

        once = replay(3)
        replay(max(1, int(100 / once)))
        times = max(3, int(20 / once))
        return {"chain": round(statistics.median(replay(times) for _ in range(5)) / count * 1e3, 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", required=True, help="a file with one stage a line")
    parser.add_argument("--peers", default="cudnn", help="some of cudnn,compile,xla")
    parser.add_argument("--match", default="", help="only stages that contain one of these texts, separated by commas")
    parser.add_argument("--json", help="write the figures here")
    arguments = parser.parse_args()
    with open(arguments.list, encoding="utf-8") as file:
        lines = [line.split("#")[0].strip() for line in file]
    wanted = arguments.match.split(",")
    stages = [parse(line) for line in lines if line and any(text in line for text in wanted)]
    torch_peer = Torch() if {"cudnn", "compile"} & set(arguments.peers.split(",")) else None
    runners = {"cudnn": lambda s: torch_peer.eager(s), "compile": lambda s: torch_peer.compiled(s)}
    result = {"versions": {}, "rows": []}
    if torch_peer:
        result["versions"]["torch"] = torch_peer.version
    if "xla" in arguments.peers:
        xla = Xla()
        result["versions"]["xla"] = xla.version
        runners["xla"] = xla.chain
    for stage in stages:
        row = {"stage": stage["text"]}
        for peer in arguments.peers.split(","):
            try:
                row[peer] = runners[peer](stage)
            except Exception as error:  # a peer that can't run a stage is recorded, and the rest goes on
                row[peer] = {"error": str(error).split("\n")[0][:200]}
        result["rows"].append(row)
        print(json.dumps(row), flush=True)
        if arguments.json:
            with open(arguments.json, "w", encoding="utf-8") as file:
                json.dump(result, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
