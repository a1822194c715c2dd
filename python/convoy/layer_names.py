"""Names of layers that network.txt can hold, for layers whose names come from elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

# What ends a word or a line of network.txt, is no part of a file's name, or is not printable (core/printable.hpp).
_BAD = re.compile("[\\s/#\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_WORDS = ("input", "steps", "flatten")  # lines of network.txt begin with these
_BYTES = 200  # file systems take 255, with the ending


def _cut(name: str, most: int) -> str:
    return name.encode()[:most].decode(errors="ignore")


def _clean(name: str) -> str:
    return _cut(_BAD.sub(".", name), _BYTES) or "layer"


def layer_names(names: Iterable[str]) -> dict[str, str]:
    """{name: its name in network.txt}, no two the same.

    A name that network.txt can hold stays. In the others each blank, "/", "#" and control character becomes a ".", and
    a name longer than 200 bytes is cut. A number is added to what another layer, or network.txt itself, is called.

    >>> layer_names(["a/b", "a.b", "a b", "steps", ""])
    {'a/b': 'a.b_2', 'a.b': 'a.b', 'a b': 'a.b_3', 'steps': 'steps_2', '': 'layer'}
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
            unique = _cut(clean, _BYTES - len(f"_{number}")) + f"_{number}"
        given[name] = unique
        taken.add(unique)
    return {name: given[name] for name in names}


def shown(name: Any) -> str:
    """A name from elsewhere, fit for a message: in quotes, escaped and cut, if it is empty, long or has blanks."""
    name = str(name)
    if name and len(name) <= 160 and not _BAD.search(name):
        return name
    return repr(name[:160] + "..." * (len(name) > 160))
