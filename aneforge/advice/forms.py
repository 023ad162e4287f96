"""Every form that is weighed: attention, large layers in pieces, layers by another op, and weights in stored forms.

Attention is in parts (product, softmax, product), as the engine's own layer, or a few query rows at a time. Rows of a
softmax do not depend on one another, so attention over some of the queries is those rows of the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np

from aneforge.advice.proposals import context_on, timed
from aneforge.chips.assumed import compile_fact
from aneforge.chips.chip import Target
from aneforge.compiler.compile import resolve_target
from aneforge.compiler.legal.patterns import attention_extents
from aneforge.compiler.legal.rewrites.movement import PieceCut
from aneforge.compiler.storage import Storage, streamed_storages
from aneforge.cost.errata import pieces_at_full_rate
from aneforge.errors import AneforgeError, ArgumentError, UnknownNameError
from aneforge.formats.arguments import Source, graph_of
from aneforge.graph.forms import FormContext, OtherForm, Site, apart, applied, context_of, scale_of
from aneforge.graph.graph import Graph
from aneforge.graph.layer_forms import OP_FORMS, layer_of
from aneforge.graph.node import make
from aneforge.graph.ops.elementwise import times
from aneforge.graph.ops.layers import sdpa
from aneforge.graph.ops.leaf import const
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.graph.ops.shape import concat
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.study.cache_forms import CACHE_FORMS, with_cache_form
from aneforge.study.study import Study

_TILE_COUNTS = (2, 3, 4, 6, 8)
CANDIDATES = (1, 2, 3, 4, 5, 6, 8)
_PIECE_COUNTS = (2, 4)
_MOST = 6  # scale, soft cap (three), mask and one to spare


@dataclass(frozen=True, eq=False)
class _Attention:
    """``softmax(... (q @ keys) ...) @ v``: the chain from the first product to the softmax, in order."""

    q: Tensor
    keys: Tensor
    v: Tensor
    chain: tuple[Tensor, ...]
    others: tuple[Tensor, ...]
    """Second operands of the chain that are computed, such as a mask."""


def _keeps_rows_apart(step: Tensor) -> bool:
    """Whether an op may stand between the first product and the softmax: a scale, a mask, a soft cap."""
    return step.is_a(GraphTrait.POINTWISE)


def _attention_at(node: Tensor, context: FormContext) -> _Attention | None:
    """Attention whose parts nobody else reads, behind its last product."""
    if node.op != "matmul" or node.inputs[0].op != "softmax":
        return None
    soft, v = node.inputs
    if soft.attrs["axis"] != soft.ndim - 1 or not context.is_private(soft) or soft.shape[:-2] != node.shape[:-2]:
        return None
    chain, others, step = [soft], [], soft.inputs[0]
    while _keeps_rows_apart(step) and len(chain) < _MOST:
        if not context.is_private(step) or step.shape != soft.shape:
            return None
        main = [operand for operand in step.inputs if operand.shape == soft.shape and operand.op != "const"]
        if not main:
            return None
        others += [operand for operand in step.inputs if operand is not main[0] and operand.op != "const"]
        chain.append(step)
        step = main[0]
    if step.op != "matmul" or not context.is_private(step) or step.shape != soft.shape:
        return None
    q, keys = step.inputs
    if q.ndim < 2 or q.shape[:-2] != soft.shape[:-2]:
        return None
    return _Attention(q, keys, v, (step, *reversed(chain)), tuple(dict.fromkeys(others)))


def row_bounds(rows: int, tiles: int) -> list[tuple[int, int]]:
    """Where tiles of nearly equal height begin, and how many rows each has."""
    edges = [rows * tile // tiles for tile in range(tiles + 1)]
    return [(begin, end - begin) for begin, end in pairwise(edges)]


def _rows(x: Tensor, rows: int, begin: int, size: int) -> Tensor:
    """Some rows of a value that has all of them; a value that is one for all rows stays."""
    if x.ndim < 2 or x.shape[-2] != rows or size == rows:
        return x
    if x.weight is not None and x.op == "const":
        return const(x.weight.array[..., begin : begin + size, :])
    starts = [0] * x.ndim
    starts[-2] = begin
    return x.slice_by_size(starts, [*x.shape[:-2], size, x.shape[-1]])


def _by_tiles(attention: _Attention, tiles: int, q: Tensor, keys: Tensor, v: Tensor, *others: Tensor) -> Tensor:
    replaced = {old.uid: new for old, new in zip(attention.others, others, strict=True)}
    rows = q.shape[-2]
    parts = []
    for begin, size in row_bounds(rows, tiles):
        previous, value = attention.chain[0], _rows(q, rows, begin, size) @ keys
        for step in attention.chain[1:]:
            operands = [
                value if operand is previous else _rows(replaced.get(operand.uid, operand), rows, begin, size)
                for operand in step.inputs
            ]
            value, previous = make(step.definition, operands, step.attrs), step
        parts.append(value @ v)
    return concat(parts, axis=q.ndim - 2)


def query_tiles(tiles: int) -> OtherForm:
    """Attention, or the engine's own attention layer, as so many products over some of the queries each."""

    def find(node: Tensor, context: FormContext) -> Site | None:
        if _is_plain_layer(node):
            return _parts_site(node, tiles) if node.shape[2] >= tiles else None
        attention = _attention_at(node, context)
        if attention is None or attention.q.shape[-2] < tiles or attention.q.ndim < 3:
            return None
        operands = (attention.q, attention.keys, attention.v, *attention.others)
        return Site(node, operands, lambda q, keys, v, *others: _by_tiles(attention, tiles, q, keys, v, *others))

    return OtherForm("attention", f"query-tiles-{tiles}", f"Attention over the queries in {tiles} tiles.", find)


