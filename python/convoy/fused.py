"""The module that convoy.fuse returns: a model's graph with stages in it, and its life as an nn.Module."""

from __future__ import annotations

import copy
import inspect
import operator
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx, nn

from ._core import Error, InvalidOperand, Unsupported
from .fused_weights import together
from .fusing_changes import Watch, guards_compiled
from .fusing_report import Report
from .records import a_kind

__all__ = ["Fused"]

_library = torch.library.Library("convoy", "FRAGMENT")
_library.define("refuse(Tensor x, str text) -> Tensor")


def _refuse(x: Tensor, text: str) -> Tensor:
    """Raises Error with the text."""
    raise Error(text)


# A compiled graph of a model that changed calls this operator.
_library.impl("refuse", _refuse, "CompositeExplicitAutograd")
torch.library.register_fake("convoy::refuse", lambda x, text: torch.empty_like(x), lib=_library)


class _Argument(NamedTuple):
    """An argument that the model's graph expects to be None, or not to be None. Other calls are refused."""

    name: str
    place: int
    none: bool


def _arguments_of(model: nn.Module, arguments: tuple) -> list[_Argument]:
    """Returns the arguments of the sample for which it matters whether they are None."""
    try:
        bound = inspect.signature(model.forward).bind(*arguments)
    except (TypeError, ValueError):
        return []
    bound.apply_defaults()
    kinds = inspect.signature(model.forward).parameters
    some = [(name, value) for name, value in bound.arguments.items() if kinds[name].kind < 2 or kinds[name].kind == 3]
    return [_Argument(name, place, value is None) for place, (name, value) in enumerate(some)
            if value is None or kinds[name].default is None or (place and isinstance(value, Tensor))]  # fmt: skip


