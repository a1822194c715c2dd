"""convoy.torch.StageModule: a stage as a layer of PyTorch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from . import derivatives
from ._core import InvalidOperand, Stage
from .stage_form import form_of
from .torch import _compiling, called, thaw
from .weights import place_of

__all__ = ["StageModule"]


class StageModule(torch.nn.Module):
    """A stage as a layer with parameters of its own, initialised as those of torch.nn.Conv2d.

    Args:
        stage: A Stage or its text, as `convoy.torch.stage` takes it.
        device: The device of the parameters, as torch.nn layers take it.
        dtype: The type of the parameters, as torch.nn layers take it.

    Attributes:
        weight: The parameter [K, C/groups, R, S].
        bias: The parameter [K]; None if the stage has no `bias`.
        text: The stage's text.

    Raises:
        Error: The stage is illegal, or has `norm`, `keep(...)` or a neuron.

    Example:
        >>> import convoy.torch
        >>> layer = convoy.torch.StageModule("n1h8c3k16r3pad1+bias+relu")
        >>> sorted(layer.state_dict()), tuple(layer.weight.shape)
        (['bias', 'weight'], (16, 3, 3, 3))
    """

    def __init__(self, stage: str | Stage, device: Any = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self._frozen: tuple | None = None
        self.text = str(stage)
        form = form_of(self.text)
        self.weight = torch.nn.Parameter(torch.empty(form.weight_shape, device=device, dtype=dtype))
        if form.bias:
            self.bias = torch.nn.Parameter(torch.empty(form.k, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialises weight and bias as torch.nn.Conv2d does."""
        torch.nn.init.kaiming_uniform_(self.weight, a=5**0.5)
        if self.bias is not None:
            bound = (self.weight[0].numel() or 1) ** -0.5
            torch.nn.init.uniform_(self.bias, -bound, bound)

    def freeze(self, mode: bool = True) -> StageModule:
        """Declares that the weights do not change: later calls do not compare them with the packed weights.

        Call it again after you changed the weights: it packs their new values.

        Args:
            mode: False ends it: later calls compare the weights again.

        Returns:
            The module itself.
        """
        thaw(self.weight)
        self._frozen = place_of(self.weight) if mode else None
        return self

    @property
    def frozen(self) -> bool:
        """Whether the weights are declared not to change."""
        return self._frozen is not None

    def __getstate__(self) -> dict[str, Any]:  # a copy has another place
        return {**self.__dict__, "_frozen": () if self.frozen else None}

    def forward(self, x: Tensor) -> Tensor:
        """Computes the stage.

        Args:
            x: A tensor [N, C, H, W], as `convoy.torch.stage` takes it.

        Returns:
            A tensor [N, K, P', Q'].

        Raises:
            InvalidOperand: x has a wrong shape, type or device, or a frozen weight changed.
        """
        if self._frozen is None or _compiling():
            return called(x, self.weight, self.bias, self.text, self._frozen is not None)
        if self._frozen == ():
            self.freeze()
        if place_of(self.weight) != self._frozen:
            raise InvalidOperand("weight: it has another storage, type or shape than when the module was frozen, "
                                 "expected no change. Call freeze() again, which packs the present weights, or "
                                 "freeze(False).")  # fmt: skip
        derivatives.no_gradient(True, self.weight)
        return called(x, self.weight, self.bias, self.text, True)

    def extra_repr(self) -> str:
        """Returns the stage's text, for the module's repr."""
        return self.text + ", frozen" * self.frozen


StageModule.__module__ = "convoy.torch"  # where a user finds it, and pickle
