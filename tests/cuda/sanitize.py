#!/usr/bin/env python3
"""Runs a few stages of every GPU kernel under compute-sanitizer; needs a GPU.

    python3 tests/cuda/sanitize.py build/cuda/bin/convoy build/cuda/bin/cuda_tests

Each case is one `convoy verify` with one tile, or a test (for `pair` of all tiles), under memcheck, racecheck,
synccheck and initcheck, some side by side. Exit code 1 if a tool reports anything or a check fails, 77 without a GPU.
"""

import argparse
import itertools
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# A CTA of ours has more barriers than synccheck tracks by default.
TOOLS = {"memcheck": [], "racecheck": [], "synccheck": ["--num-cuda-barriers", "1024"], "initcheck": []}
ODD = "n2h9w13c72k136r3pad1+bias+relu+max2"
SPIKES = ("constants > u8:n9h12w11c3k12r3pad1out(f32)+bias+lif(2,0.5)+soft+t3+hold+max2 > "
          "n9h6w5c12k20r3pad1+bias+if(1)+t3 > n9h1c600k17r1+bias+if(1)+t3 > n9h1c17k10r1+bias > mean")
SPIKES_TO_SPIKES = ("constants > u8:n300h10w9c1k8r5out(f32)+if(0.5)+t2+hold+max2 > "
                    "n300h3w2c8k9r2+bias+if(1)+t2")