def _is_plain_layer(node: Tensor) -> bool:
    """The engine's own layer with the settings that products and a softmax have as well."""
    return node.op == "sdpa" and node.attrs["subtract_max"] and node.attrs["heads_first"]


def _parts_site(node: Tensor, tiles: int) -> Site:
    """The native layer as the products and the softmax that it stands for."""
    attrs = node.attrs

    def build(q: Tensor, k: Tensor, v: Tensor, *mask: Tensor) -> Tensor:
        rows, columns = q.shape[2], k.shape[2]
        future = np.triu(np.full((rows, columns), -np.inf), 1)
        parts = []
        for begin, size in row_bounds(rows, tiles):
            scores = times(_rows(q, rows, begin, size) @ k.mT, attrs["scale"])
            if attrs["is_causal"]:
                scores = scores + const(future[begin : begin + size].reshape(1, 1, size, columns))
            if mask:
                scores = scores + _rows(mask[0], rows, begin, size)
            parts.append(scores.softmax(-1) @ v)
        return concat(parts, axis=2) if len(parts) > 1 else parts[0]

    return Site(node, node.inputs, build)


def _in_parts(node: Tensor, context: FormContext) -> Site | None:
    return _parts_site(node, 1) if _is_plain_layer(node) else None


def _fused(node: Tensor, context: FormContext) -> Site | None:
    """Only the chain that the layer has inside: a scale, then one plane of mask."""
    attention = _attention_at(node, context)
    if attention is None or attention.q.ndim not in (3, 4):
        return None
    q, keys, v = attention.q, attention.keys, attention.v
    heads = math.prod(q.shape[:-2])
    if math.prod(q.shape[:-3]) != 1 or v.shape[-1] != q.shape[-1]:
        return None
    if any(math.prod(operand.shape[:-2]) != heads for operand in (keys, v)):
        return None
    inside = _scale_and_mask(attention)
    if inside is None:
        return None
    scale, mask = inside
    turned = keys.op == "transpose" and keys.attrs["perm"] == (*range(keys.ndim - 2), keys.ndim - 1, keys.ndim - 2)

    def build(q: Tensor, k: Tensor, v: Tensor, *plane: Tensor) -> Tensor:
        raised = [operand.reshape(1, heads, *operand.shape[-2:]) for operand in (q, k if turned else k.mT, v)]
        mask = plane[0].reshape(1, 1, *plane[0].shape[-2:]) if plane else None
        return sdpa(*raised, scale=scale, attn_mask=mask).reshape(*node.shape)

    return Site(node, (q, keys.inputs[0] if turned else keys, v, *mask), build)


