#!/usr/bin/env python3
"""convoy report and bench --html: what the page holds, and what is refused. The page in a browser: tests/report.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/report_test.py [unittest options]
"""
import html
import html.parser
import json
import os
import pathlib
import random
import resource
import unittest

from cli_case import STAGE, CliTest, convoy

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "bench/results"
FEW = RESULTS / "intel-r-xeon-r-processor-6-207-2-avx512"
ALONE = {"meta", "link", "br", "input"}  # elements without an end
# Ends that HTML lets a page leave out.
OPEN = {"li": {"li"}, "td": {"td", "th", "tr"}, "th": {"td", "th", "tr"}, "tr": {"tr"}}


class Parsed(html.parser.HTMLParser):
    """Text, ids, links; and every end tag that fits no open element."""

    def __init__(self, page):
        super().__init__()
        self.open, self.wrong, self.text, self.ids, self.links, self.sources = [], [], "", set(), set(), []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if "id" in given:
            if given["id"] in self.ids:
                self.wrong.append(f"id {given['id']} twice")
            self.ids.add(given["id"])
        if given.get("href", "").startswith("#"):
            self.links.add(given["href"][1:])
        self.sources += [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        if tag not in ALONE:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in ALONE:
            self.open.pop()

    def handle_endtag(self, tag):
        while self.open and self.open[-1] != tag and self.open[-1] in OPEN:
            self.open.pop()
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}>")

    def handle_data(self, data):
        self.text += data


def bench_rows(path):
    record = json.loads(path.read_text())
    rows = record.get("rows") if isinstance(record, dict) else None
    return [row for row in rows if "convoy" in row] if isinstance(rows, list) else []


