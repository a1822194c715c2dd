"""Packs weights for plans, and notices when the tensors change.

PyTorch's version counters do not move with every write: fused optimizers, `.data`, aliases, NumPy's views and other
processes bypass them. So the content of each tensor is compared at each call, unless the caller declares it frozen.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

from ._core import Busy, Contents, InvalidOperand, Plan, _all_same
from .gradients import fold

__all__ = ["Call", "Entry", "Kept", "Seen", "Source", "call", "place_of", "ready", "source_of", "sources", "version"]


class _Lock:
    """A lock that is free in a forked child, even if another thread of the parent held it."""

    def __init__(self) -> None:
        self._renew()
        os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Makes a new lock."""
        self.lock = threading.RLock()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: Any) -> None:
        self.lock.release()


_packing = _Lock()


class Kept:
    """A cache whose keys have addresses of storages. An entry lasts as long as its storages."""

    def __init__(self, most: int) -> None:
        self._kept: dict[tuple, tuple[list[Any], Any]] = {}
        self._most = most
        self._lock = _Lock()

    def find(self, key: tuple) -> Any:
        """Returns the value of a key, or None."""
        found = self._kept.get(key)
        return found[1] if found else None

    def keep(self, key: tuple, tensors: Sequence[Tensor], value: Any) -> None:
        """Stores a value for as long as the storages of these tensors exist."""
        references = [StorageWeakRef(tensor.untyped_storage()) for tensor in tensors]
        with self._lock:
            for old in [k for k, (refs, _) in self._kept.items() if any(ref.expired() for ref in refs)]:
                del self._kept[old]
            while len(self._kept) >= self._most:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (references, value)


def place_of(tensor: Tensor) -> tuple:
    """Returns the place of a tensor's elements, with the storage's size, because FSDP and others resize storages."""
    storage = tensor.untyped_storage()
    return storage._cdata, storage.nbytes(), tensor.storage_offset(), tensor.stride(), tensor.dtype, tensor.shape


def _bytes(tensor: Tensor) -> int:
    """Returns the number of bytes from the first element to the last, including gaps."""
    if tensor.numel() == 0:
        return 0
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size = (last + 1) * tensor.element_size()
    if (has := tensor.untyped_storage().nbytes()) < size + tensor.storage_offset() * tensor.element_size():
        raise InvalidOperand(f"a parameter of {list(tensor.shape)} whose storage has {has} bytes, expected one that "
                             "holds it. untyped_storage().resize_(0) empties it; fill it again.")  # fmt: skip
    return size


def _by_pages(tensor: Tensor) -> bool:
    """Returns whether the kernel notices all writes to the pages. It does not notice those of a GPU."""
    return not (torch.cuda.is_initialized() and tensor.is_pinned())


class Seen:
    """The content of tensors at a moment: a copy on a GPU, and on the CPU a fingerprint (32 bytes for 4,096)."""

    __slots__ = ("_parts", "contents")

    def __init__(self, tensors: Sequence[Tensor]) -> None:
        threads = torch.get_num_threads()
        self._parts: list[tuple[Any, int]] = []
        for tensor in tensors:
            if tensor.is_cpu:
                size = _bytes(tensor)
                self._parts.append((Contents(tensor.data_ptr(), size, _by_pages(tensor), threads), size))
            else:
                self._parts.append((tensor.detach().clone(), -1))
        # Empty unless all tensors are on the CPU.
        self.contents = tuple(part for part, size in self._parts if size >= 0)
        if len(self.contents) < len(self._parts):
            self.contents = ()

    def same(self, tensors: Sequence[Tensor]) -> bool:
        """Returns whether the tensors still have this content."""
        threads = torch.get_num_threads()
        for tensor, (part, size) in zip(tensors, self._parts, strict=True):
            if tensor.is_cpu:
                if size != _bytes(tensor) or not part.same(tensor.data_ptr(), size, threads):
                    return False
            elif size >= 0 or not torch.equal(tensor.detach(), part):
                return False
        return True


def version(tensor: Tensor) -> int:
    """Returns the tensor's version counter, or -1 for a tensor of inference_mode."""
    return -1 if tensor.is_inference() else tensor._version


def _versions(tensors: Sequence[Tensor | None]) -> list[int]:
    """Returns the version counters of the tensors that are there."""
    return [version(tensor) for tensor in tensors if tensor is not None]


