#!/usr/bin/env python3
"""Times the demo's spiking network on a GPU, in several processes, beside other libraries.

    bench/snn_gpu.py --convoy build/cuda/bin/convoy --data fashion-mnist --peers-python .venv/bin/python \\
        --out bench/results/h200

Writes OUT/snn-gpu.json: microseconds of a run for each batch, images and outputs on the device (`convoy bench`, the
median over processes; also of its layers one by one), and of `convoy run`, images and labels on the host: u8 and f32 in
ordinary memory, u8 in page-locked memory, one image; also for each number of images in HOST_IMAGES, the test set
repeated. With --peers-python, a Python that has PyTorch and SpikingJelly, each process of ours is followed by one of
theirs (peers_snn_gpu.py), whose times go into the same file.
"""

import argparse
import gzip
import json
import statistics
import struct
import subprocess
import tempfile
from pathlib import Path

import records

ROOT = Path(__file__).resolve().parent.parent
BATCHES = (1, 10, 132, 1000, 10000, 60000)
HOST_IMAGES = (1, 10, 100, 1000, 10000, 60000, 250000, 1000000)
LARGE = 100000  # of more images, up to 784 MB, one process is enough
CHAIN = ("constants > u8:n{n}h28c1k8r5out(f32)+bias+if(1)+t2+hold+max2 > n{n}h12c8k16r5+bias+if(1)+t2+max2 > "
         "n{n}h1c256k128r1+bias+if(1)+t2 > n{n}h1c128k96r1+bias+if(1)+t2 > n{n}h1c96k10r1+bias > mean")
HEAD = (*records.KEYS, "method")


def result_of(*command):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "result.json"
        subprocess.run([*command, "--device", "cuda", "--json", str(out)], check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text())


def idx(path):
    """The header's sizes and the bytes of an IDX file."""
    data = gzip.decompress(path.read_bytes())
    rank = data[3]
    return list(struct.unpack(f">{rank}I", data[4:4 + 4 * rank])), data[4 + 4 * rank:]


def repeated(source, images, to):
    """Writes so many of the test set's images (or labels), from the first on again where they end."""
    sizes, data = idx(source)
    size = len(data) // sizes[0]
    whole, rest = divmod(images, sizes[0])
    head = bytes((0, 0, 8, len(sizes))) + struct.pack(f">{len(sizes)}I", images, *sizes[1:])
    to.write_bytes(head + data * whole + data[:rest * size])
    return to


def run_of_images(args, images, folder):
    files = [repeated(Path(args.data, f"t10k-{name}-ubyte.gz"), images, Path(folder, name))
             for name in ("images-idx3", "labels-idx1")]
    return result_of(args.convoy, "run", args.model, "--images", str(files[0]), "--labels", str(files[1]))


def host_times(runs):
    """The medians over processes of what `convoy run` measured."""
    keys = {"seconds": "seconds", "pinned_u8_seconds": "pinned_u8_seconds",
            "pageable_f32_seconds": "pageable_f32_seconds", "one_image_seconds": "one_image_median_seconds"}
    same = {key: runs[0][key] for key in ("images", "accuracy", "threads")}
    return {**same, "processes": len(runs),
            **{key: statistics.median(run[name] for run in runs) for key, name in keys.items()}}


def peers_of(args):
    images = Path(args.data, "t10k-images-idx3-ubyte.gz")
    worker = subprocess.run([args.peers_python, str(ROOT / "bench/peers_snn_gpu.py"), args.model, str(images)],
                            check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(worker.stdout.splitlines()[-1])


def merged_peers(of_processes):
    """The medians over processes of each peer's times, and in how many labels it differs from PyTorch."""
    def medians(name, times):
        keys = of_processes[0]["peers"][name][times]
        return {key: statistics.median(of["peers"][name][times][key] for of in of_processes) for key in keys}
    return {"versions": of_processes[0]["versions"],
            "times": {name: {**{times: medians(name, times) for times in ("device_us", "call_us", "host_us")},
                             "labels_that_differ": max(of["peers"][name]["labels_that_differ"] for of in of_processes)}
                      for name in of_processes[0]["peers"]}}


def merged(benches, runs):
    """What the file holds: of each batch the results of all processes, and those of `convoy run`."""
    rows = []
    for n, results in benches.items():
        of_n = [result["rows"][0] for result in results]
        us = [row["convoy"]["median_us"] for row in of_n]
        rows.append({"images": n, "kernel": of_n[0]["kernel"], "median_us": statistics.median(us),
                     "least_us": min(row["convoy"]["minimum_us"] for row in of_n), "us_of_processes": us,
                     "stage_by_stage_us": statistics.median(row["peers"][0]["median_us"] for row in of_n)})
    first = next(iter(benches.values()))[0]
    return {**{key: first[key] for key in HEAD if key in first}, "model": "fashion-scnn",
            "processes": len(runs[10000]), "rows": rows, "run": host_times(runs[10000]),
            "from_host": [host_times(of_n) for of_n in runs.values()]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default=str(ROOT / "build/cuda/bin/convoy"))
    parser.add_argument("--model", default=str(ROOT / "models/fashion-scnn"))
    parser.add_argument("--data", required=True, help="folder of Fashion-MNIST's test images and labels")
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--peers-python", help="a Python with PyTorch and SpikingJelly")
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    benches, runs, peers = {n: [] for n in BATCHES}, {n: [] for n in HOST_IMAGES}, []
    for process in range(args.processes):
        for n, results in benches.items():
            results.append(result_of(args.convoy, "bench", "--no-tuning", "--rounds", "3", "--seconds", "0.02",
                                     "--stage", CHAIN.format(n=n)))
        with tempfile.TemporaryDirectory() as folder:
            for n, results in runs.items():
                if process == 0 or n < LARGE:
                    results.append(run_of_images(args, n, folder))
        if args.peers_python:
            peers.append(peers_of(args))
    result = merged(benches, runs)
    if peers:
        result["peers"] = merged_peers(peers)
    Path(args.out, "snn-gpu.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
