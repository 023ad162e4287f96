"""Forms that keep numbers where the usual form loses them: the same function, by steps that stay inside fp16.

Each costs more steps than the usual form, so none is applied unless a risk asks for it (``numerics.cures``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from aneforge.graph.forms import FormContext, OtherForm, Site, number_of
from aneforge.graph.halves import FP16_MAX
from aneforge.graph.node import make
from aneforge.graph.ops.elementwise import maximum, where
from aneforge.graph.ops.leaf import const
from aneforge.graph.tensor import Tensor
from aneforge.graph.traits import GraphTrait

MASKED = 3e4
"""A mask of this size is finite in a sum with any score, and its power is zero."""
PROBABILITY_FACTOR = 64.0
"""By what probabilities are multiplied before a product: the error of 4096 keys went from 3.95 % to 0.06 % (N75)."""
_MOST_OF_ONE = 4096.0  # a probability of one times more than this leaves little room below 32768


def probabilities_of(node: Tensor) -> int | None:
    """Which operand of a product is a softmax, looked at through moves; None if neither is."""
    if node.op != "matmul":
        return None
    for place, operand in enumerate(node.inputs):
        source = operand
        while source.is_a(GraphTrait.MOVEMENT) or source.op == "cast":
            source = source.inputs[0]
        if source.op == "softmax":
            return place
    return None


def _scaled_product(node: Tensor, context: FormContext) -> Site | None:
    """An operand times a power of two before the product, the result divided by it: small products survive (N11)."""
    if node.op == "sdpa":
        return _scaled_values(node, context)
    if node.op != "matmul" or any(operand.op == "const" for operand in node.inputs):
        return None
    place = probabilities_of(node)
    factor = context.factors.get(node.uid)
    if place is None and factor is None:
        return None
    scale = factor or PROBABILITY_FACTOR
    scales = [min(scale, _MOST_OF_ONE), max(1.0, scale / _MOST_OF_ONE)]
    if place == 1:
        scales.reverse()

    def build(*operands: Tensor) -> Tensor:
        a, b = (x if part == 1.0 else x * part for x, part in zip(operands, scales, strict=True))
        return (a @ b) * (1 / scale)

    return Site(node, node.inputs, build)


def _scaled_values(node: Tensor, context: FormContext) -> Site | None:
    """The values of an attention layer times a power of two, its result divided by it."""
    scale = context.factors.get(node.uid)
    if scale is None:
        return None

    def build(query: Tensor, key: Tensor, value: Tensor, *mask: Tensor) -> Tensor:
        return make(node.definition, (query, key, value * scale, *mask), node.attrs) * (1 / scale)

    return Site(node, node.inputs, build)


def _scaled_cumsum(node: Tensor, context: FormContext) -> Site | None:
    """The numbers times a power of two, the running sums divided by it."""
    if node.op != "cumsum":
        return None
    scale, axis = context.factors.get(node.uid, PROBABILITY_FACTOR), node.attrs["axis"]
    return Site(node, node.inputs, lambda x: (x * scale).cumsum(axis) * (1 / scale))


def _finite_mask(node: Tensor, context: FormContext) -> Site | None:
    """Infinite constants as -3e4 and 3e4: the same softmax, and no row without a sum."""
    masks = node.is_a(GraphTrait.ARITHMETIC) or node.op == "select"
    if not masks or node.op == "real_div":  # a number over infinity is zero, over 3e4 it is not
        return None
    finite = {place: numbers for place, operand in enumerate(node.inputs) if (numbers := _without_infinity(operand))}
    if not finite:
        return None
    others = tuple(operand for place, operand in enumerate(node.inputs) if place not in finite)

    def build(*operands: Tensor) -> Tensor:
        given = iter(operands)
        inputs = [finite[place]() if place in finite else next(given) for place in range(len(node.inputs))]
        return make(node.definition, inputs, node.attrs)

    return Site(node, others, build)


def _without_infinity(operand: Tensor) -> Callable[[], Tensor] | None:
    """What makes the finite form of a constant; None for what is not a constant, or is finite already."""
    weight = operand.weight if operand.op == "const" else None
    if weight is None or weight.encoded is not None or not np.isinf(weight.array).any():
        return None
    array = weight.array
    return lambda: const(np.clip(array, -MASKED, MASKED).astype(np.float16))


def _stable_softplus(node: Tensor, context: FormContext) -> Site | None:
    """relu(x) + log(1 + exp(-|x|)): the power never exceeds one (N86)."""
    x = softplus_of(node)
    return None if x is None else Site(node, (x,), lambda x: x.relu() + ((x.abs() * -1.0).exp() + 1.0).log())


def softplus_of(node: Tensor) -> Tensor | None:
    """The argument of a softplus, also where it is spelled out; None for any other node."""
    if node.op == "softplus":
        return node.inputs[0]
    if node.op != "log":
        return None
    inner, shift = node.inputs[0], float(node.attrs["eps"])
    if inner.op == "add" and shift == 0.0:
        constants = [operand for operand in inner.inputs if number_of(operand) == 1.0]
        powers = [operand for operand in inner.inputs if operand.op == "exp"]
        return powers[0].inputs[0] if constants and powers else None
    return inner.inputs[0] if inner.op == "exp" and shift == 1.0 else None


def _stable_logsumexp(node: Tensor, context: FormContext) -> Site | None:
    """The maximum in front: no power exceeds one, and the sum is at least one."""
    found = logsumexp_of(node)
    if found is None:
        return None
    x, axes = found

    def build(x: Tensor) -> Tensor:
        top = x.amax(axes)
        return top + (x - top).exp().sum(axes).log()

    return Site(node, (x,), build)


def logsumexp_of(node: Tensor) -> tuple[Tensor, Sequence[int]] | None:
    """The argument and the axes of a logsumexp, also where it is spelled out; None for any other node."""
    if node.op == "reduce_log_sum_exp":
        return node.inputs[0], node.attrs["axes"]
    total = node.inputs[0] if node.op == "log" and node.attrs["eps"] == 0.0 else node
    if total.op not in ("sum", "log_sum") or (total is node) != (total.op == "log_sum"):
        return None
    powers = total.inputs[0]
    return (powers.inputs[0], total.attrs["axes"]) if powers.op == "exp" else None


def _stable_norm(node: Tensor, context: FormContext) -> Site | None:
    """Divided by the largest magnitude before squaring, and epsilon with it: no square is infinite, and not all are
    too small to add (N90). A fixed divisor would lose small numbers."""
    form = _NORMS.get(node.op)
    return None if form is None else Site(node, node.inputs, lambda *operands: form(node, *operands))


def _scaled_to_one(x: Tensor, axes: Sequence[int], eps: float, mean: bool = True) -> Tensor:
    """x over the root of its mean square (or of the sum) plus epsilon."""
    root = math.sqrt(eps)
    largest = maximum(x.abs().amax(axes), max(2.0**-14, root / 128))  # so that (root / largest)^2 is finite
    unit = x / largest
    squares = unit.square().mean(axes) if mean else unit.square().sum(axes)
    return unit * (squares + (root / largest).square()).rsqrt()


def _gained(x: Tensor, shape: Sequence[int], *affine: Tensor) -> Tensor:
    for place, vector in enumerate(affine):
        numbers = None if vector.op != "const" or vector.weight is None or vector.weight.encoded else vector.weight
        shaped = vector.reshape(*shape) if numbers is None else const(numbers.array.reshape(tuple(shape)))
        x = x + shaped if place else x * shaped
    return x


def _along(x: Tensor, axis: int) -> list[int]:
    return [extent if place == axis % x.ndim else 1 for place, extent in enumerate(x.shape)]


def _plain_norm(axes_of: Callable[[Tensor], list[int]]) -> Callable[..., Tensor]:
    def form(node: Tensor, x: Tensor, *affine: Tensor) -> Tensor:
        axes, along = axes_of(x), node.definition.vector_axis
        assert along is not None
        centred = x - x.mean(axes) if node.is_a(GraphTrait.CENTRED) else x
        return _gained(_scaled_to_one(centred, axes, node.attrs["eps"]), _along(x, along), *affine)

    return form


def _groups(node: Tensor, x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    """Groups join the batch, so that no axis gets longer than the image's own."""
    groups = node.attrs["num_groups"]
    split = x.reshape(x.shape[0] * groups, x.shape[1] // groups, *x.shape[2:])
    axes = list(range(1, x.ndim))
    unit = _scaled_to_one(split - split.mean(axes), axes, node.attrs["eps"]).reshape(*x.shape)
    return _gained(unit, _along(x, 1), gamma, beta)


_NORMS: dict[str, Callable[..., Tensor]] = {
    "rms_norm": _plain_norm(lambda x: [x.ndim - 1]),
    "layer_norm": _plain_norm(lambda x: [x.ndim - 1]),
    "channel_layer_norm": _plain_norm(lambda x: [1]),
    "instance_norm": _plain_norm(lambda x: list(range(2, x.ndim))),
    "group_norm": _groups,
    "l2_norm": lambda node, x: _scaled_to_one(x, [node.attrs["axis"]], node.attrs["eps"], mean=False),
}


def _long_division(node: Tensor, context: FormContext) -> Site | None:
    """The divisor times falling powers of two is subtracted where it fits: every difference is exact in fp16."""
    divisor = number_of(node.inputs[1]) if node.op == "mod" else None
    if not divisor or not math.isfinite(divisor):
        return None
    step = abs(divisor)
    largest = context.factors.get(node.uid, FP16_MAX)
    powers = [step * 2.0**power for power in range(48) if step * 2.0**power <= min(largest, FP16_MAX)]

    def build(x: Tensor) -> Tensor:
        rest = x.abs()
        for part in reversed(powers):
            rest = where(rest.greater_equal(part), rest - part, rest)
        other_sign = x.less(0.0) if divisor > 0 else x.greater(0.0)
        turned = where(other_sign, where(rest.greater(0.0), step - rest, rest), rest)
        return turned if divisor > 0 else turned * -1.0

    return Site(node, (node.inputs[0],), build)


STABLE_FORMS = (
    OtherForm("form", "scaled-product", "An operand scaled up before a product, the result down.", _scaled_product),
    OtherForm("form", "scaled-cumsum", "Numbers scaled before a running sum, the sums back.", _scaled_cumsum),
    OtherForm("form", "finite-mask", "An infinite mask as -3e4.", _finite_mask),
    OtherForm("form", "stable-softplus", "softplus as relu(x) + log(1 + exp(-|x|)).", _stable_softplus),
    OtherForm("form", "stable-logsumexp", "The maximum subtracted before the powers.", _stable_logsumexp),
    OtherForm("form", "stable-norm", "A norm of numbers that are divided by the largest first.", _stable_norm),
    OtherForm("form", "long-division", "A remainder by subtracting falling multiples.", _long_division),
)