def _scale_and_mask(attention: _Attention) -> tuple[float, tuple[Tensor, ...]] | None:
    """The scale and the mask before the softmax, where the layer takes both."""
    before, scale, mask = attention.chain[0], 1.0, ()
    steps = list(attention.chain[1:-1])
    if steps and (factor := scale_of(steps[0], before)) is not None:
        scale, before = factor, steps.pop(0)
    if steps and steps[0].op == "add":
        added = steps.pop(0)
        mask = tuple(operand for operand in added.inputs if operand is not before)
        if len(mask) != 1 or not _one_plane(mask[0], attention.q.shape[-2], attention.v.shape[-2]):
            return None
    return None if steps else (scale, mask)


def _one_plane(mask: Tensor, rows: int, columns: int) -> bool:
    return mask.ndim >= 2 and mask.shape[-2:] == (rows, columns) and math.prod(mask.shape[:-2]) == 1


ATTENTION_FORMS = (
    OtherForm("attention", "fused-layer", "Attention as the engine's own layer.", _fused),
    OtherForm("attention", "in-parts", "The engine's attention layer as product, softmax, product.", _in_parts),
    *(query_tiles(tiles) for tiles in _TILE_COUNTS),
)


# Large layers in pieces.


def _spills(x: Tensor, node: Tensor, context: FormContext) -> bool:
    return 2 * (x.size + node.size) > context.working_set


def _by_outputs(count: int) -> OtherForm:
    """Each tile makes some of the outputs from the whole input."""

    def find(node: Tensor, context: FormContext) -> Site | None:
        layer = layer_of(node)
        if layer is None or layer.groups != 1 or layer.weight.shape[0] < count or not _spills(layer.x, node, context):
            return None

        def build(x: Tensor) -> Tensor:
            parts = []
            for begin, size in row_bounds(layer.weight.shape[0], count):
                bias = None if layer.bias is None else layer.bias[begin : begin + size]
                parts.append(layer.build(x, layer.weight[begin : begin + size], bias))
            return concat(parts, axis=x.ndim - 1 if layer.steps is None else 1)

        return Site(node, (layer.x,), build)

    return OtherForm("tiling", f"output-tiles-{count}", f"The outputs of a large layer in {count} tiles.", find)


def _by_rows(count: int) -> OtherForm:
    """Each tile makes all outputs of some rows: of a matrix, or of an image where every place stands by itself."""

    def find(node: Tensor, context: FormContext) -> Site | None:
        layer = layer_of(node)
        if layer is None or not _spills(layer.x, node, context):
            return None
        if layer.steps is not None and not layer.is_pointwise:
            return None
        axis = layer.x.ndim - 2 if layer.steps is None else 2
        if layer.x.ndim < 2 or layer.x.shape[axis] < count:
            return None

        def build(x: Tensor) -> Tensor:
            cut = PieceCut(x, axis)
            tiles = [cut.piece(begin, size) for begin, size in row_bounds(x.shape[axis], count)]
            return concat([layer.build(tile, layer.weight, layer.bias) for tile in tiles], axis=axis)

        return Site(node, (layer.x,), build)

    return OtherForm("tiling", f"row-tiles-{count}", f"The rows of a large layer in {count} tiles.", find)


