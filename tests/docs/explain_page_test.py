#!/usr/bin/env python3
"""docs/learn/explain.md shows exactly the text that `convoy explain` prints: every kernel, refusal and number.
docs/use/make-it-fast.md shows lines of it.

    explain_page_test.py SOURCE CHOICES PROGRAM            exit code 1 and the first line that differs in each part
    explain_page_test.py SOURCE CHOICES PROGRAM --write    puts the text of today into the page

Outputs of `--no-measure` are compared with CHOICES --explain on a stored machine, so that every computer sees the same
numbers. All parts must be on the page, except that one example may leave out "Sizes". An output that was measured is
compared with PROGRAM's, without the times that differ in each run.
"""

import re
import subprocess
import sys
from pathlib import Path

PAGE = "docs/learn/explain.md"
EXCERPT_PAGE = "docs/use/make-it-fast.md"
MACHINE = "tests/choices/zen5-2.txt"
NAME = "AMD EPYC"
MEASURED = re.compile(r"\d[\d.,]* (?:ns|us|ms|s)\b|\d[\d.]* (?=GFLOP/s|GB/s|times the prediction|%)|\d+ (?=runs)")
COMMAND = re.compile(r"^    convoy explain (\S+)( --no-measure)? --threads 2$", re.M)
BLOCK = re.compile(r"^```text\n(.*?)^```$", re.M | re.S)
EXCERPT = re.compile(r"^convoy explain --no-measure --threads 2 (\S+)$.*?^```text\n(.*?)^```$", re.M | re.S)


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def parts_of(text):
    """The parts of an explanation by their headings, "" for the stage itself."""
    parts, heading = {"": []}, ""
    for line in text.splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]+", line):
            heading = line
            parts[heading] = []
        parts[heading].append(line)
    return {heading: "\n".join(lines).strip("\n") for heading, lines in parts.items() if "".join(lines)}


def comparable(text, measured):
    text = MEASURED.sub("# ", text).replace(": the arithmetic needs fewer", "") if measured else text
    return [re.sub(r" +", " ", line) if measured else line for line in text.splitlines()]


def difference(shown, printed):
    """The first line in which two texts differ."""
    for i in range(max(len(shown), len(printed))):
        pair = [lines[i].strip() if i < len(lines) else "(no line)" for lines in (shown, printed)]
        if shown[i:i + 1] != printed[i:i + 1]:
            return f"the page has\n  {pair[0]}\nexpected\n  {pair[1]}"
    return ""


def compare(where, printed, measured, section):
    """Faults of a section's blocks, the parts that they show, and the section with the text of today."""
    faults, shown = [], set()

    def block(found):
        parts = parts_of(found[1])
        shown.update(parts)
        for heading, text in parts.items():
            lines = [comparable(t, measured) for t in (text, printed.get(heading, ""))]
            if differs := difference(*lines):
                faults.append(f'{where}, part "{heading}": {differs}')
        if measured:
            return found[0]
        return "```text\n" + "\n\n".join(printed.get(heading, "") for heading in parts) + "\n```"

    return faults, shown, BLOCK.sub(block, section)


def excerpt_faults(page, choices, machine):
    """The first line of a page's excerpt that the output does not have in this order; "..." stands for other lines."""
    found = EXCERPT.search(page)
    if not found:
        return [f"{EXCERPT_PAGE}: no excerpt of `convoy explain --no-measure --threads 2 STAGE`, expected one"]
    printed = iter(output_of(choices, "--explain", machine, found[1]).splitlines())
    return [f"{EXCERPT_PAGE}: {found[1]}: the page has\n  {line.strip()}\nexpected a line of the output"
            for line in found[2].splitlines() if line != "..." and line not in printed][:1]


def main():
    source, choices, program = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    machine, page = str(source / MACHINE), (source / PAGE).read_text()
    commands = list(COMMAND.finditer(page))
    ends = [command.start() for command in commands[1:]] + [len(page)]
    rewritten = page[:commands[0].start()] if commands else page
    faults, wholes = excerpt_faults((source / EXCERPT_PAGE).read_text(), choices, machine), 0
    for command, end in zip(commands, ends):
        stage, measured = command[1], not command[2]
        if measured:
            text = output_of(program, "explain", stage, "--threads", "2", "--no-tuning", "--seconds", "0.01")
        else:
            text = output_of(choices, "--explain", machine, stage).replace(f"  {machine}, ", f"  {NAME}, ")
        printed = parts_of(text)
        wrong, shown, section = compare(f"{PAGE}: {stage}", printed, measured, page[command.start():end])
        faults += wrong
        rewritten += section
        missing = set(printed) - shown
        if not measured:
            faults += [f'{PAGE}: {stage}: the page leaves out the part "{part}"' for part in missing - {"Sizes"}]
            wholes += not missing
    if len(commands) < 3 or not wholes:
        faults.append(f"{PAGE}: {len(commands)} commands, expected 3 or more, and one with all parts of its output")
    if "--write" in sys.argv:
        (source / PAGE).write_text(rewritten)
        return
    sys.exit("\n".join(faults) if faults else 0)


if __name__ == "__main__":
    main()
