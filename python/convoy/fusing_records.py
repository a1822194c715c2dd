"""Records of a model's containers with their content: attributes, lists, classes, globals, tensors."""

from __future__ import annotations

import itertools
import random
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

_ATOMS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), tuple, frozenset, torch.Size, range,
          slice)  # fmt: skip
_OF_NO_EFFECT = ("__doc__", "__annotations__", "__dict__", "__weakref__", "__abstractmethods__", "_abc_impl",
                 "__module__", "__signature__", "__firstlineno__", "__static_attributes__")  # fmt: skip
MISSING = type("Missing", (), {"__repr__": lambda _: "nothing"})()


def same(one: Any, other: Any) -> bool:
    """Returns whether two values are one object, or equal simple values."""
    if one is other:
        return True
    if type(one) is not type(other) or not isinstance(one, (*_ATOMS, types.MethodType)):
        return False
    if isinstance(one, (tuple, types.MethodType)) and not isinstance(one, types.MethodType):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, types.MethodType):
        return one.__func__ is other.__func__ and one.__self__ is other.__self__
    return one == other or (one != one and other != other)


def joined(name: str, key: Any) -> str:
    """Returns the name of an item: "name.key"."""
    return f"{name}.{key}" if name else str(key)


class Record:
    """A container with its former content. `differences` names changes; `restore` undoes them."""

    def __init__(self, name: str, container: Any) -> None:
        self.name, self.container = name, container
        self.kept = self.now()

    def now(self) -> Any:
        """Returns the present content."""
        raise NotImplementedError

    def differences(self) -> Iterator[str]:
        """Yields the names of changed items."""
        if not same(self.kept, self.now()):
            yield self.name

    def restore(self) -> None:
        """Puts the former content back."""


class OfDict(Record):
    """Attributes of an object, or a dict."""

    skip: tuple[str, ...] = ()

    def now(self) -> dict[Any, Any]:
        return {key: value for key, value in self.container.items() if key not in self.skip}

    def differences(self) -> Iterator[str]:
        now = self.now()
        for key in {**self.kept, **now}:
            if not same(self.kept.get(key, MISSING), now.get(key, MISSING)):
                yield joined(self.name, key)

    def restore(self) -> None:
        skipped = {key: value for key, value in self.container.items() if key in self.skip}
        self.container.clear()
        self.container.update(self.kept | skipped)


class OfMemories(OfDict):
    """Attributes of a neuron, except its membranes, which States resets and restores."""

    skip = ("_memories", "v_seq", "v", "mem")


class OfModules(OfDict):
    """A module's own modules, whose order matters."""

    def differences(self) -> Iterator[str]:
        yield from super().differences()
        kept, now = list(self.kept), list(self.container)
        if sorted(kept) == sorted(now) and kept != now:
            yield joined(self.name, now[next(i for i, key in enumerate(now) if key != kept[i])])


class OfList(Record):
    """A list."""

    def now(self) -> list[Any]:
        return list(self.container)

    def differences(self) -> Iterator[str]:
        now = self.now()
        if len(now) != len(self.kept) or not all(map(same, now, self.kept)):
            yield self.name

    def restore(self) -> None:
        self.container[:] = self.kept


class OfOthers(OfList):
    """A set or a deque."""

    def now(self) -> Any:
        return set(self.container) if isinstance(self.container, set) else list(self.container)

    def differences(self) -> Iterator[str]:
        if isinstance(self.container, set):
            if self.now() != self.kept:
                yield self.name
        else:
            yield from super().differences()

    def restore(self) -> None:
        self.container.clear()
        (self.container.update if isinstance(self.container, set) else self.container.extend)(self.kept)


class OfGlobal(Record):
    """A global name of a Python file that a forward reads."""

    def __init__(self, key: str, container: dict[str, Any]) -> None:
        self.key = key
        super().__init__(f"the global {key}", container)

    def now(self) -> Any:
        return self.container.get(self.key, MISSING)

    def restore(self) -> None:
        self.container[self.key] = self.kept


