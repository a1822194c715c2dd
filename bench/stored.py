"""The results under bench/results: one folder per machine, one JSON file per list of stages."""

import json
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench/results"


@dataclass
class Folder:
    """One machine's results. machines.json gives its title, and an order from first to last."""

    name: str
    title: str
    short: str
    results: dict  # file name without .json: its content

    def is_gpu(self):
        return any("copy_bandwidth" in result for result in self.results.values() if isinstance(result, dict))


def folders(root=RESULTS):
    known = json.loads((root / "machines.json").read_text())
    found = []
    for path in root.iterdir():
        if not path.is_dir():
            continue
        results = {file.stem: json.loads(file.read_text()) for file in sorted(path.glob("*.json"))}
        if not results:
            continue
        facts = known.get(path.name, {})
        found.append(Folder(path.name, facts.get("title", path.name), facts.get("short", path.name), results))
    order = list(known)
    return sorted(found, key=lambda folder: (order.index(folder.name) if folder.name in order else 99, folder.name))


def peer(row, name):
    return next((p for p in row["peers"] if p["name"] == name), None)


def plain(stage):
    """A stage's text without what every row of a table says: its type and mode."""
    return stage.split(":")[-1].replace("+strict", "")


def geometric_mean(values):
    values = list(values)
    product = 1.0
    for value in values:
        product *= value
    return product ** (1 / len(values))
