"""Core AI's language: the common ops under its own names, and its other operations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aneforge.errors import LoadError
from aneforge.frontends.coreai.control import CONTROL, Token
from aneforge.frontends.coreai.known import STATIC
from aneforge.frontends.coreai.rules import ROWS
from aneforge.frontends.coreai.table import COMPARED, MOVED, REFUSED
from aneforge.frontends.importer.importer import Importer
from aneforge.frontends.importer.language import CommonLanguage
from aneforge.frontends.records import Function, StateType, TensorType
from aneforge.graph.graph import Graph


class _CoreAI(CommonLanguage):
    def is_output(self, importer: Importer, value: Any) -> bool:
        """A token among the results holds the last values of the states."""
        if not isinstance(value, Token):
            return super().is_output(importer, value)
        for name, new_value in value.written.items():
            importer.states[name].value, importer.states[name].written = new_value, True
        return False


def import_function(file: str, functions: Mapping[str, Function], name: str) -> Graph:
    function = functions[name]
    for label, kind in function.inputs:
        wrapped = kind.wrapped if isinstance(kind, StateType) else kind
        if isinstance(wrapped, TensorType) and wrapped.static is None:
            raise LoadError(
                f"{file}: input {label!r} is {kind}; its shape must be fixed. Fix it before you save the asset "
                "(AIProgram.set_static_shape_config)"
            )
    language = _CoreAI(CONTROL, ROWS, REFUSED, MOVED, COMPARED, STATIC, "coreai")
    return Importer(file, language, function, functions=functions).graph()
