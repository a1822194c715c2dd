#!/usr/bin/env python3
"""`convoy run`, on good files and on bad ones.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/run_test.py [unittest options]
"""
import ast
import gzip
import json
import os
import resource
import struct
import unittest

from cli_case import CLASSES, IMAGES, SIZE, CliTest, convoy, idx


class Run(CliTest):
    def test_the_last_line_is_time_and_accuracy(self):
        result = self.run_model()
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout.splitlines()[-1], r"^\d+\.\d{4}:[01]\.\d{4}$")

    def test_gzip_threads_batch_and_limit_change_nothing(self):
        accuracy = self.run_model().stdout.splitlines()[-1].split(":")[1]
        packed = self.write("images.gz", gzip.compress(self.images.read_bytes()))
        for words, images in ((["--threads", "1"], None), (["--threads", "2"], None),
                              (["--batch", "1"], None), (["--batch", "5"], None), ([], packed)):
            with self.subTest(words=words, images=images):
                result = self.run_model(*words, images=images)
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertEqual(result.stdout.splitlines()[-1].split(":")[1], accuracy)
        limited = self.run_model("--limit", "4")
        self.assertEqual(limited.returncode, 0, limited.stderr)
        self.assertIn(float(limited.stdout.splitlines()[-1].split(":")[1]), (0, 0.25, 0.5, 0.75, 1))

    def test_gzip_files_one_behind_the_other(self):
        data = self.images.read_bytes()
        packed = self.write("images.gz", gzip.compress(data[:90]) + gzip.compress(data[90:]))
        self.assertEqual(self.run_model(images=packed).returncode, 0)
        self.refused(self.run_model(images=self.write("half.gz", packed.read_bytes()[:-9])), "ends early")
        self.refused(self.run_model(images=self.write("junk.gz", packed.read_bytes() + b"junk")), "after the end")

    def test_json(self):
        path = self.here / "out.json"
        self.assertEqual(self.run_model("--json", path).returncode, 0)
        report = json.loads(path.read_text())
        self.assertIn("accuracy", report)
        self.assertEqual([p.name for p in self.here.iterdir() if "out.json" in p.name], ["out.json"])

    def test_json_on_standard_output(self):
        before = set(self.here.iterdir())
        result = self.run_model("--json", "-", cwd=self.here)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("accuracy", json.loads(result.stdout))
        self.assertEqual(set(self.here.iterdir()), before)

    def written(self, name, *words):
        path = self.here / name
        result = self.run_model("--out", path, *words)
        self.assertEqual(result.returncode, 0, result.stderr)
        return path.read_bytes(), result

    def logits_by_hand(self):
        """The small model's own arithmetic, in Python's doubles."""
        parameter = {name: [float(line) for line in (self.model / f"{name}.txt").read_text().split()]
                     for name in ("conv1.weight", "conv1.bias", "fc1.weight", "fc1.bias")}
        side = SIZE - 2
        for image in range(IMAGES):
            x = [(u / 255 - 0.5) / 0.5 for u in self.pixels[image * SIZE**2:(image + 1) * SIZE**2]]
            vector = [max(0, parameter["conv1.bias"][k] + sum(
                x[(p + r) * SIZE + q + s] * parameter["conv1.weight"][(k * 3 + r) * 3 + s]
                for r in range(3) for s in range(3)))
                for k in range(2) for p in range(side) for q in range(side)]
            yield [parameter["fc1.bias"][k] + sum(
                v * w for v, w in zip(vector, parameter["fc1.weight"][k * len(vector):], strict=False))
                for k in range(CLASSES)]

    def test_outputs_as_a_table(self):
        data, result = self.written("out.csv")
        head, *lines = data.decode().splitlines()
        self.assertEqual(head, "index,label,logit0,logit1,logit2")
        self.assertEqual(len(lines), IMAGES)
        right = 0
        for i, (line, expected) in enumerate(zip(lines, self.logits_by_hand(), strict=True)):
            index, label, *logits = line.split(",")
            logits = [float(logit) for logit in logits]
            self.assertEqual(int(index), i)
            self.assertEqual(int(label), logits.index(max(logits)))
            for logit, value in zip(logits, expected, strict=True):
                self.assertAlmostEqual(logit, value, delta=1e-5)
            right += int(label) == i % CLASSES
        self.assertEqual(result.stdout.splitlines()[-1].split(":")[1], f"{right / IMAGES:.4f}")

    def test_outputs_as_an_array(self):
        data, _ = self.written("out.npy", "--limit", "5", "--json", "-")
        self.assertEqual(data[:8], b"\x93NUMPY\1\0")
        start = 10 + struct.unpack("<H", data[8:10])[0]
        self.assertEqual(start % 64, 0)
        self.assertEqual(ast.literal_eval(data[10:start].decode()),
                         {"descr": "<f4", "fortran_order": False, "shape": (5, CLASSES)})
        logits = struct.unpack(f"<{5 * CLASSES}f", data[start:])
        table, _ = self.written("out.csv")
        for i, line in enumerate(table.decode().splitlines()[1:6]):  # the same bits
            for logit, text in zip(logits[i * CLASSES:], line.split(",")[2:], strict=False):
                self.assertEqual(struct.pack("<f", logit), struct.pack("<f", float(text)))

    def test_outputs_that_cannot_be_written(self):
        before = sorted(self.here.iterdir())
        absent = self.here / "absent"  # a model: the file is looked at before it is
        for name, expected in (("out.txt", r"out\.txt.*\.npy.*\.csv"), ("-", r"\.npy"), ("", "--out"),
                               (self.here / "no/out.npy", "(?i)no such"), (self.here, r"\.npy")):
            with self.subTest(name=name):
                self.refused(self.run_model("--out", name, model=absent), expected)
        same = self.here / "out.csv"
        self.refused(self.run_model("--out", same, "--json", same, model=absent), "same file")
        for option in ("--json", "--trace"):
            for read in (self.images, self.labels, self.model / "../model/network.txt", self.model / "fc1.bias.txt"):
                with self.subTest(option=option, read=read):
                    whole = read.read_bytes()
                    self.refused(self.run_model(option, read), "is a file that this command reads")
                    self.assertEqual(read.read_bytes(), whole)
        _, array = self.save("fc1.weight", (3, 32))
        whole = array.read_bytes()
        self.refused(self.run_model("--out", array), r"--out .*fc1\.weight\.npy is a file that this command reads")
        self.assertEqual(array.read_bytes(), whole)
        self.labels.write_bytes(b"no labels")
        self.refused(self.run_model("--out", same), "labels")
        self.assertEqual(sorted(self.here.iterdir()), before)

    def test_spoiled_images(self):
        good = self.images.read_bytes()
        packed = gzip.compress(good)
        spoiled = {
            "truncated": (good[:-1], str(len(self.pixels) - 1)),
            "oversized": (good + b"\0\0", str(len(self.pixels))),
            "header cut": (good[:10], "sizes.*cut short"),
            "empty": (b"", "empty|0 bytes"),
            "wrong magic": (b"\0\0\x0d\x03" + good[4:], "(?i)magic|0x"),
            "labels for images": (self.labels.read_bytes(), "(?i)label|magic|0x"),
            "huge sizes": (idx(0x803, (0xFFFFFFFF,) * 3, b"12"), "4294967295"),
            "huge claim": (idx(0x803, (2**24, 2**10, 2**10), b"12"), r"\d"),
            "no image": (idx(0x803, (0, SIZE, SIZE), b""), "0|empty|no image"),
            "another size": (idx(0x803, (4, 5, 5), bytes(100)), "5.*6|6.*5"),
            "text": (b"P5 6 6 255 this is no IDX file", "(?i)idx|magic"),
            "gzip cut short": (packed[:-9], "(?i)gzip|gz|cut"),
            "gzip spoiled": (packed[:60] + bytes(40) + packed[100:], "(?i)gzip"),
        }
        for name, (data, expected) in spoiled.items():
            with self.subTest(name):
                self.refused(self.run_model(images=self.write("spoiled", data)), "spoiled", expected)

    def test_no_gzip_in_a_gz_file(self):
        result = self.run_model(images=self.write("plain.gz", b"certainly not gzip" * 9))
        self.refused(result, "plain.gz")

    @unittest.skipIf(os.environ.get("CONVOY_SANITIZED"), "sanitizers reserve more memory than the limit")
    def test_a_huge_claim_allocates_nothing(self):
        claim = self.write("claim", idx(0x803, (2**30, 32, 32), b""))
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))

        self.refused(self.run_model(images=claim, preexec_fn=limit), "claim")

    def test_missing_files(self):
        self.refused(self.run_model(images=self.here / "absent"), "absent")
        self.refused(self.run_model(labels=self.here / "absent"), "absent")
        self.refused(self.run_model(model=self.here / "absent"), "absent")
        self.refused(self.run_model(images=self.here), "(?i)director|folder|not a file")

    def test_a_named_data_folder_is_the_only_one(self):
        result = convoy("run", self.model, "--data", self.here)
        self.refused(result, str(self.here))
        self.assertNotIn("/usr/share", result.stderr)

    def test_images_of_another_size(self):
        small = self.write("t10k-images-idx3-ubyte", idx(0x803, (4, 5, 5), bytes(4 * 5 * 5)))
        self.write("t10k-labels-idx1-ubyte", idx(0x801, (4,), bytes(4)))
        sizes = ("images are 5x5x1", f"expected {SIZE}x{SIZE}x1")
        by_default = convoy("run", self.model, "--data", self.here)
        self.refused(by_default, *sizes, "Give its images with --images FILE")
        named = self.run_model(images=small)
        self.refused(named, *sizes)
        self.assertNotIn("--images", named.stderr)

    def test_labels_that_do_not_match(self):
        fewer = self.write("fewer", idx(0x801, (IMAGES - 1,), bytes(IMAGES - 1)))
        self.refused(self.run_model(labels=fewer), str(IMAGES - 1), str(IMAGES))
        beyond = self.write("beyond", idx(0x801, (IMAGES,), bytes(IMAGES - 1) + b"\x09"))
        self.refused(self.run_model(labels=beyond), "9", str(CLASSES))

    def test_spoiled_weights(self):
        path = self.model / "fc1.weight.txt"
        lines = path.read_text().splitlines()
        spoiled = {
            "short": (lines[:-1], ("95", "96")),
            "long": (lines + ["0.5"], ("97|more", "96")),
            "empty": ([], ("0 values|empty", "96")),
            "text": (lines[:5] + ["three"] + lines[6:], ("three", "6")),
            "half a number": (lines[:5] + ["0.5x"] + lines[6:], ("0.5x",)),
            "NaN": (lines[:5] + ["nan"] + lines[6:], ("(?i)nan|finite",)),
            "infinite": (lines[:5] + ["inf"] + lines[6:], ("(?i)inf|finite",)),
            "beyond float": (lines[:5] + ["1e400"] + lines[6:], ("1e400|range|finite",)),
        }
        for name, (content, expected) in spoiled.items():
            with self.subTest(name):
                path.write_text("\n".join(content))
                self.refused(self.run_model(), r"fc1\.weight\.txt", *expected)
        path.unlink()
        self.refused(self.run_model(), r"fc1\.weight")

    def save(self, name, shape, kind="<f4", pack="f"):
        """conv1.weight or fc1.weight as .npy of that shape: the numbers of the text file."""
        text = self.model / f"{name}.txt"
        numbers = [float(word) for word in text.read_text().split()]
        text.unlink()
        head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
        head += " " * (63 - (10 + len(head)) % 64) + "\n"
        path = self.model / f"{name}.npy"
        path.write_bytes(b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode()
                         + struct.pack(f"<{len(numbers)}{pack}", *numbers))
        return text, path

    def test_weights_in_another_order(self):
        text = (self.model / "fc1.weight.txt").read_text()
        for shape in ((3, 32), (96,), (1, 3, 1, 32, 1)):
            self.save("fc1.weight", shape)
            self.assertEqual(self.run_model().returncode, 0, shape)
            (self.model / "fc1.weight.txt").write_text(text)
        for shape in ((32, 3), (96 // 4, 4), (3, 4, 4, 2)):
            saved, array = self.save("fc1.weight", shape)
            found = ",".join(map(str, shape))
            self.refused(self.run_model(), r"fc1\.weight\.npy", rf"\[{found}\], expected \[3,32\]", "Permute")
            saved.write_text(text)
            array.unlink()
        wide = self.make_model("wide", f"input u8:h{SIZE}w{SIZE}c1\nconv1 k2r3\nconv2 k3r4\n",
                               {"conv1": (18, 0), "conv2": (96, 0)})
        self.model = wide
        text = (wide / "conv2.weight.txt").read_text()
        for shape, right in (((3, 2, 4, 4), True), ((3, 32), True), ((3, 2, 16), True), ((96, 1), True),
                             ((3, 4, 4, 2), False), ((2, 3, 4, 4), False), ((6, 16), False)):
            saved, array = self.save("conv2.weight", shape)
            result = self.run_model()
            if right:
                self.assertEqual(result.returncode, 0, f"{shape}: {result.stderr}")
            else:
                self.refused(result, r"conv2\.weight\.npy", r"expected \[3,2,4,4\]")
            saved.write_text(text)
            array.unlink()

    def test_tensors_in_another_order(self):
        numbers = {name: [float(word) for word in (self.model / f"{name}.txt").read_text().split()]
                   for name in ("conv1.weight", "conv1.bias", "fc1.weight", "fc1.bias")}
        for file in self.model.glob("*.txt"):
            if file.name != "network.txt":
                file.unlink()
        for shape, right in (((3, 32), True), ((96,), True), ((32, 3), False)):
            shapes = {"conv1.weight": (2, 1, 3, 3), "conv1.bias": (2,), "fc1.weight": shape, "fc1.bias": (3,)}
            head, body = {}, b""
            for name, values in numbers.items():
                begin = len(body)
                body += struct.pack(f"<{len(values)}f", *values)
                head[name] = {"dtype": "F32", "shape": shapes[name], "data_offsets": [begin, len(body)]}
            text = json.dumps(head).encode()
            (self.model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
            if right:
                self.assertEqual(self.run_model().returncode, 0)
            else:
                self.refused(self.run_model(), "model.safetensors: fc1.weight", r"\[32,3\], expected \[3,32\]")

    def test_arrays_of_other_types(self):
        before = self.written("before.csv")[0]
        text = (self.model / "conv1.bias.txt").read_text()
        self.save("conv1.bias", (2,), "<f8", "d")
        self.assertEqual(self.written("after.csv")[0], before)
        (self.model / "conv1.bias.txt").write_text(text)
        self.save("conv1.bias", (2,), "<f2", "e")
        self.assertEqual(self.run_model().returncode, 0)
        (self.model / "conv1.bias.txt").write_text("1 2")
        _, path = self.save("conv1.bias", (2,), "<i4", "f")
        self.refused(self.run_model(), r"conv1\.bias\.npy", "i32, expected float32, float64 or float16")
        path.write_bytes(path.read_bytes() + b"0000")
        self.refused(self.run_model(), "12 bytes of data, expected 8", "one whole file")

    def test_a_parameter_in_two_files(self):
        """Nobody can tell which is meant: the one that is out of date must not win."""
        text = (self.model / "conv1.bias.txt").read_text()
        _, path = self.save("conv1.bias", (2,))
        self.assertEqual(self.run_model().returncode, 0)
        (self.model / "conv1.bias.txt").write_text(text)
        self.refused(self.run_model(), r'"conv1\.bias" is given more than once, in conv1\.bias\.txt and in '
                                       r"conv1\.bias\.npy, expected in one file")
        path.unlink()
        header = json.dumps({"conv1.bias": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
        whole = self.model / "model.safetensors"
        whole.write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
        self.refused(self.run_model(), r"more than once, in conv1\.bias\.txt and in model\.safetensors")
        for spoiled in (b"", b"no such file", header):  # read by nobody, and still to be told
            whole.write_bytes(spoiled)
            self.refused(self.run_model(), r"model\.safetensors")

    def test_outputs_that_are_no_numbers(self):
        """Finite weights whose sums leave fp32: a label is made of NaN, and the table says so."""
        result = self.run_model("--json", self.here / "fine.json")
        self.assertNotIn("not finite", result.stdout)
        self.assertEqual(json.loads((self.here / "fine.json").read_text())["images_not_finite"], 0)
        (self.model / "conv1.weight.txt").write_text("1e38 " * 18)
        (self.model / "fc1.weight.txt").write_text("-1e38 1e38 " * 48)
        result = self.run_model("--json", self.here / "lost.json", "--limit", 7)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"\nnot finite  7 of 7 images have NaN or infinite outputs.*convoy dump")
        self.assertRegex(result.stdout.splitlines()[-1], r"^\d+\.\d{4}:\d\.\d{4}$")
        self.assertEqual(json.loads((self.here / "lost.json").read_text())["images_not_finite"], 7)

    def test_a_bias_that_the_network_leaves_out(self):
        path = self.model / "network.txt"
        good = path.read_text()
        path.write_text(good.replace("r3+bias", "r3"))
        self.refused(self.run_model(), r"conv1\.bias: found a bias, but conv1 has no \+bias",
                     r"Add \+bias .* or remove")
        path.write_text(good)
        self.assertEqual(self.run_model().returncode, 0)

    def test_a_batch_norm_beyond_fp32(self):
        path = self.model / "network.txt"
        path.write_text(path.read_text().replace("+bias+relu", " batchnorm(bn)"))
        for name, numbers in (("weight", "3e38 1"), ("bias", "0 0"), ("running_mean", "0 0"),
                              ("running_var", "1e-4 1")):
            (self.model / f"bn.{name}.txt").write_text(numbers)
        self.refused(self.run_model(), "bn: folding it into conv1", "beyond fp32", "unstable")

    def test_a_file_in_place_of_a_folder(self):
        file = self.model / "network.txt"
        for model in (file, f"{file}/deeper"):
            self.refused(self.run_model(model=model), "network.txt is not a folder, expected one")

    def test_spoiled_networks(self):
        path = self.model / "network.txt"
        good = path.read_text()
        spoiled = {
            "unknown layer": (good.replace("flatten", "dropout"), ("4", "dropout")),
            "no parse": (good.replace("k2r3", "k2q3"), ("3", "q3")),
            "unknown rider": (good.replace("+relu", "+gelu"), ("3", "gelu")),
            "no input": (good.replace("input", "#"), ("(?i)input",)),
            "two numbers of steps": (good.replace("conv1", "steps 2\nsteps 3\nconv1"), ("4", 'second "steps"')),
            "two means": (good.replace(" std", " mean(0.1) std"), ("2", "second mean")),
            "two stds": (good.replace(" std", " std(0.1) std"), ("2", "second std")),
            "two inputs": (good + "input u8:h6w6c1\n", ("6", "(?i)input")),
            "empty": ("", ("(?i)empty|input",)),
            "a name twice": (good.replace("fc1", "conv1"), ("5", "conv1")),
            "zero": (good.replace("k2r3", "k0r3"), ("3", "k")),
            "overflow": (good.replace("k2r3", "k99999999999999999999r3"), ("3",)),
            "too large a filter": (good.replace("k2r3", "k2r9"), ("3", "9")),
            "pool larger than its image": (good.replace("+relu", "+relu+max5"), ("3", "5")),
            "binary": ("\0\1\2\xff\n", ("1",)),
        }
        for name, (content, expected) in spoiled.items():
            with self.subTest(name):
                path.write_text(content)
                self.refused(self.run_model(), r"network\.txt", *expected)
        path.unlink()
        self.refused(self.run_model(), r"network\.txt")


if __name__ == "__main__":
    unittest.main()
