"""The seed page's compile names: ``from aneforge._compile import cross_compile_check``."""

from __future__ import annotations

from typing import Any

from aneforge.errors import UnavailableError
from aneforge.targets.names import family_of_arch

__all__ = ["cross_compile_check"]


def cross_compile_check(out: Any, target: str, int8: bool = False) -> bool:
    """True only if a program results for ``target``. Unknown names are refused before anything else.

    The compiler is not part of this version yet, so a known name ends in an error, never in a false pass.
    """
    family_of_arch(target)
    raise UnavailableError(
        "cross_compile_check needs the compiler, which this version does not have; see CHANGELOG.md"
    )
