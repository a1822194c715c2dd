"""The state of a model outside its graph: attributes, containers, classes and globals that forward can read or write.

A walk over them gives records. A Snapshot of records names the changes that a run of the model made, and undoes them.
fusing_changes.Watch compares records at each call of a fused model.
"""

from __future__ import annotations

import collections
import dis
import functools
import itertools
import random
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from .fusing_records import (
    OfArray,
    OfCell,
    OfClass,
    OfDict,
    OfGlobal,
    OfList,
    OfMark,
    OfMemories,
    OfModules,
    OfOthers,
    OfTensor,
    Record,
    joined,
)

_MOST = 100_000  # objects to visit, because a configuration may refer to a whole program
# The methods of PyTorch's own classes that affect the result of a call.
_METHODS = ("forward", "_conv_forward", "__call__", "_call_impl", "_wrapped_call_impl", "__getattr__",
            "_check_input_dim")  # fmt: skip
_ITERATORS = (*(type(iter(kind())) for kind in (list, tuple, dict, set, str)), type(iter(range(0))), itertools.cycle)


def foreign(home: str | None) -> bool:
    """Returns whether a module is code that no model changes: of PyTorch, Python, and libraries that fuse knows."""
    root = (home or "builtins").partition(".")[0]
    known = ("torch", "numpy", "convoy", "spikingjelly", "snntorch", "cupy")
    return root in known or (root in sys.stdlib_module_names and root != "__main__")


class Walk:
    """Makes records of everything that a model refers to. `left` says which modules are left out, by their names."""

    def __init__(self, model: nn.Module, left: Callable[[str], bool] = lambda _: False) -> None:
        self.records: list[Record] = []
        self.modules: list[tuple[str, nn.Module]] = []
        self._seen: dict[int, Any] = {}
        self._left = left
        self._todo: list[tuple[str, Any]] = []
        for name, module in model.named_modules():
            if left(name):
                self._seen[id(module)] = module
        self._todo.append(("", model))
        while self._todo and len(self._seen) < _MOST:
            self._visit(*self._todo.pop())

    def _visit(self, name: str, thing: Any) -> None:
        """Makes the records of an object, unless it was visited before."""
        if isinstance(thing, (bool, int, float, complex, str, bytes, type(None), types.ModuleType, torch.dtype,
                              torch.device)) or id(thing) in self._seen:  # fmt: skip
            return
        self._seen[id(thing)] = thing
        if isinstance(thing, nn.Module):
            self._module(name, thing)
        elif isinstance(thing, Tensor):
            self.records.append(OfTensor(name, thing))
        elif isinstance(thing, dict):
            self._held(OfDict(name, thing), name, thing.items())
        elif isinstance(thing, list):
            self._held(OfList(name, thing), name, enumerate(thing))
        elif isinstance(thing, (tuple, frozenset)):
            self._later(name, enumerate(thing))
        elif isinstance(thing, (set, collections.deque)):
            self._held(OfOthers(name, thing), name, enumerate(thing))
        elif isinstance(thing, types.FunctionType):
            self._function(name, thing)
        elif isinstance(thing, types.MethodType):
            self._todo += [(name, thing.__func__), (name, thing.__self__)]
        elif isinstance(thing, functools.partial):
            self._todo += [(name, thing.func), (name, thing.args), (name, thing.keywords)]
        elif isinstance(thing, (staticmethod, classmethod)):
            self._todo.append((name, thing.__func__))
        elif isinstance(thing, property):
            self._todo += [(name, each) for each in (thing.fget, thing.fset) if each is not None]
        elif isinstance(thing, type):
            self._class(thing)
        elif isinstance(thing, (random.Random, torch.Generator, itertools.count, *_ITERATORS)) or hasattr(
            thing, "bit_generator"
        ):
            self.records.append(OfMark(name, thing))
        elif type(thing).__module__ == "numpy" and hasattr(thing, "tobytes") and hasattr(thing, "flags"):
            self.records.append(OfArray(name, thing))
        elif not foreign(type(thing).__module__) or type(thing).__name__ in ("SimpleNamespace", "Namespace"):
            self._object(name, thing)

    def _later(self, name: str, items: Any) -> None:
        """Adds items to the objects to visit."""
        self._todo += [(joined(name, key), value) for key, value in items]

    def _held(self, record: Record, name: str, items: Any) -> None:
        """Adds a record of a container, and its items to the objects to visit."""
        self.records.append(record)
        self._later(name, items)

    def _module(self, name: str, module: nn.Module) -> None:
        """Makes the records of a module."""
        if hasattr(module, "_convoy_fused"):  # a fused model has its own Watch
            self._visit(name, module.original)
            return
        self.modules.append((name, module))
        home = type(module).__module__
        if home.startswith("snntorch"):
            return
        neuron = home.startswith("spikingjelly") and hasattr(module, "_memories")
        attributes = module.__dict__
        self.records.append((OfMemories if neuron else OfDict)(name, attributes))
        own = ("_parameters", "_buffers", "_modules")
        for key in own:
            inner = attributes[key]
            self._seen[id(inner)] = inner
            self.records.append((OfModules if key == "_modules" else OfDict)(name, inner))
            self._later(name, inner.items())
        hooks = [key for key in attributes if key.endswith(("_hooks", "_hooks_with_kwargs", "_hooks_always_called"))]
        skip = {*own, *hooks, "_memories", "_memories_rv", "v_seq", "_non_persistent_buffers_set"}
        self._later(name, ((key, value) for key, value in attributes.items() if key not in skip))
        self._kinds(type(module))

    def _object(self, name: str, thing: Any) -> None:
        """Makes the records of an object with attributes."""
        attributes = getattr(thing, "__dict__", None)
        if isinstance(attributes, dict):
            self._seen[id(attributes)] = attributes
            self._held(OfDict(name, attributes), name, attributes.items())
        self._kinds(type(thing))

    def _kinds(self, kind: type) -> None:
        """Visits an object's classes, and the methods that a call may reach."""
        for one in kind.__mro__:
            self._visit(one.__name__, one)
        own = [one for one in kind.__mro__ if not foreign(one.__module__)]
        called, names = set(), ["forward", "__call__", "__getattr__"]
        if not issubclass(kind, nn.Module):
            names += [key for one in own for key in vars(one) if key not in ("__init__", "__new__", "__repr__")]
        while names:
            key = names.pop()
            if key in called:
                continue
            called.add(key)
            for one in own:
                thing = vars(one).get(key)
                for function in _functions(thing):
                    names += _names(function.__code__)
                    self._todo.append((f"{one.__name__}.{key}", function))
                if key in vars(one) and not _functions(thing):
                    self._todo.append((f"{one.__name__}.{key}", thing))

    def _class(self, kind: type) -> None:
        """Makes the record of a class."""
        if issubclass(kind, nn.Module) and kind.__module__.startswith("torch."):
            self.records.append(OfClass(kind, _METHODS))
        elif not foreign(kind.__module__):
            self.records.append(OfClass(kind))

    def _function(self, name: str, function: types.FunctionType) -> None:
        """Makes the records of the variables and globals that a function reads."""
        for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            record = OfCell(key, cell)
            if isinstance(record.kept, type):
                continue
            self.records.append(record)
            self._todo.append((key, record.kept))
        if foreign(function.__module__):
            return
        inner = (function.__defaults__, function.__kwdefaults__, function.__dict__ or None)
        self._todo += [(name, each) for each in inner]
        for key in _globals(function.__code__):
            mark = (id(function.__globals__), key)
            if key in function.__globals__ and mark not in self._seen:
                self._seen[mark] = key
                record = OfGlobal(key, function.__globals__)
                self.records.append(record)
                self._todo.append((key, record.kept))