CASES = [  # stage, kernel, tile
    (f"f16:{ODD}", "halo", "8x8x2.channels"),
    (f"bf16:{ODD}", "halo", "16x8x1.rows"),
    (f"f16:{ODD}", "halo", "8x8x1.pingpong"),
    ("f16:n9h6w10c64k72r3pad1+bias+relu", "halo", "8x4x8n.channels"),
    ("f16:n2h15c32k16r3stride2pad1+bias+relu6", "halo", "8x8x1.rows.resident"),
    # Four steps of a place in a tile, once and twice, membranes from call to call; narrow images.
    ("f16:n1h8c64k64r3pad1+bias+lif(2,1)+t4+max2", "halo", "8x8x1t4.pingpong"),
    ("bf16:n9h9w13c72k72r3pad1+bias+if(1)+soft+t8+max2", "halo", "16x4x1t4.rows"),
    ("f16:n9h4c64k136r3pad1+bias+lif(3,1)+t8", "halo", "4x2x8bt4.channels"),
    # Sums in f32 and a pass over them: images narrower than a tile, windows that lack pixels, a pool apart.
    ("f16:n40h4c72k136r3pad1+bias+lif(2,1)+t3+max2", "halo_neuron_pass", ""),
    ("bf16:n2h9w13c72k72r3pad1+bias+if(1)+soft+t5+max2+keep(pre)", "halo_neuron_pass", ""),
    ("f16:n2h9w13c40k24r3pad1+bias+lif(3,1)+t2+max3s2p1+keep(act,idx)", "halo_neuron_pass", ""),
    # A channel a thread: numbers of filters that are no multiple of four.
    ("f16:n2h9w13c40k21r3pad1+bias+if(1)+soft+t5+max2+keep(pre,act)", "window_neuron_pass", ""),
    ("u8:n2h9w13c4k21r3pad1nchwout(f32)+norm+bias+lif(2,1)+t3+hold", "fma_neuron_pass_nchw", ""),
    ("f16:n40h4c72k136r3pad1+bias+relu", "halo", "4x4x8b.channels"),
    # More tiles than multiprocessors: the rings go round, warpgroups take second turns.
    ("f16:n40h32c16k64r3pad1+relu+max2", "halo", "8x8x1.pingpong.resident"),
    ("f16:n40h32c72k64r1+bias", "halo", "line64.pingpong"),
    ("f16:n5h9w13c64k136r1+bias", "halo", "line64.rows"),
    ("f16:n40h32c16k136r3pad1+relu+max2", "halo", "8x8x2.channels"),
    # Slots of several boxes, slabs over several blocks of channels.
    ("f16:n1h9w13c512k72r1+bias+relu", "halo", "line32.pingpong.deep4"),
    ("f16:n40h15c128k72r3stride2pad1+bias+max2", "halo", "8x8x1.rows.deep1"),
    ("f16:n40h32c256k64r1+relu", "halo", "line64.pingpong.deep2"),
    # A CTA's only tile fills its rings, or not; weights wait for the first pixels.
    ("f16:n40h8c128k128r3pad1+bias+relu+max2", "halo", "8x8x1.pingpong.deep2"),
    ("f16:n40h8c256k128r3pad1+bias", "halo", "8x8x1.pingpong"),
    # Half of an instruction's rows are whatever lies behind the slab.
    ("f16:n40h15c128k72r3stride2pad1+bias", "halo", "8x4x1.pingpong.half.deep1"),
    (f"f16:{ODD}", "halo", "8x8x1.pingpong.half"),
    # Teams of a warp, of several, and of all; maps with padding; a mean, and spikes at the end.
    (SPIKES, "spike_resident", "teams of 1"),
    (SPIKES, "spike_resident", "teams of 4"),
    (SPIKES, "spike_resident", "teams of 16"),
    (SPIKES_TO_SPIKES, "spike_resident", "any team"),
    ("GpuSpikeResident.Warpgroups*", "cuda_tests", ""),
    ("f16:n2h23c3k16r7stride2pad3+bias+relu+max3s2p1", "first", "8x7"),
    ("u8:n2h18w20c3k24r3pad1+bias+norm+relu+max2", "first", "8x8"),
    ("f16:n2h10c64k3r3pad1+bias+relu+max2", "few", ""),
    ("f16:n40h20c64k3r3pad1+bias+relu+max2", "few", ""),
    ("f16:n40h20c72k5r1+bias+relu", "few", ""),
    ("f16:n1h9c640k1r7pad3+bias", "few", ""),
    ("f16:n2h9w13c24k24r3pad1groups24+bias+relu6", "depthwise", ""),
    ("bf16:n2h11w9c68k68r5stride2pad2groups68+bias+leaky(0.1)+max2ceil", "depthwise", ""),
    ("n2h14w9c6k6r7dil2pad6groups6+bias+relu", "depthwise", ""),
    ("n3h14w9c96k33r3pad1+bias+relu+max2", "winograd4", ""),
    ("n3h13w9c64k72r3pad1x0x2x1+bias+relu", "winograd4", ""),
    ("n2h9w13c3k72r5stride2pad2+bias+relu+max2", "fma", "128x64"),
    ("n2h9w13c3k72r5stride2pad2+bias+relu", "fma", "64x64"),
    ("n2h9w13c17k30r3pad1nchw+bias+relu+max2", "fma", "128x32"),
    ("u8:n2h9w13c3k21r3pad1out(bf16)+norm+bias+relu", "fma", "256x16"),
    ("bf16:n2h20w19c21k21r3pad1groups21+bias+relu", "depthwise", ""),
    # Eight lanes a strip, and 32; odd channels; pixels of the batch in a line.
    ("n2h9w13c72k5r3pad1+bias+relu", "few_filters", "192 threads"),
    ("n2h9w13c256k3r3pad1+bias", "few_filters", ""),
    ("n2h9w13c37k8r3stride2pad1+bias+relu", "few_filters", ""),
    ("n5h7c64k2r1+bias", "few_filters", ""),
    ("n2h8c4k6r3pad1+bias+lif(2,1.5)+soft+t3+max2+keep(pre,act,idx)", "general", ""),
    # Windows that do not rise, taps and windows far outside.
    ("n2h9c3k5r3pad1+max2s1p1d5+keep(idx)", "general", ""),
    ("n1h4c2k3r1+max1d2147483647", "general", ""),
    ("f16:n2h9c8k16r3pad1+bias+relu+max2s1p1d5+keep(pre,act,idx)", "halo_pool", ""),
    ("f16:n2h5c16k24r3pad300dil300+bias+relu+max2", "halo", ""),
    ("f16:n3h9w13c72k72r3pad1+bias+lif(2,1)+t3+max2", "halo", "8x16x1.pingpong"),
    ("f16:n9h5c72k72r3pad1+bias+if(1)+soft+t2+hold", "halo", "8x2x8n.rows"),
    ("f16:n2h5c3k16r3pad20+bias+relu+max2", "first", ""),
    ("f16:n5h6w22c72k136r1+bias+relu+max2", "cutlass_pooled", "128x64"),
    ("f16:n2h18w10c40k72r3pad1+bias+relu+max2", "cutlass_pooled", "128x128"),
    # The rungs, the last with every tile; channels in eights and odd ones.
    ("f16:n2h7w5c17k20r3pad1+bias+relu", "ladder_0_scalar", ""),
    ("f16:n2h7w5c17k20r3pad1+bias+relu", "ladder_1_wmma", ""),
    ("f16:n2h7w5c17k20r3pad1+bias+relu", "ladder_2_implicit", ""),
    ("f16:n2h7w5c17k20r3pad1+bias+relu", "ladder_4_buffered", ""),
    ("f16:n2h9w13c72k136r3pad1+bias+relu+keep(pre)", "ladder_9_bounds", ""),
    ("f16:n2h9w13c72k136r3pad1+bias+relu+keep(pre)", "ladder_10_half", ""),
    # Boxes: several a CTA, of one image or of several; both parts of the pixels.
    ("f16:n40h14c128k128r3pad1groups32+bias+relu", "window", "box64"),
    ("bf16:n9h9w11c64k64r3stride2pad1groups2+bias+relu+max2", "window", "box256"),
    (f"f16:{ODD}", "window", "128x128"),
    (f"bf16:{ODD}", "window", "64x64"),
    (f"f16:{ODD}", "window", "128x128.precomputed"),
    ("f16:n2h9w13c20k36r3pad1+bias+relu", "window", "64x64.narrow"),
    ("f16:n2h9w13c36k28r3pad1groups4+bias+relu+max2", "window", "64x64.narrow"),
    ("bf16:n2h9w13c64k64r3pad1groups16+bias+relu+max2", "window", "128x32"),
    ("n2h9w13c24k72r3pad1+bias+relu", "window", "128x64"),
    ("n2h9w13c7k20r5pad2+max2", "window", "64x64.narrow"),
    # Two stages in one launch, by their number in pair-stages.txt, from 0.
    ("7", "pair", ""),
    ("11", "pair", ""),
]