class Report(CliTest):
    def page(self, *words, **options):
        path = self.here / "page.html"
        made = convoy("report", *words, "-o", path, **options)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertEqual(made.stdout, "")
        return path.read_text(), made.stderr

    def shows(self, parsed, text, where=""):
        """The page has this text; a failure does not print megabytes."""
        self.assertTrue(text in parsed.text, f"the page does not show {text!r} {where}")

    def test_committed_results(self):
        page, said = self.page("--results", RESULTS)
        # A measurement of a kind that the page does not know is named; nothing is broken.
        self.assertNotRegex(said, r"left out: (?!JSON, but no record)")
        self.assertNotIn("h200/trace-split.json", said)
        self.assertLess(len(page.encode()), 2_000_000)
        parsed = Parsed(page)
        self.assertEqual(parsed.wrong, [])
        self.assertEqual(parsed.links - parsed.ids, set())
        self.assertEqual([s for s in parsed.sources if not s.startswith(("#", "data:"))], [])
        for part in ("minute", "roofline", "ratios", "sweeps", "k-sweep", "same-pixels", "ladder", "stages", "model",
                     "refusals", "files"):
            self.assertIn(part, parsed.ids)
        # What a slot holds, of the stage that is shown without asking.
        self.shows(parsed, "2 slots of pixels, 65,536 bytes each")
        self.shows(parsed, "3 slots of weights, 24,576 bytes each")
        # Every measured stage and every ratio is text of the page, in this order of its files.
        rows = [(path, row) for path in sorted(RESULTS.rglob("*.json")) for row in bench_rows(path)]
        self.assertGreater(len(rows), 500)
        for path, row in random.Random(5).sample(rows, 200):
            self.shows(parsed, row["stage"], path)
            if (row.get("ratio") or 0) >= 0.1:  # lesser ones have more digits
                self.shows(parsed, f"{row['ratio']:.2f}", path)

    def test_what_is_asked_for(self):
        stages = (STAGE, "f16:n2h8c16k16r3pad1+relu")
        for words in (stages, ("--shapes", self.write("list.txt", "\n".join(stages).encode()))):
            parsed = Parsed(self.page(*words, "--results", FEW)[0])
            self.shows(parsed, "n2h8w8c16k16r3pad1+bias+relu+max2")
            self.shows(parsed, "f16:n2h8w8c16k16r3pad1+relu")
            self.shows(parsed, "refuses: ")

    def test_a_drawn_result_is_shown_as_it_is(self):
        seed = random.randrange(1 << 30)
        draw = random.Random(seed)
        rows = [{"stage": f"n1h9w9c{draw.randint(1, 99)}k{k}r3", "kernel": "direct", "tile": "t", "threads": 1,
                 "gflops": draw.uniform(1e-3, 1e6), "peak_gflops": draw.uniform(1, 1e6),
                 "ratio": draw.uniform(0.1, 99), "best_peer": "pytorch eager",
                 "convoy": {"median_us": draw.uniform(1e-3, 1e7), "spread": 0.1},
                 "peers": [{"name": "pytorch eager", "median_us": draw.uniform(1e-3, 1e7), "ratio": 1}]}
                for k in range(1, draw.randint(2, 30))]
        folder = self.here / "drawn"
        folder.mkdir()
        (folder / "drawn.json").write_text(json.dumps({"machine": "M", "rows": rows}))
        parsed = Parsed(self.page("--results", folder)[0])
        self.assertEqual(parsed.wrong, [], f"seed {seed}")
        for row in rows:
            self.shows(parsed, row["stage"], f"seed {seed}")
            self.shows(parsed, f"{row['ratio']:.2f}", f"seed {seed}")

    def test_no_text_of_a_result_is_markup(self):
        markup = "</p></svg></style><script>alert(1)</script><!--"

        def places(value, path=()):
            pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
            for key, inner in pairs:
                yield from places(inner, (*path, key))
            if isinstance(value, str):
                yield path

        folder = self.here / "marked"
        folder.mkdir()
        tried = 0
        for name in sorted(RESULTS.glob("*/*.json")):
            record = json.loads(name.read_text())
            if not isinstance(record, dict) or not isinstance(record.get("rows"), list):
                continue
            record["rows"] = record["rows"][:1]
            if {"where", "machine", "rows"}.isdisjoint(record):
                continue
            found = {path for path in places(record)}
            # All at once, and then each that a file of its kind is left out for.
            for change in (found, *({path} for path in found if len(path) < 2 or tried < 200)):
                marked = json.loads(json.dumps(record))
                for path in change:
                    at = marked
                    for key in path[:-1]:
                        at = at[key]
                    at[path[-1]] = markup
                (folder / "marked.json").write_text(json.dumps(marked))
                run = convoy("report", STAGE, "--results", folder, "-o", "-")
                tried += 1
                self.assertNotIn("<script>alert", run.stdout, f"{name.name}: {sorted(map(str, change))}")
            if tried > 400:
                break
        self.assertGreater(tried, 100)

    def test_broken_and_foreign_files_are_named(self):
        folder = self.here / "results"
        (folder / "device").mkdir(parents=True)
        good = RESULTS / "h200/k-sweep.json"
        (folder / "device/good.json").write_text(good.read_text())
        record = json.loads(good.read_text())
        del record["rows"][3]["convoy"]["median_us"]
        bad = {"cut.json": good.read_text()[:500], "foreign.json": '{"hello": 1}', "list.json": "[1, 2]",
               "binary.json": "\0\1\2", "deep.json": "[" * 100_000,
               "nested.json": '{"rows": ' * 100_000 + "1" + "}" * 100_000, "row.json": json.dumps(record),
               "negative.json": json.dumps({"rows": [{"stage": "n1h1c1k1r1", "convoy": {"median_us": -1}}]}),
               "text.json": json.dumps({"rows": [{"stage": "n1h1c1k1r1", "convoy": {"median_us": "1"}}]})}
        for name, text in bad.items():
            (folder / "device" / name).write_text(text)
        (folder / "device/folder.json").mkdir()
        os.mkfifo(folder / "device/pipe.json")
        page, said = self.page("--results", folder)
        parsed = Parsed(page)
        for name in (*bad, "folder.json", "pipe.json"):
            self.assertIn(f"device/{name} is left out: ", said)
            self.shows(parsed, f"device/{name}: ")
        self.assertIn("rows[3]: no \"median_us\"", said)
        self.assertNotIn("good.json", said)

    def test_refused(self):
        empty = self.here / "empty"
        empty.mkdir()
        foreign = self.here / "foreign"
        foreign.mkdir()
        (foreign / "a.json").write_text("{}")
        out = self.here / "page.html"
        for words, *expected in (
            (["-o", self.here / "no/page.html"], "no/page.html"),
            (["-o", self.here], str(self.here)),
            ([], "-o|--out"),
            (["--results", self.here / "none", "-o", out], "--results", "none", "bench/results"),
            (["--results", self.images, "-o", out], "--results", "images"),
            (["--results", empty, "-o", out], "--results", "no file that can be used"),
            (["--results", foreign, "-o", out], "no file that can be used", "a.json"),
            (["n1h", "-o", out], "n1h"),
            (["--shapes", self.here / "none.txt", "-o", out], "none.txt"),
            ([f"{STAGE} > n2h4c16k8r1", "-o", out], "single stages"),
            ([STAGE, "--shapes", self.images, "-o", out], "--shapes"),
        ):
            with self.subTest(words):
                self.refused(convoy("report", *words), *expected)
                self.assertFalse(out.exists())

    def test_standard_output(self):
        made = convoy("report", "--results", FEW, "-o", "-")
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertTrue(made.stdout.startswith("<!DOCTYPE html>"))

    @unittest.skipIf(os.environ.get("CONVOY_SANITIZED"), "sanitizers reserve more memory than the limit")
    def test_little_memory(self):
        """Whatever the limit, the page is whole, or the program says that memory is short and leaves nothing."""
        path, codes = self.here / "little.html", set()
        # Small steps where the program only just begins: what it makes before the work may fail, too.
        for megabytes in (*(size / 8 for size in range(80, 160)), *range(20, 72, 2)):
            def limit(size=int(megabytes * (1 << 20))):
                resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
                resource.setrlimit(resource.RLIMIT_AS, (size, size))

            made = convoy("report", STAGE, "--results", RESULTS, "-o", path, preexec_fn=limit)
            codes.add(made.returncode)
            # 127: the loader ends it. SIGABRT with these words: the start of a shared library does, before the program.
            if made.returncode == -6 and made.stderr == "terminate called without an active exception\n":
                continue
            self.assertIn(made.returncode, (0, 2, 127), f"{megabytes} MB: {made.stderr}")
            self.assertEqual(path.exists(), made.returncode == 0, f"{megabytes} MB")
            if made.returncode == 2:
                self.assertIn("convoy: ", made.stderr)
            path.unlink(missing_ok=True)
        self.assertIn(2, codes)

    def test_of_a_bench(self):
        path, record = self.here / "bench.html", self.here / "bench.json"
        made = convoy("bench", "--stage", STAGE, "--stage", "n1h5c3k4r3+relu", "--unfused", "--seconds", "0.002",
                      "--rounds", "2", "--html", path, "--json", record)
        self.assertEqual(made.returncode, 0, made.stderr)
        self.assertIn("GFLOP/s", made.stdout)
        parsed = Parsed(path.read_text())
        self.assertEqual(parsed.wrong, [])
        for row in json.loads(record.read_text())["rows"]:
            self.shows(parsed, row["stage"])
            self.shows(parsed, f"{row['ratio']:.2f}")
        self.assertIn("model", parsed.ids)  # this CPU's caches are in the record
        for words, *expected in ((["--html", self.here / "no/page.html"], "no/page.html"),
                                 (["--html", record, "--json", record], "--html", "the same file"),
                                 (["--html", "-", "--json", "-"], "standard output")):
            with self.subTest(words):
                self.refused(convoy("bench", "--stage", STAGE, *words), *expected)


if __name__ == "__main__":
    unittest.main()