class Fused(nn.Module):
    """A model with stages in it, as `convoy.fuse` returns it.

    It is called like the model and shares its parameters, buffers and state_dict. In training mode it runs the model.

    Attributes:
        original: The model.
        report: A `Report`: the table of stages and of layers that PyTorch runs.
    """

    _convoy_fused = True

    def __init__(self, original: nn.Module, graph: fx.Graph, stages: dict[str, nn.Module], report: Report,
                 watch: Watch, arguments: tuple) -> None:  # fmt: skip
        super().__init__()
        self.__dict__.update(original=original, report=report, _graph=graph, _stages=stages, _watch=watch,
                             _constants=graph.constants, _of_none=_arguments_of(original, arguments),
                             _is_copy_for_devices=False)  # fmt: skip
        # These are the model's own, not copies: moving, loading or training one does the same to the other.
        for name in ("_modules", "_parameters", "_buffers", "_non_persistent_buffers_set"):
            self.__dict__[name] = original.__dict__[name]
        self.training = original.training
        self._build()

    @property
    def frozen(self) -> bool:
        """Whether the weights were packed once, so that later changes of them are not noticed."""
        return self.report.frozen

    def _read(self, name: str) -> Any:
        """Returns the constant of the graph, or the attribute of the model, that has this name."""
        found = self._constants.get(name)
        return operator.attrgetter(name)(self.original) if found is None else found

    def _build(self) -> None:
        """Makes the module that runs the graph."""
        holder = dict(self.original.named_modules(remove_duplicate=False)) | self._stages
        names = [node.target for node in self._graph.nodes if node.op == "call_module"]
        read = [node.target for node in self._graph.nodes if node.op == "get_attr"]
        attributes = {name: self._read(name) for name in read}
        self.__dict__["_attributes"] = attributes
        # A graph refers to the module that runs it, which must not be pickled, so the runner has a copy of the graph.
        graph = copy.deepcopy(self._graph)
        modules = {name: holder[name] for name in names}
        self.__dict__["_runner"] = fx.GraphModule(modules | attributes, graph)
        self.__dict__["_together"] = None if attributes else together(graph, modules)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Runs the model with its stages.

        Args:
            *arguments: The arguments of the model's forward.
            **named: Its keyword arguments.

        Returns:
            The model's result.

        Raises:
            Error: Something in the model changed after fusing. The message names it.
            InvalidOperand: The arguments are not those of forward, or one is None that was not in the sample.
        """
        if self._is_copy_for_devices:
            self._bind_copy()
        if self.training or self.original.training:
            return self.original(*arguments, **named)
        if torch.compiler.is_compiling():
            if not guards_compiled:
                raise Unsupported(f"fuse: torch.compile of a fused model with PyTorch {torch.__version__}, expected "
                                  "2.15 or later. Earlier versions have no guard that notices changes of the model. "
                                  "Call the fused model without torch.compile.")
            if text := self._watch.problem():
                for one in (*arguments, *named.values()):
                    if isinstance(one, Tensor):
                        return torch.ops.convoy.refuse(one, text)
            self._check_arguments(arguments, named)
            return self._runner(*arguments, **named)
        self._watch.check()
        if self._of_none:
            self._check_arguments(arguments, named)
        if self._attributes:
            # The graph itself reads these parameters and buffers. The model may have other ones by now.
            if any(self._read(name) is not value for name, value in self._attributes.items()):
                self._build()
        try:
            if self._together is not None:
                return self._together.run(self._runner, arguments, named)
            return self._runner(*arguments, **named)
        except TypeError as error:
            raise self._not_called_so(arguments, named, error) from error

    def _check_arguments(self, arguments: tuple, named: dict[str, Any]) -> None:
        """Raises InvalidOperand if an argument is None that was not in the sample, or the other way round."""
        for one in self._of_none:
            given = arguments[one.place] if one.place < len(arguments) else named.get(one.name)
            if (given is None) != one.none:
                found, wanted = ("none", "a value") if given is None else (a_kind(given), "none")
                raise InvalidOperand(f"{one.name}: {found}, expected {wanted}, as in the sample that the model was "
                                     "fused with. Its graph is valid for that case only. Fuse the model again with a "
                                     "sample of the other case, and keep both fused models.")  # fmt: skip

    def _not_called_so(self, arguments: tuple, named: dict[str, Any], error: TypeError) -> Exception:
        """Returns InvalidOperand if forward does not take these arguments, else the model's own TypeError."""
        taken = inspect.signature(self.original.forward)
        try:
            taken.bind(*arguments, **named)
        except TypeError as wrong:
            return InvalidOperand(f"arguments: {wrong}; expected those of the model's forward{taken}. Pass the same "
                                  "arguments as to the model.")  # fmt: skip
        return error

    def train(self, mode: bool = True) -> Fused:
        """Puts the fused model and the model in training mode, in which both run the model's own layers.

        Args:
            mode: False puts both back in eval mode.

        Returns:
            The module itself.
        """
        self.original.train(mode)
        self.training = mode
        return self

    def __getstate__(self) -> dict[str, Any]:
        made_anew = ("_runner", "_attributes", "_together")
        return {key: value for key, value in self.__dict__.items() if key not in made_anew}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._build()
        self._watch.begin()

    def extra_repr(self) -> str:
        """Returns "frozen" for a frozen model, for the module's repr."""
        return "frozen" * self.frozen

    def _apply(self, *arguments: Any, **named: Any) -> Fused:
        self.original._apply(*arguments, **named)
        self._build()
        return self

    def _replicate_for_data_parallel(self) -> Fused:
        """Returns a copy for another device. torch.nn.parallel.replicate sets its layers after this call."""
        replica = super()._replicate_for_data_parallel()
        original = self.original._replicate_for_data_parallel()
        for name in ("_modules", "_buffers", "_parameters"):
            original.__dict__[name] = replica.__dict__[name]
        replica.__dict__.update(original=original, _is_copy_for_devices=True, _of=self, _together=None)
        return replica

    def _bind_copy(self) -> None:
        """Replaces the stages and layers of the original by those of this copy's device."""
        of, original = self._of, self.original
        # The copies of the model's own parameters are plain attributes of this object.
        original.__dict__.update(self.__dict__.get("_former_parameters", {}))
        theirs = dict(of.original.named_modules(remove_duplicate=False))
        mine = dict(original.named_modules(remove_duplicate=False))
        modules = {id(module): mine[name] for name, module in theirs.items() if name}
        stages = {name: stage.rebound(modules) for name, stage in of._stages.items()}
        owned = [(module.__dict__.get("_former_parameters", {}), module._buffers) for module in original.modules()]
        tensors = [tensor for several in owned for place in several for tensor in place.values()]
        device = next((tensor.device for tensor in tensors if tensor is not None), None)
        constants = {name: value.to(device) if device and isinstance(value, Tensor) and value.is_cuda else value
                     for name, value in of._constants.items()}  # fmt: skip
        self.__dict__.update(_stages=stages, _constants=constants, _is_copy_for_devices=False)
        runner = copy.copy(of._runner.__dict__)
        made = object.__new__(type(of._runner))  # GraphModule makes a class for each object
        made.__dict__ = runner
        attributes = {name: self._read(name) for name in of._attributes}
        rebound = {id(of._stages[name]): stage for name, stage in stages.items()} | modules
        values = {id(value): attributes[name] for name, value in of._attributes.items()}
        made.__dict__["_modules"] = {key: _rebound(module, rebound, values)
                                     for key, module in of._runner._modules.items()}  # fmt: skip
        _replace(made, values)
        self.__dict__.update(_runner=made, _attributes=attributes)


def _replace(module: nn.Module, values: dict[int, Any]) -> None:
    """Replaces a copied module's own parameters and buffers by the copies for its device."""
    for place in ("_parameters", "_buffers"):
        kept = module.__dict__[place]
        module.__dict__[place] = {key: value for key, value in kept.items() if id(value) not in values}
        module.__dict__.update({key: values[id(value)] for key, value in kept.items() if id(value) in values})


def _rebound(module: nn.Module, modules: dict[int, nn.Module], values: dict[int, Any]) -> nn.Module:
    """Returns the module for the copy's device that replaces this one; for a container of the runner a copy."""
    if id(module) in modules:
        return modules[id(module)]
    made = object.__new__(type(module))
    made.__dict__ = module.__dict__.copy()
    made._modules = {key: _rebound(child, modules, values) for key, child in module._modules.items()}
    _replace(made, values)
    return made
