#!/usr/bin/env python3
"""Counts the words that docs/contribute/style.md asks writers to avoid, and wants no more of them than LIMITS allow.

    style_test.py SOURCE           exit code 1 if a group of texts has more such words than its limit, or fewer: then
                                   lower the limit, so that the number only falls
    style_test.py SOURCE FILE...   prints every place in these files: path, line, habit, text
"""

import ast
import re
import subprocess
import sys
from pathlib import Path

# Each habit of style.md that a pattern can find. Patterns err on both sides. A sentence that is right and still counted
# is usually easy to say in another way.
HABITS = {
    "but for": r"\bbut for\b",
    "Of ... at the start": r"(?:^|[.:;(] )Of \w+|(?:^|[.:;(] )of "
                           r"(?:a|an|the|each|every|all|ours|these|those|it|them|this|two|its)\b",
    "a X a Y": r"\b(?:a|an|one) [\w`*-]+ (?:a|an) [\w`*-]+",
    "where for if": r"(?<!to )(?<!from )(?<!say )(?<!says )(?<!said )(?<!and )(?<!or )(?<!of )(?<!is )(?<!know )"
                    r"(?<!knows )(?<!shows )(?<!show )(?<!see )(?<!tell )(?<!tells )(?<!place )(?<!places )"
                    r"\b[Ww]here\b(?! (?:it|they|we) (?:lies|lie|live|lives|goes|go|come|comes))",
    "what as a noun": r"\b[Ww]hat\b(?![^.]*\?)",
    "lies": r"\b(?:lie|lies|lay|lain)\b",
    "behind": r"\bbehind\b",
    "nobody": r"\b(?:[Nn]obody|[Ss]omebody)\b",
    "so many": r"\bso (?:many|much)\b",
    "anew": r"\banew\b",
    "likewise": r"\b[Ll]ikewise\b|\b[Ss]o too\b|\bso do(?:es)?\b|\bas that\b",
    "least": r"(?<!at )\bleast\b",
    "by name only": r"\bby name (?:only|alone)\b",
    "such a one": r"\bsuch a one\b|\bsuch, |\b(?:ours|theirs)\b",
}
HABIT = {name: re.compile(pattern, re.M) for name, pattern in HABITS.items()}
# What each group of texts may still have. They had 1,429 in all at 18f3f99.
LIMITS = {"pages": 0, "lab": 0, "headers": 0, "python": 2, "program": 3}
LONGEST = 120  # characters of a line, except in tables and code


def prose_of_markdown(text):
    """(line number, text) of what is not code: a sentence that runs over lines is looked at line by line."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, re.sub(r"`[^`]*`", "`code`", line)


def prose_of_header(text):
    for number, line in enumerate(text.splitlines(), 1):
        found = re.search(r"//[/!<]* ?(.*)", line)
        if found:
            yield number, found[1]


def prose_of_python(text):
    """Docstrings and other strings with a space: help and error messages."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            for offset, line in enumerate(node.value.splitlines()):
                yield node.lineno + offset, line


def prose_of_program(text):
    """String literals with a space: help and error messages."""
    for number, line in enumerate(text.splitlines(), 1):
        code = re.sub(r"^\s*//.*", "", line)
        yield number, " ".join(word for word in re.findall(r'"((?:[^"\\]|\\.)*)"', code) if " " in word)


def group_of(path):
    """The group that a file's text belongs to, and how its prose is read; None for files that no user reads."""
    if path.startswith("docs/lab/"):
        return ("lab", prose_of_markdown) if path.endswith(".md") else None
    if path == "docs/contribute/style.md":  # it quotes what to avoid
        return None
    if path.endswith(".md"):
        return "pages", prose_of_markdown
    if path.startswith("include/") and path.endswith(".hpp"):
        return "headers", prose_of_header
    if path.startswith(("python/convoy/", "python/training/")) and path.endswith(".py"):
        return "python", prose_of_python
    if path.startswith(("cli/", "src/", "report/")) and path.endswith((".cpp", ".hpp")):
        return "program", prose_of_program
    return None


def places(source, path):
    group, prose = group_of(path)
    for number, line in prose((source / path).read_text()):
        for habit, pattern in HABIT.items():
            for _ in pattern.finditer(line):
                yield group, number, habit, line.strip()


def long_lines(source, path):
    fenced = False
    for number, line in enumerate((source / path).read_text().splitlines(), 1):
        fenced ^= line.lstrip().startswith("```")
        if len(line) > LONGEST and not line.lstrip().startswith("|") and not fenced:
            yield f"{path}:{number}: {len(line)} characters, expected at most {LONGEST}"


def main():
    source = Path(sys.argv[1]).resolve()
    listed = subprocess.run(["git", "-C", source, "ls-files", "-co", "--exclude-standard"], capture_output=True,
                            text=True)
    every = [path for path in listed.stdout.splitlines() if group_of(path) and (source / path).exists()]
    wanted = sys.argv[2:]
    found = dict.fromkeys(LIMITS, 0)
    for path in every:
        if wanted and not any(path == one or path.startswith(one.rstrip("/") + "/") for one in wanted):
            continue
        for group, number, habit, line in places(source, path):
            found[group] += 1
            if wanted:
                print(f"{path}:{number}: {habit}: {line}")
    faults = [fault for path in every if path.endswith(".md") and path.startswith(("docs/", "README")) and
              (not wanted or any(path == one or path.startswith(one.rstrip("/") + "/") for one in wanted))
              for fault in long_lines(source, path)]
    if not wanted:
        faults += [f"{group}: {number} places, expected {LIMITS[group]}. More: style_test.py SOURCE FILE shows them. "
                   "Fewer: lower the limit in this file" for group, number in found.items() if number != LIMITS[group]]
    print(*faults, found, sep="\n")
    sys.exit(bool(faults) or not every)


if __name__ == "__main__":
    main()
