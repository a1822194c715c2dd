"""Notices changes of a model that its fused model does not read at each call."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module as _modules

from ._core import Error, _first_change, _pack_watch
from .fusing_records import (
    MISSING,
    OfClass,
    OfDict,
    OfGlobal,
    OfList,
    OfMemories,
    OfModules,
    OfTensor,
    Record,
    equal,
    joined,
    same,
)
from .fusing_state import Walk
from .layers import HOOKS
from .records import a_kind

try:  # PyTorch 2.15 and later
    from torch._custom_class_base import CustomClassBase
    from torch._library.opaque_object import MemberType, register_custom_class
except ImportError:  # without these, torch.compile cannot check at each call (`Watch.problem`)
    CustomClassBase, register_custom_class = object, None

_GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks", "_global_backward_hooks",
                 "_global_backward_pre_hooks")  # fmt: skip
# Other attributes of a module, which are read at each call or do not affect the graph's results.
# torch.compile(model) and model.compile() write the last two.
_FREE = ("_is_full_backward_hook", "_is_replica", "_former_parameters", "_is_torch_compile", "_compiled_call_impl")
_FREE_OF_NORMS = ("eps", "momentum")
_ANYTHING, _SOMETHING = object(), object()


def global_hooks() -> str | None:
    """Returns the name of PyTorch's dict of hooks on all modules that is not empty, or None."""
    return next((name for name in _GLOBAL_HOOKS if getattr(_modules, name)), None)


@contextlib.contextmanager
def without_hooks(model: nn.Module) -> Iterator[None]:
    """Removes the model's hooks while the body runs: fuse's own runs on the sample call no hook."""
    kept = [(hooks, dict(hooks)) for module in model.modules() for name in HOOKS if (hooks := getattr(module, name))]
    try:
        for hooks, _ in kept:
            hooks.clear()
        yield
    finally:
        for hooks, had in kept:
            hooks.update(had)


def _fuse_again(what: str) -> str:
    """Returns the message for a change after which the model must be fused again."""
    return f"fuse: {what} Fuse the model again."