class Source:
    """The tensors at one place that weights are made from: their last known content, and the weights made from it."""

    def __init__(self, tensors: Sequence[Tensor], eps: float | None) -> None:
        self.eps = eps  # None: no norm is folded into the weights
        self.addresses = [tensor.untyped_storage()._cdata for tensor in tensors]
        self.seen = Seen(tensors)
        self.made: tuple[Seen, Tensor, Tensor | None] | None = None
        self.packs: dict[str, tuple[Seen, Any]] = {}
        self.versions: list[int] | None = None  # the version counters of frozen tensors
        self.stepped = ""

    def holds(self, tensors: Sequence[Tensor | None]) -> bool:
        """Returns whether these are the storages that the source was made for, and not others at their addresses."""
        return self.addresses == [tensor.untyped_storage()._cdata for tensor in tensors if tensor is not None]

    def look(self, tensors: Sequence[Tensor], frozen: bool) -> Seen:
        """Returns the present content, or of frozen tensors the content when frozen.

        Raises InvalidOperand if it notices a change of frozen tensors.
        """
        if frozen and self.versions is not None:
            if self.stepped:
                raise InvalidOperand(f"weight: {self.stepped} has stepped on it since the stage was frozen, expected "
                                     f"no change. {_AGAIN}")  # fmt: skip
            if self.versions != (now := [version(tensor) for tensor in tensors]):
                raise InvalidOperand(f"weight: it has changed since the stage was frozen (version counters {now}, then "
                                     f"{self.versions}), expected no change. {_AGAIN}")  # fmt: skip
            return self.seen
        if frozen:
            versions = [version(tensor) for tensor in tensors]
        seen = self.seen
        if not seen.same(tensors):
            with _packing:
                seen = self.seen
                if not seen.same(tensors):
                    self.seen = seen = Seen(tensors)
                    self.packs = {}
        self.stepped = ""
        if frozen:
            _watch_optimizers(self, tensors)
            self.versions = versions
        else:
            self.versions = None
        return seen

    def values(self, seen: Seen, tensors: Sequence[Any]) -> tuple[Tensor, Tensor | None]:
        """Returns the filters to pack and their bias. A bias of None means the caller's own."""
        if len(tensors) == 1:
            return tensors[0].detach(), None
        made = self.made
        if made is None or made[0] is not seen:
            # The result must not be tensors of inference_mode, even if this runs in it.
            with torch.inference_mode(False), torch.no_grad():
                normal = (t.clone() if t is not None and t.is_inference() else t for t in tensors)
                made = seen, *_folded(tuple(normal), self.eps)
            self.made = made
        return made[1], made[2]


_AGAIN = "Freeze it again, which packs the present weights, or call it with frozen=False."
_watched: dict[int, weakref.WeakSet] = {}  # frozen sources by the address of their storages
_hook: list[Any] = []


def _watch_optimizers(source: Source, tensors: Sequence[Tensor]) -> None:
    """Notes in the source when an optimizer steps on one of the tensors."""
    for old in [address for address, sources in list(_watched.items()) if not sources]:
        _watched.pop(old, None)
    for tensor in tensors:
        _watched.setdefault(tensor.untyped_storage()._cdata, weakref.WeakSet()).add(source)
    if not _hook:
        _hook.append(register_optimizer_step_post_hook(_stepped))


def _stepped(optimizer: Optimizer, *_: Any) -> None:
    """Marks the sources whose tensors the optimizer has stepped on: a hook after each step."""
    if not _watched:
        return
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None and parameter.layout is torch.strided:
                for source in _watched.get(parameter.untyped_storage()._cdata, ()):
                    source.stepped = type(optimizer).__name__


_sources = Kept(4096)


def sources() -> list[Source]:
    """Returns all sources."""
    return [source for _, source in list(_sources._kept.values())]


def source_of(key: tuple, tensors: Sequence[Tensor], eps: float | None) -> Source:
    """Returns the source of a key; it is made once."""
    found = _sources.find(key)
    if found is None:
        with _packing:
            found = _sources.find(key)
            if found is None:
                found = Source(tensors, eps)
                _sources.keep(key, tensors, found)
    return found


def _folded(given: Sequence[Tensor | None], eps: float | None) -> tuple[Tensor, Tensor | None]:
    """Returns the weights to pack and the bias in f32; None for the bias means the caller's own.

    given: the weight; the weight and the bias; or with eps the weight, the bias and the tensors of a batch-norm.
    """
    if eps is not None:
        return fold(*given, eps)
    weight, bias = given[0], given[1] if len(given) > 1 else None
    return weight.detach(), None if bias is None else bias.detach().float().contiguous()


