"""The seed page's compile names: ``from aneforge._compile import cross_compile_check``."""

from __future__ import annotations

from typing import Any

from aneforge.errors import AneforgeError, UnavailableError
from aneforge.targets.names import family_of_arch

__all__ = ["cross_compile_check"]


def cross_compile_check(out: Any, target: str, int8: bool = False) -> bool:
    """True if all four phases build a program for ``target``, False if they refuse the graph.

    Unknown names are refused before anything else. Graphs that native layers cut into segments are out of scope and
    raise, as the seed page says.
    """
    from aneforge.compiler.refusal import CompileError
    from aneforge.model import SegmentedModel
    from aneforge.model import compile as compile_model

    family_of_arch(target)
    if int8:
        raise UnavailableError("cross_compile_check: int8 needs the weight encoder, which this version does not have")
    try:
        model = compile_model(out, target=target)
    except CompileError:
        return False
    if isinstance(model, SegmentedModel):
        raise AneforgeError(
            f"cross_compile_check takes graphs of one segment; native layers cut this one into "
            f"{len(model.program.segments)}"
        )
    return True
