"""What calls return besides arrays."""

from typing import Any, NamedTuple


class Outputs(NamedTuple):
    """What a stage with keep(...) gives: y, and what it keeps; None for what it does not."""

    y: Any
    pre: Any = None
    act: Any = None
    idx: Any = None


class Text(str):
    """A text of several lines that a prompt shows as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def a_kind(thing: Any) -> str:
    """The name of its type behind an article, for messages: "a list", "an IFNode"."""
    name = type(thing).__name__
    return f"an {name}" if name[0] in "aeioAEIO" or name == "ndarray" else f"a {name}"
