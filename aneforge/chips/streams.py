"""Weight encodings: whether a chip streams a stored form as it is, or folds it to dense fp16.

:func:`weight_flow` is the one answer. The passes, the listing, the cost model, ``compile(compress="auto")`` and the
adviser ask it with what they know of the weight and of its layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NamedTuple, Protocol

from aneforge.chips import store
from aneforge.chips.evidence import Fact, fact, unknown
from aneforge.chips.families import Family, as_family
from aneforge.errors import ArgumentError, UnknownNameError, nearest

# Short names of the seed API for the encodings of compression.json.
SHORT = {"int4": "int4_lut", "int8": "int8_affine", "sparse": "sparse", "blockwise": "blockwise"}
RUNTIMES = ("direct", "coreml", "coreai")
FLOW_READS = (
    "kernel_stream_master",
    "palette_stride",
    "fmt_e4m3",
    "stream:int4",
    "stream:int8",
    "stream:sparse",
    "stream:blockwise",
    "palette_bits",
    "palette_vectors",
    "palette_tables",
    "asymmetric_weights",
    "kmem_cap_dense",
    "kmem_cap_streamed",
    "kernel_path",
)
"""The facts of a chip that decide a flow."""


def native_streams(family: int | str) -> frozenset[str]:
    """The encodings that keep their size on the way to the engine: int4, int8, sparse, blockwise."""
    return _streams()[as_family(family)]


@cache
def _streams() -> dict[Family, frozenset[str]]:
    rows = store.load("compression")["native_streams_by_family5"]
    table = {Family[row["family"]]: frozenset(row["v"]) for row in rows}
    return {family: table.get(family, frozenset()) for family in Family}


def published_gain(family: int | str | None) -> Fact[Any]:
    """How much faster streamed weights are on a family by the cross-chip page (``1.6-1.8x``), which times of ours do
    not follow (U170); unknown where nothing streams."""
    document, name = store.load("compression"), None if family is None else as_family(family).name
    rows = {row["family"]: {**row, "conflict": "U170"} for row in document["native_streams_by_family5"]}
    about = f"gain of streamed weights on {name}"
    return fact(rows[name], document["evidence"], key="win", about=about) if name in rows else unknown(about)


def encoding_names() -> tuple[str, ...]:
    return tuple(SHORT)


def stream_fact(encoding: str, family: int | str) -> Fact[Any]:
    """``stream`` or ``fold`` for one encoding on one family, with its evidence."""
    member = as_family(family)
    document = store.load("compression")
    row = next((record for record in document["encodings"] if record["name"] == SHORT.get(encoding, encoding)), None)
    if row is None:
        near = ", ".join(nearest(encoding, SHORT)) or ", ".join(SHORT)
        raise UnknownNameError(f"{encoding!r}: not a weight encoding; nearest: {near}")
    source = document["evidence"][row["e"]][0]
    record = {
        "v": row["stream"].get(member.name),
        "src": source,
        "conf": row["stream_conf"].get(member.name),
        "conflict": row.get("conflict"),
    }
    return fact(record, about=f"{encoding} weights on {member.name}")


class ChipFacts(Protocol):
    """What the compiler's facts of a chip offer."""

    def get(self, key: str) -> Any: ...

    def fact(self, key: str) -> Fact[Any]: ...


class WeightForm(NamedTuple):
    """What of a stored form decides whether it streams."""

    kind: str
    """``fp16``, ``palette``, ``affine``, ``blockwise``, ``sparse`` or ``fp8``."""
    bits: int = 16
    """Of a code; of a palette's index, also inside a sparse form."""
    looks_up: bool = False
    """Whether the codes are places in a table: a palette, or a sparse form with one."""
    vector_size: int = 1
    tables: int = 1
    is_scaled: bool = False
    """Whether a table's numbers are scaled behind it."""
    has_zero_points: bool = False
    is_e5m2: bool = False
    is_readable: bool = True
    """Whether an op can say how it is stored: scales along the outputs that fp16 holds to all their digits."""


class LayerConditions(NamedTuple):
    """What of a layer decides whether its weight streams (compression.json ``stream_conditions``)."""

    unit_stride: bool = True
    no_dilation: bool = True
    tiles_overlap: bool = False
    immutable: bool = True
    meets_codes: bool = False
    """Whether the other operand is 8-bit codes: then int8 codes are what the engine multiplies, and stay (U116)."""


@dataclass(frozen=True)
class Flow:
    """Whether a weight streams in its stored form, why, what that rests on, and the kernel memory that it selects."""

    streams: bool
    reason: str
    evidence: tuple[Fact[Any], ...]
    cap: int | None
    """Bytes of kernel memory that the weight is sized against (listing 24.3); None where none is published."""
    keeps_form: bool
    """Whether the program stores it in its form. A weight that does not stream is folded to fp16, except for the
    codes of a product in 8 bits."""

    def __str__(self) -> str:
        labels = " ".join(dict.fromkeys(known.label() for known in self.evidence))
        return f"{'streams' if self.streams else 'folds'}: {self.reason} {labels}".rstrip()


@lru_cache(maxsize=4096)
def weight_flow(chip: ChipFacts, form: WeightForm, layer: LayerConditions | None = None) -> Flow:
    """Whether a chip streams a weight of this form in this layer."""
    layer = layer or LayerConditions()
    reason, evidence = next(_obstacles(chip, form, layer), ("", ()))
    if not reason:
        reason, evidence = "the chip reads this form", tuple(_read_facts(chip, form))
    blocked = bool(next(_layer_obstacles(layer), ""))
    cap = kmem_cap(chip, not blocked or chip.get("kernel_path") == "shared")
    streams = reason == "the chip reads this form"
    kept = streams or (
        form.kind == "affine" and layer.meets_codes and layer.immutable and not any(_form_obstacles(chip, form))
    )
    return Flow(streams, reason, evidence, cap, kept or form.kind == "fp16")


