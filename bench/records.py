"""What a result says of where and by what it was measured: the record that `convoy bench` writes (bench/record.cpp)."""

import json
import platform
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KEYS = ("convoy", "commit", "dirty", "compiler", "cuda_compiler", "flags", "date", "machine", "cpu_model", "isa",
        "threads", "cpu", "driver", "driver_release", "host", "python")


def of_result(result):
    """The record in what `convoy bench` or one of these scripts wrote, without what was measured."""
    return {key: result[key] for key in KEYS if key in result}


def of_program(convoy, device="cpu"):
    """The record of a program and of the device, from a bench of a stage that takes no time."""
    command = [str(convoy), "bench", "--device", device, "--stage", "n1h4c4k4r1", "--no-tuning", "--rounds", "1",
               "--seconds", "0.001", "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return of_result(json.loads(done.stdout))


def of_source():
    """The record where no program of ours takes part: the source tree's commit, this Python and the CPU. It has no
    compiler, and no instruction set: which one it takes only the program knows."""
    commit, dirty = commit_of_source()
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"commit": commit, "dirty": dirty, "date": now, **cpu(), "python": platform.python_version()}


def git(*words):
    """What git says of the source tree; nothing where there is no git."""
    try:
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""


def commit_of_source():
    """As cmake/write_commit.cmake: a copy inside somebody else's repository has no commit of its own. Results, those
    written just before among them, change nothing that is measured: they make no tree dirty."""
    top = git("rev-parse", "--show-toplevel")
    if not top or Path(top).resolve() != ROOT:
        return "", False
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return git("rev-parse", "--short=12", "HEAD"), bool(changes)


def cpu():
    """Name and model of the CPU, as src/core/machine.cpp tells them."""
    path, facts = Path("/proc/cpuinfo"), {}
    for line in path.read_text().splitlines() if path.exists() else ():
        name, _, value = line.partition(":")
        facts.setdefault(name.strip(), value.strip())  # of the first core
    numbers = (("cpu family", "model", "stepping") if "cpu family" in facts else
               ("CPU implementer", "CPU part", "CPU variant", "CPU revision"))
    model = "-".join(facts[name] for name in numbers if facts.get(name))
    return {"machine": facts.get("model name") or f"{platform.machine()} CPU", "cpu_model": model or "unknown"}
