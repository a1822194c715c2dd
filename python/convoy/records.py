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
