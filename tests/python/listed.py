"""Stages of the shape lists, stages drawn from them with other riders, and texts that are no stage."""

import random
from pathlib import Path

import convoy

SOURCE = Path(__file__).resolve().parents[2]
# Every keyword of a stage.
KEYWORDS = ("dtype n h w c k r s stride pad dil groups layout out bias norm act soft t hold pool keep strict").split()
ACTS = ("none", "relu", "relu6", "clip(-0.5,0.75)", "clip(-inf,6)", "clip(-1e+30,1e-30)", "leaky(0.1)", "leaky(-2)",
        "if", "if(0.7)", "lif", "lif(3)", "lif(2.5,0.9)", "lif(16777216,1e-20)")  # fmt: skip
POOLS = (None, 2, (3, 2), "3s2p1", "max3s2p1ceil", "max2x3s1x2d1x2", "max3x2s2x3p1x0", "2ceil", "max4s3p2d2")
KEEPS = ((), "pre", "keep(pre)", ("idx",), ("pre", "act", "idx"), "act,idx")
# Riders that no stage has: reserved words, wrong numbers, halves of words.
NO_RIDERS = ("silu gelu hswish add avg2 gap Relu relu7 bias2 max max2x2x2 max2s max2p1s1 maxpool2 ceil t t-1 t2x2 "
             "keep keep() keep(y) keep(pre,) clip clip(1) clip(0,1,2) leaky leaky() leaky(0.1 leaky(a) if() if(1,2) "
             "lif() lif(1,2,3) soft1 hold2 strict(1) norm() none").split()  # fmt: skip
TWICE = ("bias+bias relu+relu relu+clip(0,1) if+lif max2+max3 soft+soft t2+t2 keep(pre)+keep(idx) keep(pre,pre) "
         "strict+strict").split()  # fmt: skip
NO_OPTIONS = ("stride stride1x2x3 stride2stride2 pad pad1x2x3 pad1x2x3x4x5 dil1x2x3 groups groups2x2 nhwc nchwnchw out "
              "out() out(f64) out(i32 q3 h3 k3 r x3 stride-1 pad1.5").split()  # fmt: skip


def no_stages():
    """Texts with a word that no stage has, or with a part twice."""
    return [*(f"n1h8c4k6r3+{rider}" for rider in (*NO_RIDERS, *TWICE)), *(f"n1h8c4k6r3{one}" for one in NO_OPTIONS),
            "f64:n1h8c4k6r3", "i32:n1h8c4k6r3", ":n1h8c4k6r3", "n0h8c4k6r3", "n1h8c4k6r3+", "n1h8c4k6r3 +bias",
            "n\u0661h8c4k6r3"]  # fmt: skip


def listed():
    """Every stage of the shape lists, also those of chains."""
    found = {}
    for path in sorted(SOURCE.glob("shapes/*.txt")):
        for line in path.read_text().splitlines():
            for text in line.split("#")[0].split(">"):
                if "h" in text and "k" in text:  # no word of a chain: constants, spikes, mean
                    found[text.strip()] = convoy.Stage(text.strip())
    return list(found.values())


def drawn(count, seed=1):
    """Legal stages with the sizes of listed ones and riders of every kind."""
    draw, stages, found = random.Random(seed), listed(), []
    while len(found) < count:
        stage = draw.choice(stages)
        changes = dict(
            dtype=draw.choice(("f32", "f16", "bf16", "u8")), out=draw.choice((None, None, "f32", "f16", "bf16")),
            layout=draw.choice(("nhwc", "nhwc", "nchw")), stride=draw.choice((1, 2, (2, 1))),
            dil=draw.choice((1, 1, 2, (1, 2))), pad=draw.choice((0, 1, (1, 2), (0, 1, 2, 1))),
            s=draw.choice((1, stage.r)), groups=draw.choice((1, stage.groups, stage.c)), act=draw.choice(ACTS),
            pool=draw.choice(POOLS), keep=draw.choice(KEEPS),
            **{flag: draw.random() < 0.4 for flag in ("bias", "norm", "strict")})  # fmt: skip
        neuron = convoy.Activation(changes["act"]).is_neuron
        changes |= dict(soft=neuron and draw.random() < 0.5, hold=neuron and draw.random() < 0.5,
                        t=draw.choice((1, 2, 7)) if neuron else 1)  # fmt: skip
        try:
            found.append(stage.replace(**changes))
        except convoy.Error:  # a filter that is larger than its image, a kept index without a pool
            continue
    return found