def _split_sum(count: int) -> OtherForm:
    """Each part sums some of the inputs; partial sums are rounded to fp16 before they are added."""

    def find(node: Tensor, context: FormContext) -> Site | None:
        layer = layer_of(node)
        if layer is None or layer.steps is not None or layer.weight.shape[1] < max(context.long_sum, count):
            return None

        def build(x: Tensor) -> Tensor:
            cut = PieceCut(x, x.ndim - 1)
            total: Tensor | None = None
            for begin, size in row_bounds(layer.weight.shape[1], count):
                bias = layer.bias if total is None else None
                part = layer.build(cut.whole(cut.piece(begin, size)), layer.weight[:, begin : begin + size], bias)
                total = part if total is None else total + part
            assert total is not None
            return total

        return Site(node, (layer.x,), build)

    return OtherForm("tiling", f"split-sum-{count}", f"A long sum as {count} shorter ones, added.", find)


def _split_input(node: Tensor, context: FormContext) -> Site | None:
    """As many pieces as bring a layer back to full rate; partial sums are rounded to fp16 before they are added."""
    layer = layer_of(node)
    if layer is None or layer.groups != 1:
        return None
    outputs, inputs, *kernel = layer.weight.shape
    count = pieces_at_full_rate(outputs, inputs, math.prod(kernel))
    if count is None:
        return None
    axis = layer.x.ndim - 1 if layer.steps is None else 1

    def build(x: Tensor) -> Tensor:
        cut, parts = PieceCut(x, axis), []
        for begin, size in row_bounds(inputs, count):
            piece = cut.piece(begin, size)
            bias = None if parts else layer.bias
            parts.append(layer.build(cut.whole(piece), layer.weight[:, begin : begin + size], bias))
        return sum(parts[1:], parts[0])

    return Site(node, (layer.x,), build)


ERRATUM_FORM = "split-input-axis"
"""The rewrite of layers whose weights stream slowly, or whose sums run at half rate, on some chips (C69, C74)."""
TILING_FORMS = (
    OtherForm(
        "tiling",
        ERRATUM_FORM,
        "A layer that an erratum slows (1 MiB of weights a core, C69; a long sum, C74), its input axis in pieces.",
        _split_input,
    ),
    *(_by_outputs(count) for count in _PIECE_COUNTS),
    *(_by_rows(count) for count in _PIECE_COUNTS),
    *(_split_sum(count) for count in _PIECE_COUNTS),
)
PLAIN_FORMS = (*ATTENTION_FORMS, *TILING_FORMS, *OP_FORMS)
"""Forms that keep the weights as they are."""


def _spelled_out(node: Tensor, context: FormContext) -> Site | None:
    """The softmax of an attention as the ops that it stands for."""
    if node.op != "matmul" or node.inputs[0].op != "softmax" or attention_extents(node.inputs[0]) is None:
        return None
    soft, v = node.inputs

    def build(scores: Tensor, v: Tensor) -> Tensor:
        powers = (scores - scores.amax(-1)).exp()
        return (powers * powers.sum(-1).inverse()) @ v

    return Site(node, (soft.inputs[0], v), build)


CURES = (
    OtherForm(
        "attention", "softmax-spelled-out", "The softmax of an attention as exp, sum, inverse, mul.", _spelled_out
    ),
)
"""Forms that answer a refusal and are never faster: applied where they are named, and not searched."""


def apply_form(model: Source, name: str) -> Graph:
    """A model with one form by name wherever it fits, without a search: the same outputs and names. Inputs stay too,
    but where the form is about caches."""
    graph, forms = graph_of(model), {form.name: form for form in (*PLAIN_FORMS, *CURES)}
    of_caches = [form.name for form in CACHE_FORMS]
    if name in of_caches:
        return with_cache_form(graph, name)
    if name not in forms:
        raise UnknownNameError(f"{name!r}: not a form; choose one: {', '.join([*forms, *of_caches])}")
    context = context_of(graph)
    sites = apart(site for node in graph.nodes if (site := forms[name].find(node, context)) is not None)
    if not sites:
        raise ArgumentError("form", f"{name} fits nowhere in the model ({forms[name].doc.rstrip('.')}).")
    return applied(graph, sites)


