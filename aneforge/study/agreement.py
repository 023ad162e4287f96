"""How often the gate agrees with verdicts measured on real chips.

``verdict(row)`` answers one row of the published verdicts from what it describes, never from what was measured;
``evaluate(rows)`` compares. Five figures: exact (the same word), runs-or-not (plain and balanced over the two
classes), boundary pairs (two rows of one group, op, chip and route with different verdicts, both right), and wrong
results announced.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, TypedDict

from aneforge.chips import MIN_FAMILY, Family, Target, resolve, store
from aneforge.chips import target as target_of
from aneforge.chips.systems import system_of_report
from aneforge.compiler.legal.findings import VERDICTS as WORDS
from aneforge.compiler.legal.findings import Finding
from aneforge.compiler.legal.judge import judge, run_time_only
from aneforge.compiler.legal.query import ROUTES, SYMBOLIC, Query, QueryError
from aneforge.documents import Misshapen, typed
from aneforge.engine.native import layer_types
from aneforge.errors import UnknownNameError

# What the sentences of measured rows mean, in the names and numbers that rules read.


Shapes = tuple[tuple[int, ...] | None, ...] | None

_SENTENCES: tuple[tuple[str | None, str, str], ...] = (
    ("chain:concat", r"slic.*(last|width)|(last|width).*slic", "joined-width-slices"),
    (None, r"reduce_\w+.*mul(tiply|tiplied)? by (a )?(0|zero)", "reduction-times-zero"),
    ("chain:round", r"round, then mul", "round-then-scale"),
    ("chain:square", r"square, then", "square-before-a-function"),
    ("chain:ffn", r"", "gated-feed-forward"),
    (None, r"quanti[sz]e.*dequanti[sz]e.*mul\w*.*quanti[sz]e", "two-quantise-pairs-around-a-product"),
    (None, r"^(?!.*topk).*cast", "cast-behind-an-fp32-input"),
    (None, r"topk,( and)? cast", "selection-behind-a-product"),
    (None, r"fused attention inside", "fused-attention-among-other-layers"),
    (None, r"running maximum", "softmax-in-blocks"),
    (None, r"linear,.*hard[-_ ]?swish", "linear-before-hard-swish"),
    (None, r"\bisnan\b", "test-for-nan"),
    ("chain:attention", r"@ K\^T, (softmax|.*real_div)\b.*@ V|matmul,.*softmax, matmul", "softmax-between-products"),
    (None, r"chain of matmuls between computed", "products-of-products-in-a-row"),
    (None, r"padded along the channels.* and added", "padded-values-added"),
)
"""The op of a row (None: any), the wording of its graph, and the pattern that it describes."""

_TWO_BRANCHES = r"(gelu|silu|swish), mul"
_FP32_FIRST = r"\bfp32 \w+.*\bconv"
_CLAMPED = r"\bclamp"
_INT8_ACTIVATIONS = ("a8", "w8a8")
_COMPRESSED = ("lut", "int", "uint", "sparse", "vq")

_ATTRIBUTES: tuple[tuple[str, str, Any], ...] = (
    (r"\bscatter(?!-free)|\bindex_(copy|put|add)\b|slice_update", "writes", "computed places"),
    (r"(position|index|indices) computed|computed (position|ind)", "writes", "computed places"),
    (r"\bcache.*\bas (a )?(mutable )?state\b", "updates", "a cache"),
    (r"section has length 0", "sections", (0,)),
)
"""The wording of a graph, and the attribute that it means."""

_KINDS: tuple[tuple[str, str], ...] = (
    (r"conv_stack|stack of conv", "convolutions"),
    (r"whole[ _](model|decoder)|with (its |the )?head", "decoder"),
    (r"", "layers"),
)
"""The wording of a program or its name, and its kind; the first that occurs counts."""

_FORMS: tuple[tuple[str, str, str], ...] = (
    ("group_norm", "flatten", "flattened"),
    ("group_norm", "", "tiled"),
    ("layer_norm", "rank-4", "rank-4"),
    ("layer_norm", "", "rank-2"),
)
"""An op, a word of its ``lowering`` sentence (the first that occurs counts) and the form that it means."""

_WEIGHTS: tuple[tuple[str, str, Any], ...] = (
    (r"group|\bper block\b|\bblocks? of \d", "palette_per_group", True),
    (r"palette of int8 values", "palette_of_codes", True),
    (r"vectors along the input", "vectors_along", "input"),
    (r"behind a run-time dequant", "dequantize", "runtime"),
    (r"integer constant", "encoding", "integer"),  # codes without a scale, unlike an affine int8 weight
)
"""The wording of weights, and the property that it means."""


def patterns_of(op: str, attrs: Mapping[str, Any], weights: Mapping[str, Any]) -> frozenset[str]:
    """The patterns that a row describes: by the sentence about its graph, and by that sentence and its types."""
    text = _text(attrs)
    shown = {
        pattern
        for described, wording, pattern in _SENTENCES
        if described in (None, op) and re.search(wording, text, re.IGNORECASE)
    }
    encoding = str(weights.get("encoding", ""))
    # With int8 activations each branch has a quantiser of its own.
    unlike_branches = encoding.startswith(_INT8_ACTIVATIONS) and re.search(_TWO_BRANCHES, text)
    unlike_scales = "scale_out" in attrs and attrs.get("scale_b") != attrs["scale_out"]
    if (unlike_branches or unlike_scales) and not re.search(_CLAMPED, text):
        shown.add("two-quantise-pairs-around-a-product")
    if encoding == "a8w4" and weights.get("palette_of_codes") and attrs.get("repeat", 1) > 1:
        shown.add("palettes-of-codes-in-a-row")
    if re.search(_FP32_FIRST, text) and encoding.startswith(_COMPRESSED):
        shown.add("fp32-before-a-compressed-convolution")
    if attrs.get("io") == "fp32" and attrs.get("precision") != "fp32":
        shown.add("cast-behind-an-fp32-input")  # fp32 surfaces around fp16 arithmetic
    if op == "reduce_argmax" and attrs.get("axis") in (1, -3):
        shown.add("argmax-of-channels")
    return frozenset(shown)


def settings_of(op: str, attrs: Mapping[str, Any], shapes: Shapes) -> dict[str, Any]:
    """The attributes without sentences: a lowering as a form, a mask as a count of planes, a size in bytes."""
    settings = {key: value for key, value in attrs.items() if key not in ("graph", "lowering", "mask", "program_mb")}
    lowering, first, text = attrs.get("lowering"), shapes[0] if shapes else None, _text(attrs)
    settings |= {name: value for wording, name, value in _ATTRIBUTES if re.search(wording, text)}
    if isinstance(attrs.get("program_mb"), (int, float)):
        settings["weight_bytes"] = attrs["program_mb"] * 1e6
        settings["kind"] = next(kind for wording, kind in _KINDS if re.search(wording, f"{op} {text}"))
    if isinstance(attrs.get("repeat"), int):
        counted = {"chain:decode_": "decode_layers", "chain:deltanet": "recurrent_layers"}
        settings |= {name: attrs["repeat"] for start, name in counted.items() if op.startswith(start)}
    if "one softmax over" in text and first:
        settings["attended_keys"] = first[-1]  # the product behind it is contracted over all of them at once
    if padded := re.search(r"padded along the channels to (\d+)", text):
        settings["padded_channels"] = int(padded[1])
    if isinstance(lowering, str):
        settings["form"] = next((form for named, word, form in _FORMS if named == op and word in lowering), None)
    if attrs.get("mask") == "per head":
        settings["mask_planes"] = (
            first[-3] if first and len(first) > 2 else 2
        )  # at least two, where no shape says more
    return settings


def weights_of(described: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a row says about its weights, in fields or in a sentence."""
    if isinstance(described, Mapping):
        return {**fields, **described}
    text = str(described or "")
    return {**fields, **{name: value for wording, name, value in _WEIGHTS if re.search(wording, text)}}


