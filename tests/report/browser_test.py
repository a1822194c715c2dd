#!/usr/bin/env python3
"""The page of `convoy report`, in a headless browser: on a phone and a desk, light and dark, by keyboard.

    CONVOY_PROGRAM=build/release/bin/convoy tests/report/browser_test.py [unittest options]

$CONVOY_SCREENSHOTS names a folder that shall keep the screenshots.
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

from browser import Browser, find_browser

PROGRAM = os.path.abspath(os.environ.get("CONVOY_PROGRAM", "build/release/bin/convoy"))
RESULTS = pathlib.Path(__file__).resolve().parents[2] / "bench/results"
WIDTHS = (360, 1280)

# Opens everything, and names labels of drawings that lie over each other, beyond the page or are too small to read.
CHECK = """(() => {
  for (const part of document.querySelectorAll('details')) part.open = true;
  const boxes = [...document.querySelectorAll('svg text')].map(text => {
    const box = text.getBoundingClientRect();
    return {text: text.textContent, left: box.left + scrollX, right: box.right + scrollX, top: box.top + scrollY,
            bottom: box.bottom + scrollY};
  }).filter(box => box.right > box.left).sort((a, b) => a.top - b.top);
  const wrong = [];
  for (let i = 0; i < boxes.length; ++i) {
    const a = boxes[i];
    if (a.left < 0 || a.right > innerWidth) wrong.push(`beyond the page: ${a.text} ${a.left}..${a.right}`);
    if (a.bottom - a.top < 9) wrong.push(`too small: ${a.text}`);
    for (let j = i + 1; j < boxes.length && boxes[j].top < a.bottom - 1; ++j) {
      const b = boxes[j];
      if (b.left < a.right - 1 && b.right > a.left + 1 && b.bottom > a.top + 1)
        wrong.push(`overlap: "${a.text}" and "${b.text}" at ${Math.round(a.left)},${Math.round(a.top)}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth)
    wrong.push(`wider than the page: ${document.documentElement.scrollWidth}`);
  return {labels: boxes.length, wrong};
})()"""


def report(*words):
    return subprocess.run([PROGRAM, "report", *map(str, words)], capture_output=True, text=True, timeout=120)


class InBrowser(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="convoy-report-"))
        kept = os.environ.get("CONVOY_SCREENSHOTS")
        cls.screenshots = pathlib.Path(kept) if kept else cls.folder
        cls.screenshots.mkdir(parents=True, exist_ok=True)
        cls.page = cls.folder / "report.html"
        made = report("--results", RESULTS, "-o", cls.page)
        assert made.returncode == 0, made.stderr
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.__exit__()
        shutil.rmtree(cls.folder)

    def test_widths_and_colours(self):
        for width in WIDTHS:
            for dark in (False, True):
                with self.subTest(width=width, dark=dark):
                    page = self.browser.open(self.page.as_uri(), width, dark=dark)
                    name = f"report-{width}-{'dark' if dark else 'light'}.png"
                    page.screenshot(self.screenshots / name, height=9000)
                    self.assertGreater((self.screenshots / name).stat().st_size, 50_000)
                    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
                    self.assertEqual(background, "rgb(13, 17, 23)" if dark else "rgb(255, 255, 255)")
                    found = page.evaluate(CHECK)
                    self.assertGreater(found["labels"], 100)
                    self.assertEqual(found["wrong"][:8], [])
                    self.assertEqual(page.complaints(), [])
                    self.assertEqual([url for url in page.requests()
                                      if not url.startswith(("data:", self.page.as_uri()))], [])
                    page.close()

    def test_first_screens_answer(self):
        """How far from the roofline, who is faster: in the first screens of a phone, without opening anything."""
        page = self.browser.open(self.page.as_uri(), 360)
        for heading in ("How far from the roofline?", "Who is faster, and by how much?", "What does a slot hold?"):
            top = page.evaluate(f"[...document.querySelectorAll('h3')].find(h => h.textContent === {heading!r})"
                                "?.getBoundingClientRect().top ?? -1")
            self.assertGreater(top, 0, heading)
            self.assertLess(top, 4 * 800, heading)
        page.close()

    def test_keyboard(self):
        page = self.browser.open(self.page.as_uri(), 360)
        page.press("Tab")
        self.assertEqual(page.evaluate("document.activeElement.className"), "skip")
        # What scrolls or opens can be reached.
        self.assertEqual(page.evaluate("[...document.querySelectorAll('.wide')].filter(e => e.tabIndex < 0).length"), 0)
        opened = page.evaluate("document.querySelector('details:not([open]) > summary').focus(), "
                               "document.querySelectorAll('details[open]').length")
        page.press("Enter")
        page.call("Input.dispatchKeyEvent", type="char", text="\r", key="Enter")
        self.assertEqual(page.evaluate("document.querySelectorAll('details[open]').length"), opened + 1)
        page.close()

    def test_search_field(self):
        page = self.browser.open(self.page.as_uri(), 1280)
        stage = "n8h56w56c256k512r1stride2+bias"
        page.evaluate("(() => {const f = document.querySelector('input[type=search]'); "
                      f"f.value = '{stage}'; f.dispatchEvent(new Event('input'))}})()")
        shown = page.evaluate("new Promise(done => setTimeout(() => done([...document.querySelectorAll("
                              "'.filtered tbody tr')].filter(r => r.checkVisibility()).map(r => "
                              "r.firstChild.textContent)), 600))")
        self.assertGreater(len(shown), 1)
        self.assertEqual([text for text in shown if stage not in text], [])
        page.close()

    def test_labels_of_drawn_results(self):
        """Axes over any range keep their labels apart, on a phone too."""
        seed = random.randrange(1 << 30)
        draw = random.Random(seed)

        def contestant(name, low, high):
            return {"name": name, "median_us": 10 ** draw.uniform(low, high), "spread": draw.random(),
                    "ratio": 10 ** draw.uniform(-3, 3)}

        for number in range(3):
            folder = self.folder / f"drawn{number}"
            folder.mkdir()
            for name, axes in (("any", "n1h9w9c{}k{}r3"), ("k-sweep", "f16:n1h64w64c{}k{}r1"),
                               ("same-pixels", "f16:n{}h8w8c64k{}r3"), ("launch-split", "f16:n1h16w16c{}k{}r3")):
                low = draw.uniform(-4, 6)
                high = low + draw.choice((0, 0.01, 1, 4))
                rows = []
                for k in range(1, draw.randint(2, 20)):
                    ours = contestant("convoy", low, high)
                    rows.append({"stage": axes.format(draw.randint(1, 99) ** draw.randint(1, 2), k), "kernel": "halo",
                                 "tile": "t", "threads": 1, "gflops": 10 ** draw.uniform(low, high), "convoy": ours,
                                 "peak_gflops": 10 ** draw.uniform(low, high), "clock_ghz": draw.uniform(0.5, 2),
                                 "ratio": ours["ratio"], "best_peer": "cudnn", "floor_us": ours["median_us"] / 3,
                                 "peers": [contestant("cudnn", low, high), contestant("xla", low, high)]})
                (folder / f"{name}.json").write_text(json.dumps(
                    {"machine": "M", "isa": "sm_90", "copy_bandwidth": 10 ** draw.uniform(6, 13), "rows": rows}))
            path = self.folder / f"drawn{number}.html"
            c, k = (draw.choice((3, 32, 64, 128, 512)) for _ in range(2))
            stages = [f"f16:n{draw.randint(1, 64)}h{draw.randint(4, 60)}c{c}k{k}r{draw.choice((1, 3, 5))}pad1+relu",
                      *(("f16:n32h56c64k128r3pad1+bias+relu+max2", "bf16:n1h7c512k2048r1",
                         "f16:n4h16c32k64r3pad1groups2+relu", "n1h28c128k64r5+relu") if number == 0 else ())]
            made = report("--results", folder, "-o", path, *stages)
            self.assertEqual(made.returncode, 0, made.stderr)
            for width in WIDTHS:
                page = self.browser.open(path.as_uri(), width)
                found = page.evaluate(CHECK)
                self.assertGreater(found["labels"], 20)
                self.assertEqual(found["wrong"][:4], [], f"seed {seed}, results {number}, {stages[0]}, width {width}")
                self.assertEqual(page.complaints(), [], f"seed {seed}")
                page.close()

    def test_hostile_names_are_text(self):
        """Names that would be markup or script: shown, and nothing else happens."""
        record = {"machine": "<b onmouseover=alert(1)>", "threads": 1, "mode": "default", "isa": "avx2", "rows": [{
            "stage": "</code><script>alert('stage')</script>", "kernel": "\"><img src=x onerror=alert(2)>",
            "tile": "'t", "threads": 1, "gflops": 5, "peak_gflops": 10, "bytes": 9, "ratio": 1.5,
            "best_peer": "<svg onload=alert(3)>",
            "convoy": {"name": "convoy", "median_us": 3, "spread": 0.1, "ratio": 1},
            "peers": [{"name": "<svg onload=alert(3)>", "median_us": 4.5, "spread": 0, "ratio": 1.5}],
            "left_out": [{"name": "&lt;", "why": "<iframe src=//x.invalid>"}]}]}
        folder = self.folder / "hostile"
        folder.mkdir()
        (folder / "<i>&.json").write_text(json.dumps(record))
        path = self.folder / "hostile.html"
        made = report("--results", folder, "-o", path)
        self.assertEqual(made.returncode, 0, made.stderr)
        page = self.browser.open(path.as_uri(), 360)
        self.assertEqual(page.evaluate("document.querySelectorAll('img,iframe,script').length"), 1)  # our script
        self.assertIn("</code><script>alert('stage')</script>", page.evaluate("document.body.textContent"))
        self.assertEqual(page.evaluate(CHECK)["wrong"], [])
        self.assertEqual(page.complaints(), [])
        page.close()


if __name__ == "__main__":
    if not find_browser():
        print("skipped: no browser of the Chromium family here. Install chromium-headless-shell (scripts/deps ci), or "
              "name one with CONVOY_BROWSER.")
        sys.exit(0)
    unittest.main()
