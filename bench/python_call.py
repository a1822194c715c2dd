#!/usr/bin/env python3
"""What a call from Python costs above the same run in C++: a stage so small that little else is left.

    bench/python_call.py [--json FILE]      with the package `convoy` installed, PyTorch or not

The C++ side is `convoy bench` of the same stage on one thread. Each figure is the least of 15 repeats of 20,000 calls:
what a call costs where nothing disturbs it. CPU seconds are beside wall seconds, for machines that others use too.
"""

import argparse
import json
import platform
import time

import records

STAGE = "n1h4w5c4k4r1+bias"


def microseconds(call, repeats=15, calls=20000):
    """(wall, CPU) of one call."""
    wall, cpu = [], []
    for _ in range(repeats):
        started, started_cpu = time.perf_counter(), time.process_time()
        for _ in range(calls):
            call()
        wall.append(time.perf_counter() - started)
        cpu.append(time.process_time() - started_cpu)
    return {"wall_us": round(min(wall) / calls * 1e6, 3), "cpu_us": round(min(cpu) / calls * 1e6, 3)}


def operators(torch, x, bias, rows):
    """convoy.torch's operator beside ATen's convolution, of the same x."""
    import convoy.torch

    torch.set_num_threads(1)
    weight, registered = torch.ones(4, 4, 1, 1), torch.ops.convoy.stage.default
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            name = mode.__name__
            rows[f"convoy.torch.stage, {name}"] = microseconds(lambda: convoy.torch.stage(STAGE, x, weight, bias))
            rows[f"torch.ops.convoy.stage, {name}"] = microseconds(lambda: registered(x, weight, bias, STAGE))
            rows[f"aten::conv2d, {name}"] = microseconds(lambda: torch.conv2d(x, weight, bias))


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--json", help="also write the record here")
    options = arguments.parse_args()
    import numpy as np

    import convoy

    measured = convoy.bench(STAGE, threads=1, rounds=5, seconds=0.1)
    cpp = measured["rows"][0]["convoy"]["minimum_us"]
    plan = convoy.Plan(STAGE, np.ones((4, 1, 1, 4), np.float32), threads=1)
    x, bias, out = (np.ones(shape, np.float32) for shape in [(1, 4, 5, 4), (4,), (1, 4, 5, 4)])
    rows = {"numpy, out given": microseconds(lambda: plan.run(x, bias, out=out)),
            "numpy, new array": microseconds(lambda: plan.run(x, bias))}  # fmt: skip
    record = {"stage": STAGE, "cpp_minimum_us": cpp, "python": platform.python_version(), "numpy": np.__version__}
    try:
        import torch

        record["torch"] = torch.__version__
        tx, tb, tout = (torch.from_numpy(array) for array in (x, bias, out))
        last = torch.ones(1, 4, 4, 5).to(memory_format=torch.channels_last)
        rows["torch, out given"] = microseconds(lambda: plan.run(tx, tb, out=tout))
        rows["torch, new tensor"] = microseconds(lambda: plan.run(tx, tb))
        rows["torch, channels_last, new tensor"] = microseconds(lambda: plan.run(last, tb))
        operators(torch, last, tb, rows)
    except ImportError:
        pass
    for name, row in rows.items():
        row["cpu_above_cpp_us"] = round(row["cpu_us"] - cpp, 3)
        print(f"{name:40} {row['wall_us']:6.2f} us, CPU {row['cpu_us']:6.2f}; above C++ {row['cpu_above_cpp_us']:6.2f}")
    record.update(rows=rows, **records.of_result(measured))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1, sort_keys=True)
            file.write("\n")


if __name__ == "__main__":
    main()
