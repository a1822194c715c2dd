"""Names of layers that network.txt can hold, for layers whose names come from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# Characters that end a word or a line of network.txt, or are not printable.
_BAD = re.compile("[\\s#\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_WORDS = ("input", "steps", "flatten")  # lines of network.txt begin with these


def _clean(name: str) -> str:
    """Returns the name with characters that network.txt can hold."""
    return _BAD.sub(".", name) or "layer"


def layer_names(names: Iterable[str]) -> dict[str, str]:
    """Returns a dict of each name's name in network.txt. No two are equal.

    A name that network.txt can hold stays. In other names each blank, "#" and control character becomes a ".". If
    another layer has the name already, or network.txt uses it as a word, a number is added.

    Args:
        names: The names of the layers.

    Returns:
        The dict, in the order of the names.

    Example:
        >>> layer_names(["a/b", "a.b", "a b", "steps", ""])
        {'a/b': 'a/b', 'a.b': 'a.b', 'a b': 'a.b_2', 'steps': 'steps_2', '': 'layer'}
    """
    names = list(dict.fromkeys(names))
    given = {name: name for name in names if _clean(name) == name and name not in _WORDS}
    taken = {*given, *_WORDS}
    for name in names:
        if name in given:
            continue
        clean = _clean(name)
        unique, number = clean, 1
        while unique in taken:
            number += 1
            unique = f"{clean}_{number}"
        given[name] = unique
        taken.add(unique)
    return {name: given[name] for name in names}


def shown(name: Any) -> str:
    """Returns a foreign name for a message: in quotes, escaped and cut if it is empty, long or has blanks."""
    name = str(name)
    if name and len(name) <= 160 and not _BAD.search(name):
        return name
    return repr(name[:160] + "..." * (len(name) > 160))
