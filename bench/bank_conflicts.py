#!/usr/bin/env python3
"""Bank conflicts of shared memory: what `convoy explain --smem` predicts beside what ncu counts.

    bench/bank_conflicts.py --convoy build/cuda/bin/convoy --out bench/results/h200/bank-conflicts.json
    bench/bank_conflicts.py --convoy build/release/bin/convoy --counts bench/results/h200/bank-conflicts.json

The first counts one launch of each kernel, on a GPU with ncu. The second, on any machine, holds the predictions
against counts that were stored. A prediction is that of one tile times the tiles of the launch. Loads are ldmatrix and
LDS, stores stmatrix and STS, copies cp.async; what TMA and wgmma move these counters do not see.

The pipe's counter of conflicts also counts what accesses of several warps wait for each other (arbitration), which
changes from run to run. The counters of the instructions themselves (sass) leave that out. So: ldmatrix and cp.async
instructions, wavefronts of loads and stores, and conflicts where there is a counter of them (LDS and STS have none),
are as predicted, exactly, but for loads that a predicate may turn off, which are bounded; the pipe's conflicts are at
least the predicted ones, and so are those of cp.async, whose bytes reach shared memory as sectors come from the L2.
Exit code 1 where one of these fails.
"""

import argparse
import csv
import io
import json
import subprocess
import sys
from pathlib import Path

import records

STAGE = "f16:n32h56w56c64k128r3pad1+bias+relu+max2"
CASES = [  # stage, kernel, tile
    (STAGE, "window", "128x128"),
    (STAGE, "window", "64x64"),
    (STAGE, "halo", "8x28x1.channels"),
    (STAGE, "halo", "16x16x1.channels"),  # a row of eight windows: two pixels of a store in one bank
    ("f16:n32h56w56c64k128r3pad1+bias+relu", "halo", "8x28x1.channels"),
    ("n32h14c256k512r3pad1", "fma", "128x64"),
    ("f16:n32h56c200k6r3pad1", "few", "16x16"),
]
PIPE = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared"
SASS = "smsp__sass_l1tex_data_bank_conflicts_pipe_lsu_mem_shared_op"
WAVES = "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op"  # there is none of LDS's and STS's conflicts
METRICS = {
    "load_conflicts": f"{PIPE}_op_ld.sum",
    "store_conflicts": f"{PIPE}_op_st.sum",
    "all_conflicts": f"{PIPE}.sum",
    "load_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "store_wavefronts": "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "ldmatrix": "smsp__inst_executed_op_ldsm.sum",  # those that a predicate turned off, too
    "ldmatrix_on": "smsp__inst_executed_op_ldsm_pred_on_any.sum",
    "ldgsts": "smsp__inst_executed_op_ldgsts.sum",
    "sass_load_conflicts": f"{SASS}_ldsm.sum",
    "sass_store_conflicts": f"{SASS}_stsm.sum",
    "sass_copy_conflicts": f"{SASS}_ldgsts.sum",
} | {f"sass_{own}_wavefronts": f"{WAVES}_{own}.sum" for own in ("ldsm", "stsm", "ld", "st")}
OWN = {"ldsm": "ldmatrix", "stsm": "stmatrix", "ld": "LDS", "st": "STS"}  # ncu's names of instructions, and ours


