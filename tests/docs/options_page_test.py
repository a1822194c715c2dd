#!/usr/bin/env python3
"""docs/reference/options.md has the environment variables, CMake options and presets that the sources have.

    options_page_test.py SOURCE      exit code 1, and a line for each name that is on one side only, for each table row
                                     with more or fewer cells than its header, and for each name with two rows
"""

import json
import re
import subprocess
import sys
from pathlib import Path

PAGE = "docs/reference/options.md"
NAME = r"([A-Z][A-Z0-9_]+)"
# How sources read the environment, by the ending of a file's name; shell scripts have none.
READS = {
    (".cpp", ".hpp", ".cu"): (rf'getenv\("{NAME}"\)', r'"((?:CONVOY|XDG)_[A-Z_]+)"',
                              r'\b(?:folder|environment)\("(HOME)"\)'),
    (".py",): (rf'\benviron(?:\.\w+)?[\[(]"{NAME}"', rf'"{NAME}" (?:not )?in os\.environ', rf'\bgetenv\("{NAME}"'),
    (".cmake", ".txt"): (rf"\$ENV\{{{NAME}\}}",),
    ("",): (rf"\$\{{{NAME}:?[-=?+]", rf'\benviron(?:\.\w+)?[\[(]"{NAME}"'),
}
# Every system has these.
COMMON = {"PATH"}
OPTIONS = (rf"^\s*option\({NAME}\b", rf"^\s*set\({NAME}\b[^)]*\bCACHE\b")


def tracked(source):
    command = ["git", "-C", source, "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True)
    paths = [Path(line) for line in listed.stdout.splitlines()]
    if not paths:  # no clone
        paths = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    outside = ("docs", "build", "models", "shapes")
    return [path for path in paths if path.parts[0] not in outside and (source / path).is_file()]


def text_of(path):
    return path.read_text(errors="replace")


def matches(patterns, text):
    return {name for pattern in patterns for name in re.findall(pattern, text, re.M)}


def of_sources(source):
    """Where each variable, option and preset is: {kind: {name: path}}."""
    found = {"environment variable": {}, "CMake option": {}, "preset": {}}
    for path in tracked(source):
        if path == Path("tests/docs") / Path(__file__).name or path.suffix in (".json", ".md"):
            continue
        for endings, patterns in READS.items():
            script = path.suffix == "" and text_of(source / path)[:2] == "#!"
            if path.suffix in endings and (path.suffix or script):
                for name in matches(patterns, text_of(source / path)) - COMMON:
                    found["environment variable"].setdefault(name, path)
        if path.suffix == ".cmake" or path.name == "CMakeLists.txt":
            for name in matches(OPTIONS, text_of(source / path)):
                found["CMake option"].setdefault(name, path)
    presets = json.loads(text_of(source / "CMakePresets.json"))["configurePresets"]
    found["preset"] = {one["name"]: Path("CMakePresets.json") for one in presets if not one.get("hidden")}
    return found


def of_page(page):
    """The names in the first column of the page's tables, with the heading that each is under."""
    names, heading = {}, ""
    for line in text_of(page).splitlines():
        if line.startswith("## "):
            heading = line[3:]
        if line.startswith("| `"):
            names |= {(heading, name): line for name in re.findall(r"`([\w-]+)`", line.split("|")[1])}
    return names


def broken_rows(page):
    """A line for each row that has not the cells of its table's header, or whose name has a row already."""
    faults, header, seen = [], None, set()
    for number, line in enumerate(text_of(page).splitlines(), 1):
        if not line.startswith("|"):
            header = None
            if line.startswith("## "):
                seen = set()
            continue
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        header = header or cells
        if len(cells) != len(header) or not all(cells):
            faults.append(f"{PAGE}:{number}: {len(cells)} cells, expected {len(header)} with text: "
                          f"{', '.join(header)}. Split or complete the row")
        names = set(re.findall(r"`([\w-]+)`", cells[0]))
        faults += [f"{PAGE}:{number}: {name} has a row above under the same heading. Keep one"
                   for name in sorted(names & seen)]
        seen |= names
    return faults


def main():
    source = Path(sys.argv[1]).resolve()
    rows = of_page(source / PAGE)
    under = {"environment variable": "Variables", "CMake option": "CMake options", "preset": "Presets"}
    faults = broken_rows(source / PAGE)
    sources = of_sources(source)
    for kind, names in sources.items():
        shown = {name for heading, name in rows if heading.startswith(under[kind])}
        faults += [f"{PAGE}: the {kind} {name} of {path} is missing. Add a row under '{under[kind]}'"
                   for name, path in sorted(names.items()) if name not in shown]
        # A variable may also be read by words that no pattern sees: then its name is somewhere in the sources.
        absent = shown - names.keys()
        if kind == "environment variable" and absent:
            texts = "\n".join(text_of(source / path) for path in tracked(source)
                              if path.name != Path(__file__).name and path.suffix not in (".md", ".json"))
            absent = {name for name in absent if not re.search(rf"\b{name}\b", texts)}
        faults += [f"{PAGE}: no source has the {kind} {name}. Remove its row" for name in sorted(absent)]
    counted = ", ".join(f"{len(names)} {kind}s" for kind, names in sources.items())
    print(*faults, f"{counted}, {len(faults)} faults", sep="\n")
    sys.exit(bool(faults) or not all(sources.values()))


if __name__ == "__main__":
    main()
