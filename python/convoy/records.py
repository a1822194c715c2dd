"""Results of calls that are not arrays."""

from typing import Any, NamedTuple


class Outputs(NamedTuple):
    """The outputs of a stage with keep(...).

    Attributes:
        y: The stage's result, [[T,] N, P', Q', K].
        pre: The values before the activation, [[T,] N, P, Q, K]; None without keep(pre).
        act: The values after the activation, [[T,] N, P, Q, K]; None without keep(act).
        idx: The positions of the pool's maxima, int32, of the shape of y; None without keep(idx).
    """

    y: Any
    pre: Any = None
    act: Any = None
    idx: Any = None


class Text(str):
    """A str of several lines that a Python prompt shows line by line."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def a_kind(thing: Any) -> str:
    """Returns the name of the object's type with its article, for messages: "a list", "an IFNode"."""
    name = type(thing).__name__
    return f"an {name}" if name[0] in "aeioAEIO" or name == "ndarray" else f"a {name}"
