#!/usr/bin/env python3
"""The site of scripts/docs: every public name is in its index, and pages work in a browser without a network.

    tests/docs/site_test.py SITE [LIBRARY]    SITE: build/docs/html; LIBRARY: libconvoy.so, whose exported symbols must
                                              be in the index (left out: only the names of the Python package)
"""

import ast
import contextlib
import os
import pathlib
import re
import subprocess
import sys
import time
import unittest
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/report"))

from browser import Browser, find_browser  # noqa: E402

LIBRARY = pathlib.Path(sys.argv.pop()) if len(sys.argv) > 2 else None
SITE = pathlib.Path(sys.argv.pop()).resolve() if len(sys.argv) > 1 else ROOT / "build/docs/html"
PAGES = ("docs/index", "docs/start/gpu", "docs/learn/implicit-gemm", "docs/reference/cpp/plan", "docs/trust/speed")
WIDTHS = (360, 1280)
# What is wider than its place and cannot be scrolled, and boxes that scroll and cannot be reached by the keyboard.
CHECK = """(() => {
  const wrong = [];
  if (document.documentElement.scrollWidth > innerWidth)
    wrong.push(`wider than the page: ${document.documentElement.scrollWidth}`);
  const small = [...document.querySelectorAll('article p, article li, article td')].find(
      part => parseFloat(getComputedStyle(part).fontSize) < 12);
  if (small) wrong.push(`small text: ${small.textContent.slice(0, 40)}`);
  for (const link of document.querySelectorAll('article a[href]'))
    if (!link.textContent.trim() && !link.querySelector('img, svg')) wrong.push(`a link without text: ${link.href}`);
  return wrong;
})()"""


def index():
    """(domain:kind, name) of everything that objects.inv lists."""
    data = (SITE / "objects.inv").read_bytes().split(b"\n", 4)
    lines = zlib.decompress(data[4]).decode().splitlines()
    return {(kind, name) for name, kind in (re.match(r"(.+?)\s+(\S+:\S+)\s", line).groups() for line in lines)}


def exported():
    """The names in namespace convoy that a program may link to: classes and functions, without arguments."""
    symbols = subprocess.run(["readelf", "-sW", LIBRARY], capture_output=True, text=True, check=True).stdout
    names = {fields[7] for fields in map(str.split, symbols.splitlines())
             if len(fields) > 7 and fields[4] in ("GLOBAL", "WEAK") and fields[5] == "DEFAULT" and fields[6] != "UND"}
    told = subprocess.run(["c++filt"], input="\n".join(sorted(names)), capture_output=True, text=True, check=True)
    found = set()
    for line in told.stdout.splitlines():
        if re.match(r"(typeinfo|vtable|guard)", line) or not line.startswith("convoy::"):
            continue
        name = re.sub(r"\[abi:\w+\]", "", re.split(r"(?<!operator)\(", line)[0])
        # A class that is exported takes its private parts with it.
        if not re.search(r"[<{]|::(Impl|impl|Free)\b", name):
            found.add(name)
    return found


class Index(unittest.TestCase):
    def test_python_names(self):
        tree = ast.parse((ROOT / "python/convoy/__init__.py").read_text())
        names = next(ast.literal_eval(node.value) for node in tree.body
                     if isinstance(node, ast.Assign) and node.targets[0].id == "__all__")
        listed = {name for kind, name in index() if kind.startswith("py:")}
        self.assertGreater(len(names), 20)
        self.assertEqual([name for name in names if f"convoy.{name}" not in listed], [])

    def test_exported_symbols(self):
        if not LIBRARY:
            self.skipTest("no library was given")
        listed = {name for kind, name in index() if kind.startswith("cpp:")}
        names = exported()
        self.assertGreater(len(names), 60)
        # A constructor or destructor is listed with its class.
        missing = {name for name in names if name not in listed and not re.search(r"(?:^|::)(\w+)::~?\1$", name)}
        self.assertEqual(sorted(missing), [])


@unittest.skipUnless(find_browser(), "no browser")
class InBrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        kept = os.environ.get("CONVOY_SCREENSHOTS")
        cls.screenshots = pathlib.Path(kept) if kept else None
        if cls.screenshots:
            cls.screenshots.mkdir(parents=True, exist_ok=True)

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()

    def quiet(self, page):
        """Nothing on the console, and nothing asked of a network."""
        self.assertEqual(page.complaints(), [])
        self.assertEqual([url for url in page.requests() if not url.startswith(("data:", "file:"))], [])

    def test_pages_at_two_widths(self):
        for name in PAGES:
            for width in WIDTHS:
                for dark in (False, True):
                    with self.subTest(page=name, width=width, dark=dark):
                        page = self.browser.open((SITE / f"{name}.html").as_uri(), width, dark=dark)
                        self.assertEqual(page.evaluate(CHECK), [])
                        back = page.evaluate("getComputedStyle(document.body).backgroundColor")
                        light = sum(map(int, re.findall(r"\d+", back)[:3])) > 3 * 128
                        self.assertEqual(light, not dark, back)
                        self.quiet(page)
                        if self.screenshots:
                            mode = "dark" if dark else "light"
                            page.screenshot(self.screenshots / f"site-{name.replace('/', '-')}-{width}-{mode}.png")
                        page.close()

    def test_start_page_leads_to_the_documentation(self):
        page = self.browser.open((SITE / "index.html").as_uri(), 1280)
        found = ""
        until = time.monotonic() + 20
        while not found.endswith("docs/index.html") and time.monotonic() < until:
            time.sleep(0.1)
            with contextlib.suppress(RuntimeError):  # an evaluation while the page changes ends in an error
                found = page.evaluate("location.pathname")
        self.assertTrue(found.endswith("docs/index.html"), found)
        page.close()

    def found(self, words, expected):
        """The links of the results, once one of the first ten has `expected`, or after ten seconds."""
        page = self.browser.open((SITE / "search.html").as_uri() + "?q=" + words, 1280)
        links = []
        for _ in range(100):
            links = page.evaluate("[...document.querySelectorAll('#search-results ul.search li a')].map(a => a.href)")
            if any(expected in link for link in links[:10]):
                break
            page.evaluate("new Promise(done => setTimeout(done, 100))")
        self.quiet(page)
        page.close()
        return links

    def test_search(self):
        for words, expected in (("Plan", "reference/"), ("workspace", "plan"), ("banks", "learn/banks")):
            with self.subTest(words):
                links = self.found(words, expected)
                self.assertTrue(any(expected in link for link in links[:10]), f"{words}: {links[:10]}")

    def test_keyboard(self):
        """The first stops lead to the contents; whatever scrolls sideways can be reached."""
        page = self.browser.open((SITE / "docs/start/gpu.html").as_uri(), 1280)
        stops = []
        for _ in range(12):
            page.press("Tab")
            stops.append(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.tagName"))
        self.assertIn("Skip to content", stops)
        self.assertGreater(len(set(stops)), 5)
        self.assertNotEqual(page.evaluate("getComputedStyle(document.activeElement).outlineStyle"), "none")
        out_of_reach = page.evaluate("[...document.querySelectorAll('article pre, article .table-wrapper')].filter("
                                     "e => e.scrollWidth > e.clientWidth && e.tabIndex < 0).length")
        self.assertEqual(out_of_reach, 0)
        page.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
