"""The smallest reader of stages and of network.txt, for machines without the package convoy.

The training tools run from a checkout, and golden files are written by PyTorch and SpikingJelly only: both use this
reader. Everything else uses convoy.Stage and convoy.NetworkText. tests/python/grammar_test.py compares the readers.

The reader knows the grammar of docs/use/stages.md, and lines of network.txt without batchnorm(...) and from(...). It
raises ValueError for a word that it does not know. It does not check whether a stage is legal.
"""

import re

NUMBER = r"-?(?:inf|(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)"
SIZE = r"\d+(?:x\d+)?"
AXES = ("n", "h", "w", "c", "k", "r", "s")
TYPES = ("f32", "f16", "bf16", "u8")
# The parts that may be missing, and their values then. Axes have no such value.
DEFAULTS = dict(dtype="f32", stride=(1, 1), pad=(0, 0, 0, 0), dil=(1, 1), groups=1, nchw=False, out=None, bias=False,
                norm=False, act=None, soft=False, t=1, hold=False, pool=None, keep=(), strict=False)  # fmt: skip
OPTION = re.compile(r"(stride|groups|pad|dil|[nhwckrs])(\d+(?:x\d+)*)|(nchw)|out\((\w+)\)", re.ASCII)
RIDER = re.compile(
    rf"\+(?:(?P<flag>bias|norm|soft|hold|strict)|t(?P<t>\d+)|keep\((?P<keep>[a-z]+(?:,[a-z]+)*)\)"
    rf"|(?P<act>relu6?|clip\({NUMBER},{NUMBER}\)|leaky\({NUMBER}\)|if(?:\({NUMBER}\))?|lif(?:\({NUMBER}(?:,{NUMBER})?\))?)"
    rf"|max(?P<window>{SIZE})(?:s(?P<stride>{SIZE}))?(?:p(?P<pad>{SIZE}))?(?:d(?P<dil>{SIZE}))?(?P<ceil>ceil)?)(?=\+|$)",
    re.ASCII,
)
NEURONS = {"if": (1.0,), "lif": (2.0, 1.0)}  # the numbers of a neuron that leaves them out
WORD = re.compile(rf"(mean|std)\(({NUMBER}(?:,{NUMBER})*)\)", re.ASCII)


def sizes(text, count):
    """Returns the numbers of "3" or "3x2" as a tuple of `count`; one number stands for all."""
    found = tuple(int(size) for size in text.split("x"))
    if len(found) not in (1, 2, count):
        raise ValueError(f"{text}: found {len(found)} sizes, expected {count} or fewer")
    return found * (count // len(found))


def numbers(text):
    """Returns the numbers of "0.5,1"."""
    return tuple(float(number) for number in text.split(",") if number)


def rider_of(found):
    """Returns the part of the stage and its value for a match of RIDER."""
    if found["flag"]:
        return found["flag"], True
    if found["t"]:
        return "t", int(found["t"])
    if found["keep"]:
        names = tuple(found["keep"].split(","))
        if len(set(names)) < len(names) or not {"pre", "act", "idx"} >= set(names):
            raise ValueError(f"{found[0]}: expected pre, act and idx, each at most once")
        return "keep", names
    if found["act"]:
        name, _, rest = found["act"].partition("(")
        values = numbers(rest.rstrip(")"))
        return "act", (name, values + NEURONS.get(name, ())[len(values) :])
    window = sizes(found["window"], 2)
    given = {key: sizes(found[key], 2) for key in ("stride", "pad", "dil") if found[key]}
    return "pool", dict(window=window, stride=window, pad=(0, 0), dil=(1, 1), ceil=bool(found["ceil"])) | given


def option_of(found):
    """Returns the part of the stage and its value for a match of OPTION."""
    key, text, nchw, out = found.groups()
    if nchw or out:
        return ("nchw", True) if nchw else ("out", out)
    count = {"stride": 2, "dil": 2, "pad": 4}.get(key, 1)
    return key, sizes(text, count) if count > 1 else int(text)


def parts(text):
    """Returns the parts of a stage's text as a dict: the axes that it has, and all other parts.

    The names are those of DEFAULTS. `act` is (name, numbers), `pool` is a dict, `keep` has names.

    Raises:
        ValueError: The text has a word that is unknown, or a part twice.
    """
    dtype, colon, rest = text.rpartition(":")
    given = {"dtype": dtype} if colon else {}
    at = 0
    while at < len(rest):
        kind, part_of = (RIDER, rider_of) if rest[at] == "+" else (OPTION, option_of)
        found = kind.match(rest, at)
        if not found:
            raise ValueError(f'"{text}": found "{rest[at:]}", expected an option or a rider that this reader knows')
        key, value = part_of(found)
        if key in given:
            raise ValueError(f'"{text}": found {key} twice, expected it once')
        given[key], at = value, found.end()
    if any(given.get(key, "f32") not in TYPES for key in ("dtype", "out")):
        raise ValueError(f'"{text}": found an unknown type, expected one of {", ".join(TYPES)}')
    if any(given.get(axis, 1) < 1 for axis in AXES):
        raise ValueError(f'"{text}": found a size of 0, expected at least 1')
    for axis, other in (("w", "h"), ("s", "r")):
        if other in given:
            given.setdefault(axis, given[other])
    return DEFAULTS | given


def network(text):
    """Returns the parts of a network.txt: the input, the number of steps (None if it gives none), and the layers.

    The input is a dict as of `parts`, with "mean" and "std". A layer is (name, text of its stage, parts of its stage);
    a line "flatten" is ("flatten", None, None).

    Raises:
        ValueError: A line has a word that is unknown. The message has the line.
    """
    source, steps, layers = None, None, []
    for line in text.split("\n"):
        words = re.findall(r"[^ \t\r]+", line.split("#")[0])
        try:
            if not words:
                continue
            if words[0] == "input" and source is None and len(words) > 1:
                source = parts(words[1]) | {"mean": (), "std": ()}
                for word in words[2:]:
                    found = WORD.fullmatch(word)
                    if not found or source[found[1]]:
                        raise ValueError(f"found {word}, expected mean(...) and std(...), each at most once")
                    source[found[1]] = numbers(found[2])
            elif source is None:
                raise ValueError('it comes before the line "input", expected after it')
            elif words[0] == "steps" and steps is None and not layers:
                if len(words) != 2 or not re.fullmatch(r"0*[1-9]\d*", words[1], re.ASCII):
                    raise ValueError("expected a whole number of steps, 1 or more")
                steps = int(words[1])
            elif words == ["flatten"]:
                layers.append(("flatten", None, None))
            elif len(words) == 2 and words[0] not in ("input", "steps", "flatten"):
                layer = parts(words[1])
                if ":" in words[1] or "k" not in layer or layer.keys() & {"n", "h", "w", "c"}:
                    raise ValueError("expected k, and no type, n, h, w and c, which follow from the layer before")
                layers.append((*words, layer))
            else:
                raise ValueError("expected a name and a stage, and no further words")
        except ValueError as error:
            raise ValueError(f'"{line.strip()}": {error}') from None
    if source is None:
        raise ValueError('found no line "input", expected one as the first line')
    return source, steps, layers