def _text(attrs: Mapping[str, Any]) -> str:
    graph = attrs.get("graph")
    return graph if isinstance(graph, str) else ""


def bottoms_of(op: str, shapes: Shapes, const: Mapping[str, Any], settings: Mapping[str, Any]) -> Shapes:
    """The bottoms of a layer. Rows about layers list what arrives at run time: constants, such as the scale of an
    attention before its mask, are put in their places, and bottoms that a row leaves out are unknown."""
    known = next((layer for layer in layer_types() if op in (layer.tag, layer.name)), None)
    if known is None or shapes is None:
        return shapes
    stored = tuple(const.values())
    if known.tag == "SDPA":
        return (*shapes[:3], None, *shapes[3:])
    missing = known.fewest - len(shapes) - len(stored)
    return (*shapes, *stored, *(None,) * missing)


VERDICTS = ("accept", *WORDS)
_RUNS = ("accept", "decompose", "wrong_result")


class Answer(str):
    """A verdict word that remembers its reasons."""

    verdict: str
    placed: str | None
    findings: tuple[Finding, ...]
    reason: str

    def __new__(cls, word: str, findings: tuple[Finding, ...] = (), placed: str | None = None) -> Answer:
        answer = super().__new__(cls, word)
        answer.verdict = word
        answer.placed = placed
        answer.findings = findings
        answer.reason = str(findings[0]) if findings else ""
        return answer


