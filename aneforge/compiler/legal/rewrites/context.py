"""What a rewrite of a graph op receives, and what it may return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aneforge.compiler.facts import Facts
from aneforge.compiler.legal.bounds import Bound
from aneforge.graph.tensor import Tensor


@dataclass(frozen=True, eq=False)
class RewriteResult:
    """The result of a rewrite: the tensor, and a bound of its own where the general one does not apply."""

    tensor: Tensor
    bound: Bound | None = None


@dataclass(frozen=True, eq=False)
class Context:
    """The user's node and its operands as they are after rewriting."""

    node: Tensor
    inputs: tuple[Tensor, ...]
    host: Callable[..., Tensor]
    """Makes an input that the host must supply (see :mod:`aneforge.compiler.legal.rewrites.functions`)."""
    native: Callable[[str], bool]
    """Whether the chip has a graph op, for rewrites with a shorter form on newer chips."""
    chip: Facts
    """The facts that the rows of the pass declare."""
    limit: Callable[[str], Any]
    """The limit of a rule for the node; None where the rule has none on this chip."""