class OfClass(Record):
    """The attributes of a class. `only` limits them to these names."""

    def __init__(self, container: type, only: tuple[str, ...] = ()) -> None:
        self.only = only
        super().__init__(f"the class {container.__name__}", container)

    def now(self) -> dict[str, Any]:
        found = vars(self.container)
        keys = [key for key in self.only if key in found] if self.only else found
        return {key: found[key] for key in keys if key not in _OF_NO_EFFECT}

    def differences(self) -> Iterator[str]:
        now = self.now()
        for key in {**self.kept, **now}:
            if not same(self.kept.get(key, MISSING), now.get(key, MISSING)):
                yield f"{self.container.__name__}.{key}, of the class"

    def restore(self) -> None:
        for key in self.now().keys() - self.kept.keys():
            delattr(self.container, key)
        for key, value in self.kept.items():
            if vars(self.container).get(key, MISSING) is not value:
                setattr(self.container, key, value)


class OfCell(Record):
    """A variable that a function reads from the function around it."""

    def now(self) -> Any:
        try:
            return self.container.cell_contents
        except ValueError:
            return MISSING

    def restore(self) -> None:
        if self.kept is not MISSING:
            self.container.cell_contents = self.kept


class OfTensor(Record):
    """A tensor's values and, if it has one, its version counter."""

    def now(self) -> Any:
        tensor = self.container
        try:
            version = None if tensor.is_inference() else tensor._version
            return version, tensor.data, tensor.detach().clone()
        except Exception:  # a kind of tensor that can't be copied, such as one that is not initialised
            return None

    def differences(self) -> Iterator[str]:
        if self.kept is None:
            return
        version, memory, values = self.kept
        tensor = self.container
        moved = version is not None and version != tensor._version
        if moved or tensor.data_ptr() != memory.data_ptr() or not equal(tensor.detach(), values):
            yield self.name

    def restore(self) -> None:
        if self.kept is None or not any(True for _ in self.differences()):
            return
        _, memory, values = self.kept
        with torch.no_grad():
            memory.copy_(values)
            if self.container.data_ptr() != memory.data_ptr() or self.container.shape != memory.shape:
                self.container.data = memory
        self.kept = (None if self.container.is_inference() else self.container._version, memory, values)


class OfArray(Record):
    """A NumPy array."""

    def now(self) -> Any:
        return self.container.copy()

    def differences(self) -> Iterator[str]:
        if self.container.shape != self.kept.shape or self.container.tobytes() != self.kept.tobytes():
            yield self.name

    def restore(self) -> None:
        self.container[...] = self.kept


class OfMark(Record):
    """An object of C without attributes, compared by its visible state: iterators and random number generators."""

    def now(self) -> Any:
        thing = self.container
        if isinstance(thing, random.Random):
            return thing.getstate()
        if isinstance(thing, torch.Generator):
            return bytes(thing.get_state().tolist())
        if hasattr(thing, "bit_generator"):
            return repr(thing.bit_generator.state)
        if isinstance(thing, itertools.count):
            return repr(thing)
        return thing.__reduce__()

    def restore(self) -> None:
        thing = self.container
        if isinstance(thing, random.Random):
            thing.setstate(self.kept)
        elif isinstance(thing, torch.Generator):
            thing.set_state(torch.tensor(list(self.kept), dtype=torch.uint8))
        elif hasattr(thing, "__setstate__") and isinstance(self.kept, tuple) and len(self.kept) > 2:
            thing.__setstate__(self.kept[2])


def equal(one: Tensor, other: Tensor) -> bool:
    """Returns whether two tensors have equal shape, type, device and values; NaN equals NaN."""
    if one.shape != other.shape or one.dtype != other.dtype or one.device != other.device:
        return False
    if torch.equal(one, other):
        return True
    return one.is_floating_point() and bool(((one == other) | (one.isnan() & other.isnan())).all())
