"""What a fused model must notice of the model that it was made of: other layers, and hooks on layers in stages."""

from __future__ import annotations

from typing import Any

from torch import nn

from ._core import Error
from .records import a_kind

_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Watch:
    """The modules on the way to the layers that were traced, and the hooks of those that became part of a stage.

    A stage holds its layers, so that one put in their place would never run, and calls none of their hooks.
    """

    def __init__(self, model: nn.Module, traced: set[str], stages: set[str]) -> None:
        """traced: names of all layers of the graph. stages: names of those that run inside stages."""
        self.places: list[tuple[dict[str, Any], str, nn.Module, str]] = []
        self.hooks: list[Any] = []
        self.named: list[str] = []
        prefixes = {".".join(name.split(".")[: n + 1]) for name in traced for n in range(name.count(".") + 1)}
        for name in sorted(prefixes):
            owner, _, key = name.rpartition(".")
            modules = model.get_submodule(owner)._modules
            self.places.append((modules, key, modules[key], name))
            if name in stages:
                self.hooks += [getattr(modules[key], hooks) for hooks in _HOOKS]
                self.named += [name] * len(_HOOKS)

    def check(self) -> None:
        """Raises Error where one has changed."""
        for modules, key, module, name in self.places:
            if modules.get(key) is not module:
                raise Error(f"fuse: the layer {name} was replaced after fusing: found {a_kind(modules.get(key))} that "
                            f"the stages do not have, expected the {type(module).__name__} that was there. Fuse the "
                            "model again.")  # fmt: skip
        if any(self.hooks):
            name = next(name for name, hooks in zip(self.named, self.hooks, strict=True) if hooks)
            raise Error(f"fuse: the layer {name} was given hooks after fusing, which its stage would not call. Fuse "
                        "the model again: layers with hooks stay PyTorch's.")  # fmt: skip
