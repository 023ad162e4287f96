"""How far a simulated op can be trusted on a chip: exact, modelled or assumed."""

from __future__ import annotations

from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.engine.ir import Op
from aneforge.engine.spec import kinds_with
from aneforge.engine.traits import Trait
from aneforge.sim.convolution import winograd_is_open
from aneforge.sim.engine import Engine
from aneforge.sim.int8 import integer_operands
from aneforge.sim.rules import has_own_rule, keeps_numbers
from aneforge.sim.rules.contraction import sums_codes, window_of
from aneforge.sim.tables import constructed

FIDELITIES = ("exact", "modelled", "assumed")
"""Best first."""

_FINGERPRINTED = kinds_with(Trait.CONTRACTION) - {"deconvolution"}  # no deconvolution has been probed
_PAIRS = ("add", "sub", "mult")


def basis_of_form(engine: Engine, op: Op) -> str:
    """How far the form in which an op is summed can be trusted. Sums of stored codes are measured on some chips and
    assumed alike on others (U46, U65); of several scales in a row nothing is measured, N67 being one block, nor of
    Winograd forms but that of 3 x 3 kernels."""
    if op.is_a(Trait.STORED_KERNEL) and op.operands[1].labels.get("encoding") == "blockwise":
        return FIDELITIES[1]
    if engine.winograd and op.kind == "convolution" and winograd_is_open(window_of(op)):
        return FIDELITIES[1]  # C76
    if op.is_a(Trait.STORED_KERNEL) and sums_codes(engine, op):
        measured = compile_fact(engine.target, "code_sums_measured").value
    elif integer_operands(engine, op) is not None:
        measured = compile_fact(engine.target, "int8_sums_measured").value
    else:
        return FIDELITIES[0]
    return FIDELITIES[0] if measured else FIDELITIES[1]


def basis(kind: str, target: Target, fast: bool = False) -> str:
    """``exact``: a fingerprint or probe is reproduced, or no number changes. ``modelled``: the engine's steps, or its
    error level, are known and not all digits; so are sums of the fast mode. ``assumed``: the op's meaning, rounded."""
    if keeps_numbers(kind):
        return "exact"
    if kind in _FINGERPRINTED and fast:
        return "modelled"
    if kind in _FINGERPRINTED or kind in _PAIRS:
        return "exact" if compile_fact(target, "mac_fingerprints").value else "modelled"
    if constructed(kind):
        printed = "gelu_fingerprints" if kind == "gelu" else "table_figures"  # its norms are printed too (C72)
        return "exact" if compile_fact(target, printed).value else "modelled"
    return "modelled" if has_own_rule(kind) else "assumed"
