"""Which files of bench/results do not say by what commit they were measured, and which were not of a committed tree."""

import json

from stored import RESULTS

EVERY = None
# Written before records had a commit, or by scripts whose records had none. A new file does not join them.
WITHOUT_COMMIT = {
    "amd-epyc-25-17-1-avx512": {"distributed", "fuse-csnn-2t", "fuse-relu_cnn-2t", "fuse-vgg16-2t", "python-call"},
    "amd-epyc-avx512": EVERY,
    "h200": {"bank-conflicts", "cutlass-pooled", "depthwise-tiles", "fuse-vgg16-f16", "k-sweep", "launch-split",
             "mobilenetv2", "resnet50", "resources", "same-pixels", "slow-paths", "snn-labels", "snn-training",
             "targets-bf16", "tiles", "tiles-unseen", "trace-split", "two-stages", "unet", "vgg16", "yolov8n"},
    "intel-r-xeon-r-processor-6-167-1-avx512": {"python-call"},
    "intel-r-xeon-r-processor-6-207-2-avx512": {"fuse-csnn-2t", "fuse-relu_cnn-2t", "fuse-vgg16-2t"},
    "intel-r-xeon-r-processor-avx2": EVERY,
    "intel-r-xeon-r-processor-avx512": EVERY,
    "sm_80": {"resources"},
}


def measured(result):
    """The record of what was measured: of two builds beside each other (bench/compare.py) the new one's."""
    return result.get("builds", {}).get("new", result)


def has_commit(result):
    rows = result.get("rows")  # those measured again have their own
    return bool(measured(result).get("commit")) or (
        isinstance(rows, list) and bool(rows) and all(isinstance(row, dict) and row.get("commit") for row in rows))


def by_folder(chosen):
    """{folder: (names of the files that are chosen, how many files it has)}, where there are any."""
    found = {}
    for path in sorted(RESULTS.glob("*/**/*.json")):
        names, count = found.get(path.parent, ([], 0))
        if chosen(json.loads(path.read_text())):
            names = [*names, path.stem]
        found[path.parent] = (names, count + 1)
    return {str(folder.relative_to(RESULTS)): of for folder, of in found.items() if of[0]}


def listed(folders):
    for folder, (names, count) in folders.items():
        what = ", ".join(f"`{name}`" for name in names)
        if len(names) == count > 1:
            what = f"all {count}"
        elif "/" in folder:  # of one measurement
            what = f"{len(names)} of {count}"
        yield f"- `{folder}`: {what}"


def without_commit():
    return by_folder(lambda result: not has_commit(result))


def unexpected():
    """Files without a commit that are not among those that may be."""
    return [f"bench/results/{folder}/{name}.json" for folder, (names, _) in without_commit().items()
            for name in names if WITHOUT_COMMIT.get(folder, set()) is not EVERY
            and name not in WITHOUT_COMMIT.get(folder, set())]


def table(_):
    return [*listed(without_commit()), "",
            "With a commit, but measured with changes that were not in it (`dirty`):", "",
            *listed(by_folder(lambda result: measured(result).get("dirty")))]