def _stored_as(storage: Storage) -> OtherForm:
    def find(node: Tensor, context: FormContext) -> Site | None:
        layer = layer_of(node)
        if layer is None or not storage.pays(layer.weight):
            return None
        stored = cache(lambda: storage.write(layer.weight))  # a weight is written when somebody tries it, and once
        kept = np.count_nonzero(layer.weight) if storage.name == "sparse" else 0
        return layer.stored_as(stored, traits=kept)

    name = storage.encoding
    return OtherForm("encoding", name, f"The weights of a layer stored as {name}.", find)


def encoding_forms(target: Target) -> tuple[OtherForm, ...]:
    """A form for each way of storing weights that the chip streams."""
    return tuple(map(_stored_as, streamed_storages(target)))


def forms_for(target: Target, compressed: bool = False) -> tuple[OtherForm, ...]:
    """Every form that a search on a target weighs; compressed weights only where they are allowed."""
    return (*PLAIN_FORMS, *encoding_forms(target)) if compressed else PLAIN_FORMS


# The number of tiles of attention.


def attention_tiles(
    S: int,  # noqa: N803 - the names that existing code passes
    n_heads: int,
    dh: int,
    T: int | None = None,  # noqa: N803
    tune: bool = False,
    candidates: Sequence[int] = CANDIDATES,
    target: str | int | Target | None = None,
) -> int:
    """In how many tiles to go over ``S`` queries of ``n_heads`` heads of ``dh`` features and ``T`` keys (as many as
    queries by default).

    The fewest tiles whose scores, before and after the softmax, fit the chip's working set together; where none does,
    the most. With ``tune`` the tiles of the best estimate (see :func:`tune_attention`). ``candidates`` are the numbers
    of tiles to choose from.
    """
    if tune:
        return tune_attention(S, n_heads, dh, T, candidates, target)
    keys, counts = _checked(S, n_heads, dh, T, candidates)
    room = compile_fact(resolve_target(target), "max_operand_bytes").value
    fits = [tiles for tiles in counts if 2 * 2 * n_heads * -(-S // tiles) * keys <= room]
    return min(fits) if fits else max(counts)


def tune_attention(
    S: int,  # noqa: N803
    n_heads: int,
    dh: int,
    T: int | None = None,  # noqa: N803
    candidates: Sequence[int] = CANDIDATES,
    target: str | int | Target | None = None,
) -> int:
    """The number of query tiles with the best estimate; the fewest where several are equal.

    ``S`` is the number of queries, ``n_heads`` of heads, ``dh`` of features and ``T`` of keys, as for
    :func:`attention_tiles`; ``candidates`` are the numbers of tiles to choose from.
    """
    keys, counts = _checked(S, n_heads, dh, T, candidates)
    chip = resolve_target(target)
    return min(counts, key=lambda tiles: (_estimate(S, n_heads, dh, keys, tiles, chip), tiles))


def _estimate(queries: int, heads: int, features: int, keys: int, tiles: int, chip: Target) -> float:
    q = graph_input((1, heads, queries, features))
    k, v = (graph_input((1, heads, keys, features)) for _ in range(2))
    out = ((q @ k.mT) * features**-0.5).softmax(-1) @ v
    graph = Graph([out])
    if tiles > 1:
        site = query_tiles(tiles).find(out, context_on(graph, chip))
        assert site is not None
        graph = applied(graph, [site])
    return timed(Study(graph, chip))[1].us


def _checked(
    queries: int, heads: int, features: int, keys: int | None, candidates: Sequence[int]
) -> tuple[int, list[int]]:
    """The number of keys, and the counts of tiles that there are queries for."""
    key_count = queries if keys is None else keys
    for name, value in (("S", queries), ("n_heads", heads), ("dh", features), ("T", key_count)):
        if not _is_count(value):
            raise AneforgeError(f"{name}: {value!r} is not allowed; give a whole number of 1 or more.")
    if not candidates or not all(_is_count(count) for count in candidates):
        raise AneforgeError(f"candidates: {candidates!r} is not a list of numbers of tiles, 1 or more.")
    counts = sorted({int(count) for count in candidates if count <= queries})
    if not counts:
        raise AneforgeError(f"S: {queries} queries do not divide into {min(candidates)} tiles or more")
    return key_count, counts


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
