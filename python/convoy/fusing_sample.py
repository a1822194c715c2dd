"""Checks a sample, and explains why a model does not take it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ._core import Error
from .records import a_kind


def _tensors(sample: Any) -> list[Tensor]:
    """Returns the tensors in a sample."""
    return [leaf for leaf in pytree.tree_leaves(sample) if isinstance(leaf, Tensor)]


def _type(dtype: torch.dtype) -> str:
    """Returns a type's name without "torch."."""
    return str(dtype).removeprefix("torch.")


def _seen(tensors: Iterable[Tensor]) -> str:
    """Returns type, shape and device of tensors, for messages."""
    return ", ".join(f"{_type(one.dtype)} {list(one.shape)} on {one.device}" for one in tensors)


def check_values(model: nn.Module, sample: Any) -> None:
    """Raises Error if model or sample is on the meta device, whose tensors have no values."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.is_meta:
            raise Error(f"model: {name} is on the meta device, without values, expected all on cpu or cuda. Give it "
                        "values first: model.to_empty(device='cpu'), then model.load_state_dict(...).")  # fmt: skip
    if any(one.is_meta for one in _tensors(sample)):
        raise Error("sample: on the meta device, without values, expected cpu or cuda, as the model is. Pass a sample "
                    "with values: results are compared on it.")  # fmt: skip


class Constants(fx.Interpreter):
    """Runs a graph. Tensors that belong to no module are in `graph.constants`."""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        """Returns the constant or the module's attribute of this name."""
        found = getattr(self.graph, "constants", {}).get(target)
        return super().get_attr(target, args, kwargs) if found is None else found


class _UpTo(Constants):
    """Runs a graph. After a failure `node` is the node that failed, and `given` its input tensors."""

    node: fx.Node | None = None
    given: list[Tensor] = []

    def run_node(self, n: fx.Node) -> Any:
        """Runs a node, and notes it first."""
        self.node, self.given = n, _tensors(self.fetch_args_kwargs_from_env(n))
        return super().run_node(n)


def _expected(module: nn.Module | None) -> str:
    """Returns the type and shape that the layer expects, for messages."""
    weight = getattr(module, "weight", None)
    of = f"{_type(weight.dtype)} " if isinstance(weight, Tensor) else ""
    if isinstance(module, nn.Conv2d):
        return f"{of}[N, {module.in_channels}, H, W], H and W at least the filter's"
    if isinstance(module, nn.Linear):
        return f"{of}[.., {module.in_features}]"
    if isinstance(module, nn.BatchNorm2d):
        return f"{of}[N, {module.num_features}, H, W]"
    return "another"


def computed(model: nn.Module, graph: fx.Graph, arguments: Callable[[], tuple]) -> Any:
    """Returns model(*arguments()). Raises Error if that fails. `arguments` makes new ones for each call."""
    try:
        return model(*arguments())
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise _not_taken(model, graph, arguments(), error) from error


def _not_taken(model: nn.Module, graph: fx.Graph, arguments: tuple, error: Exception) -> Error:
    """Returns the Error for a sample that the model does not take, after it has found the failing layer."""
    tensors, text = _tensors(arguments), str(error).splitlines()[0] if str(error) else a_kind(error)
    found = f"sample: {_seen(tensors)}, which the model does not take"
    weights = [tensor for tensor in model.parameters() if tensor.is_floating_point()]
    for what, of in (("type", lambda t: t.dtype), ("device", lambda t: t.device)):
        wanted, has = {of(one) for one in weights}, {of(one) for one in tensors if one.is_floating_point()}
        if len(wanted) == 1 and has and has != wanted:
            named = wanted.pop()
            name = _type(named) if what == "type" else str(named)
            word = f"torch.{name}" if what == "type" else f"'{name}'"
            return Error(f"{found}; expected {name}, the {what} of the model's weights. Convert it, "
                         f"sample.to({word}), or convert the model.")  # fmt: skip
    run = _UpTo(model, graph=graph)
    try:
        run.run(*arguments)
    except Exception:
        node = run.node
        if node is not None and node.op == "call_module":
            module = dict(model.named_modules()).get(node.target)
            return Error(f"{found}: its layer {node.target}, {a_kind(module)}, is given {_seen(run.given)}, expected "
                         f"{_expected(module)} ({text}). Pass the arguments of a call of the model.")  # fmt: skip
    return Error(f"{found} ({text}). Expected a sample that it takes: pass the arguments of a call of the model, "
                 "several as a tuple.")  # fmt: skip