def _functions(thing: Any) -> list[types.FunctionType]:
    """Returns the functions of a class's attribute, also those under decorators."""
    if isinstance(thing, (staticmethod, classmethod)):
        thing = thing.__func__
    several = [thing.fget, thing.fset] if isinstance(thing, property) else [thing]
    return [one for one in several if isinstance(one, types.FunctionType)]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yields a function's code, and the code of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _names(code: types.CodeType) -> set[str]:
    """Returns the names of attributes and globals in a function's code."""
    return {name for one in _codes(code) for name in one.co_names}


def _globals(code: types.CodeType) -> set[str]:
    """Returns the names of globals in a function's code."""
    return {step.argval for one in _codes(code) for step in dis.get_instructions(one)
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL")}  # fmt: skip


def _bits(state: Any) -> list[Any]:
    """Returns the state of NumPy's random generator in a form that can be compared; of None, without NumPy, nothing."""
    return [part.tobytes() if hasattr(part, "tobytes") else part for part in state or ()]


class Snapshot:
    """The state of a model and of PyTorch's, Python's and NumPy's random generators before fuse runs the model."""

    def __init__(self, model: nn.Module) -> None:
        self.records = Walk(model).records
        self.devices = {t.device for t in (*model.parameters(), *model.buffers()) if t.is_cuda}
        self.random = self._random()

    def _random(self) -> list[Any]:
        """Returns the states of the random generators."""
        numpy = sys.modules.get("numpy")
        return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in self.devices),
                random.getstate(), numpy and numpy.random.get_state()]  # fmt: skip

    def drew(self) -> bool:
        """Returns whether random numbers were drawn since."""
        now = self._random()
        drawn = [not torch.equal(a, b) for a, b in zip(self.random[:-2], now[:-2], strict=True)]
        return any(drawn) or self.random[-2] != now[-2] or _bits(self.random[-1]) != _bits(now[-1])

    def restore_random(self) -> None:
        """Puts the states of the random generators back."""
        torch.set_rng_state(self.random[0])
        for device, state in zip(self.devices, self.random[1:-2], strict=True):
            torch.cuda.set_rng_state(state, device)
        random.setstate(self.random[-2])
        if self.random[-1] is not None:
            sys.modules["numpy"].random.set_state(self.random[-1])

    def written(self) -> list[str]:
        """Returns the names of everything that has changed."""
        found = [name for record in self.records for name in record.differences()]
        return list(dict.fromkeys(found))

    def restore(self) -> None:
        """Undoes all changes."""
        for record in self.records:
            if any(True for _ in record.differences()):
                record.restore()
        self.restore_random()