def kmem_cap(chip: ChipFacts, streamable: bool) -> int | None:
    """The bytes of kernel memory that a weight is sized against (listing 24.3): the streamed cap (0x210) for one that
    may stream, or that the shared builder of A14 and later takes (listing 35.2), under the master byte 0x48f; the
    dense cap (0x200) for any other."""
    return chip.get("kmem_cap_streamed" if streamable and chip.get("kernel_stream_master") else "kmem_cap_dense")


def _obstacles(
    chip: ChipFacts, form: WeightForm, layer: LayerConditions
) -> Iterator[tuple[str, tuple[Fact[Any], ...]]]:
    """Why a weight folds: the chip's master switch, the layer, the form."""
    if not chip.get("kernel_stream_master"):
        yield "the chip streams no weights (HAL 0x48f)", (chip.fact("kernel_stream_master"),)
    conditions = store.load("compression")["stream_conditions"]
    source = fact({**conditions, "v": True}, store.load("compression")["evidence"], about="conditions of a stream")
    for reason in _layer_obstacles(layer):
        yield reason, (source,)
    for reason, key in _form_obstacles(chip, form):
        yield reason, (chip.fact(key),)


def _layer_obstacles(layer: LayerConditions) -> Iterator[str]:
    if not layer.immutable:
        yield "the weight is not a constant"
    if not layer.unit_stride:
        yield "the layer's stride is not 1"
    if not layer.no_dilation:
        yield "the layer is dilated"
    if layer.tiles_overlap:
        yield "the layer's tiles overlap (U24)"


def _form_obstacles(chip: ChipFacts, form: WeightForm) -> Iterator[tuple[str, str]]:
    """Why the chip does not read a form, each with the fact that says so."""
    if not form.is_readable:
        yield "no attribute of the layer can say its scales or its table", "kernel_stream_master"
    for key in _streams_needed(form):
        if chip.get(key) != "stream":
            yield f"the chip folds {key.partition(':')[2]} weights", key
    if form.kind == "fp8" and not chip.get("fmt_e4m3"):
        yield "the chip has no 8-bit floating point (HAL 0x52d)", "fmt_e4m3"
    if form.kind == "fp8" and form.is_e5m2:
        yield "the chip's 8-bit weights are E4M3 only (U113)", "fmt_e4m3"
    if form.looks_up:
        if not chip.get("palette_stride"):
            yield "the chip streams no palettes (HAL 0x529)", "palette_stride"
        if form.bits not in (chip.get("palette_bits") or ()):
            read = ", ".join(map(str, chip.get("palette_bits") or ())) or "none"
            yield f"the chip reads palette indices of {read} bits, not {form.bits}", "palette_bits"
        if form.vector_size > (chip.get("palette_vectors") or 1):
            yield f"the chip reads table entries of {chip.get('palette_vectors') or 1} numbers", "palette_vectors"
        if form.tables > (chip.get("palette_tables") or 1):
            most = chip.get("palette_tables") or 1
            yield (
                f"the chip reads {most} table{'' if most == 1 else 's'} a weight, not {form.tables}",
                "palette_tables",
            )
    if form.has_zero_points and not chip.get("asymmetric_weights"):
        yield "the chip reads symmetric codes only, without zero points", "asymmetric_weights"


def _streams_needed(form: WeightForm) -> tuple[str, ...]:
    """The encodings of compression.json that must all stream. A scale behind a table takes what a scale behind bytes
    takes (U65); codes of 4 bits are constexpr_blockwise_shift_scale with one scale for each output (N69, C56)."""
    if form.kind == "palette":
        return ("stream:int4", "stream:int8") if form.is_scaled else ("stream:int4",)
    if form.kind == "sparse":
        return ("stream:sparse", "stream:int4") if form.looks_up else ("stream:sparse",)
    if form.kind == "affine":
        return ("stream:int8",) if form.bits == 8 else ("stream:blockwise",)
    return ("stream:blockwise",) if form.kind == "blockwise" else ()


def _read_facts(chip: ChipFacts, form: WeightForm) -> Iterator[Fact[Any]]:
    keys = [*_streams_needed(form), *(("palette_bits",) if form.looks_up else ())]
    keys += ["palette_vectors"] if form.vector_size > 1 else []
    keys += ["palette_tables"] if form.tables > 1 else []
    keys += ["asymmetric_weights"] if form.has_zero_points else []
    keys += ["fmt_e4m3"] if form.kind == "fp8" else []
    return (chip.fact(key) for key in keys or ["kernel_stream_master"])


def tiles_overlap(kernel_height: int, stride: int, larger_side: int, working_set: int) -> bool:
    """U24: a tile more for every working set of the larger side in bytes; kernels taller than their stride overlap."""
    return kernel_height > stride and larger_side // working_set + 1 > 1


def runtime_fact(runtime: str, form: WeightForm, generation: int | None) -> Fact[Any] | None:
    """What a runtime was seen to do with a form beside what the chip can: ``expanded`` in every call, or ``refused``;
    None where nothing is known of it. ``direct`` is the compiled program itself."""
    if runtime not in RUNTIMES:
        raise ArgumentError("runtime", f"{runtime!r} is unknown; choose one: {', '.join(RUNTIMES)}.")
    for row in store.load("choices")["runtime_flows"]:
        kinds, generations = row["kinds"], row["generations"]
        if runtime in row["runtimes"] and form.kind in kinds and (not generations or generation in generations):
            if form.is_scaled and not row.get("scaled", True):
                continue
            return fact(row, about=f"{form.kind} weights in {runtime}")
    return None
