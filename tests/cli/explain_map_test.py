#!/usr/bin/env python3
"""convoy explain --map, --smem and --pipe: what they print for the source documents' examples, and what they refuse.

    CONVOY_PROGRAM=build/release/bin/convoy tests/cli/explain_map_test.py [unittest options]
"""
import json
import re
import unittest

from cli_case import CliTest, convoy

# The third document's shape, and the second's.
THIRD = "f16:n256h14c256k512r3pad1"
SECOND = "f16:n32h56c128k512r3pad1"


def explained(*words):
    return convoy("explain", *words).stdout


def facts(*words):
    printed = json.loads(explained(*words, "--map", "--json"))
    return {fact["name"]: fact["value"] for fact in printed["facts"]}


class ExplainMap(CliTest):
    def test_the_third_documents_figures(self):
        text = explained(THIRD, "--kernel", "cudnn_volta", "--map", "--smem")
        for figure in ("392 x 4", "128 threads", "33280 bytes", "32.5 KB", "16.25 KB", "0, 2080, 4160, 6240",
                       "512 HMMA", "18432 bytes", "4 warps of 64 x 64", "128: registers of a thread",
                       "R0,R1,R4,R5,R32,R33,R36,R37", "2048 bytes each, 32 between them", "iterations     72"):
            with self.subTest(figure):
                self.assertIn(figure, text)
        # Why 32 bytes stand between its blocks: with them eight lanes write all banks, without them eight.
        self.assertIn("00004444111155552222666633337777  4 wavefronts for 4, 0 conflicts", text)
        self.assertIn("########........................  16 wavefronts for 4, 12 conflicts", text)
        # window on the same tile.
        own = facts(THIRD, "--device", "h200", "--kernel", "window", "--tile", "128x128")
        self.assertEqual(own["grid"], "392 x 4")
        self.assertEqual(own["iterations"], "72")

    def test_the_second_documents_figures(self):
        text = explained(SECOND, "--kernel", "cutlass_multistage", "--map", "--pipe", "--thread", "17")
        for figure in ("iterations     9", "accesses       4", "prologue       2 tiles", "mainloop       7 iterations",
                       "kStrided = 4, Delta = 16", "swizzle        2", "R, S <= 32", "wait_group 1"):
            with self.subTest(figure):
                self.assertIn(figure, text)
        # offset_npq of a thread's accesses, 16 rows apart.
        self.assertEqual(re.findall(r"^  [0-3] +(\d+) +\(0,", text, re.M), ["1", "17", "33", "49"])
        # Its chart.
        for step in range(9):
            self.assertIn(f"step {step}: math on slot {step % 3}", text)
        loads = re.findall(r"load (\d) -> slot (\d)", text)
        self.assertEqual(loads, [(str(i), str(i % 3)) for i in range(9)])

    def test_a_product_goes_there_and_back(self):
        for kernel in ("window", "halo", "fma"):
            with self.subTest(kernel):
                printed = json.loads(explained(THIRD, "--kernel", kernel, "--gemm", "661,1000,77", "--json"))["product"]
                self.assertEqual(printed["output"], {"n": 3, "p": 5, "q": 3, "k": 77})
                self.assertEqual(printed["tap"], {"r": 1, "s": 0, "c": 232})
                x = printed["input"]
                self.assertEqual((x["h"], x["w"], x["inside"]), (5, 2, True))
                self.assertEqual(x["byte"], (((3 * 14 + 5) * 14 + 2) * 256 + 232) * 2)
                self.assertEqual(printed["back"], {"m": 661, "k": 1000})
                self.assertEqual(printed["accumulator"]["back"], printed["output"])
        printed = json.loads(explained(THIRD, "--kernel", "window", "--gemm", "0,0", "--json"))["product"]
        self.assertFalse(printed["input"]["inside"])
        self.assertIsNone(printed["input"]["byte"])

    def test_a_threads_iterators_agree(self):
        printed = json.loads(explained(THIRD, "--device", "a100", "--kernel", "window", "--thread", "5", "--block",
                                       "5,0", "--step", "12", "--json"))["thread"]
        for row in printed["rows"]:
            self.assertEqual(len(set(row[2:5])), 1, row)

    def test_winograds_products(self):
        for kernel, stage, count in (("winograd4", "n2h16c64k32r3pad1", 36), ("winograd2", "n2h16c64k32r3pad1", 16),
                                     ("winograd2", "n2h16c64k32r3pad1stride2", 25)):
            printed = convoy("explain", stage, "--map", "--kernel", kernel, "--gemm", "9,70", "--json")
            if kernel == "winograd4" and printed.returncode == 2:
                continue  # a CPU without vectors
            products = json.loads(printed.stdout)["product"]["winograd"]["products"]
            self.assertEqual(len(products), count)
            total = sum(one["of_output"] * one["of_input"] * one["of_weight"] for one in products)
            self.assertAlmostEqual(total, 1, places=4)

    def test_winograd_on_a_gpu(self):
        words = ("n4h32c64k128r3pad1+max2", "--device", "h200", "--kernel", "winograd4")
        place = json.loads(explained(*words, "--gemm", "100,200,5", "--json"))["product"]["winograd"]
        self.assertEqual((place["tile"], place["row"], place["column"], place["i"], place["j"]), (1, 0, 4, 3, 0))
        self.assertEqual([one["name"] for one in place["passes"]], ["chunk", "input pass", "product 0", "output pass"])
        self.assertAlmostEqual(sum(one["of_output"] * one["of_input"] * one["of_weight"] for one in place["products"]),
                               1, places=4)
        # What threads and slots do is window's, of a stage of 36 groups.
        text = explained(*words, "--thread", "5", "--block", "3,71", "--smem", "--pipe")
        for figure in ("n256h1w1c2304k4608r1groups36", "Pipeline of window 64x64", "Shared memory of window 64x64"):
            self.assertIn(figure, text)

    def test_shared_memory_and_pipeline_of_our_kernels(self):
        for kernel in ("window", "halo"):
            printed = json.loads(explained(THIRD, "--kernel", kernel, "--smem", "--pipe", "--json"))
            shared, pipe = printed["shared_memory"], printed["pipeline"]
            end = 0
            for region in shared["regions"]:  # side by side, without gaps
                self.assertEqual(region["begin"], end, region)
                end += region["bytes"]
            self.assertLessEqual(end, shared["bytes"])
            self.assertTrue(all(access["conflicts"] == 0 for access in shared["accesses"]))
            self.assertTrue(any(access["plain"]["conflicts"] > 0 for access in shared["accesses"]))
            self.assertEqual(pipe["lines"][-1]["step"], pipe["steps"] - 1)

    def test_boxes_of_small_groups(self):
        stage = "f16:n32h56c128k128r3pad1groups32"
        printed = json.loads(explained(stage, "--kernel", "window", "--tile", "box128", "--gemm", "661,10,37", "--smem",
                                       "--pipe", "--json"))
        product, shared, pipe = printed["product"], printed["shared_memory"], printed["pipeline"]
        self.assertEqual(product["accumulator"]["back"], {"n": 0, "p": 11, "q": 45, "k": 37})
        self.assertEqual(product["accumulator"]["tile"]["y"], 1)  # eight groups of four filters are one of its own
        self.assertEqual(product["operand"]["step"], 2)  # of nine taps
        self.assertEqual(shared["regions"][-1]["begin"] + shared["regions"][-1]["bytes"], shared["bytes"])
        reads = next(one for one in shared["accesses"] if one["name"] == "read A, pixels")
        self.assertLess(reads["conflicts"], reads["plain_conflicts"] / 10)  # the gap of 16 bytes
        self.assertEqual(pipe["per"], "a CTA, a box each")
        self.assertEqual([line["math_slots"][0] for line in pipe["lines"][1:5]], [0, 1, 0, 1])

    def test_steps_of_a_neuron(self):
        stage = "f16:n1h14c512k512r3pad1+lif(2,1)+t4"
        words = ("--kernel", "halo", "--tile", "8x4x1t4.rows", "--thread", "5", "--json")
        printed = json.loads(explained(stage, *words, "--block", "0,1,3"))
        facts_ = {fact["name"]: fact["value"] for fact in printed["facts"]}
        self.assertEqual((facts_["time steps"], facts_["accumulators"], facts_["membranes"]), ("4", "64", "16"))
        self.assertIn("with an input each, 4 of them in a tile", explained(stage, *words[:4], "--map"))
        self.assertEqual(facts_["boxes"], "1 of 1 x 10 x 10 pixels in 4 time steps")
        self.assertEqual({tile["t"] for tile in printed["first_tiles"]}, {0})
        # Step 3 has the fourth group of eight columns, pixels (0, 2) and (0, 3) of filter 65 and 73.
        notes = "\n".join(printed["thread"]["notes"])
        self.assertIn("d[0][12]: output (n 0, p 0, q 2, k 65)", notes)
        self.assertIn("d[0][28]: output (n 0, p 1, q 2, k 65)", notes)
        self.assertIn("(3,-1,-1) padding", json.dumps(printed["thread"]["rows"]))
        twice = json.loads(explained(stage.replace("t4", "t8"), *words, "--block", "0,1,7"))["thread"]
        self.assertEqual((twice["tile"]["cta"], twice["tile"]["t"]), (1, 7))
        self.assertIn("time steps 4 to 7 of 8 and goes on", "".join(twice["notes"]))
        self.assertIn("4: of one held input", explained(stage + "+hold", "--kernel", "halo", "--map"))

    def test_kernels_without_slots(self):
        # What threads load they multiply: a register of a thread stands where others have a slot.
        stage = "f16:n2h15c64k64r3pad1groups64"
        printed = json.loads(explained(stage, "--kernel", "depthwise", "--tile", "2x2", "--gemm", "100,5,9",
                                       "--json"))["product"]
        self.assertEqual(printed["output"], {"n": 0, "p": 6, "q": 10, "k": 9})
        self.assertEqual(printed["accumulator"]["back"], printed["output"])
        self.assertEqual(printed["accumulator"]["name"], "sums[0][0][1]")
        # Tap (1,2): the second row of x that feeds the tile, its third position.
        self.assertEqual((printed["operand"]["step"], printed["operand"]["name"]), (1, "x[2][1]"))
        self.assertEqual(printed["operand"]["thread"], printed["accumulator"]["thread"])
        printed = json.loads(explained("n2h15c64k3r3pad1", "--kernel", "few_filters", "--gemm", "100,309,2", "--json"))
        product = printed["product"]
        self.assertEqual(product["accumulator"]["back"], {"n": 0, "p": 6, "q": 10, "k": 2})
        # Channel 53 is that of lane 53 / 4 = 13 of the 16 that share the strip.
        self.assertEqual(product["operand"]["thread"] % 16, 13)
        self.assertEqual(product["tap"], {"r": 1, "s": 1, "c": 53})
        text = explained("n2h15c64k3r3pad1", "--kernel", "few_filters", "--at", "0,6,10,2")
        self.assertIn("(r,s) (h,w)  x          k   step thread register", text)

    def test_passes_around_a_kernel(self):
        stage = "f16:n2h15c20k30r3pad1nchw"
        text = explained(stage, "--kernel", "halo_padded_nchw", "--gemm", "100,50", "--pipe")
        for part in ("pass before    transposes x to NHWC", "with 24 channels instead of 20", "30 of the 32 channels",
                     "inside         halo: f16:n2h15w15c24k32r3pad1", "Pipeline of halo"):
            self.assertIn(part, text)
        product = json.loads(explained(stage, "--kernel", "halo_padded_nchw", "--gemm", "100,50", "--json"))["product"]
        self.assertEqual(product["input"]["byte"], ((10 * 15 + 5) * 15 + 11) * 2)
        self.assertEqual(product["accumulator"]["back"], product["output"])
        self.assertIn("makes y of it", explained("f16:n2h15c20k30r3+max3s2", "--kernel", "window_pool", "--map"))
        neuron = "f16:n2h8c64k64r3pad1+bias+lif(2,1)+t4+max2"
        text = explained(neuron, "--kernel", "halo_neuron_pass", "--smem")
        for words in ("inside         halo_sums: f16:n8h8w8c64k64r3pad1out(f32)+bias", "through its 4 steps",
                      "image n is image n % 2 of the stage in step n / 2", "64 pixels of 256 bytes",
                      "write sums, st.shared.f32"):  # fmt: skip
            self.assertIn(words, text)
        self.assertIn("window_neuron_pass", explained("n2h8c24k32r3+if(1)+t3+hold", "--device", "h200", "--map"))

    def test_stages_that_only_passes_serve_need_no_kernels_name(self):
        for stage, kernel in (("f16:n8h56c33k65r3pad1+bias+relu+max3s2p1", "halo_pool_padded"),
                              ("f16:n8h56c64k64r3pad1+bias+relu+max3s2p1", "halo_pool"),
                              ("f16:n1h30c13k7r3pad1+bias+relu+max3s2p1+keep(idx)", "window_pool"),
                              ("n2h15c20k30r3+bias+max3s2", "window_pool")):  # fmt: skip
            self.assertIn(f"kernel {kernel}, ", explained(stage, "--map", "--device", "h200"))

    def test_few_adds_up_taps(self):
        stage = "f16:n2h30c200k6r3pad1+max2"
        words = (stage, "--kernel", "few", "--gemm", "100,900,5", "--smem", "--pipe", "--json")
        printed = json.loads(explained(*words))
        product, shared = printed["product"], printed["shared_memory"]
        self.assertEqual(product["accumulator"]["back"], product["output"])
        self.assertEqual(product["tap"], {"r": 1, "s": 1, "c": 100})
        self.assertEqual(product["operand"]["step"], 100 // 64)
        self.assertIn(f"z[{5 * 9 + 4}]", product["operand"]["read"])  # filter 5's fifth tap
        write = next(one for one in shared["accesses"] if one["name"] == "write z")
        self.assertEqual(write["conflicts"], 0)
        self.assertGreater(write["plain_conflicts"], 0)  # without four floats behind a tap's pixels
        self.assertEqual(printed["pipeline"]["steps"], 4)
        # A 1x1 is its products.
        self.assertIn("d[0][", explained("f16:n2h30c200k6r1", "--kernel", "few", "--at", "1,2,3,4"))

    def test_fma_in_any_type_and_layout(self):
        stage = "u8:n2h9c3k7r3nchw+norm"  # what halo and window refuse
        printed = json.loads(explained(stage, "--device", "h200", "--at", "1,2,3,4", "--smem", "--pipe", "--json"))
        self.assertEqual((printed["kernel"], printed["tile"]), ("fma", "256x16"))
        self.assertEqual(printed["at"]["y_byte"], ((1 * 7 + 4) * 49 + 2 * 7 + 3) * 2)  # f16 of u8 on a GPU
        self.assertEqual(printed["at"]["taps"][8]["input"]["byte"], (1 * 3 * 9 + 2 + 2) * 9 + 3 + 2)
        self.assertEqual(printed["pipeline"]["steps"], 2)  # 27 products, 16 a step
        conflicts = {one["name"]: one["use"]["conflicts"] for one in printed["shared_memory"]["accesses"]}
        self.assertEqual(conflicts.pop("write pixels"), 1)
        self.assertEqual(conflicts.pop("write positions of rows"), 2)  # 8 of every 16 bytes
        self.assertEqual(set(conflicts.values()), {0})
        self.assertIn("padding", explained("n1h5c2k3r3pad1", "--kernel", "fma", "--gemm", "0,0"))

    def test_a_gpu_by_name_is_for_maps(self):
        self.refused(convoy("explain", THIRD, "--device", "h200"), "device h200: .* --map, --smem and --pipe")
        self.refused(convoy("explain", THIRD, "--device", "h300", "--map"), '"h300": expected cpu, .* h200, h100')

    def test_what_is_refused(self):
        for words, *expected in (
            (["--map", "--at", "0,14,0,0", "--kernel", "window"], "p = 14", "0 to 13"),
            (["--map", "--at", "0,0,0", "--kernel", "window"], "--at", "n,p,q,k"),
            (["--map", "--at", "0,-1,0,0", "--kernel", "window"], "--at", "whole numbers"),
            (["--map", "--gemm", "50176,0", "--kernel", "window"], "m = 50176", "0 to 50175"),
            (["--map", "--gemm", "0,2304", "--kernel", "halo"], "k = 2304", "0 to 2303"),
            (["--map", "--gemm", "0,0,512", "--kernel", "halo"], "filter = 512"),
            (["--map", "--thread", "384", "--kernel", "halo"], "threads 0 to 383"),
            (["--map", "--thread", "0", "--block", "392,0", "--kernel", "window"], "392,0", "numbered from 0"),
            (["--map", "--thread", "0", "--step", "99", "--kernel", "window"], "steps 0 to 71"),
            (["--map", "--block", "1,1", "--kernel", "window"], "--thread"),
            (["--map", "--step", "0", "--kernel", "window"], "--thread"),
            (["--step", "3"], "--thread"),
            (["--map", "--then", "n1h1c1k1r1", "--kernel", "window"], "found a chain, expected a single stage"),
            (["--smem", "--trace", "-", "--kernel", "window"], "--all or --trace, which run kernels"),
            (["--pipe", "--all", "--kernel", "window"], "--all or --trace, which run kernels"),
            (["--map", "--at", "0,0,0,0", "--thread", "1", "--kernel", "window"], "more than one"),
            (["--map", "--kernel", "general"], "general", "has no map", "window", "fma"),
            (["--map", "--thread", "128", "--kernel", "fma"], "threads 0 to 127"),
            (["--map", "--kernel", "fma", "--tile", "1x1"], '"1x1"', "128x64"),
            (["--map"], "has no map", "--device"),
            (["--map", "--device", "h200", "--tile", "64x64"], "--tile without --kernel"),
            (["--map", "--kernel", "window", "--tile", "1x1"], '"1x1"', "128x128"),
            (["--map", "--device", "toaster", "--kernel", "window"], "toaster"),
            (["--smem", "--kernel", "cutlass_multistage"], "no known layout"),
        ):
            with self.subTest(words):
                self.refused(convoy("explain", THIRD, *words), *expected)
        for stage, words, *expected in (
            ("n2h16c64k32r3pad1", ["--smem", "--kernel", "winograd2"], "no shared memory"),
            ("n2h16c64k32r3pad1", ["--map", "--kernel", "winograd2", "--device", "h200"], "winograd2 .*has no map"),
            ("n2h15c64k3r3pad1", ["--smem", "--kernel", "few_filters"], "few_filters has no shared memory"),
            ("n2h15c64k3r3pad1", ["--map", "--thread", "512", "--kernel", "few_filters"], "threads 0 to"),
            ("f16:n2h15c64k64r3groups64", ["--pipe", "--kernel", "depthwise"], "depthwise has no pipeline"),
            ("f16:n2h15c64k64r3groups32", ["--map", "--kernel", "depthwise"], "groups = 32"),
            ("f16:n2h16c64k32r3pad1", ["--map", "--kernel", "halo_nchw"], "the layout is nhwc, expected nchw"),
            ("f16:n2h16c64k32r3pad1", ["--map", "--kernel", "few"], "288, at most 64 rows"),
            ("f16:n2h16c64k3r3pad1", ["--map", "--thread", "384", "--kernel", "few"], "threads 0 to 383"),
            ("f16:n2h16c64k32r3pad1+max2", ["--map", "--kernel", "window_pool"], "in one launch"),
            ("f16:n2h16c3k32r3pad1nchw", ["--map", "--kernel", "first_nchw"], "first_nchw .*has no map"),
            ("n2h16c62k32r3pad1", ["--map", "--kernel", "winograd4", "--device", "h200"], "C = 62"),
            ("n2h16c64k32r3pad1", ["--map", "--thread", "1", "--kernel", "winograd2"], "winograd2 has no"),
            ("f16:n1h8c3k8r3", ["--map", "--kernel", "halo"], "C = 3"),
            ("n1h8c3k8r3+keep(pre)", ["--map", "--kernel", "fma"], "fma refuses"),
            ("f16:n1h8c16k8r3+if(1)+t2", ["--map", "--thread", "0", "--block", "0,0,2", "--kernel", "halo"], "0 to 1"),
            ("f16:n1h8c16k8r3+if(1)+t2+hold", ["--map", "--thread", "0", "--block", "0,0,1", "--kernel", "halo"],
             "serves all of its steps"),
            ("f16:n1h8c16k8r3", ["--map", "--thread", "0", "--block", "0,0,1", "--kernel", "window"], "time steps"),
            ("f16:n2h15c64k64r3pad1+max2", ["--map", "--at", "0,14,0,0", "--kernel", "window"], "no window"),
            ("f16:n2h15c64k64r3pad1+max2", ["--map", "--gemm", "210,0", "--kernel", "window"],
             r"explain: the pool takes no window of \(p 14, q 0\)"),
            ("n1h8c4k4r3 > n1h6c4k4r1", ["--map", "--device", "h200"], "found a chain, expected a single stage"),
            ("f16:n1h8c8k8r3 > f16:n1h6c8k8r1", ["--map"], "chain|stage"),
            ("f16:n32h56c128k128r3pad1groups32", ["--thread", "1", "--step", "9", "--kernel", "window", "--tile",
                                                  "box128"], "steps 0 to 8"),
            ("f16:n32h56c128k128r3pad1groups32", ["--map", "--kernel", "window", "--tile", "128x128"], "box256, box64"),
        ):
            with self.subTest([stage, *words]):
                self.refused(convoy("explain", stage, *words), *expected)


if __name__ == "__main__":
    unittest.main()
