"""How a rewrite is declared and found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from aneforge.compiler.legal.rewrites.bounds import Bound, bound_of
from aneforge.graph.node import definitions
from aneforge.graph.tensor import Tensor

__all__ = ["Context", "Result", "Rule", "decomposition", "decompositions", "rule"]


@dataclass(frozen=True, eq=False)
class Result:
    """What a rule made: the tensor, and a bound of its own where the general one does not hold."""

    tensor: Tensor
    bound: Bound | None = None


@dataclass(frozen=True, eq=False)
class Context:
    """The user's node and its operands as they are after rewriting."""

    node: Tensor
    inputs: tuple[Tensor, ...]
    host: Callable[..., Tensor]
    """Makes an input that the host must supply (see :mod:`aneforge.compiler.legal.rewrites.host`)."""
    native: Callable[[str], bool]
    """Whether the chip has a graph op, for rules with a shorter form on newer chips."""


@dataclass(frozen=True)
class Rule:
    """One rewrite: the op it replaces, its name in reports, and what it does in one line."""

    op: str
    name: str
    doc: str
    apply: Callable[[Context], Tensor | Result]

    @property
    def bound(self) -> Bound:
        return bound_of(self.op)


_RULES: dict[str, Rule] = {}


def rule(op: str, name: str) -> Callable[[Callable[..., Tensor | Result]], Callable[..., Tensor | Result]]:
    """Register a function of a :class:`Context` as the rewrite of a graph op; its first line says what it does."""

    def register(apply: Callable[..., Tensor | Result]) -> Callable[..., Tensor | Result]:
        bound_of(op)  # a rule without a stated bound is a mistake
        _RULES[op] = Rule(op, name, (apply.__doc__ or "").strip().partition("\n")[0], apply)
        return apply

    return register


def decompositions() -> Mapping[str, Rule]:
    """Every rewrite, by graph op."""
    from aneforge.compiler.legal.rewrites import elementwise, host, movement, recurrent, resampling, sums

    _ = elementwise, host, movement, recurrent, resampling, sums  # importing them registers their rules
    return _RULES


@cache
def decomposition(op_name: str) -> Rule | None:
    """The rewrite of an op, by its graph name or the name the target data knows it by; None if there is none."""
    rules = decompositions()
    found = rules.get(op_name)
    if found is None:
        found = next((each for name, each in rules.items() if definitions()[name].gate_name == op_name), None)
    return found
