"""Tables and a picture of trained networks and of more than one process, from bench/snn_training.py and
bench/distributed.py."""

import statistics

from charts import Svg

COLOURS = ("a", "b", "c", "a dash", "b dash", "c dash")


def runs_of(machine):
    """The runs whose networks were tested, ours by T first."""
    result = machine.results.get("snn-training") or {"training": []}
    rows = [row for row in result["training"] if "validation" in row]
    return sorted(rows, key=lambda row: (row["run"].startswith("document"), row["T"]))


def recipe(row):
    return "published" if row["run"].startswith("document") else "`ours`"


def percent(value):
    return f"{100 * value:.2f}"


def trained(machines):
    """Accuracy by T and recipe: mean and spread over the seeds; the chosen network's on the test images."""
    lines = []
    for machine in machines:
        rows = runs_of(machine)
        if not rows:
            continue
        lines += [f"{machine.short}, accuracies in %. *Validation* is on 5,000 images.",
                  "*Test* is the accuracy of the network with the best validation accuracy, on 10,000 test images that",
                  "were read once.", "",
                  "| recipe | T | epochs | seeds | validation, mean | standard deviation | best | test | standard "
                  "error | s per epoch |", "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|"]
        for row in rows:
            error = (row["test"] * (1 - row["test"]) / 10000) ** 0.5
            lines.append(f"| {recipe(row)} | {row['T']} | {row['epochs']} | {row['seeds']} "
                         f"| {percent(row['validation_mean'])} | {percent(row['validation_deviation'])} "
                         f"| {percent(row['best_validation'])} | **{percent(row['test'])}** | {percent(error)} "
                         f"| {row['seconds_an_epoch']:.2f} |")
    return lines


def inference(machines):
    lines = []
    for machine in machines:
        part = (machine.results.get("distributed") or {}).get("inference")
        if not part:
            continue
        small, large = part["rows"][0]["images"]
        lines += [f"| {machine.short} | {small:,} images, s | {large:,} images, s | images/s |",
                  "|---|---:|---:|---:|"]
        for row in part["rows"]:
            first, second = row["seconds"]
            lines.append(f"| {row['way']} | {first:.1f} | {second:.1f} | {large / second:,.0f} |")
        lines += ["", f"Starting the cluster: {part['cluster_start_seconds']:.1f} s more, Ray {part['ray']}."]
    return lines


def training(machines):
    lines = []
    for machine in machines:
        part = (machine.results.get("distributed") or {}).get("training")
        if not part:
            continue
        lines += [f"| {machine.short} | s an epoch | validation accuracy of the seeds, % | mean |",
                  "|---|---:|---|---:|"]
        for row in part["rows"]:
            lines.append(f"| {row['way']} | {min(row['seconds_an_epoch']):.1f} "
                         f"| {', '.join(percent(score) for score in row['validation'])} "
                         f"| {percent(statistics.mean(row['validation']))} |")
    return lines


def curves(rows):
    """Mean validation accuracy over the share of the epochs, a line a run."""
    left, right, top, bottom = 52, 600, 56, 300
    svg = Svg(640, 340, "Training: mean validation accuracy")
    svg.text(left, 18, "Mean validation accuracy of the seeds, % (first epochs left out)")
    points = {row["run"]: [(p["epoch"] / row["epochs"], 100 * p["mean"]) for p in row["history"] if p["epoch"] > 1]
              for row in rows}  # fmt: skip
    least = int(min(y for line in points.values() for _, y in line))
    most = int(max(y for line in points.values() for _, y in line)) + 1
    for y in range(least, most + 1):
        height = bottom - (bottom - top) * (y - least) / (most - least)
        svg.path(f"M{left} {height:.1f}H{right}", "grid")
        svg.text(left - 6, height + 4, str(y), "dim", "end")
    for i, row in enumerate(rows):
        line = [(left + (right - left) * x, bottom - (bottom - top) * (y - least) / (most - least))
                for x, y in points[row["run"]]]  # fmt: skip
        svg.path("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in line), f"{COLOURS[i % 6]} line")
        at = left + 110 * i
        svg.path(f"M{at} 36h22", f"{COLOURS[i % 6]} line")
        svg.text(at + 27, 40, f"{recipe(row)}, T={row['T']}")
    for share in (0, 50, 100):
        svg.text(left + (right - left) * share / 100, bottom + 20, f"{share} %", "dim", "middle")
    svg.text((left + right) / 2, bottom + 36, "of the epochs", "dim", "middle")
    return svg.done()


def charts(machines):
    return {f"snn-training-{machine.name}.svg": (curves(runs_of(machine)), "Mean validation accuracy over the epochs")
            for machine in machines if runs_of(machine)}