def verdict(row: Mapping[str, Any]) -> Answer:
    """The gate's answer to one row; reads only the fields that describe the case."""
    query = query_of(row)
    route = _field(row, "route", str, "conversion")
    if route not in ROUTES:
        raise QueryError(f"route: {route!r} is not a route; choose one: {', '.join(ROUTES)}")
    judged = judge(query, target_of_row(row), route, system_of_report(str(row.get("os") or "")))
    findings = judged.findings
    if row.get("compile_host"):  # compiled for the target and never run there
        findings = tuple(finding for finding in findings if not run_time_only(finding))
    word = findings[0].verdict if findings else "accept"
    return Answer(word, findings, judged.placed)


def query_of(row: Mapping[str, Any]) -> Query:
    """The question that a row describes."""
    if not isinstance(row, Mapping):
        raise QueryError(f"row: expected an object with op, shapes, chip and route, not {type(row).__name__}")
    op = _field(row, "op", str)
    if not op:
        raise QueryError("op: empty; expected the name of an operation.")
    const = {name: _shape(shape, f"const.{name}") for name, shape in _field(row, "const", Mapping, {}).items()}
    attrs = _field(row, "attrs", Mapping, {})
    shapes = _shapes(row.get("shapes"))
    weights = weights_of(row.get("weights"), _field(row, "weights_info", Mapping, {}))
    dtype = row.get("dtype") or "fp16"
    if not isinstance(dtype, (str, list, tuple)):
        raise QueryError(f"dtype: expected a type name or a list of them, not {dtype!r}")
    settings = settings_of(op, attrs, shapes)
    shapes = bottoms_of(op, shapes, const, settings)
    return Query(
        op="chain:attention" if "attended_keys" in settings else op,
        shapes=shapes,
        const={name: shape for name, shape in const.items() if shape is not None},
        attrs=settings,
        runtime=_runtime(row),
        dtype=dtype if isinstance(dtype, str) else tuple(map(str, dtype)),
        weights=weights,
        values=_field(row, "values", Mapping, {}),
        patterns=patterns_of(op, attrs, weights),
    )


def _runtime(row: Mapping[str, Any]) -> str:
    """Who handed the program to the engine; rows through Core AI say so where they name the system."""
    return "coreai" if "Core AI" in str(row.get("os") or "") else "direct"


def target_of_row(row: Mapping[str, Any]) -> Target:
    """The compiler target that a row names, by target, chip or tier; a default where it names none."""
    name, chip = row.get("target"), row.get("chip")
    if name is not None:
        try:
            return resolve(f"compiler:{name}").target
        except UnknownNameError:
            if chip is None:
                raise QueryError(
                    f"target: {name!r} is not a compiler target. Run aneforge targets to see the names."
                ) from None
    if chip is None:
        return target_of(store.load("gate_limits")["assume"]["unnamed_chip"]["target"])
    for spelled in (f"product:{chip}", f"product:{chip} Bionic"):
        try:
            return resolve(spelled).target
        except UnknownNameError:
            continue
    tier = Family.__members__.get(str(row.get("tier")))
    if tier is not None and tier >= MIN_FAMILY:
        return target_of(tier)  # a chip newer than the names: the row itself says which tier it behaves as
    raise QueryError(f"chip: {chip!r} is not a chip. Run aneforge targets to see the names.")


def _field(row: Mapping[str, Any], name: str, kind: type, default: Any = None) -> Any:
    value = row.get(name)
    if value is None:
        if default is None:
            raise QueryError(f"{name}: missing from the row. Add it.")
        return default
    if not isinstance(value, kind):
        wanted = {str: "a text", Mapping: "an object"}.get(kind, kind.__name__)
        raise QueryError(f"{name}: expected {wanted}, not {value!r}")
    return value


def _shapes(value: Any) -> Shapes:
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise QueryError(f"shapes: expected a list of shapes, not {value!r}")
    return tuple(_shape(shape, f"shapes[{number}]") for number, shape in enumerate(value))


def _shape(value: Any, where: str) -> tuple[int, ...] | None:
    if value is None:
        return None
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise QueryError(f"{where}: expected a list of sizes, not {value!r}")
    sizes = []
    for size in value:
        if isinstance(size, str):
            sizes.append(SYMBOLIC)
        elif isinstance(size, int) and not isinstance(size, bool) and size >= 0:
            sizes.append(size)
        else:
            raise QueryError(f"{where}: {size!r} is not a size; expected a whole number, 0 or more.")
    return tuple(sizes)


