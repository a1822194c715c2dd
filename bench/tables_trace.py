"""The table of docs/learn/time.md: head, loop and tail of a kernel, from what bench/trace_split.py wrote."""

from tables_text import on_day, prose


def share(row):
    """The part of a run that is not its loop."""
    return 1 - row["traced_loop_seconds"] / row["in_a_row_seconds"]


def trace_split(machines):
    lines = []
    for machine in machines:
        result = machine.results.get("trace-split")
        if not result:
            continue
        lines += [f"{machine.short}{on_day(result)}:", "",
                  "| stage | head, µs | of it beside the run before | loop, µs | tail, µs | one run, µs "
                  "| not the loop |",
                  "|---|---:|---:|---:|---:|---:|---:|"]
        for row in result["shown"]:
            us = [1e6 * row[f"{key}_seconds"] for key in ("traced_head", "overlap", "traced_loop", "traced_tail",
                                                          "in_a_row")]  # fmt: skip
            cells = " | ".join(f"{value:.1f}" for value in us)
            lines.append(f"| `{row['stage']}` | {cells} | {100 * share(row):.0f} % |")
        apart = {key: [abs(line["inside"][key] / line["outside"][key] - 1) * 100 for line in result["lines"]]
                 for key in ("loop_cycles", "around_cycles")}  # fmt: skip
        loop, around = (f"{min(apart[key]):.1f} to {max(apart[key]):.1f} %" for key in ("loop_cycles", "around_cycles"))
        lines += ["", *prose(f"For {len(result['lines'])} such lines, the readings from inside and from outside differ "
                             f"by {loop} in the loop and by {around} in head and tail.")]  # fmt: skip
    return lines
