"""What differs between two chips inside one node, in words, and safe rewrites of what can lose numbers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from aneforge.chips.limits import FP16_SLICE_SAT
from aneforge.engine.ir import Op
from aneforge.engine.traits import Trait
from aneforge.errors import AneforgeError, UnknownNameError, nearest
from aneforge.graph.forms import FormContext, OtherForm, Site, applied, context_of, rebuilt_by, scale_of
from aneforge.graph.graph import Graph
from aneforge.graph.layer_forms import OP_FORMS
from aneforge.graph.node import Node
from aneforge.graph.stable_forms import STABLE_FORMS
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait
from aneforge.numerics.losses import Risk
from aneforge.numerics.products import arithmetic
from aneforge.numerics.rules import is_clamped_copy
from aneforge.numerics.transfer import Walk
from aneforge.sim.int8 import integer_operands
from aneforge.sim.rules.contraction import passes_no_accumulator, stored_as_int8, takes_winograd
from aneforge.sim.tables import differs_by_set


def adds_on_the_planar_path(op: Op) -> bool:
    """Whether an op adds many numbers there: a sum or mean, a norm, a softmax or what holds one."""
    if op.is_a(Trait.REDUCTION):
        return not op.is_a(Trait.EXACT)
    return op.is_a(Trait.NORMALISATION) or op.kind == "sdpa"


def causes_of(node: str, walks: Sequence[Walk], reached: bool = False) -> tuple[str, ...]:
    """What the two chips do differently in the ops of a node: whether or not the data ever reach it, or only what
    they can reach."""
    ways = [_ways(node, walk, reached) for walk in walks]
    causes = [f"{way} on {walks[0].engine.target.name} only" for way in ways[0] if way not in ways[1]]
    causes += [f"{way} on {walks[1].engine.target.name} only" for way in ways[1] if way not in ways[0]]
    return tuple(causes)


def _ways(node: str, walk: Walk, reached: bool) -> list[str]:
    ways: dict[str, None] = {}
    for op in walk.layers_of.get(node, ()):
        ways |= dict.fromkeys(_of_op(op, walk, reached))
    return list(ways)


def _of_op(op: Op, walk: Walk, reached: bool) -> list[str]:
    """What of a chip's ways an op takes; each is there or not."""
    engine = walk.engine
    contracts = op.is_a(Trait.CONTRACTION) or op.kind == "sdpa"
    convolves = op.kind == "convolution"
    has_kernel = op.is_a(Trait.STORED_KERNEL) and op.kind != "deconvolution"
    integers = integer_operands(engine, op) is not None
    clamps = is_clamped_copy(op) or (has_kernel and not integers and engine.int8_activations_q4 and stored_as_int8(op))
    tiles = contracts and engine.tile_losses
    if reached and (clamps or tiles):
        read = [walk.values[operand] for operand in op.operands]
        clamps = clamps and (read[0].special or read[0].size > FP16_SLICE_SAT)
        tiles = tiles and bool(arithmetic(engine, op, *read[:2])[1])
    ways = {
        "tiles of four terms that add in fp16 above 4096": tiles,
        "subnormal operands read as zero": contracts and engine.flush_subnormals,
        "the Winograd form, rounded in between": takes_winograd(engine, op),
        "one channel that passes no accumulator": convolves and passes_no_accumulator(engine, op),
        "8-bit products added as integers": integers,
        "activations above 4094 infinite in front of 8-bit weights": clamps and has_kernel,
        "the crop path, infinite above 4094": clamps and not has_kernel,
        f"the {engine.tables} table of {op.kind}": differs_by_set(op.kind),
        f"sums by the path for {engine.reduction_transpose_extent} elements (0x3f0)": adds_on_the_planar_path(op),
        "division by a rounded reciprocal": op.kind == "div" and engine.reciprocal_divide,
    }
    return [way for way, taken in ways.items() if taken]


# Safe rewrites of what can lose numbers: the same function, by ops that keep them.


def _slice_off_width(node: Tensor, context: FormContext) -> Site | None:
    """The width becomes the channels, whose slices stay in fp16 (N18)."""
    if node.op != "slice_by_size" or node.ndim < 2 or node.attrs["begin"][-1] == 0:
        return None
    channel = max(node.ndim - 3, 0)
    order = list(range(node.ndim))
    order[channel], order[-1] = order[-1], order[channel]
    begin, size = ([attribute[axis] for axis in order] for attribute in (node.attrs["begin"], node.shape))

    def build(x: Tensor) -> Tensor:
        return x.transpose(order).slice_by_size(begin, size).transpose(order)

    return Site(node, (node.inputs[0],), build)