class Call(threading.local):
    """A thread's call of a fused model on a GPU.

    Attributes:
        packed: The entries that have the present weights by now, with the version counters of their tensors.
        noted: The entries that `ready` packed one by one, with the tensors that weights are made from, and eps.
    """

    packed: dict[Entry, list[int]] | None = None
    noted: list[tuple[Entry, Sequence[Tensor | None], float | None]] | None = None


call = Call()


class Entry:
    """A plan, and the content from which its weights were packed. shift: the bias that a group of plans writes."""

    __slots__ = ("bias", "plan", "seen", "shift", "source")

    def __init__(self, plan: Plan, source: Source) -> None:
        self.plan, self.source, self.seen, self.bias, self.shift = plan, source, None, None, None

    def current(self, given: tuple[Tensor | None, ...], frozen: bool, threads: int) -> bool:
        """Returns whether the plan has the present weights; False also if that is not certain yet.

        Sizes, strides and memory of the tensors must be those that the plan was made for (_places).
        """
        source, seen = self.source, self.seen
        if seen is None:  # always so for plans that are repacked on a GPU
            packed = call.packed
            versions = packed.get(self) if packed else None
            return versions is not None and versions == _versions(given) and source.holds(given)
        if seen is not source.seen:
            return False
        if frozen:
            return (source.versions is not None and not source.stepped and source.versions == _versions(given)
                    and source.holds(given))  # fmt: skip
        return source.versions is None and bool(seen.contents) and _all_same(seen.contents, given, threads)


def _give(entry: Entry, seen: Seen, make: Callable[[], Plan], given: Sequence[Any], tensors: Sequence[Tensor]) -> None:
    """Packs weights for the entry's plan. On the CPU, plans of equal packing share them."""
    source = entry.source
    weight, bias = source.values(seen, given)
    if not weight.is_cpu:
        entry.plan.set_weights(weight, weights_layout="kcrs")
        entry.seen, entry.bias = seen, bias
        return
    found = source.packs.get(entry.plan.packing)
    whole = True
    if found is None or found[0] is not seen:
        found = seen, entry.plan.pack(weight, weights_layout="kcrs")
        # If another thread or process wrote to them meanwhile, they are packed again at the next call.
        whole = seen.same(tensors)
        if whole:
            source.packs[entry.plan.packing] = found
        else:
            source.made = None
    try:
        entry.plan.use(found[1])
    except Busy:  # a run of another thread still reads the old weights
        entry.plan = make()
        entry.plan.use(found[1])
    entry.bias = bias
    entry.seen = seen if whole else None


def ready(kept: Kept, key: tuple, place: tuple, given: Sequence[Any], make: Callable[[], Plan], frozen: bool,
          eps: float | None = None) -> tuple[Plan, Tensor | None]:  # fmt: skip
    """Returns the plan of this key with the present weights, and the bias in f32; None means the caller's own.

    given: the tensors that weights and bias are made from, as `_folded` takes them. place: their place.
    eps: that of the batch-norm whose tensors are among them; None: no batch-norm is folded in.
    """
    tensors = given if eps is None else [tensor for tensor in given if tensor is not None]
    # A key may name memory by its address, where another tensor's storage was before.
    entry = kept.find(key)
    if entry is None or not entry.source.holds(tensors):
        with _packing:
            entry = kept.find(key)
            if entry is None or not entry.source.holds(tensors):
                entry = Entry(make(), source_of(place, tensors, eps))
                kept.keep(key, tensors, entry)
    if not frozen and tensors[0].is_cuda:
        if hasattr(entry.plan, "repack"):  # packs on the stream, without a comparison
            weight, bias = _folded(given, eps)
            entry.plan.repack(weight.detach(), weights_layout="kcrs")
            if call.noted is not None:
                call.noted.append((entry, given, eps))
            return entry.plan, bias
        if torch.cuda.is_current_stream_capturing() and entry.seen is not None:
            return entry.plan, entry.bias  # a comparison would wait for the device, which a capture forbids
    seen = entry.source.look(tensors, frozen)
    if entry.seen is not seen:
        with _packing:
            if entry.seen is not seen:
                _give(entry, seen, make, given, tensors)
    return entry.plan, entry.bias
