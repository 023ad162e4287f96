"""The lazy tensor users hold: operators and methods over the op declarations."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from aneforge.errors import GraphError, shown
from aneforge.graph import node
from aneforge.graph.node import Node, Shape
from aneforge.graph.ops import contraction, elementwise, layers, leaf, norm, ranking, reduction, shape, spatial
from aneforge.graph.ops.elementwise import UNARY

if TYPE_CHECKING:
    from aneforge.graph.graph import Graph

C = TypeVar("C")
_PLAIN = {
    "__array__",
    "__array_function__",
    "__bool__",
    "__float__",
    "__iter__",
    "__len__",
    "__repr__",
    "graph",
    "named",
}


def _entries(cls: C) -> C:
    """Mark every method that builds nodes as a call that users make. Some builders are marked already."""
    for name, member in list(vars(cls).items()):
        if name in _PLAIN or hasattr(member, "__wrapped__"):
            continue
        if callable(member) and hasattr(member, "__code__"):
            setattr(cls, name, node.entry(member))
    return cls


@_entries
class Tensor(Node):
    """A value of a graph: nothing is computed until the graph is compiled or evaluated."""

    __slots__ = ()
    __hash__ = Node.__hash__
    __array_priority__ = 1000  # with an array on its left, the tensor's operator is used

    # The names that NumPy users expect.

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def T(self) -> Tensor:  # noqa: N802 - NumPy's name
        """All axes in opposite order."""
        return shape.transpose(self)

    @property
    @node.entry
    def mT(self) -> Tensor:  # noqa: N802 - NumPy's name
        """The last two axes exchanged."""
        if self.ndim < 2:
            raise GraphError(f"mT needs rank 2 or more, not {list(self.shape)}")
        return shape.transpose(self, [*range(self.ndim - 2), self.ndim - 1, self.ndim - 2])

    @property
    def srcs(self) -> tuple[Tensor, ...]:
        """The operands (the name that existing code uses)."""
        return self.inputs

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Tensor:
        return shape.index(self, key)

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __bool__(self) -> bool:
        raise GraphError(f"a graph tensor has no truth value yet (from {node.located(self.where)}); use where()")

    def __float__(self) -> float:
        raise GraphError(f"a graph tensor has no value yet (from {node.located(self.where)}); compile and run it")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise GraphError(f"a graph tensor has no value yet (from {node.located(self.where)}); compile and run it")

    def __array_function__(self, function: Any, *_: Any) -> Any:
        raise GraphError(
            f"numpy.{function.__name__} cannot take a graph tensor (from {node.located(self.where)}); "
            "use the tensor's own methods, or compile and run it first"
        )

    def __repr__(self) -> str:
        label = f" {self.name!r}" if self.name else ""
        return f"<{self.op}{label} {self.dtype}{list(self.shape)}>"

    def named(self, name: str) -> Tensor:
        """The same node under a name of your own, which every report repeats."""
        self.name = shown(name)
        return self

    def graph(self) -> Graph:
        """The nodes that lead here, in order."""
        from aneforge.graph.graph import Graph

        return Graph([self])

    # Arithmetic.

    def __add__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.ADD, self, other)

    def __radd__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.ADD, other, self)

    def __sub__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.SUB, self, other)

    def __rsub__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.SUB, other, self)

    def __mul__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.MUL, self, other)

    def __rmul__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.MUL, other, self)

    def __truediv__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.DIV, self, other)

    def __rtruediv__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.DIV, other, self)

    def __floordiv__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.FLOOR_DIV, self, other)

    def __mod__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.MOD, self, other)

    def __pow__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.POW, self, other)

    def __rpow__(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.POW, other, self)

    def __neg__(self) -> Tensor:
        return self * -1.0

    def __pos__(self) -> Tensor:
        return self

    def __abs__(self) -> Tensor:
        return self.abs()

    __matmul__ = contraction.matmul

    def __rmatmul__(self, other: Any) -> Tensor:
        return contraction.matmul(leaf.as_tensor(other), self)

    def pow(self, other: Any) -> Tensor:
        return self**other

    def adds(self, k: float) -> Tensor:
        """``x + k`` with a number."""
        return self + k

    # Comparisons give bool tensors.

    def equal(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.COMPARISONS["equal"], self, other)

    def not_equal(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.COMPARISONS["not_equal"], self, other)

    def less(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.COMPARISONS["less"], self, other)

    def less_equal(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.COMPARISONS["less_equal"], self, other)

    def greater(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.COMPARISONS["greater"], self, other)

    def greater_equal(self, other: Any) -> Tensor:
        return elementwise.binary(elementwise.COMPARISONS["greater_equal"], self, other)

    __lt__ = less
    __le__ = less_equal
    __gt__ = greater
    __ge__ = greater_equal

    def __eq__(self, other: object) -> Any:
        return self.equal(other)

    def __ne__(self, other: object) -> Any:
        return self.not_equal(other)

    def logical_not(self) -> Tensor:
        return node.make(elementwise.LOGICAL_NOT, (self,))

    __invert__ = logical_not

    def __and__(self, other: Tensor) -> Tensor:
        return elementwise.logical_and(self, other)

    def __or__(self, other: Tensor) -> Tensor:
        return elementwise.logical_or(self, other)

    def __xor__(self, other: Tensor) -> Tensor:
        return elementwise.logical_xor(self, other)

    def cast(self, dtype: str = "fp16") -> Tensor:
        return leaf.cast(self, dtype)

    def ones(self) -> Tensor:
        """A constant of ones of this shape (gradients of reductions need it)."""
        return leaf.const(_ones(self.shape))

    # Pointwise functions.

    def relu(self) -> Tensor:
        return node.make(UNARY["relu"], (self,))

    def relu6(self) -> Tensor:
        return node.make(UNARY["relu6"], (self,))

    def gelu(self) -> Tensor:
        return node.make(UNARY["gelu"], (self,))

    def silu(self) -> Tensor:
        return node.make(UNARY["silu"], (self,))

    def sigmoid(self) -> Tensor:
        return node.make(UNARY["sigmoid"], (self,))

    def tanh(self) -> Tensor:
        return node.make(UNARY["tanh"], (self,))

    def exp(self) -> Tensor:
        return node.make(UNARY["exp"], (self,))

    def exp2(self) -> Tensor:
        return node.make(UNARY["exp2"], (self,))

    def sqrt(self) -> Tensor:
        return node.make(UNARY["sqrt"], (self,))

    def abs(self) -> Tensor:
        return node.make(UNARY["abs"], (self,))

    def square(self) -> Tensor:
        return node.make(UNARY["square"], (self,))

    def sin(self) -> Tensor:
        return node.make(UNARY["sin"], (self,))

    def cos(self) -> Tensor:
        return node.make(UNARY["cos"], (self,))

    def tan(self) -> Tensor:
        return node.make(UNARY["tan"], (self,))

    def asin(self) -> Tensor:
        return node.make(UNARY["asin"], (self,))

    def acos(self) -> Tensor:
        return node.make(UNARY["acos"], (self,))

    def atan(self) -> Tensor:
        return node.make(UNARY["atan"], (self,))

    def sinh(self) -> Tensor:
        return node.make(UNARY["sinh"], (self,))

    def cosh(self) -> Tensor:
        return node.make(UNARY["cosh"], (self,))

    def asinh(self) -> Tensor:
        return node.make(UNARY["asinh"], (self,))

    def acosh(self) -> Tensor:
        return node.make(UNARY["acosh"], (self,))

    def atanh(self) -> Tensor:
        return node.make(UNARY["atanh"], (self,))

    def erf(self) -> Tensor:
        return node.make(UNARY["erf"], (self,))

    def softplus(self) -> Tensor:
        return node.make(UNARY["softplus"], (self,))

    def softsign(self) -> Tensor:
        return node.make(UNARY["softsign"], (self,))

    def floor(self) -> Tensor:
        return node.make(UNARY["floor"], (self,))

    def ceil(self) -> Tensor:
        return node.make(UNARY["ceil"], (self,))

    def round(self) -> Tensor:
        return node.make(UNARY["round"], (self,))

    def sign(self) -> Tensor:
        return node.make(UNARY["sign"], (self,))

    def log(self, eps: float = 0.0) -> Tensor:
        return elementwise.scaled("log", self, eps)

    def rsqrt(self, eps: float = 0.0) -> Tensor:
        return elementwise.scaled("rsqrt", self, eps)

    def inverse(self, eps: float = 0.0) -> Tensor:
        return elementwise.scaled("inverse", self, eps)

    def elu(self, alpha: float = 1.0) -> Tensor:
        return elementwise.scaled("elu", self, alpha)

    def leaky_relu(self, alpha: float = 0.01) -> Tensor:
        return elementwise.scaled("leaky_relu", self, alpha)

    def clip(self, lo: float, hi: float) -> Tensor:
        return elementwise.clip(self, lo, hi)

    clamp = clip

    def scaled_tanh(self, alpha: float = 1.0, beta: float = 1.0) -> Tensor:
        return elementwise.scaled("scaled_tanh", self, alpha, beta)

    def threshold(self, alpha: float = 0.0) -> Tensor:
        return elementwise.scaled("threshold", self, alpha)

    def thresholded_relu(self, alpha: float = 1.0) -> Tensor:
        return elementwise.scaled("thresholded_relu", self, alpha)

    def clamped_relu(self, alpha: float = 0.0, beta: float = 6.0) -> Tensor:
        return elementwise.scaled("clamped_relu", self, alpha, beta)

    def sigmoid_hard(self, alpha: float = 0.2, beta: float = 0.5) -> Tensor:
        return elementwise.scaled("sigmoid_hard", self, alpha, beta)

    def linear_activation(self, alpha: float = 1.0, beta: float = 0.0) -> Tensor:
        return elementwise.scaled("linear_activation", self, alpha, beta)

    def prelu(self, alpha: Any) -> Tensor:
        return elementwise.prelu(self, alpha)

    # Products.

    def linear(self, W: Any, bias: Any = None) -> Tensor:  # noqa: N803 - the name that existing code passes
        """``x @ W.T + bias`` with W [out, in]."""
        return node.make(contraction.LINEAR, contraction.with_bias(self, W, bias))

    def bmm_weight(self, W: Any) -> Tensor:  # noqa: N803
        """Batched product with a stored weight [B, K, N]."""
        return contraction.bmm_weight(self, W)

    # Reductions keep their axes.

    def sum(self, axes: Any = None) -> Tensor:
        return reduction.reduce("sum", self, axes)

    def mean(self, axes: Any = None) -> Tensor:
        return reduction.reduce("mean", self, axes)

    def amax(self, axes: Any = None) -> Tensor:
        return reduction.reduce("amax", self, axes)

    def amin(self, axes: Any = None) -> Tensor:
        return reduction.reduce("amin", self, axes)

    def sum_square(self, axes: Any = None) -> Tensor:
        return reduction.reduce("sum_square", self, axes)

    def l1_norm(self, axes: Any = None) -> Tensor:
        return reduction.reduce("l1_norm", self, axes)

    def log_sum(self, axes: Any = None) -> Tensor:
        return reduction.reduce("log_sum", self, axes)

    def reduce_log_sum_exp(self, axes: Any = None) -> Tensor:
        return reduction.reduce("reduce_log_sum_exp", self, axes)

    def prod(self, axes: Any = None) -> Tensor:
        return reduction.reduce("prod", self, axes)

    def cumsum(self, axis: int = -1) -> Tensor:
        return reduction.cumsum(self, axis)

    def argmax(self, axis: int = -1) -> Tensor:
        return ranking.argmax(self, axis)

    # Normalisation.

    softmax = norm.softmax
    layer_norm = norm.layer_norm
    rms_norm = norm.rms_norm
    group_norm = norm.group_norm
    channel_layer_norm = norm.channel_layer_norm
    l2_norm = norm.l2_norm

    # Shape.

    reshape = shape.reshape
    transpose = shape.transpose
    expand_dims = shape.expand_dims
    squeeze = shape.squeeze
    flatten2d = shape.flatten2d
    tile = shape.tile
    reverse = shape.reverse
    slice_by_size = shape.slice_by_size
    pad = shape.pad

    # Space.

    def max_pool(self, k: Any, stride: Any = None, pad: Any = 0, ceil_mode: bool = False) -> Tensor:
        return spatial.max_pool(self, k, stride, pad, ceil_mode)

    def avg_pool(
        self, k: Any, stride: Any = None, pad: Any = 0, ceil_mode: bool = False, exclude_pad: bool = False
    ) -> Tensor:
        return spatial.avg_pool(self, k, stride, pad, ceil_mode, exclude_pad)

    def upsample(self, scale: Any = 2) -> Tensor:
        return spatial.upsample(self, scale)

    def space_to_batch(self, bh: int, bw: int) -> Tensor:
        return layers.space_to_batch(self, bh, bw)

    def batch_to_space(self, bh: int, bw: int) -> Tensor:
        return layers.batch_to_space(self, bh, bw)


def _ones(extents: Shape) -> Any:
    import numpy as np

    return np.ones(extents, np.float16)


node.factory.tensor = Tensor
