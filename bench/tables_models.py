"""Tables and sentences of whole models through convoy.fuse and of calls from Python, from what bench/fuse.py and
bench/python_call.py wrote."""

from tables_text import all_of, day, item, on_day, prose

TITLES = {"vgg16": "VGG-16", "resnet50": "ResNet-50", "relu_cnn": "three 3×3 layers with batch-norm, ReLU and pool",
          "csnn": "SpikingJelly's CSNN, T = 4"}
TYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def records(machines):
    """(machine, record, row) of every model that was fused, in the order of TITLES; others come last."""
    found = [(machine, result, row) for machine in machines for name, result in machine.results.items()
             if name.startswith("fuse-") for row in result["rows"]]
    order = list(TITLES)
    return sorted(found, key=lambda one: order.index(one[2]["model"]) if one[2]["model"] in TITLES else len(order))


def title(row):
    return TITLES.get(row["model"], row["model"])


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
            f"{title(row)} takes {milliseconds(fused)} for {row['batch']} images of "
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
    """Every model that was fused; the times with frozen=True if a row has them."""
    found = records(machines)
    if not found:
        return []
    frozen = any(row.get("frozen_ms") for _, _, row in found)

    def cell(row, key, text="{:.2f}"):
        return f"| {text.format(row[key])} " if row.get(key) else "| "

    rows = [f"| {title(row)} | {where(machine, result)} | {row['batch']} × {row['size']}² "
            + cell(row, "fused_ms") + (cell(row, "frozen_ms") if frozen else "")
            + cell(row, "compiled_ms") + cell(row, "eager_ms") + cell(row, "speedup", "**{:.2f}**")
            + (cell(row, "frozen_speedup") if frozen else "")
            + f"| {result['torch'].split('+')[0]} | {day(result) or 'not recorded'} |"
            for machine, result, row in found]
    head = ["| model | machine | images | `convoy.fuse`, ms " + "| with `frozen=True`, ms " * frozen
            + "| `torch.compile`, ms | PyTorch as it is, ms | speedup over the faster "
            + "| with `frozen=True` " * frozen + "| PyTorch | measured |",
            "|---|---|---|---:|" + "---:|" * frozen + "---:|---:|---:|" + "---:|" * frozen + "---|---|"]
    return [*head, *rows]


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
