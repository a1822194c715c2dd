"""CUTLASS 2.x's convolutions for Ampere's tensor cores as peers on a GPU: bias and ReLU in the epilogue, no pool.

CONVOY_CUTLASS_PEERS names the folder of the libraries, one a tile, that this makes:

    cmake --build --preset cuda --target cutlass_peers

for example build/cuda/peers. Their code is bench/cutlass_conv.cu.
"""

import ctypes
import os
from pathlib import Path


class Tile:
    """One library: its convolution, and the passes of an unfused pipeline, on PyTorch's tensors."""

    def __init__(self, path):
        self.name = path.stem.removeprefix("libcutlass_conv_")
        self.library = ctypes.CDLL(str(path))

    def call(self, function, *arguments):
        import torch
        pointers = [ctypes.c_void_p(a.data_ptr() if isinstance(a, torch.Tensor) else a)
                    if a is None or isinstance(a, torch.Tensor) else a for a in arguments]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        if status := getattr(self.library, function)(*pointers, stream):
            raise RuntimeError(f"{function} of {self.name}: status {status}")

    def conv(self, s, w, b, x, relu=True):
        """s: a stage as the bench describes it; x, w and the result channels_last, b f16 or None."""
        import torch
        (top, left, bottom, right), (sh, sw), (dh, dw) = s["pad"], s["stride"], s["dil"]
        p = (s["h"] + top + bottom - dh * (s["r"] - 1) - 1) // sh + 1
        q = (s["w"] + left + right - dw * (s["s"] - 1) - 1) // sw + 1
        y = torch.empty(x.shape[0], s["k"], p, q, device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
        sizes = [x.shape[0], s["h"], s["w"], s["c"], s["k"], s["r"], s["s"], p, q, top, left, sh, sw, dh, dw]
        self.call("cutlass_conv", (ctypes.c_int * len(sizes))(*sizes), x, w, b, y, int(relu))
        return y

    def relu(self, x):
        import torch
        y = torch.empty_like(x)
        self.call("pass_relu", x, y, x.numel())
        return y

    def pool(self, x):
        import torch
        n, k, p, q = x.shape
        y = torch.empty(n, k, p // 2, q // 2, device=x.device, dtype=x.dtype, memory_format=torch.channels_last)
        self.call("pass_pool", x, y, n * (p // 2) * (q // 2), q // 2, k)
        return y


def tiles(folder=None):
    folder = folder or os.environ.get("CONVOY_CUTLASS_PEERS", "")
    return [Tile(path) for path in sorted(Path(folder).glob("libcutlass_conv_*.so"))] if folder else []


def why_not(s):
    """Why CUTLASS's kernels don't run a stage; empty: they do."""
    if s["dtype"] != "f16":
        return f"compiled for f16, not {s['dtype']}"
    if s["c"] % 8 or s["k"] % 8:
        return f"C = {s['c']} or K = {s['k']} is no multiple of 8"
    if s["groups"] != 1:
        return "compiled without groups"
    return "" if s["act"] == "relu" else "compiled with ReLU"
