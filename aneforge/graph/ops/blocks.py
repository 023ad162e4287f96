"""Blocks that build several nodes: attention, gated feed-forward, rotary positions, einsum."""

from __future__ import annotations

import math
import string
from typing import TYPE_CHECKING, Any

import numpy as np

from aneforge.errors import EinsumUnsupported, GraphError
from aneforge.graph.node import entry
from aneforge.graph.ops.leaf import as_tensor
from aneforge.graph.ops.shape import concat, split
from aneforge.graph.shapes import positive

if TYPE_CHECKING:
    from aneforge.graph.tensor import Tensor


def _heads(x: Tensor, n_heads: int) -> Tensor:
    """[S, D] to [heads, S, D / heads]."""
    rows, features = x.shape
    if features % n_heads:
        raise GraphError(
            f"{features} features do not divide into {n_heads} heads; the number of heads must divide the features"
        )
    return x.reshape(rows, n_heads, features // n_heads).transpose([1, 0, 2])


def _attend(q: Tensor, k: Tensor, v: Tensor, n_heads: int, mask: Any) -> Tensor:
    scale = 1 / math.sqrt(q.shape[1] // n_heads)
    scores = (_heads(q, n_heads) @ _heads(k, n_heads).mT) * scale
    if mask is not None:
        scores = scores + as_tensor(mask, "mask")
    mixed = scores.softmax(-1) @ _heads(v, n_heads)
    return mixed.transpose([1, 0, 2]).reshape(q.shape[0], v.shape[1])


@entry
def mha(
    x: Tensor,
    Wq: Any,  # noqa: N803 - names that existing code passes
    bq: Any,
    Wk: Any,  # noqa: N803
    bk: Any,
    Wv: Any,  # noqa: N803
    bv: Any,
    Wo: Any,  # noqa: N803
    bo: Any,
    n_heads: int,
    mask: Any = None,
) -> Tensor:
    """Multi-head self-attention on [S, D]; weights are [out, in], the mask is added to the scores."""
    heads = positive(n_heads, "n_heads")
    if x.ndim != 2:
        raise GraphError(f"mha: takes [S, D], not {list(x.shape)}")
    mixed = _attend(x.linear(Wq, bq), x.linear(Wk, bk), x.linear(Wv, bv), heads, mask)
    return mixed.linear(Wo, bo)


@entry
def cross_attention(
    x: Tensor,
    context: Tensor,
    Wq: Any,  # noqa: N803
    Wk: Any,  # noqa: N803
    Wv: Any,  # noqa: N803
    Wo: Any,  # noqa: N803
    n_heads: int,
    bq: Any = None,
    bk: Any = None,
    bv: Any = None,
    bo: Any = None,
) -> Tensor:
    """Attention with queries from ``x`` [S, D] and keys and values from ``context`` [T, Dc]."""
    heads = positive(n_heads, "n_heads")
    if x.ndim != 2 or context.ndim != 2:
        raise GraphError(f"cross_attention: takes [S, D] and [T, Dc], not {list(x.shape)} and {list(context.shape)}")
    mixed = _attend(x.linear(Wq, bq), context.linear(Wk, bk), context.linear(Wv, bv), heads, None)
    return mixed.linear(Wo, bo)


@entry
def geglu(x: Tensor, W: Any, b: Any) -> Tensor:  # noqa: N803
    """Project to two halves, value and gate; value * gelu(gate)."""
    value, gate = split(x.linear(W, b), 2, axis=-1)
    return value * gate.gelu()


@entry
def rope(x: Tensor, cos: Any, sin: Any) -> Tensor:
    """Rotary positions: ``x * cos + rotate_half(x) * sin`` over the last axis."""
    if x.shape[-1] % 2:
        raise GraphError(f"rope: the last axis has {x.shape[-1]} elements; it must be even")
    first, second = split(x, 2, axis=-1)
    return x * as_tensor(cos, "cos") + concat([-second, first], axis=x.ndim - 1) * as_tensor(sin, "sin")


@entry
def einsum(equation: str, *operands: Tensor) -> Tensor:
    """NumPy's einsum for one or two operands, as transposes, reshapes and one matrix product."""
    terms, output = _parse(equation, operands)
    prepared = [_without_diagonals(term, as_tensor(operand)) for term, operand in zip(terms, operands, strict=True)]
    if len(prepared) == 1:
        term, x = prepared[0]
        return _arrange(_summed(term, x, output), output)
    if len(prepared) != 2:
        raise EinsumUnsupported(f"einsum: {len(prepared)} operands; give one or two; chain products two at a time")
    (a_term, a), (b_term, b) = prepared
    (a_term, a), (b_term, b) = _unstretched(a_term, a, b_term, b), _unstretched(b_term, b, a_term, a)
    a_term, a = _summed(a_term, a, output + b_term)
    b_term, b = _summed(b_term, b, output + a_term)
    sizes = dict([*zip(a_term, a.shape, strict=False), *zip(b_term, b.shape, strict=False)])  # no label left: [1]
    for label in a_term:
        if label in b_term and a.shape[a_term.index(label)] != b.shape[b_term.index(label)]:
            raise GraphError(f"einsum: {label!r} is {a.shape[a_term.index(label)]} and {b.shape[b_term.index(label)]}")
    batch = [label for label in a_term if label in b_term and label in output]
    summed = [label for label in a_term if label in b_term and label not in output]
    left = [label for label in a_term if label not in b_term]
    right = [label for label in b_term if label not in a_term]

    def folded(x: Tensor, term: str, groups: list[list[str]]) -> Tensor:
        order = [term.index(label) for group in groups for label in group]
        moved = x.transpose(order) if order != sorted(order) else x
        return moved.reshape([math.prod(sizes[label] for label in group) for group in groups])

    product = folded(a, a_term, [batch, left, summed]) @ folded(b, b_term, [batch, summed, right])
    labels = "".join([*batch, *left, *right])
    shape = [sizes[label] for label in labels] or [1]
    return _arrange((labels, product.reshape(shape)), output)


def _parse(equation: str, operands: tuple[Any, ...]) -> tuple[list[str], str]:
    text = equation.replace(" ", "")
    left, arrow, output = text.partition("->")
    terms = left.split(",")
    if len(terms) != len(operands):
        raise GraphError(f"einsum: {equation!r} names {len(terms)} operands, but got {len(operands)}")
    ranks = [len(as_tensor(operand).shape) for operand in operands]
    spare = [letter for letter in string.ascii_letters if letter not in text]
    hidden = max(
        (rank - len(term.replace("...", "")) for term, rank in zip(terms, ranks, strict=True) if "..." in term),
        default=0,
    )
    dots = "".join(spare[:hidden])
    spelled = []
    for term, rank in zip(terms, ranks, strict=True):
        named = term.replace("...", "")
        full = term.replace("...", dots[len(dots) - (rank - len(named)) :]) if "..." in term else term
        if len(full) != rank:
            raise GraphError(f"einsum: {term!r} names {len(full)} axes of a tensor of rank {rank}")
        spelled.append(full)
    every = "".join(spelled)
    if not arrow:
        output = dots + "".join(sorted(label for label in set(every) - set(dots) if every.count(label) == 1))
    if arrow and hidden and "..." not in output:
        raise GraphError(
            f"einsum: {equation!r} names no place in the output for the axes of '...'; write '...' behind the arrow"
        )
    output = output.replace("...", dots)
    if len(set(output)) != len(output):
        raise EinsumUnsupported(
            f"einsum: output {output!r} names an axis twice; each axis must be named once. Multiply by np.eye instead"
        )
    if not set(output) <= set(every):
        raise GraphError(f"einsum: output {output!r} must name axes of the operands")
    if not all(label.isalpha() for label in every):
        raise GraphError(f"einsum: {equation!r} must hold only letters, commas, '->' and '...'")
    return spelled, output


def _without_diagonals(term: str, x: Tensor) -> tuple[str, Tensor]:
    """A label that appears twice in one operand means its diagonal: mask and sum it."""
    for label in dict.fromkeys(term):
        while term.count(label) > 1:
            first = term.index(label)
            second = term.index(label, first + 1)
            if x.shape[first] != x.shape[second]:
                raise GraphError(
                    f"einsum: the diagonal of {list(x.shape)} along {label!r} is not square; both axes must be equal"
                )
            shape = [1] * x.ndim
            shape[first], shape[second] = x.shape[first], x.shape[second]
            eye = np.eye(x.shape[first]).reshape(shape)
            x = (x * eye).sum(second).squeeze(second)
            term = term[:second] + term[second + 1 :]
    return term, x


def _unstretched(term: str, x: Tensor, other: str, y: Tensor) -> tuple[str, Tensor]:
    """Axes of one that the other operand stretches, removed."""
    removed = [
        i for i, label in enumerate(term) if x.shape[i] == 1 and label in other and y.shape[other.index(label)] > 1
    ]
    rest = "".join(label for i, label in enumerate(term) if i not in removed)
    return rest, x.squeeze(removed) if removed else x


def _summed(term: str, x: Tensor, kept: str) -> tuple[str, Tensor]:
    removed = [axis for axis, label in enumerate(term) if label not in kept]
    if not removed:
        return term, x
    rest = "".join(label for label in term if label in kept)
    total = x.sum(removed)
    return rest, total.squeeze(removed) if rest else total.reshape(1)


def _arrange(part: tuple[str, Tensor], output: str) -> Tensor:
    labels, x = part
    order = [labels.index(label) for label in output]
    return x.transpose(order) if order != sorted(order) else x