def _scaled_first(node: Tensor, context: FormContext) -> Site | None:
    """A factor behind a product moves in front of it, where it keeps the sum small."""
    if not node.is_a(GraphTrait.SCALING) or node.inputs[0].op != "matmul":
        return None
    product = node.inputs[0]
    factor = scale_of(node, product)
    if factor is None or abs(factor) >= 1 or not context.is_private(product):
        return None
    return Site(node, product.inputs, lambda a, b: (a * factor) @ b)


_SUMS = {form.name: form for form in OP_FORMS if form.name in ("row-sum-as-product", "channel-sum-as-conv")}


def _sum_as_product(node: Tensor, context: FormContext) -> Site | None:
    return next((site for form in _SUMS.values() if (site := form.find(node, context)) is not None), None)


CURES = {
    rewrite.name: rewrite
    for rewrite in (
        OtherForm("form", "slice-off-width", "A slice of the width as one of the channels.", _slice_off_width),
        OtherForm("form", "sum-as-product", "A sum or mean as a product with ones.", _sum_as_product),
        OtherForm("form", "scaled-attention", "A factor behind a product moved in front of it.", _scaled_first),
        *STABLE_FORMS,
    )
}


def rewritten(out: Tensor | Sequence[Tensor] | Graph, risks: Iterable[Risk] | Iterable[str]) -> Graph:
    """The graph with safe rewrites: those that are named, wherever they fit, or those that risks ask for, where the
    risks are."""
    graph = Graph.of(out)
    uids = {name: uid for uid, name in graph.names().items()}
    everywhere: set[str] = set()
    places: dict[str, set[int]] = {}
    factors: dict[int, float] = {}
    for risk in risks:
        name = risk if isinstance(risk, str) else risk.rewrite
        if name is None:
            continue
        if name not in CURES:
            near = ", ".join(nearest(name, CURES)) or ", ".join(CURES)
            raise UnknownNameError(f"{name}: not a rewrite; nearest: {near}.")
        chosen = places.setdefault(name, set())
        if isinstance(risk, str) or risk.node not in uids:  # a name alone, or a node that only the compiler knows
            everywhere.add(name)
            continue
        chosen.add(uids[risk.node])
        if risk.factor is not None:
            factors[uids[risk.node]] = risk.factor
    context = context_of(graph, factors=factors)
    sites: dict[int, Site] = {}
    for node in graph.nodes:
        for name, chosen in places.items():
            site = None if node.definition.leaf or node.uid in sites else CURES[name].find(node, context)
            if site is None:
                continue
            if name in everywhere or any(inside.uid in chosen for inside in rebuilt_by(site)):
                sites[node.uid] = site
    return applied(graph, list(sites.values())) if sites else graph


def with_fitting_rewrites(graph: Graph, risks: Sequence[Risk]) -> list[Risk]:
    """The risks, each with its rewrite only if that fits where the risk is: a report promises no more than that."""
    wanted = {risk.rewrite for risk in risks if risk.rewrite is not None}
    if not wanted:
        return list(risks)
    uids = {name: uid for uid, name in graph.names().items()}
    factors = {uids[risk.node]: risk.factor for risk in risks if risk.factor is not None and risk.node in uids}
    context = context_of(graph, factors=factors)
    places: dict[str, set[int]] = {name: set() for name in wanted}
    for node in graph.nodes:
        for name in wanted if not node.definition.leaf else ():
            site = CURES[name].find(node, context)
            if site is not None:
                places[name].update(inside.uid for inside in rebuilt_by(site))
    return [
        risk if risk.rewrite is None or uids.get(risk.node) in places[risk.rewrite] else replace(risk, rewrite=None)
        for risk in risks
    ]


def reduce_sum_to_matmul(
    out: Tensor | Sequence[Tensor] | Graph, only_idx: Sequence[int] | None = None
) -> Tensor | list[Tensor]:
    """Sums and means along the last axis, or over channels, as products with ones: the accumulators add exactly.

    A tensor gives a tensor, several give a list; a graph gives its outputs likewise. ``only_idx`` picks some of the
    sums, in the order of the graph.
    """
    graph = Graph.of(out)
    if graph.states:
        raise AneforgeError(
            "reduce_sum_to_matmul: tensors alone do not hold the states of a graph; use "
            "aneforge.numerics.causes.rewritten(graph, ['sum-as-product'])"
        )
    context = context_of(graph)
    sites = [site for node in graph.nodes if (site := _sum_as_product(node, context)) is not None]
    chosen = range(len(sites)) if only_idx is None else only_idx
    if any(not 0 <= number < len(sites) for number in chosen):
        raise AneforgeError(
            f"only_idx: {list(chosen)} is out of range; the graph has {len(sites)} sums that can be products. "
            "Count from 0."
        )
    outputs = list((applied(graph, [sites[number] for number in chosen]) if sites else graph).outputs)
    one = len(outputs) == 1 and isinstance(out, (Node, Graph))
    return outputs[0] if one else outputs
