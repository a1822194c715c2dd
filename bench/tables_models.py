"""Tables and sentences of whole models through convoy.fuse and of calls from Python, from what bench/fuse.py and
bench/python_call.py wrote."""

from tables_text import all_of, day, item, on_day, prose

TITLES = {"vgg16": "VGG-16", "relu_cnn": "three 3×3 layers with batch-norm, ReLU and pool",
          "csnn": "SpikingJelly's CSNN, T = 4"}
TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def records(machines):
    """(machine, record, row) of every model that was fused, in the order of TITLES."""
    found = [(machine, result, row) for machine in machines for name, result in machine.results.items()
             if name.startswith("fuse-") for row in result["rows"]]
    return sorted(found, key=lambda one: list(TITLES).index(one[2]["model"]))


def where(machine, result):
    on = "" if machine.is_gpu() or "NVIDIA" in result.get("device", "") else f", {result['threads']} threads"
    return f"{machine.short}{on}, {TYPES[result['dtype']]}"


def sentence(machine, result, row):
    """What a model takes, as it is, compiled and fused."""
    fused, compiled, eager = (row.get(f"{key}_ms") for key in ("fused", "compiled", "eager"))
    named = [(compiled, "through `torch.compile`"), (eager, "in PyTorch as it is")]
    others = [(ms, name) for ms, name in named if ms]
    faster = "the faster of these two" if len(others) > 1 else "PyTorch"
    return (f"{where(machine, result)}, PyTorch {result['torch'].split('+')[0]}{on_day(result)}: "
            f"{TITLES[row['model']]} takes {milliseconds(fused)} for {row['batch']} images of "
            f"{row['size']}×{row['size']} through `convoy.fuse`, "
            + all_of(f"{milliseconds(ms)} {name}" for ms, name in others)
            + f". Convoy is {min(ms for ms, _ in others) / fused:.2f} times as fast as {faster}.")


def milliseconds(value):
    return f"{value:,.0f} ms" if value >= 100 else f"{value:.1f} ms" if value >= 10 else f"{value:.2f} ms"


def whole_models(machines):
    """README's sentences: VGG-16 as a whole, an item per machine."""
    return [line for machine, result, row in records(machines) if row["model"] == "vgg16"
            for line in item(sentence(machine, result, row))]


def table(machines):
    """Every model that was fused."""
    rows = [f"| {TITLES[row['model']]} | {where(machine, result)} | {row['batch']} × {row['size']}² "
            f"| {row['fused_ms']:.2f} | {row.get('compiled_ms') or 0:.2f} | {row['eager_ms']:.2f} "
            f"| **{row['speedup']:.2f}** | {result['torch'].split('+')[0]} | {day(result)} |"
            for machine, result, row in records(machines)]
    return ["| model | machine | images | `convoy.fuse`, ms | `torch.compile`, ms | PyTorch as it is, ms "
            "| speedup over the faster | PyTorch | measured |", "|---|---|---|---:|---:|---:|---:|---|---|", *rows
            ] if rows else []


def spiking(machines):
    """SpikingJelly's own network, fused."""
    return [line for machine, result, row in records(machines) if row["model"] == "csnn"
            for line in item(sentence(machine, result, row))]


def calls(machines):
    """What a call from Python costs above the same run in C++."""
    lines = []
    for machine in machines:
        result = machine.results.get("python-call")
        if not result:
            continue
        lines += [*prose(
            f"{machine.short}{on_day(result)}, PyTorch {result['torch'].split('+')[0]}, NumPy {result['numpy']}: the "
            f"stage `{result['stage']}` takes {result['cpp_minimum_us']:.2f} µs in C++.",
            "The table has the CPU time of one call from Python, the minimum of 15 repeats of 20,000 calls."), "",
            "| call | µs | above C++, µs |", "|---|---:|---:|"]
        lines += [f"| {name} | {row['cpu_us']:.2f} | {row['cpu_above_cpp_us']:.2f} |"
                  for name, row in result["rows"].items()]
        lines.append("")
    return lines[:-1]
