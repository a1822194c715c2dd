#!/usr/bin/env python3
"""Every relative link of our documents leads to a file, and to a heading of it; every file that they name exists.

    links_test.py SOURCE      exit code 1 and a line for each that does not

Names are not looked at in docs/lab/records-removed.md, which tells history, in "Models to follow" of CONTRIBUTING.md,
which has files of other projects, for the kernel `scale` that docs/contribute/adding-a-cpu-kernel.md and
adding-a-gpu-kernel.md make, and for NAMEs in capitals.
"""

import functools
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


@functools.cache
def anchors(path):
    """The anchors of a page's headings: their words in small letters with hyphens between them."""
    found = []
    for heading in re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", path.read_text(), flags=re.S), re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
        found.append(re.sub(r"[^\w\- ]", "", words).replace(" ", "-"))
    return {f"{anchor}-{found[:i].count(anchor)}" if anchor in found[:i] else anchor for i, anchor in enumerate(found)}


def missing(source, path):
    text = re.sub(r"```.*?```|^## Models to follow.*", "", path.read_text(), flags=re.S | re.M)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        to = (path.parent / target).resolve() if target else path.resolve()
        if not to.exists() or (anchor and to.suffix == ".md" and anchor not in anchors(to)):
            yield f"links to {link}"
    if path.name == "records-removed.md":
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