def run(job):
    tool, (stage, kernel, tile), program, tests, sanitizer = job
    command = [sanitizer, "--tool", tool, *TOOLS[tool], "--error-exitcode", "3"]
    if kernel in ("pair", "cuda_tests"):
        command += [tests, f"--gtest_filter=Gpu/PairRun.*/{stage}" if kernel == "pair" else f"--gtest_filter={stage}"]
    else:
        command += [program, "verify", "--device", "cuda", "--stage", stage, "--kernel", kernel]
        command += ["--tile", tile] if tile else []
    begin = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    text = done.stdout + done.stderr
    if "built without CUTLASS" in text:
        return job, 0, text, 0.0
    code = done.returncode or (1 if tests in command and "[  PASSED  ] 1 test." not in text else 0)
    return job, code, text, time.perf_counter() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="convoy")
    parser.add_argument("tests", help="cuda_tests")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--processes", type=int, default=8)
    args = parser.parse_args()
    if subprocess.run(["nvidia-smi", "-L"], capture_output=True).returncode:
        print("skipped: no GPU")
        return 77
    jobs = [(tool, case, args.program, args.tests, args.sanitizer) for tool, case in itertools.product(TOOLS, CASES)]
    failed, slowest = 0, (0.0, "")
    begin = time.perf_counter()
    with ThreadPoolExecutor(args.processes) as pool:
        for (tool, case, *_), code, text, seconds in pool.map(run, jobs):
            slowest = max(slowest, (seconds, f"{tool} of {' '.join(case)}"))
            if code:
                failed += 1
                print(f"FAILED {tool}: {' '.join(case)}: exit code {code}\n{text[-3000:]}")
    print(f"{len(jobs)} runs in {time.perf_counter() - begin:.0f} s, {failed} failed; "
          f"the slowest took {slowest[0]:.0f} s: {slowest[1]}")
    return 1 if failed else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except FileNotFoundError as error:
        print(f"skipped: {error.filename} is not here")
        sys.exit(77)
