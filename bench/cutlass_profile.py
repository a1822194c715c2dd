#!/usr/bin/env python3
"""Profiles the pipeline that cutlass_pooled was planned for, unfused and in every fused way; needs a GPU and ncu.

    cmake --build --preset cuda --target convoy_cli cutlass_peers
    python3 bench/cutlass_profile.py --convoy build/cuda/bin/convoy --peers build/cuda/peers \\
        --out bench/results/h200/cutlass-pooled.json

Two stages of 32 images of 56x56, 64 to 128 to 256 channels. Each kernel of each way is counted once by ncu, with
caches emptied before it: time, bytes to the L2 and to memory, reductions, registers, occupancy. The clocks are left
as they are. Beside it the time of the whole way as the bench has it, without a profiler. The six unfused kernels are
CUTLASS's convolution with bias (the fastest of four tiles) and the passes of bench/cutlass_conv.cu. ncu counts no
memset.
"""

import argparse
import csv
import io
import json
import math
import os
import re
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

import peers_cutlass
import records
from peer_timing import samples_of

STAGES = ["f16:n32h56w56c64k128r3pad1+bias+relu+max2", "f16:n32h28w28c128k256r1+bias+relu+max2"]
COMMON = dict(dtype="f16", n=32, stride=[1, 1], dil=[1, 1], groups=1, bias=True, act="relu")
SIZES = [dict(COMMON, h=56, w=56, c=64, k=128, r=3, s=3, pad=[1] * 4),
         dict(COMMON, h=28, w=28, c=128, k=256, r=1, s=1, pad=[0] * 4)]
METRICS = {
    "us": "gpu__time_duration.sum",
    "l2_bytes": "lts__t_bytes.sum",
    "read_bytes": "dram__bytes_read.sum",
    "written_bytes": "dram__bytes_write.sum",
    "red_instructions": "smsp__inst_executed_op_global_red.sum",
    "red_sectors": "lts__t_sectors_op_red.sum",
    "registers": "launch__registers_per_thread",
    "threads": "launch__block_size",
    "ctas": "launch__grid_size",
    "shared_bytes": "launch__shared_mem_per_block_dynamic",
    "occupancy": "sm__maximum_warps_per_active_cycle_pct",
    "achieved": "sm__warps_active.avg.pct_of_peak_sustained_active",
}


class Unfused:
    """The six kernels on PyTorch's tensors."""

    def __init__(self, peers):
        import torch
        self.torch = torch
        torch.manual_seed(1)

        def make(*shape):
            return torch.randn(*shape, device="cuda", dtype=torch.float16)
        last = torch.channels_last
        self.x = make(32, 64, 56, 56).to(memory_format=last)
        self.weights = [((make(s["k"], s["c"], s["r"], s["s"]) / math.sqrt(s["c"] * s["r"] * s["s"]))
                         .to(memory_format=last), make(s["k"])) for s in SIZES]
        self.tiles = peers_cutlass.tiles(peers)
        if not self.tiles:
            sys.exit(f"{peers}: no libcutlass_conv_*.so. Make them: cmake --build --preset cuda --target cutlass_peers")

    def run(self, chosen):
        x = self.x
        for s, (w, b), tile in zip(SIZES, self.weights, chosen):
            x = tile.pool(tile.relu(tile.conv(s, w, b, x, relu=False)))
        return x

    def seconds(self, function):
        """The median of replays of a graph of 24 runs."""
        torch, runs = self.torch, 24
        function()
        torch.cuda.synchronize()
        graph, kept = torch.cuda.CUDAGraph(), []
        with torch.cuda.graph(graph):
            for _ in range(runs):
                kept.append(function())
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def replay(times):
            start.record()
            for _ in range(times):
                graph.replay()
            end.record()
            end.synchronize()
            return start.elapsed_time(end) * 1e-3 / times / runs
        return statistics.median(samples_of(replay, runs)(0.02))

    def fastest(self):
        """Of each convolution the fastest tile."""
        chosen, x = [], self.x
        for s, (w, b) in zip(SIZES, self.weights):
            times = [self.seconds(partial(tile.conv, s, w, b, x, relu=False)) for tile in self.tiles]
            tile = self.tiles[times.index(min(times))]
            chosen.append(tile)
            x = tile.pool(tile.relu(tile.conv(s, w, b, x)))
        return chosen

    def check(self, chosen):
        f, x = self.torch.nn.functional, self.x[:1].float()
        for s, (w, b) in zip(SIZES, self.weights):
            x = f.max_pool2d(f.relu(f.conv2d(x, w.float(), b.float(), 1, s["pad"][0])), 2)
        error = ((self.run(chosen)[:1].float() - x).abs().max() / x.abs().max()).item()
        if not error < 4e-3:
            sys.exit(f"the unfused pipeline is wrong: error {error:.1e}")