class Watch(CustomClassBase):
    """Compares a model with its state at the time of fusing. torch.compile calls `problem` at each call as a guard.

    left: names of modules that run unchanged; they are not compared. norms: modules whose eps and momentum are read at
    each call. quiet: modules of which only the hooks are compared. inside: layers of stages, whose own training mode
    does not matter. baked: tensors that tracing read as constants.
    """

    def __init__(self, model: nn.Module, left: set[str], quiet: set[str] = frozenset(), norms: set[str] = frozenset(),
                 inside: set[str] = frozenset(), baked: dict[str, Tensor] | None = None) -> None:  # fmt: skip
        self.model, self.left, self.quiet, self.norms = model, set(left), set(quiet), set(norms)
        self.inside = set(inside)
        self.baked = {name: tensor.detach().clone() for name, tensor in (baked or {}).items()}
        self.said = ""  # the message of a copy that was made after a change
        self.late = False
        self._take()

    def _take(self) -> None:
        """Records the model's present state."""
        self.late = False
        skip = self.left | self.quiet

        def left(name: str) -> bool:
            parts = name.split(".")
            return any(".".join(parts[: n + 1]) in skip for n in range(len(parts)))

        walk = Walk(self.model, left)
        self.whole: list[Any] = []
        self.parts: list[Any] = []
        self.owners: list[Any] = []  # for each of whole, then of parts: a record, or a kind and a name
        self.slow: list[Record] = []
        self.classes: list[tuple[OfClass, int]] = []  # with the number of attributes that they had
        of_parts: list[Any] = []
        names = {id(module.__dict__): name for name, module in walk.modules}
        inner = {id(module.__dict__[key]): (name, key) for name, module in walk.modules
                 for key in ("_parameters", "_buffers")}  # fmt: skip
        self.names = names

        def add(container: Any, expected: Any, owner: Any) -> None:
            self.whole += [container, expected]
            self.owners.append(owner)

        for name, module in walk.modules:
            add(module, type(module), ("type", name))
        for name, module in (*walk.modules, *((n, self.model.get_submodule(n)) for n in sorted(self.quiet))):
            for hooks in HOOKS:
                if hooks in module.__dict__:
                    add(module.__dict__[hooks], (), ("hooks", name))
        for hooks in _GLOBAL_HOOKS:
            add(getattr(_modules, hooks), (), ("global", hooks))
        for record in walk.records:
            if isinstance(record, OfDict) and not isinstance(record, OfMemories):
                add(record.container, self._expected(record, names, inner), record)
            elif isinstance(record, OfList) and type(record.container) is list:
                add(record.container, tuple(record.kept), record)
            elif isinstance(record, (OfGlobal, OfClass)):
                of = {record.key: record.kept} if isinstance(record, OfGlobal) else record.kept
                where = record.container if isinstance(record, OfGlobal) else vars(record.container)
                for key, value in of.items():
                    self.parts += [where, key, value]
                    of_parts.append(record)
                if isinstance(record, OfClass):
                    self.classes.append((record, len(vars(record.container))))
            elif not isinstance(record, (OfTensor, OfMemories)):
                self.slow.append(record)
        self.owners += of_parts
        self._alive = tuple(self.whole), tuple(self.parts)
        self._packed = _pack_watch(*self._alive, _ANYTHING, _SOMETHING)

    def _free(self, record: Record) -> set[str]:
        """Returns the attributes of a module that may change."""
        name = self.names.get(id(record.container))
        if name is None:
            return set()
        training = ("training",) if name in self.inside or not name else ()  # the fused model reads the model's
        return {*_FREE, *training, *(_FREE_OF_NORMS if name in self.norms else ())}

    def _expected(self, record: OfDict, names: dict[int, str], inner: dict[int, Any]) -> tuple:
        """Returns the keys and expected values of a dict in turn."""
        free = self._free(record)
        loose = id(record.container) in inner or id(record.container) in names
        flat: list[Any] = []
        for key, value in record.container.items():
            # Tensors are read from their modules at each call.
            other = _SOMETHING if loose and isinstance(value, Tensor) else value
            flat += [key, _ANYTHING if key in free else other]
        return tuple(flat)

    def changes(self) -> str:
        """Returns a message about the first change, or "" if there is none."""
        if self.said:
            return self.said
        while (place := _first_change(self._packed)) >= 0:
            if text := self._text(place):
                return text
            self._take()  # the values are equal, but in other objects or in another order
        for record in self.slow:
            for name in record.differences():
                return _fuse_again(f"{name} was changed after fusing, and the model's graph read it as a constant.")
        for record, size in self.classes:
            if len(vars(record.container)) != size:
                for name in record.differences():
                    return _fuse_again(f"{name}, was changed after fusing.")
        for name, values in self.baked.items():
            owner, _, key = name.rpartition(".")
            now = getattr(self.model.get_submodule(owner), key, None)
            if not isinstance(now, Tensor) or not equal(now.detach(), values):
                return _fuse_again(f"the tensor {name} was changed after fusing, and the model's graph read it as a "
                                   "constant.")  # fmt: skip
        return ""

    def begin(self) -> None:
        """Records the state of a copied model, which is complete by now."""
        if self.late:
            self._take()

    problem = changes  # torch.compile's guards call a method by this name

    def check(self) -> None:
        """Raises Error if something has changed."""
        if text := self.changes():
            raise Error(text)

    def _text(self, place: int) -> str:
        """Returns the message for the container at a place, or "" if its values are equal."""
        owner = self.owners[place]
        if isinstance(owner, tuple):
            kind, name = owner
            if kind == "global":
                return (f"fuse: torch.nn.modules.module.{name} has a hook on all modules, which the layers in stages "
                        "would not call. Remove it, or call fused.original while it is there.")  # fmt: skip
            what = f"the layer {name}" if name else f"the model, {a_kind(self.model)},"
            if kind == "hooks":
                remedy = ("Fuse the model again: PyTorch then runs layers with hooks." if name else
                          "Remove them, or put them on the fused model.")  # fmt: skip
                return f"fuse: {what} was given hooks after fusing, which its stages would not call. {remedy}"
            module = self.whole[2 * place]
            return _fuse_again(f"{what} was made {a_kind(module)} after fusing, expected the "
                               f"{self.whole[2 * place + 1].__name__} that it was.")  # fmt: skip
        if isinstance(owner, OfModules):
            return self._of_modules(owner)
        if isinstance(owner, OfDict) and self.whole[2 * place] is owner.container:
            return self._of_dict(owner, self.whole[2 * place + 1])
        for name in owner.differences():
            return _fuse_again(f"{name} was changed after fusing, which the model's graph does not see.")
        return ""

    def _of_modules(self, record: OfModules) -> str:
        """Returns the message for changed layers, or ""."""
        for name in record.differences():
            key = name.rpartition(".")[2]
            had, now = record.kept.get(key), record.container.get(key)
            if key not in record.container:
                what = "removed"
            elif key not in record.kept:
                what = "added"
            elif had is now:
                what = "moved to another place"
            else:
                return _fuse_again(f"the layer {name} was replaced after fusing: found {a_kind(now)} that the stages "
                                   f"do not use, expected the former {type(had).__name__}.")  # fmt: skip
            return _fuse_again(f"the layer {name} was {what} after fusing, which the model's graph does not see.")
        return ""

    def _of_dict(self, record: OfDict, expected: tuple) -> str:
        """Returns the message for changed attributes, or ""."""
        wanted = dict(zip(expected[::2], expected[1::2], strict=True))
        found = record.container
        for key in {**wanted, **found}:
            one, other = wanted.get(key, MISSING), found.get(key, MISSING)
            if one is _ANYTHING or (one is MISSING and key in self._free(record)) or same(one, other):
                continue
            if one is _SOMETHING and other is not None and other is not MISSING:
                continue
            if key in ("_modules", "_parameters", "_buffers"):
                what = f"the layer {record.name}" if record.name else f"the model, {a_kind(self.model)},"
                return _fuse_again(f"{what} was given other {key[1:]} after fusing, as removing a layer does, which "
                                   "the model's graph does not see.")  # fmt: skip
            name = joined(record.name, key)
            if key == "training":
                return (f"fuse: the layer {record.name} was put in training mode, but the model was not. Call eval() "
                        "on it, or train() on the fused model, which then runs the model itself.")  # fmt: skip
            before = "a tensor" if one is _SOMETHING else _short(one)
            return _fuse_again(f"{name} was changed after fusing: found {_short(other)}, expected {before}, as when "
                               "the model was fused.")  # fmt: skip
        return ""

    def __getstate__(self) -> dict[str, Any]:
        kept = ("model", "left", "quiet", "norms", "inside", "baked")
        return {name: self.__dict__[name] for name in kept} | {"said": self.changes()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.late = True  # the copied model may not be whole yet


def _short(value: Any) -> str:
    """Returns a value for a message: simple values as they are, others by their type."""
    plain = isinstance(value, (bool, int, float, complex, str, type(None))) or (
        isinstance(value, tuple) and all(isinstance(v, (bool, int, float, str)) for v in value)
    )
    text = repr(value) if plain or type(value).__name__ == "Missing" else a_kind(value)
    return text if len(text) < 80 else text[:77] + "..."


guards_compiled = register_custom_class is not None
if guards_compiled:
    register_custom_class(Watch, typ="symbolic", guard_fn=lambda watch: [watch.changes()],
                          members={"problem": MemberType.USE_REAL})  # fmt: skip
