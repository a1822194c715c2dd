#!/usr/bin/env python3
"""Times spiking networks of other shapes on a GPU beside the shipped one, images and labels on the device.

    bench/snn_networks.py --convoy build/cuda/bin/convoy --out bench/results/h200

Writes OUT/snn-networks.json: of each network microseconds of a run of IMAGES images (the median over processes), its
multiply-adds an image, those of the first layer once, and how many times longer than the shipped network it takes for
each. "shipped, not known" is the shipped network with another threshold, so that the general code runs it.
"""

import argparse
import json
import statistics
from pathlib import Path

from snn_gpu import CHAIN, HEAD, ROOT, result_of

IMAGES = 10000
LIF = "+bias+lif(2,1)+soft+t6"
CHAINS = {
    "shipped": CHAIN,
    "shipped, not known": CHAIN.replace("if(1)+t2+hold", "if(1.001)+t2+hold"),
    "three convolutions": (f"constants > u8:n{{n}}h32c3k12r3pad1out(f32){LIF}+hold+max2 > n{{n}}h16c12k20r3pad1{LIF}"
                           f"+max2 > n{{n}}h8c20k24r3pad1{LIF}+max2 > n{{n}}h1c384k10r1+bias > mean"),
    "dense": ("constants > u8:n{n}h1c784k256r1out(f32)+bias+if(1)+t2+hold > n{n}h1c256k128r1+bias+if(1)+t2 > "
              "n{n}h1c128k10r1+bias > mean"),
}


def row_of(name, results, shipped):
    """A network's row; `shipped`: microseconds a multiply-add of the shipped one."""
    rows = [result["rows"][0] for result in results]
    us = [row["convoy"]["median_us"] for row in rows]
    median = statistics.median(us)
    macs = rows[0]["gflops"] * rows[0]["convoy"]["median_us"] * 1e3 / 2 / IMAGES
    each = median / macs
    return {"network": name, "stage": rows[0]["stage"], "kernel": rows[0]["kernel"], "median_us": median,
            "us_of_processes": us, "macs": round(macs), "times_the_shipped_a_mac": each / (shipped or each),
            "stage_by_stage_us": rows[0]["peers"][0]["median_us"]}, each


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default=str(ROOT / "build/cuda/bin/convoy"))
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    results = {name: [] for name in CHAINS}
    for _ in range(args.processes):
        for name, chain in CHAINS.items():
            results[name].append(result_of(args.convoy, "bench", "--no-tuning", "--rounds", "2", "--seconds", "0.02",
                                           "--stage", chain.format(n=IMAGES)))
    rows, shipped = [], None
    for name, of_name in results.items():
        row, each = row_of(name, of_name, shipped)
        shipped = shipped or each
        rows.append(row)
    first = results["shipped"][0]
    Path(args.out, "snn-networks.json").write_text(json.dumps(
        {**{key: first[key] for key in HEAD if key in first}, "images": IMAGES, "processes": args.processes,
         "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
