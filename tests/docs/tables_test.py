#!/usr/bin/env python3
"""bench/tables.py: no record is needed, a record without a commit is refused, and tables name what they compare with.

    tests/docs/tables_test.py [unittest options]
"""
import copy
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import tables  # noqa: E402
import tables_folders  # noqa: E402
import tables_records  # noqa: E402
import tables_text  # noqa: E402
import tables_versions  # noqa: E402
from stored import Folder, folders  # noqa: E402


def everything(machines):
    """Makes every block, page and chart; returns their text."""
    parts = [line for block in tables.BLOCKS.values() for line in block(machines)]
    parts += [text for machine in machines for text in tables_folders.pages(machine).values()]
    return "\n".join(parts + [svg for svg, _ in tables.pictures(machines).values()])


class Tables(unittest.TestCase):
    def test_no_record_is_needed(self):
        machines = folders()
        for i, machine in enumerate(machines):
            for name in machine.results:
                with self.subTest(record=f"{machine.name}/{name}"):
                    less = list(machines)
                    less[i] = copy.copy(machine)
                    less[i].results = {other: result for other, result in machine.results.items() if other != name}
                    self.assertNotIn("None", everything(less))
            everything([other for other in machines if other is not machine])
        everything([])

    def test_a_record_without_a_commit_is_refused(self):
        self.assertTrue(tables_records.has_commit({"commit": "ac152921d913", "rows": []}))
        self.assertTrue(tables_records.has_commit({"rows": [{"commit": "ac152921d913"}]}))
        for result in ({}, {"commit": ""}, {"rows": []}, {"rows": [{"commit": "ac152921d913"}, {}]}):
            self.assertFalse(tables_records.has_commit(result), result)
        known = tables_records.stored
        tables_records.stored = lambda: [*known(), ("h200", "new", {"rows": [{}]})]
        try:
            self.assertTrue(any("bench/results/h200/new.json" in text for text in tables_records.wrong()))
        finally:
            tables_records.stored = known

    def test_contradicting_versions_have_rows_of_their_own(self):
        new = {"torch": "2.15.0+cu132", "onnxruntime": "1.31.1"}
        old = {"torch": "2.11.0+cu130", "openvino": "absent"}
        cpu = Folder("cpu", "a CPU", "CPU", {"vgg16-default-2t": {"rows": [{"versions": new}]},
                                             "vgg16-default-1t": {"rows": [{"versions": old}]},
                                             "unet-strict-1t": {"rows": [{}, {"versions": new}]},
                                             "slow-paths": {"rows": [{}]}})
        gpu = Folder("gpu", "a GPU", "GPU", {"targets": {"copy_bandwidth": 1, "torch": "2.11.0+cu130", "rows": [
            {"versions": {"cudnn": "91900"}}, {"versions": {"jax": "0.11.2"}}]}})
        self.assertEqual(tables_versions.table([cpu, gpu])[2:], [
            "| CPU | `unet`, `vgg16` with 2 threads | PyTorch 2.15.0 and ONNX Runtime 1.31.1 |",
            "| CPU | `vgg16` with 1 thread | PyTorch 2.11.0; without OpenVINO |",
            "| GPU | all | PyTorch 2.11.0 with CUDA 13.0, cuDNN 9.19.0 and JAX 0.11.2 |",
        ])

    def test_processes_are_counted(self):
        self.assertEqual(tables_text.processes([{}]), "1 process")
        self.assertEqual(tables_text.processes([{"processes": 5}]), "5 processes")
        self.assertEqual(tables_text.processes([{"processes": 5}, {}]), "1 to 5 processes")

    def test_sentences_keep_to_the_width_of_a_line(self):
        for name in ("spiking sentence", "whole models", "gpu bounds", "shares of peak", "strict mode"):
            for line in tables.BLOCKS[name](folders()):
                self.assertLessEqual(len(line), 120, name)


if __name__ == "__main__":
    unittest.main()
