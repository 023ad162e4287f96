"""How far each rewrite may be from the op it replaces: one table, used by reports, documentation and tests.

``ulp`` is the largest distance, in fp16 numbers, from the correctly rounded result, measured over every fp16 argument
of the domain with every node of the rewrite rounded to fp16, half to even and half away from zero (and with the
double rounding of subnormal results that silicon shows, N53). Functions the rewrite takes from the engine (``exp``,
``log``, ``sqrt``, ``atan``, ``tanh``) count as correctly rounded. ``float64`` is the distance when the whole rewrite
is evaluated in float64, where only the fp16 constants are left to differ.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Bound:
    """A stated domain and error. ``ulp`` is None where the op only moves values or its error is data-dependent."""

    domain: str
    float64: float
    ulp: int | None = None
    of: str = "the result"
    """What ``float64`` is a share of; empty where it is an absolute distance."""
    note: str = ""

    @property
    def relative(self) -> bool:
        """Whether the error is a share of each result."""
        return self.of == "the result"

    @property
    def exact(self) -> bool:
        return not self.float64 and not self.ulp

    def __str__(self) -> str:
        where = f"{self.domain}: " if self.domain else ""
        if self.exact:
            size = "exact"
        elif self.ulp is not None:
            size = f"at most {self.ulp} fp16 ulp, {self._wide}"
        else:
            size = self._wide
        return f"{where}{size}{'; ' if self.note else ''}{self.note}"

    @property
    def _wide(self) -> str:
        kind = "relative" if self.relative else f"of {self.of}" if self.of else "absolute"
        return f"{self.float64:g} {kind} in float64"


EXACT = Bound("", 0.0)
_ROUND = 1e-12  # float64 rounding of a reordered formula, nothing else

_LARGEST = "the largest |x|"
_DRAWN = "the recorded numbers enter as fp16"

BOUNDS: dict[str, Bound] = {
    "sin": Bound("every finite fp16 x", 2e-6, 1, of=""),
    "cos": Bound("every finite fp16 x", 2e-6, 1, of=""),
    "tan": Bound("every finite fp16 x", 5e-5, 2),
    "asin": Bound("|x| <= 1", _ROUND, 2),
    "acos": Bound("|x| <= 1", _ROUND, 2),
    "atan2": Bound("finite a and b, zeros without sign", 2e-7, 1, of="", note="ulp on 2 million pairs"),
    "sinh": Bound("every finite fp16 x", 1e-10, 2),
    "cosh": Bound("every finite fp16 x", 1e-10, 2),
    "asinh": Bound("every finite fp16 x", _ROUND, 2),
    "acosh": Bound("x >= 1", _ROUND, 2),
    "atanh": Bound("|x| <= 1", _ROUND, 2),
    "mod": Bound(
        "|a / b| <= 2048",
        _ROUND,
        note="in fp16 exact for whole numbers to 2048, else within a ulp of the larger of a and b, modulo b",
    ),
    "logical_and": EXACT,
    "logical_or": EXACT,
    "logical_xor": EXACT,
    "dropout": Bound("", 2.0**-11, of=_LARGEST, note="the mask enters as fp16"),
    "random_uniform": Bound("", 2.0**-11, of="the largest number", note=_DRAWN),
    "random_normal": Bound("", 2.0**-11, of="the largest number", note=_DRAWN),
    "prod": Bound("finite x", _ROUND, note="another order of the same products"),
    "cumsum": Bound("finite x", _ROUND, of="the sum of |x|"),
    "one_hot": Bound("depth <= 65504", 0.0),
    "band_part": EXACT,
    "reverse_sequence": EXACT,
    "scatter": EXACT,
    "gather": EXACT,
    "rnn": Bound("", _ROUND, of=""),
    "lstm": Bound("", _ROUND, of=""),
    "gru": Bound("", _ROUND, of=""),
}
"""By graph op. A rewrite whose form depends on the chip or on sizes gives its own bound with each record."""


TAN_OF_ENGINE = Bound("every finite fp16 x", _ROUND, 2)
"""Of a tangent by the engine's own sine and cosine."""
REORDERED = Bound("finite x", _ROUND, of="the sum of |terms|", note="another order of the same sum")
SUMMED = Bound(
    "finite x", _ROUND, of="the sum of |terms|", note="the sums of the parts are rounded to fp16 before they are added"
)


def rounded_weights(count: int) -> Bound:
    """Of a form with ``count`` products in a row whose weights are not fp16 numbers: each rounds by half a step."""
    return Bound("finite x", count * 2.0**-11, of=_LARGEST, note="weights rounded to fp16")
