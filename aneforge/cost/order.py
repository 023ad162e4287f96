"""Why a newer chip is estimated slower than an older one: which of its constants makes the difference."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from math import fsum
from typing import NamedTuple

from aneforge.chips import store
from aneforge.compiler.program import Program
from aneforge.cost.calls import Constants
from aneforge.cost.constants import Basis
from aneforge.cost.estimate import Estimate, engine_and_call_us

_SLOWER = 1.02  # times: less than this is no order that an estimate can tell
_TIERS = re.compile(r"Pro|Max|Ultra")


class _Cause(NamedTuple):
    words: str
    chip: tuple[str, ...] = ()
    """Constants of the chip that are the cause together."""
    trait: str = ""
    """Or what an engine does or does not do."""


_CAUSES = (
    _Cause("weights at a multiple of 1 MiB for each core stream slowly on it (C69)", trait="notch"),
    _Cause("weights at a multiple of 1 MiB for each core stream more slowly on it (C69)", ("notch",)),
    _Cause("it takes products over long sums at half rate (C74)", trait="slow_when_deep"),
    _Cause("the older chip keeps the stored width of weights while it computes (C59, C70)", trait="narrow_kernels"),
    _Cause("the older chip has Winograd forms", trait="winograd"),
    _Cause("the older chip skips zeros (C54)", trait="skips_zeros"),
    _Cause("weights stream more slowly into it", ("weights",)),
    _Cause("maps that do not fit move more slowly in its memory", ("spill",)),
    _Cause(
        "a call takes longer to start on it",
        ("coreml_call", "coreai_call", "direct_call", "host_call", "device_task", "app_call"),
    ),
    _Cause("its host copies more slowly", ("host_in", "host_out", "coreml_io")),
    _Cause("it gains less from weights stored in fewer bits", ("int8_bytes", "palette_bytes", "sparse_bytes")),
    _Cause("its engine multiplies more slowly", ("macs", "linear", "integers")),
    _Cause("its engine reads long inputs again more slowly", ("reread", "l2")),
    _Cause("its engine is slower element by element", ("planar", "norms", "layer")),
    _Cause("its engine turns and copies tensors more slowly", ("copy",)),
)  # fmt: skip
"""What can make a newer chip slower, each with the constants that say so."""


class Timed(NamedTuple):
    """A model on a chip: its estimate, and the programs behind it."""

    estimate: Estimate
    programs: Sequence[Program]


class Slower(NamedTuple):
    """A newer chip that is slower than an older one of its line."""

    older: str
    newer: str
    because: str


def slower_and_newer(models: Mapping[str, Timed]) -> list[Slower]:
    """The chips that are slower than the one before them in their line: base Macs, Pro, Max, Ultra, phones."""
    lines: dict[str, list[str]] = {}
    for name in sorted(models, key=lambda name: _year(models[name])):
        lines.setdefault(_line(models[name].estimate.basis.chip), []).append(name)
    pairs = [pair for line in lines.values() for pair in pairwise(line)]
    return [
        Slower(older, newer, _why(models[older], models[newer]))
        for older, newer in pairs
        if _year(models[older]) < _year(models[newer])
        and models[newer].estimate.us > _SLOWER * models[older].estimate.us
    ]


def _year(model: Timed) -> int:
    return store.load("products")["products"][model.estimate.basis.chip]["year"]


def _line(chip: str) -> str:
    tier = _TIERS.search(chip)
    is_phone = store.load("products")["products"][chip]["class"] == "phone"
    return "phone" if is_phone else tier[0] if tier else "base"


def _why(older: Timed, newer: Timed) -> str:
    """The cause without which the newer chip would gain most."""
    scope, basis, known = newer.estimate.scope, newer.estimate.basis, newer.estimate.basis.constants
    if newer.estimate.parts and len(newer.estimate.parts) != len(older.estimate.parts):
        return "another part of the model runs on the host"

    def us(constants: Constants, programs: Sequence[Program] = newer.programs) -> float:
        return fsum(engine_and_call_us(program, constants, scope)[1] for program in programs)

    gains = [(us(known) - us(_as_on(cause, older.estimate.basis, known)), cause) for cause in _CAUSES]
    gain, cause = max(gains, key=lambda pair: pair[0])
    if us(known) - us(known, older.programs) > gain:
        return "the compiler splits the model into more work on it"
    return f"{cause.words}{_evidence(cause, older.estimate.basis, basis)}"


def _as_on(cause: _Cause, older: Basis, known: Constants) -> Constants:
    """The newer chip's constants with those of one cause as the older chip has them."""
    if cause.trait:
        return replace(known, **{cause.trait: getattr(older.constants, cause.trait)})
    return replace(known, chip={**known.chip, **{key: older.constants.chip[key] for key in cause.chip}})


def _evidence(cause: _Cause, older: Basis, newer: Basis) -> str:
    """Where the constant that differs most comes from; what an engine does has its source in the words."""
    if not cause.chip:
        return ""

    def apart(key: str) -> float:
        one, other = older.constants.chip[key], newer.constants.chip[key]
        return max(one / other, other / one)

    return f" ({newer.evidence[max(cause.chip, key=apart)].note})"
