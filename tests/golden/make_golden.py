#!/usr/bin/env python3
"""Makes the golden files: what PyTorch and SpikingJelly say about stages and networks. Seeded, on the CPU, two minutes.

    make_golden.py [stages | networks | fashion ...]      all without a word; needs python/requirements.txt

stages/<name>/ holds stage.txt (one line of the stage grammar) and .npy files: x [N,H,W,C] ([T,N,H,W,C] for a neuron
without hold; C before H where the stage says nchw), w [K,R,S,C/groups], bias, norm_scale, norm_shift, v_in and v_out
[N,P,Q,K]; y and idx [N,P',Q',K], pre and act [N,P,Q,K], all four with T in front for a neuron and NHWC whatever the
stage's layout. Computed in float64 from inputs of the stage's type, stored as fp32 after one rounding to the output
type; idx is int32. Membranes keep 1e-4 from their thresholds, so spikes must be equal.
networks/ and fashion-scnn*/: see golden_networks.py.
"""

import shutil
import sys
import zlib
from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "python"))

import golden_networks  # noqa: E402
import torch_stage  # noqa: E402
from training import grammar  # noqa: E402

# Name, stage, and how the inputs are drawn: "normal", "integers" (many ties; exact in every type), "special" (NaN,
# infinities).
CASES = """
plain                n2h9w7c5k6r3
bias_pad1            n1h8c16k16r3pad1+bias
winograd_c16         n2h12c16k24r3pad1+bias+relu+max2
winograd_c24_odd     n1h13w11c24k20r3pad1+bias+relu
winograd_strict      n1h10c16k16r3pad1+bias+relu+max2+strict
winograd_mean10      n1h12c24k16r3pad1+bias+max2                                          mean10
stride2              n2h11w9c4k5r3stride2pad1+bias+relu
stride_rectangular   n1h10w13c3k4r3s2stride3x2pad1x0+bias
pad_asymmetric       n1h7w9c3k5r4s3pad2x0x1x3+bias+relu
dilation             n1h12c4k6r3pad2dil2+bias+relu
dilation_rectangular n1h13w11c3k4r2s3dil3x2pad1x2+bias
groups2              n2h8c8k6r3pad1groups2+bias+relu+max2
groups3_stride2      n1h9c9k12r3stride2pad1groups3+bias
depthwise            n1h10c12k12r3pad1groups12+bias+relu6
depthwise_double     n1h8c6k12r5pad2groups6+bias+relu
pointwise            n3h7w5c19k21r1+bias+relu
pointwise_pool       n1h8c32k24r1+bias+relu+max2
linear               n9h1c40k17r1+bias+relu
filter5_first        n3h28c1k8r5+bias+relu+max2
filter5_second       n2h12c8k16r5+bias+relu+max2
filter7_stride2      n1h23c3k16r7stride2pad3+bias+relu+max3s2p1
few_filters          n1h9c20k3r3pad1+bias+relu+max2
filter_row           n2h6w9c5k4r1s3pad0x1+bias
filter_as_image      n2h6w5c7k9r6s5+bias
relu6                n1h7c6k5r3pad1+bias+relu6
clip                 n1h7c6k5r3pad1+bias+clip(-0.5,1.25)+max2
clip_lower           n1h7c6k5r3pad1+bias+clip(0.75,inf)
leaky                n1h7c6k5r3pad1+bias+leaky(0.1)+max2
leaky_negative_pool  n1h8c4k5r3pad1+bias+leaky(-0.25)+max2
pool_no_act          n1h9w8c4k6r3pad1+bias+max2+keep(idx)
pool_3s2p1           n2h12w11c4k6r3pad1+bias+relu+max3s2p1+keep(idx)
pool_ceil            n1h9w10c4k5r3pad1+bias+max2ceil+keep(idx)
pool_ceil_3s2p1      n1h10w8c3k4r3pad1+relu+max3s2p1ceil+keep(idx)
pool_dilated         n1h11w10c3k4r3pad1+bias+max2s1d3+keep(idx)
pool_rectangular     n1h10w12c3k4r3pad1+bias+relu+max3x2s2x3p1x0+keep(idx)
pool_overlapping     n1h9c5k4r3pad1+bias+max3s1p1+keep(idx)
keep_all             n2h8w9c5k6r3pad1+bias+relu+max2+keep(pre,act,idx)
keep_ties            n2h8c3k4r3pad1+bias+relu+max3s2p1+keep(pre,act,idx)                    integers
norm_u8              u8:n2h11w9c3k8r3pad1+bias+norm+relu+max2
norm_u8_asymmetric   u8:n1h8c2k4r3pad2x0x1x1+bias+norm
norm_u8_first        u8:n2h28c1k8r5+bias+norm+relu+max2
norm_f32             n1h8c4k5r3pad1+bias+norm+relu
u8_plain             u8:n1h9c3k4r3pad1+bias+relu
nchw                 n2h9w8c3k5r3pad1nchw+bias+relu+max2
nchw_stride2         u8:n1h13c3k8r3stride2pad1nchw+bias+norm+relu
f16                  f16:n2h8c16k16r3pad1+bias+relu+max2
f16_ties             f16:n1h8c3k4r3pad1+bias+relu+max2+keep(pre,act,idx)                    integers
f16_out_f32          f16:n1h7c5k6r3pad1out(f32)+bias
f16_pointwise        f16:n1h6c24k20r1+bias+relu6
bf16                 bf16:n2h8c16k16r3pad1+bias+relu+max2
bf16_stride2         bf16:n1h9c6k5r3stride2pad1+bias+leaky(0.1)
f32_out_f16          n1h7c5k6r3pad1out(f16)+bias+relu
special_relu         n2h8c3k4r3pad1+bias+relu                                              special
special_pool         n2h8c3k4r3pad1+bias+max2+keep(idx)                                    special
special_pool_padded  n1h9c2k3r1+relu+max3s2p1+keep(idx)                                    special
special_clip         n1h8c3k4r1+bias+clip(-1,1)                                            special
special_winograd     n1h12c16k16r3pad1+bias+relu+max2                                      special
if_one_step          n2h8c5k6r3pad1+bias+if(1)+max2+keep(pre)
if_hard              n2h8c5k6r3pad1+bias+if(1)+t2+max2+keep(pre,act,idx)
if_hard_hold         n2h12c1k8r5+bias+if(1)+t2+hold+max2
if_hard_hold5        n1h8c4k6r3pad1+bias+if(1)+t5+hold+max2
if_soft              n1h8c5k6r3pad1+bias+if(0.5)+soft+t5+max2+keep(act)
if_v_in              n2h7c4k5r3pad1+bias+if(1)+t2+max2                                     v_in
lif_hard             n1h8c5k6r3pad1+bias+lif(2,1)+t5+max2
lif_soft             n2h8c4k12r3pad1+bias+lif(2,1)+soft+t5+max2+keep(pre)
lif_tau3_v_in        n1h7c4k5r3stride2pad1+bias+lif(3,0.5)+t2                              v_in
lif_soft_hold_v_in   n1h8c3k12r3pad1+bias+lif(2,1)+soft+t5+hold+max2                       v_in
if_spikes            n3h12c8k16r5+bias+if(1)+t2+max2                                       spikes
if_linear_spikes     n9h1c96k24r1+bias+if(1)+t5                                            spikes
lif_spikes           n1h10c12k20r3pad1+bias+lif(2,1)+soft+t5+max2                          spikes
if_norm_u8           u8:n2h12c1k8r5+bias+norm+if(1)+t2+hold+max2
if_f16               f16:n1h8c8k8r3pad1+bias+if(1)+t2+max2                                 spikes
"""


