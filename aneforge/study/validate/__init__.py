"""The compiler's own answer before any Mac is involved: validators of layers, networks, procedures and programs.

The checks are rules of the one legality table (``compiler/legal``): ``validate_layer``, ``aneforge check`` and a
compile ask the same records. Table 22.4 names the five exported functions that are not about one layer:
:data:`EXPORTS` says which function here stands for each.
"""

from __future__ import annotations

from typing import Any

from aneforge.lazy import first_use

HOMES = {
    "container": "container_view",
    "layer": "LayerVerdict ProcedureVerdict validate_layer validate_mutable_procedure",
    "network": "EXPORTS NetworkVerdict Validation validate_all validate_module validate_network",
    "program": "ProgramVerdict ProgramView program_view validate_program",
}


def __getattr__(name: str) -> Any:
    return first_use(__name__, HOMES, name)
