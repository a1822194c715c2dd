"""Which records of bench/results name the commit that was measured. `bench/tables.py --check` refuses the others."""

import json

from stored import RESULTS
from tables_text import day

# These records do not name a commit. Each will be measured again or will leave the tree, and its name leaves this list.
# A new record never joins the list.
TO_MEASURE = {
    "h200": {"cutlass-pooled", "snn-training"},
    "intel-r-xeon-r-processor-6-167-1-avx512": {"python-call"},
    "intel-r-xeon-r-processor-6-207-2-avx512": {"fuse-csnn-2t", "fuse-relu_cnn-2t", "fuse-vgg16-2t"},
    "intel-r-xeon-r-processor-avx2": {f"targets-cpu-{mode}-{count}t" for mode in ("default", "strict")
                                      for count in (1, 2)},
    "intel-r-xeon-r-processor-avx512": {"snn"} | {
        f"{name}-{mode}-{count}t" for name in ("mobilenetv2", "resnet50", "targets-cpu", "unet", "vgg16", "yolov8n")
        for mode in ("default", "strict") for count in (1, 2)},
}


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
    """Sentences on records without a commit, and on names in TO_MEASURE that are there in vain."""
    found = {(folder, name): has_commit(result) for folder, name, result in stored()}
    excused = {(folder, name) for folder, names in TO_MEASURE.items() for name in names}
    if without := [f"bench/results/{folder}/{name}.json" for (folder, name), has in found.items()
                   if not has and (folder, name) not in excused]:
        yield f"no commit in {', '.join(without)}: measure with a script that writes it."
    if done := sorted(f"{folder}/{name}" for folder, name in excused if found.get((folder, name), True)):
        yield f"TO_MEASURE in bench/tables_records.py names {', '.join(done)}: measured or gone, take them out."


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
