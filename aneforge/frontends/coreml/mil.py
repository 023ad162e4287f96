"""MIL, the language of ML programs: the common ops, and constants, states and lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from aneforge.frontends.coreml.blobs import Weights
from aneforge.frontends.coreml.control import CONTROL
from aneforge.frontends.coreml.matrix import REFUSED
from aneforge.frontends.coreml.table import KNOWN
from aneforge.frontends.importer.importer import Importer
from aneforge.frontends.importer.language import CommonLanguage, Scope
from aneforge.frontends.importer.op import Op
from aneforge.frontends.importer.ports import Port
from aneforge.frontends.records import Function, Operation, Stored
from aneforge.graph.graph import Graph


class _Mil(CommonLanguage):
    def bind(self, importer: Importer, operation: Operation, scope: Scope) -> Op:
        """The parts of a compressed weight are attributes; they are bound like arguments."""
        for key, value in operation.attributes.items():
            if key not in ("name", "val") and key not in operation.inputs and isinstance(value, (np.ndarray, Stored)):
                operation.inputs[key] = [value]
        return super().bind(importer, operation, scope)


def import_function(
    file: str,
    function: Function,
    weights: Weights,
    dims: Mapping[str, int],
    fixed: Mapping[str, Any],
    ports: Mapping[str, Port],
) -> Graph:
    language = _Mil(CONTROL, KNOWN, REFUSED)
    return Importer(file, language, function, dims=dims, fixed=fixed, ports=ports, weights=weights).graph()
