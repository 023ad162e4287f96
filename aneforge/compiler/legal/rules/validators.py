"""The checks that the validators of native layers have in common: how many bottoms, support bytes, and envelopes.

Each check is a record of ``validators.json``. A record names what it is about in a small language: a parameter
(``KernelWidth``), an extent of a bottom (``1.width``; ``0.@Dimension`` along the axis that a parameter names), a
number, and products and sums of them. What a layer leaves open (a shape that is not known, a parameter without a
default) is not judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import prod
from typing import Any

from aneforge.chips.assumed import fact_label
from aneforge.compiler.legal.query import Query
from aneforge.compiler.legal.rules.base import ANY, Limit, OneOf, Over, rule, validator_records
from aneforge.engine.native import dimensions


def value_of(reference: Any, query: Query) -> Any:
    """What a reference of a record stands for in a layer; None where the layer does not say."""
    if not isinstance(reference, str):
        return reference
    total: Any = None
    for summand in reference.split("+"):
        factors = [_term(term, query) for term in summand.split("*")]
        if any(factor is None for factor in factors):
            return None
        value = factors[0] if len(factors) == 1 else prod(factors)
        total = value if total is None else total + value
    return total


def _term(term: str, query: Query) -> Any:
    if term.isdigit():
        return int(term)
    number, _, extent = term.partition(".")
    return _extent(query, int(number), extent) if number.isdigit() else _parameter(term, query)


def _extent(query: Query, number: int, name: str) -> Any:
    shape = query.shape(number)
    if shape is None or (name != "rank" and len(shape) > 5):
        return None
    if name in ("rank", "size", "shape"):
        return {"rank": len(shape), "size": prod(shape), "shape": shape}[name]
    if name.startswith("@"):
        name = str(query.attrs.get(name[1:], "")).lower()
    return getattr(dimensions(shape), name, None)


def _parameter(name: str, query: Query) -> Any:
    """A parameter; ``BroadcastInfo.Dimension`` gives that of every entry."""
    key, _, part = name.partition(".")
    value = query.parameter(key)
    return tuple(entry[part] for entry in value) if part and value is not None else value


def is_selected(record: Mapping[str, Any], query: Query) -> bool:
    """Whether a check is about a layer with these parameters."""
    when, unless = record.get("when", {}), record.get("unless", {})
    return all(_matches(key, values, query) for key, values in when.items()) and not any(
        _matches(key, values, query) for key, values in unless.items()
    )


def _matches(reference: str, values: list[Any], query: Query) -> bool:
    return any(item in values for item in _items(value_of(reference, query)))


@lru_cache(maxsize=4096)
def _checked_values(tag: str) -> tuple[frozenset[str], frozenset[tuple[str, Any]]]:
    """The parameters of which a check lists every value, and values that a check is about."""
    records = [record for record in validator_records() if tag in record["ops"]]
    listed = frozenset(record["what"] for record in records if record.get("must") == "be one of")
    named = frozenset(
        (key, value) for record in records for key, values in record.get("when", {}).items() for value in values
    )
    return listed, named


def is_checked(tag: str, key: str, value: Any) -> bool:
    """Whether a check of a layer's validator is about a name that a parameter has, so that the parser reads it."""
    listed, named = _checked_values(tag)
    return isinstance(value, str) and (key in listed or (key, value) in named)


def _items(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


@rule("bottom-count", ANY, chains=False, every_record=True, validates=True, elsewhere="graph language")
def bottom_count(query: Query, limit: Limit) -> Any:
    """{op}: the layer has {extent} bottoms; it takes {limit}."""
    if query.shapes is None:
        return None
    fewest, most = limit.value
    count = len(query.shapes)
    if fewest <= count and (most is None or count <= most):
        return None
    if most is None:
        return Over(count, fewest, words=f"{fewest} or more")
    taken = tuple(range(fewest, most + 1))
    return Over(count, OneOf(taken), words=" or ".join(map(str, taken)))


@rule("support-byte", ANY, chains=False, every_record=True, validates=True)
def support_byte(query: Query, limit: Limit) -> Any:
    """{op}: the layer needs the support byte {what}; it is {extent} on {chip}."""
    known, record = limit.evidence, limit.record
    if not known.known or known.value & 1 or not is_selected(record, query):
        return None
    return Over("clear", 1, fact_label(record["fact"]))


@rule("layer-envelope", ANY, chains=False, every_record=True, validates=True)
def layer_envelope(query: Query, limit: Limit) -> Any:
    """{op}: {what} is {extent}; it must {limit}."""
    record = limit.record
    if not is_selected(record, query):
        return None
    stated = record.get("of")
    value, bound = value_of(record["what"], query), record["v"] if stated is None else value_of(stated, query)
    if value is None or bound is None:
        return None
    must = record["must"]
    holds = _RELATIONS[must]
    several = isinstance(value, (list, tuple)) and not isinstance(bound, tuple)
    broken = next((item for item in (_items(value) if several else (value,)) if not holds(item, bound)), None)
    if broken is None:
        return None
    about = record.get("about") or in_words(record["what"], query)
    limit_of = "" if stated is None else f"{in_words(stated, query)}, which is "
    threshold = OneOf(tuple(bound)) if isinstance(bound, list) else bound
    return Over(broken, threshold, about, f"{must} {limit_of}{threshold}")


def _is_divisible(value: int, divisor: int) -> bool:
    return divisor > 0 and value % divisor == 0


def _is_composed(number: int, factors: list[int]) -> bool:
    """Whether a number is 1 or a product of the given factors."""
    for factor in sorted(factors, reverse=True):
        while number > 1 and number % factor == 0:
            number //= factor
    return number == 1


_RELATIONS: dict[str, Callable[[Any, Any], bool]] = {
    "be at least": lambda value, bound: value >= bound,
    "be at most": lambda value, bound: value <= bound,
    "be above": lambda value, bound: value > bound,
    "be below": lambda value, bound: value < bound,
    "be equal to": lambda value, bound: value == bound,
    "be other than": lambda value, bound: value != bound,
    "be one of": lambda value, bound: value in bound,
    "be divisible by": _is_divisible,
    "be a product of": _is_composed,
}


def in_words(reference: str, query: Query) -> str:
    """A reference as people say it: the width of bottom 1, FactorX * FactorY."""
    return " + ".join(
        " * ".join(_term_in_words(term, query) for term in part.split("*")) for part in reference.split("+")
    )


def _term_in_words(term: str, query: Query) -> str:
    number, _, extent = term.partition(".")
    if not number.isdigit() or not extent:
        return term
    if extent.startswith("@"):
        extent = str(query.attrs.get(extent[1:], "axis")).lower()
    return f"the {extent} of bottom {number}"


@rule("bottom-types", ANY, chains=False, every_record=True, validates=True, elsewhere="graph language")
def bottom_types(query: Query, limit: Limit) -> Any:
    """{op}: {what} has elements of {extent}; the layer takes {limit}."""
    dtypes = query.dtypes
    which = limit.record["bottom"]
    numbers = [number for number in range(len(dtypes)) if number == which or not isinstance(which, int)]
    taken = dtypes[:1] if which == "same" and dtypes else tuple(limit.value)
    wrong = next((number for number in numbers if dtypes[number] not in taken), None)
    return None if wrong is None else Over(dtypes[wrong], OneOf(tuple(taken)), f"bottom {wrong}")
