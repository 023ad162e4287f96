"""The facts of a target that a pass may read: those it has declared, and no others.

A pass cannot look at a chip's name or at a field that it did not declare. So two targets whose declared facts are
equal get the same code from it, and a compile for many targets runs the pass once for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target, compiler_target
from aneforge.chips.evidence import Fact
from aneforge.chips.suppose import supposed
from aneforge.errors import AneforgeError


class Facts:
    """The declared facts of one target. Brackets give a plain value; an unknown one is an error, never a zero."""

    def __init__(self, target: Target, reads: Sequence[str]) -> None:
        self._facts = {key: compile_fact(target, key) for key in reads}
        self._values = {key: fact.value for key, fact in self._facts.items()}

    def __getitem__(self, key: str) -> Any:
        value = self.get(key)
        return self._facts[key].require() if value is None else value

    def get(self, key: str) -> Any:
        """The value, or None where none is published and nothing is assumed."""
        if key not in self._values:
            raise AneforgeError(
                f"a pass read the fact {key!r} of its target without declaring it; add it to the reads of the pass"
            )
        return self._values[key]

    def fact(self, key: str) -> Fact[Any]:
        """The value with its evidence."""
        self.get(key)
        return self._facts[key]

    @cached_property
    def signature(self) -> tuple[str, ...]:
        """Equal for targets that a pass cannot tell apart."""
        return tuple(repr(value) for value in self._values.values())

    def __eq__(self, other: object) -> bool:
        """Facts are equal where no declared fact differs, so that results worked out from them can be shared."""
        if not isinstance(other, Facts):
            return NotImplemented
        return self is other or (self.signature == other.signature and self._values.keys() == other._values.keys())

    @cached_property
    def _hash(self) -> int:
        return hash(self.signature)

    def __hash__(self) -> int:
        return self._hash


@cache
def _facts(name: str, reads: tuple[str, ...]) -> Facts:
    return Facts(compiler_target(name), reads)


def facts_of(target: Target, reads: tuple[str, ...]) -> Facts:
    """The facts of a target that a pass declares; looked up once per target and pass."""
    return Facts(target, reads) if supposed() else _facts(target.name, reads)