def launch_once(peers, names):
    """What ncu counts: one run of the six kernels, between the profiler's start and stop."""
    unfused = Unfused(peers)
    chosen = [next(t for t in unfused.tiles if t.name == name) for name in names]
    unfused.run(chosen)
    unfused.torch.cuda.synchronize()
    unfused.torch.cuda.cudart().cudaProfilerStart()
    unfused.run(chosen)
    unfused.torch.cuda.synchronize()
    unfused.torch.cuda.cudart().cudaProfilerStop()


def short(name):
    """"cutlass_pooled 128x64" of ncu's long name."""
    plain = name.replace("<unnamed>::", "").replace("(anonymous namespace)::", "")
    base = re.split(r"[<(]", plain)[0].split("::")[-1].split()[-1]
    shape = re.search(r"(?:GemmShape<|WindowTile{)\(?(?:int\))?(\d+), \(?(?:int\))?(\d+),", name)
    base = {"Kernel": "CUTLASS convolution", "cutlass_pooled_round_kernel": "conversion to f16"}.get(base, base)
    return f"{base} {shape[1]}x{shape[2]}" if shape else base


def counted(ncu, command, words, environment=None):
    """A row of figures of each kernel that ncu saw, in order."""
    run = [ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base", "--metrics",
           ",".join(METRICS.values()), *words, *map(str, command)]
    done = subprocess.run(run, capture_output=True, text=True, env=environment)
    lines = done.stdout.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        said = (done.stdout + done.stderr)[-3000:]
        sys.exit(f"{' '.join(map(str, run))}: no figures, exit code {done.returncode}\n{said}")
    rows = list(csv.DictReader(io.StringIO("\n".join(lines[begin:]))))[1:]  # the first is the units'

    def number(row, metric):
        text = row.get(metric, "").replace(",", "")
        return float(text) if re.fullmatch(r"[-+.\deE]+", text) else None
    found = []
    for row in rows:
        figures = {key: number(row, metric) for key, metric in METRICS.items()}
        figures["us"] = figures["us"] / 1e3 if figures["us"] is not None else None  # from ns
        found.append(dict(kernel=short(row["Kernel Name"]), **figures))
    return found


def bench_of(convoy, stage, kernel, seconds):
    """Microseconds of a stage by a kernel, as the bench has it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "result.json"
        command = [convoy, "bench", "--device", "cuda", "--stage", stage, "--kernel", kernel, "--rounds", "3",
                   "--seconds", str(seconds), "--json", str(path)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        row = json.loads(path.read_text())["rows"][0]
    return row["convoy"]["median_us"]


def of_kernel(args, kernel):
    """Both stages, one launch of each kernel of theirs."""
    row = dict(way=kernel, kernels=[], us=0.0)
    for stage in STAGES:
        row["us"] += bench_of(args.convoy, stage, kernel, args.seconds)
        launches = 2 if kernel == "cutlass_pooled" else 1
        row["kernels"] += counted(args.ncu, [args.convoy, "bench", "--device", "cuda", "--stage", stage, "--kernel",
                                             kernel, "--rounds", "1", "--seconds", "0.001"],
                                  ["--kernel-name", f"regex:^{kernel}", "--launch-count", str(launches)])
    return row


def of_pair(args):
    command = [args.convoy, "explain", "--device", "cuda", STAGES[0], "--then", STAGES[1], "--json", "--seconds"]
    timed = json.loads(subprocess.run([*map(str, command), str(args.seconds)], capture_output=True, check=True).stdout)
    return dict(way="pair", us=1e6 * timed["one_kernel_seconds"], kernels=counted(
        args.ncu, [*command, "0.001"], ["--kernel-name", "regex:^pair$", "--launch-count", "1"]))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default="build/cuda/bin/convoy")
    parser.add_argument("--peers", default="build/cuda/peers")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--kernels", default="cutlass_pooled,window,halo",
                        help="that run both stages, one after the other")
    parser.add_argument("--seconds", type=float, default=0.02)
    parser.add_argument("--out", required=True)
    parser.add_argument("--launch", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.launch:
        return launch_once(args.peers, args.launch)
    record = records.of_program(args.convoy, "cuda")
    unfused = Unfused(args.peers)
    chosen = unfused.fastest()
    unfused.check(chosen)
    row = dict(way="unfused", us=1e6 * unfused.seconds(lambda: unfused.run(chosen)))
    again = [sys.executable, __file__, "--peers", args.peers, "--out", os.devnull, "--launch"]
    row["kernels"] = counted(args.ncu, again + [tile.name for tile in chosen], ["--profile-from-start", "off"])
    rows = [row] + [of_kernel(args, kernel) for kernel in args.kernels.split(",")] + [of_pair(args)]
    said = subprocess.run([args.ncu, "--version"], capture_output=True, text=True).stdout
    ncu = said.split("Version ")[-1].split()[0]
    result = dict(record, stages=STAGES, ncu=ncu, rows=rows)
    path = Path(args.out)
    path.with_suffix(".tmp").write_text(json.dumps(result, indent=1) + "\n")
    path.with_suffix(".tmp").rename(path)
    for row in rows:
        print(f"{row['way']}: {row['us']:.1f} us")
        for kernel in row["kernels"]:
            print("  ", kernel)


if __name__ == "__main__":
    sys.exit(main())