def predicted(convoy, device, stage, kernel, tile):
    command = [convoy, "explain", stage, "--device", device, "--kernel", kernel, "--tile", tile, "--smem", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    shared = json.loads(done.stdout)["shared_memory"]
    row = {f"{what}_{figure}": 0 for what in ("load", "store", "copy")
           for figure in ("instructions", "wavefronts", "conflicts", "plain_conflicts")}
    row.update(ldmatrix_instructions=0,
               **{f"{own}_{figure}": 0 for own in OWN for figure in ("conflicts", "wavefronts", "perhaps")})
    for access in shared["accesses"]:
        if not access["counted"]:
            continue
        name = access["instruction"]
        copies = name.startswith("cp.async")
        what = "copy" if copies else "store" if access["store"] else "load"
        for figure in ("instructions", "wavefronts", "conflicts", "plain_conflicts"):
            row[f"{what}_{figure}"] += round(access[figure] * shared["tiles"])
        if name.startswith("ldmatrix"):
            row["ldmatrix_instructions"] += round(access["instructions"] * shared["tiles"])
        for own in (own for own, ours in OWN.items() if name.startswith(ours)):
            for figure in ("conflicts", "wavefronts"):
                row[f"{own}_{figure}"] += round(access[figure] * shared["tiles"])
            row[f"{own}_perhaps"] += round(access["at_most"] * access["wavefronts"] * shared["tiles"])
    return row


def counted(ncu, convoy, stage, kernel, tile):
    run = [ncu, "--csv", "--page", "raw", "--print-units", "base", "--metrics", ",".join(METRICS.values()),
           "--kernel-name", f"regex:^{kernel}$", "--launch-skip", "1", "--launch-count", "1", convoy, "explain", stage,
           "--device", "cuda", "--kernel", kernel, "--tile", tile, "--seconds", "0.001"]
    done = subprocess.run(run, capture_output=True, text=True)
    lines = done.stdout.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        sys.exit(f"{' '.join(run)}: no figures, exit code {done.returncode}\n{(done.stdout + done.stderr)[-2000:]}")
    row = list(csv.DictReader(io.StringIO("\n".join(lines[begin:]))))[1]  # the first is the units'
    return {key: int(float(row[metric].replace(",", ""))) if row.get(metric) else None
            for key, metric in METRICS.items()}


def conflicts(model, seen, owns):
    """Counted by the instructions: their wavefronts beyond the least, where none may be turned off."""
    return sum(seen[f"sass_{own}_wavefronts"] - model[f"{own}_wavefronts"] + model[f"{own}_conflicts"]
               for own in owns if not model[f"{own}_perhaps"])


def differences(model, seen):
    """What of the counts contradicts the prediction. A count of None was not taken."""
    equal = {"ldmatrix_on": model["ldmatrix_instructions"], "ldgsts": model["copy_instructions"],
             "sass_load_conflicts": model["ldsm_conflicts"], "sass_store_conflicts": model["stsm_conflicts"]}
    found = [f"{key}: {value} predicted, {seen[key]} counted" for key, value in equal.items()
             if seen.get(key) not in (None, value)]
    at_least = {f"{what}_conflicts": model[f"{what}_conflicts"] for what in ("load", "store")}
    at_least["sass_copy_conflicts"] = model["copy_conflicts"]
    found += [f"{key}: {value} predicted, fewer counted: {seen[key]}" for key, value in at_least.items()
              if seen.get(key) is not None and seen[key] < value]
    for own in OWN:
        most, there = model[f"{own}_wavefronts"], seen.get(f"sass_{own}_wavefronts")
        if there is not None and not most - model[f"{own}_perhaps"] <= there <= most:
            found.append(f"sass_{own}_wavefronts: {most} predicted, {model[f'{own}_perhaps']} of them perhaps; "
                         f"{there} counted")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default="build/cuda/bin/convoy")
    parser.add_argument("--ncu", default="ncu")
    parser.add_argument("--counts", help="a result of this script: take its counts instead of ncu's")
    parser.add_argument("--out")
    args = parser.parse_args()
    if args.counts:
        stored = json.loads(Path(args.counts).read_text())
        gpu, device = stored["gpu"], "h200"
        # The predictions are this program's; who counted stands beside them.
        counted_by = stored.get("counted_by", records.of_result(stored))
        record = dict(records.of_program(args.convoy), counted_by=counted_by) if args.out else {}
        cases = [(row["stage"], row["kernel"], row["tile"], row["counted"]) for row in stored["rows"]]
    else:
        here = json.loads(subprocess.run([args.convoy, "devices", "--json", "--no-measure"], capture_output=True,
                                         check=True).stdout)["gpus"]["devices"]
        if not here:
            sys.exit("no GPU here: convoy devices says why")
        gpu, device = here[0]["name"], "cuda"
        record = records.of_program(args.convoy, device)
        cases = [(*case, counted(args.ncu, args.convoy, *case)) for case in CASES]
    if "H200" not in gpu and device == "h200":
        sys.exit(f"{args.counts}: counted on {gpu}, expected an H200")
    rows, wrong = [], 0
    for stage, kernel, tile, seen in cases:
        model = predicted(args.convoy, device, stage, kernel, tile)
        against = differences(model, seen)
        wrong += bool(against)
        rows.append(dict(stage=stage, kernel=kernel, tile=tile, predicted=model, counted=seen, against=against))
        loads, stores = (conflicts(model, seen, owns) for owns in (("ldsm", "ld"), ("stsm", "st")))
        print(f"{kernel} {tile} {stage}: conflicts of loads {model['load_conflicts']} predicted, {loads} counted; "
              f"of stores {model['store_conflicts']}, {stores}" + "".join(f"\n  {one}" for one in against))
    if args.out:
        out = Path(args.out)
        partial = out.with_suffix(".tmp")
        partial.write_text(json.dumps(dict(record, gpu=gpu, metrics=METRICS, rows=rows), indent=1) + "\n")
        partial.replace(out)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
