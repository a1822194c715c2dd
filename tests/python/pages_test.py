"""The Python of README.md and of the pages under docs/start and docs/use runs, and prints the output beside it."""

import ast
import doctest
import importlib.util
import re
import subprocess
import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

import convoy  # noqa: F401  (what the pages are about is here)

SOURCE = Path(__file__).resolve().parents[2]
# A block of Python, and the block of text right after it, if there is one; words such as "prints" may be between.
BLOCK = re.compile(r"^```python\n(.*?)^```\n(?:\s*(?:[^\n#`|][^\n`]*\n){0,2}\s*^```text\n(.*?)^```\n)?", re.S | re.M)
# A file that a page asks the reader to write: its name and, indented, its text.
FILE = re.compile(r"Put it into `([^`\n]+)`:\n\n((?:    [^\n]*\n|\n)+)")


def pages():
    return [SOURCE / "README.md", *sorted(page for folder in ("start", "use") for page in
                                          (SOURCE / "docs" / folder).rglob("*.md"))]  # fmt: skip


def blocks(page):
    """(line, code, output or None) of each."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        yield text.count("\n", 0, found.start()) + 2, found[1], found[2]


def run(page, code):
    """In a folder of its own, with the files that the page tells the reader to write."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILE.findall(page.read_text()):
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text))
        return subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=folder)


def missing(code):
    """The modules that a block imports and this environment does not have."""
    names = set()
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module.partition(".")[0])
    if "convoy.torch" in code:
        names.add("torch")
    return sorted(name for name in names if importlib.util.find_spec(name) is None)


def comparable(text):
    """Without what differs between machines: names of kernels, and differences that are rounding."""
    text = re.sub(r"\b(n\d+h\d+\S+)  +\w+(?:, in a network)?$", r"\1 KERNEL", text, flags=re.M)
    text = re.sub(r"( on cpu): [^>\n]*>", r"\1: KERNEL>", text)
    return re.sub(r"\b\d(\.\d+)?e-\d+( of \S+)?", "SMALL", text)


class Pages(unittest.TestCase):
    def test_blocks(self):
        ran = compared = 0
        for page in pages():
            for line, code, output in blocks(page):
                with self.subTest(f"{page.relative_to(SOURCE)}:{line}"):
                    if missing(code):
                        continue
                    done = run(page, code)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    ran += 1
                    if output is not None:
                        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
                        right = doctest.OutputChecker().check_output(comparable(output), comparable(done.stdout), flags)
                        self.assertTrue(right, f"the page has\n{output}\nand its code prints\n{done.stdout}")
                        compared += 1
        print(f"pages: {ran} blocks ran, {compared} outputs are as printed", file=sys.stderr)
        self.assertGreaterEqual(ran, 4)
        self.assertGreaterEqual(compared, 3)


if __name__ == "__main__":
    unittest.main()
