"""The pages of bench/results/MACHINE: every table of one machine's records; and the index of these pages."""

import tables_cpu
import tables_gpu
import tables_models
import tables_records
import tables_resources
import tables_spiking
import tables_training

HEAD = """\
This page has tables of the records in this folder, for readers who want to check a figure or compare a stage.
`bench/tables.py` writes it; do not edit it by hand.
[How everything is measured](../../../docs/trust/benchmarking.md) explains the columns and how to repeat a measurement.
*Ratio* is the time of the fastest other library divided by Convoy's: above 1, Convoy is faster.
*Worst* is the smallest ratio of a list."""
TITLES = {"README": "", "lists": ": layers of networks and other lists", "kernels": ": single kernels and sweeps"}


def sections(machine):
    """(page, heading, lines) of everything."""
    one = [machine]
    yield "README", "Records", tables_records.table(machine)
    yield from (tables_gpu if machine.is_gpu() else tables_cpu).sections(machine)
    yield "README", "Spiking network of the demo", [*tables_spiking.summary(one), *tables_spiking.gpu(one)]
    yield "README", "Whole models through convoy.fuse", tables_models.table(one)
    yield "README", "Calls from Python", tables_models.calls(one)
    yield "README", "Trained networks", tables_training.trained(one)
    yield "README", "Labels by more processes", tables_training.inference(one)
    yield "README", "Training by more processes", tables_training.training(one)
    yield "README", "Registers and occupancy", tables_resources.table(one)


def pages(machine):
    """{file name: text}."""
    parts = {}
    for page, heading, lines in sections(machine):
        if lines:
            parts.setdefault(page, []).extend([f"## {heading}", "", *lines, ""])
    found = {}
    for page, lines in parts.items():
        others = [f"[{other.lower()}]({other}.md)" for other in parts if other != page]
        links = [f"More tables of this machine: {', '.join(others)}.", ""] if others else []
        text = [f"# {machine.title}{TITLES[page]}", "", *HEAD.splitlines(), "", *links, *lines]
        found[f"{page}.md"] = "\n".join(text).rstrip() + "\n"
    return found


def index(machines):
    """A row per machine."""
    lines = ["| folder | machine | records |", "|---|---|---:|"]
    return lines + [f"| [{m.name}]({m.name}/README.md) | {m.title} | {len(m.results)} |" for m in machines]
