"""Which records of bench/results name the commit that was measured. `bench/tables.py --check` refuses the others."""

import json

from stored import RESULTS
from tables_text import day


def rows_of(result):
    rows = result.get("rows") if isinstance(result, dict) else None
    return rows if isinstance(rows, list) else []


def has_commit(result):
    rows = rows_of(result)  # rows that were measured again have their own
    return bool(result.get("commit")) or (
        bool(rows) and all(isinstance(row, dict) and row.get("commit") for row in rows))


def stored():
    """(folder, name, content) of every record."""
    for path in sorted(RESULTS.glob("*/**/*.json")):
        yield str(path.parent.relative_to(RESULTS)), path.stem, json.loads(path.read_text())


def wrong():
    """A sentence on records without a commit."""
    without = [f"bench/results/{folder}/{name}.json" for folder, name, result in stored() if not has_commit(result)]
    if without:
        yield f"no commit in {', '.join(without)}: measure with a script that writes it."


def source(result):
    """The commits of a record, in a cell."""
    commits = {result["commit"]} if result.get("commit") else {row.get("commit") or "" for row in rows_of(result)
                                                               if isinstance(row, dict)}
    known = sorted(commit[:9] for commit in commits if commit)
    if len(known) < len(commits) or not commits:
        known.append("some rows not recorded" if known else "not recorded")
    return ", ".join(known) + (", with changes" if result.get("dirty") else "")


def table(machine):
    """A row per record of a machine."""
    lines = ["| record | commit | measured | compiler | processes |", "|---|---|---|---|---:|"]
    for name, result in machine.results.items():
        compiler = result.get("cuda_compiler") if machine.is_gpu() else result.get("compiler")
        lines.append(f"| [`{name}`]({name}.json) | {source(result)} | {day(result) or 'not recorded'} "
                     f"| {compiler or ''} | {result.get('processes', '')} |")
    return lines
