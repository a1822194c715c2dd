"""XLA through JAX, for bench/peers_gpu.py."""

import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

from peer_timing import buffers_of, moved_by

CALLS = 4  # of a sample, at least
SAMPLE = 0.04  # seconds of a sample, at least

METHOD = (
    "xla: jitted calls of several stages each, at least 4 calls and 0.04 s of them queued for a sample; the host's "
    "clock starts when a call queued before them is done, stops when the last is done; nothing is subtracted"
)


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
             "clip": lambda: jnp.clip(y, s["lo"], s["hi"]),
             "leaky": lambda: jax.nn.leaky_relu(y, s["slope"])}[s["act"]]()
        p = s["pool"]
        if p and p["ceil"]:
            raise RuntimeError("a pool with ceil")
        return y if not p else lax.reduce_window(
            y, jnp.array(-jnp.inf, y.dtype), lax.max, (1, *p["window"], 1), (1, *p["stride"], 1),
            ((0, 0), (p["pad"][0],) * 2, (p["pad"][1],) * 2, (0, 0)), window_dilation=(1, *p["dil"], 1))

    def inputs(self, stage, l2):
        jax = self.jax
        dtype = {"f16": jax.numpy.float16, "bf16": jax.numpy.bfloat16, "f32": jax.numpy.float32}[stage["dtype"]]
        # A call must hold more work than the host needs to enqueue it (0.3 to 0.5 ms).
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
        if stage["dtype"] == "f32":  # without TF32
            jax.config.update("jax_default_matmul_precision", "float32")
        xs, layers = self.inputs(stage, l2)
        launches = len(xs)  # each input once: XLA computes what it is asked for twice only once

        def chain(x, layers):
            for s, (w, b) in zip([stage, stage.get("then")], layers):
                x = self.stage(s, x, w, b)
            return x

        every = jax.jit(lambda xs, layers: [chain(x, layers) for x in xs])

        def up(a):
            return a.astype(jax.numpy.float32)

        with jax.default_matmul_precision("float32"):
            want = chain(up(xs[0][:1]), jax.tree.map(up, layers))
        got = jax.block_until_ready(every(xs, layers))[0]
        error = float(abs(up(got[:1]) - want).max() / abs(want).max())
        if not error < {"f32": 1e-4, "f16": 4e-3, "bf16": 2e-2}[stage["dtype"]]:
            raise RuntimeError(f"wrong result, error {error:.1e}")

        def queued(calls):
            """Seconds of a launch, where the host never lets the GPU wait: a call is queued before the clock starts."""
            before = every(xs, layers)
            out = every(xs, layers)
            jax.block_until_ready(before)
            start = time.perf_counter()
            for _ in range(calls - 1):
                out = every(xs, layers)
            jax.block_until_ready(out)
            return (time.perf_counter() - start) / calls / launches

        def samples(seconds):
            call = max(queued(1), 1e-7) * launches
            queued(max(1, int(seconds / call)))
            calls = max(CALLS, math.ceil(max(seconds / 5, SAMPLE) / call))
            return [queued(calls) for _ in range(5)]
        return samples


class XlaProcess:
    """The worker again, for XLA alone; a new one after it died."""

    def __init__(self):
        self.child = None

    def ask(self, request):
        if not self.child:
            environment = {**os.environ, "CONVOY_GPU_PEERS": "xla", "CONVOY_PEERS_HISTORY": ""}
            command = [sys.executable, Path(__file__).with_name("peers_gpu.py")]
            pipe = subprocess.PIPE
            self.child = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
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