@dataclass
class Agreement:
    """What agrees and what does not; print it, or take ``to_json()``."""

    rows: int = 0
    skipped: int = 0
    exact: float = 0.0
    runs: float = 0.0
    runs_balanced: float = 0.0
    boundary: float = 0.0
    boundary_pairs: int = 0
    wrong_results: float = 0.0
    wrong_result_rows: int = 0
    parts: dict[str, dict[str, tuple[int, int]]] = field(default_factory=dict)
    misses: list[dict[str, Any]] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        parts = {
            kind: {name: {"exact": right, "rows": total} for name, (right, total) in table.items()}
            for kind, table in self.parts.items()
        }
        return {**{key: value for key, value in vars(self).items() if key != "parts"}, "parts": parts}

    def __str__(self) -> str:
        lines = [
            f"{self.rows} rows compared, {self.skipped} of low confidence skipped",
            f"exact                    {self.exact:6.1%}",
            f"runs or not              {self.runs:6.1%}  (balanced {self.runs_balanced:.1%})",
            f"boundary pairs           {self.boundary:6.1%}  of {self.boundary_pairs}",
            f"wrong results announced  {self.wrong_results:6.1%}  of {self.wrong_result_rows}",
        ]
        for kind, table in self.parts.items():
            lines += ["", f"{kind:24} exact"]
            for name, (right, total) in sorted(table.items(), key=lambda item: -item[1][1]):
                lines.append(f"{name:24} {right / total:6.1%}  {right} of {total}")
        return "\n".join(lines)


def evaluate(rows: Iterable[Mapping[str, Any]], low: bool = False) -> Agreement:
    """Compare the gate with measured rows; rows of low confidence count only when ``low`` is set."""
    answers: list[tuple[Mapping[str, Any], str]] = []
    result = Agreement()
    for number, row in enumerate(rows):
        try:
            typed(_Row, row, f"rows[{number}]")
        except Misshapen as error:
            raise QueryError(str(error)) from None
        measured = _field(row, "verdict", str)
        if measured not in VERDICTS:
            raise QueryError(f"verdict: {measured!r} is not a verdict; choose one: {', '.join(VERDICTS)}")
        if row.get("confidence") == "low" and not low:
            result.skipped += 1
            continue
        answer = verdict(row)
        answers.append((row, answer))
        if answer != measured:
            miss = {"id": row.get("id"), "measured": measured, "answered": str(answer), "reason": answer.reason}
            result.misses.append(miss)
    result.rows = len(answers)
    right = [answer == row["verdict"] for row, answer in answers]
    result.exact = _share(right)
    runs = [((answer in _RUNS) == (row["verdict"] in _RUNS), row["verdict"] in _RUNS) for row, answer in answers]
    result.runs = _share(same for same, _ in runs)
    result.runs_balanced = (_share(s for s, ran in runs if ran) + _share(s for s, ran in runs if not ran)) / 2
    pairs = list(_boundary(answers))
    result.boundary, result.boundary_pairs = _share(pairs), len(pairs)
    wrong = [answer == "wrong_result" for row, answer in answers if row["verdict"] == "wrong_result"]
    result.wrong_results, result.wrong_result_rows = _share(wrong), len(wrong)
    for kind in ("chip", "route", "op_class"):
        table: dict[str, list[bool]] = defaultdict(list)
        for (row, _), good in zip(answers, right, strict=True):
            table[str(row.get(kind) or row.get("target") or "not named")].append(good)
        result.parts[kind] = {name: (sum(flags), len(flags)) for name, flags in table.items()}
    return result


class _Row(TypedDict, total=False):
    """The fields of a row that are names; its other fields are checked where the question is made of them."""

    op: str
    verdict: str
    route: str | None
    chip: str | None
    target: str | None
    tier: str | None
    os: str | None
    confidence: str | None
    group: str | None
    op_class: str | None


def _share(flags: Iterable[bool]) -> float:
    counted = list(flags)
    return sum(counted) / len(counted) if counted else 1.0


def _boundary(answers: Sequence[tuple[Mapping[str, Any], str]]) -> Iterable[bool]:
    """For every two rows of a group, op, chip and route that were measured differently: are both right."""
    sets: dict[tuple[Any, ...], list[tuple[str, bool]]] = defaultdict(list)
    for row, answer in answers:
        if row.get("group"):
            key = (row["group"], row.get("op"), row.get("chip") or row.get("target"), row.get("route"))
            sets[key].append((row["verdict"], answer == row["verdict"]))
    for members in sets.values():
        for (one, good), (other, fine) in combinations(members, 2):
            if one != other:
                yield good and fine