def draw(stage, how, rng):
    """{'x': [T, N, C, H, W], 'w': [K, C/groups, R, S], ...} in float64, each value one of its type."""
    neuron = stage["act"] is not None and stage["act"][0] in ("if", "lif")
    steps = stage["t"] if neuron and not stage["hold"] else 1
    shape = (steps, stage["n"], stage["c"], stage["h"], stage["w"])
    taps = (stage["k"], stage["c"] // stage["groups"], stage["r"], stage["s"])
    fan = float(np.prod(taps[1:]))
    dtype = "f32" if stage["dtype"] == "u8" else stage["dtype"]

    def typed(values, name="f32"):
        return torch_stage.rounded(torch.from_numpy(np.asarray(values, np.float64)), name)

    got = {}
    if stage["dtype"] == "u8":
        got["x"] = typed(rng.integers(0, 256, shape))
    elif how == "integers":
        got["x"] = typed(rng.integers(-2, 3, shape))
    elif how == "spikes":
        got["x"] = typed(rng.random(shape) < 0.25)
    else:
        got["x"] = typed(rng.standard_normal(shape) + (10 if how == "mean10" else 0), dtype)
    if how == "special":
        flat = got["x"].view(-1)
        at = rng.permutation(len(flat))[:9]
        flat[at] = torch.tensor([np.nan, np.inf, -np.inf] * 3, dtype=torch.float64)
    if how == "integers":
        got["w"], bias = typed(rng.integers(-2, 3, taps)), rng.integers(-2, 3, stage["k"])
    else:
        # A neuron wants currents of the threshold's size, whatever feeds it.
        gain = 2.5 if how == "spikes" else 1.2 if neuron else 1.0
        if stage["dtype"] == "u8" and not stage["norm"]:
            gain /= 128
        got["w"], bias = (
            typed(rng.standard_normal(taps) * gain / np.sqrt(fan), dtype),
            rng.standard_normal(stage["k"]) * 0.3,
        )
    if stage["bias"]:
        got["bias"] = typed(bias)
    if stage["norm"]:
        if stage["dtype"] == "u8":
            got["scale"], got["shift"] = (
                typed(rng.uniform(0.01, 0.02, stage["c"])),
                typed(rng.uniform(-2, -1, stage["c"])),
            )
        else:
            got["scale"], got["shift"] = typed(rng.uniform(0.5, 2, stage["c"])), typed(rng.uniform(-1, 1, stage["c"]))
    return got


def channels_last(x):
    return np.moveaxis(np.asarray(x), -3, -1)


def make_stage(name, text, how):
    stage = grammar.parts(text)
    neuron = stage["act"] is not None and stage["act"][0] in ("if", "lif")
    for attempt in range(200):
        rng = np.random.default_rng([zlib.crc32(name.encode()), attempt])
        given = draw(stage, how, rng)
        if how == "v_in":
            empty = torch_stage.run(stage, **given)
            given["v"] = torch.from_numpy(rng.uniform(-0.5, 0.9, empty["v_out"].shape)).float().double()
        got = torch_stage.run(stage, **given)
        if got["margin"] is None or got["margin"] > 1e-4:
            break
    else:
        raise SystemExit(f"{name}: in 200 draws a membrane always came within 1e-4 of its threshold")
    if neuron:
        rate = got["act"].mean().item()
        assert 0.03 < rate < 0.6, f"{name}: {rate:.2f} of the neurons fire"
    folder = HERE / "stages" / name
    folder.mkdir(parents=True)
    (folder / "stage.txt").write_text(text + "\n")

    def save(file, values, dtype=np.float32):
        np.save(folder / f"{file}.npy", np.ascontiguousarray(np.asarray(values)).astype(dtype))

    place = np.asarray if stage["nchw"] else channels_last
    stepped = neuron and not stage["hold"]
    save("x", place(given["x"] if stepped else given["x"][0]), np.uint8 if stage["dtype"] == "u8" else np.float32)
    save("w", channels_last(given["w"]))
    for key, file in (("bias", "bias"), ("scale", "norm_scale"), ("shift", "norm_shift")):
        if key in given:
            save(file, given[key])
    outputs = [("y", np.float32)] + [(k, np.int32 if k == "idx" else np.float32) for k in stage["keep"]]
    for key, dtype in outputs:
        save(key, channels_last(got[key] if neuron else got[key][0]), dtype)
    if "v" in given:
        save("v_in", channels_last(given["v"]))
    if neuron:
        save("v_out", channels_last(got["v_out"]))


def make_stages():
    shutil.rmtree(HERE / "stages", ignore_errors=True)
    cases = [line.split() for line in CASES.split("\n") if line]
    for name, text, *how in cases:
        make_stage(name, text, how[0] if how else "normal")
    size = sum(f.stat().st_size for f in (HERE / "stages").rglob("*.npy"))
    print(f"{len(cases)} stages, {size} bytes")


def main():
    parts = {"stages": make_stages, "networks": golden_networks.make_networks, "fashion": golden_networks.make_fashion}
    wanted = sys.argv[1:] or list(parts)
    unknown = [w for w in wanted if w not in parts]
    if unknown:
        print(
            __doc__
            if unknown[0] in ("-h", "--help")
            else f"make_golden.py: unknown part {unknown[0]}, expected {' '.join(parts)}"
        )
        sys.exit(0 if unknown[0] in ("-h", "--help") else 2)
    torch.set_num_threads(1)
    for part in wanted:
        parts[part]()


if __name__ == "__main__":
    main()
