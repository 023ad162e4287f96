"""The compiler's own answer before any Mac is involved: validators of layers, networks, procedures and programs.

The checks are rules of the one legality table (``compiler/legal``): ``validate_layer``, ``aneforge check`` and a
compile ask the same records. Table 22.4 names the five exported functions that are not about one layer:
:data:`EXPORTS` says which function here stands for each.
"""

from __future__ import annotations

from aneforge.study.validate.container import container_view
from aneforge.study.validate.layer import LayerVerdict, ProcedureVerdict, validate_layer, validate_mutable_procedure
from aneforge.study.validate.network import (
    EXPORTS,
    NetworkVerdict,
    Validation,
    validate_all,
    validate_module,
    validate_network,
)
from aneforge.study.validate.program import ProgramVerdict, ProgramView, program_view, validate_program

__all__ = [
    "EXPORTS",
    "LayerVerdict",
    "NetworkVerdict",
    "ProcedureVerdict",
    "ProgramVerdict",
    "ProgramView",
    "Validation",
    "container_view",
    "program_view",
    "validate_all",
    "validate_layer",
    "validate_module",
    "validate_mutable_procedure",
    "validate_network",
    "validate_program",
]
