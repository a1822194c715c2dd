#!/usr/bin/env python3
"""Every relative link of our documents leads somewhere, and every file of ours that they name exists.

    links_test.py SOURCE      exit code 1 and a line for each that does not

Not looked at: docs/lab, which tells history; other projects' files in CONTRIBUTING.md, "Models to follow"; the kernel
`scale` that docs/contribute/adding-a-cpu-kernel.md and adding-a-gpu-kernel.md make, and NAMEs in capitals.
"""

import re
import sys
from pathlib import Path

FOLDERS = (
    "bench", "cli", "cmake", "docs", "include", "models", "python", "report", "scripts", "shapes", "src", "tests")
EXAMPLES = re.compile(r"/scale[./_]|[A-Z]{2}")


def documents(source):
    found = list(source.glob("*.md"))
    for folder in FOLDERS:
        found += (source / folder).rglob("*.md")
    return sorted(path for path in found if "corpus" not in path.parts)


def spread(name):
    """The names that a{b,c}d stands for."""
    found = re.search(r"\{([^{}]*)\}", name)
    if not found:
        return [name]
    return [one for word in found[1].split(",") for one in spread(name[: found.start()] + word + name[found.end() :])]


def missing(source, path):
    text = re.sub(r"```.*?```|^## Models to follow.*", "", path.read_text(), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        target = link.split("#")[0]
        if target and "://" not in link and not (path.parent / target).exists():
            yield f"links to {link}"
    if "lab" in path.parts:
        return
    for name in re.findall(rf"`((?:{'|'.join(FOLDERS)})/[\w./*{{}},-]+)`", text):
        for one in spread(name.rstrip("/.")):
            if not EXAMPLES.search(one) and not list(source.glob(one)):
                yield f"names {name}"


def unlisted(source):
    """The pages that docs/index.md does not name: it is the way to all of them, except the parts of a folder that
    has an index of its own."""
    listed = set(re.findall(r"\]\(([^)#\s]+)", (source / "docs/index.md").read_text()))
    return [page for page in sorted((source / "docs").glob("*/*.md")) if page.parent.name != "lab"
            and str(page.relative_to(source / "docs")) not in listed]


def main():
    source = Path(sys.argv[1]).resolve()
    pages = documents(source)
    found = [(page.relative_to(source), what) for page in pages for what in missing(source, page)]
    wrong = [f"{page} {what}, which does not exist" for page, what in found]
    wrong += [f"{page.relative_to(source)} is not linked from docs/index.md" for page in unlisted(source)]
    print(*wrong, f"{len(pages)} documents, {len(wrong)} faults", sep="\n")
    sys.exit(bool(wrong) or len(pages) < 10)


if __name__ == "__main__":
    main()
