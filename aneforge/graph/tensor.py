"""The lazy tensor users hold: operators and methods over the op declarations."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from aneforge.errors import GraphError, shown
from aneforge.graph import node
from aneforge.graph.node import Node
from aneforge.graph.ops import contraction, elementwise, layers, leaf, norm, ranking, reduction, shape, spatial
from aneforge.graph.ops.elementwise import UNARY

if TYPE_CHECKING:
    from aneforge.graph.graph import Graph

C = TypeVar("C")
P = ParamSpec("P")
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


def _method(name: str, call: Callable[P, Tensor]) -> Callable[P, Tensor]:
    """A function as a method of that name, which errors and pages about the API say."""
    call.__name__, call.__qualname__ = name, f"Tensor.{name}"
    return call


def _function(name: str) -> Callable[[Tensor], Tensor]:
    def call(self: Tensor) -> Tensor:
        return node.make(UNARY[name], (self,))

    return _method(name, call)


def _operator(name: str, declared: node.OpDef, is_reflected: bool = False) -> Callable[[Tensor, Any], Tensor]:
    def call(self: Tensor, other: Any) -> Tensor:
        return elementwise.binary(declared, other, self) if is_reflected else elementwise.binary(declared, self, other)

    return _method(name, call)


def _reduction(name: str):  # noqa: ANN202 - the default of axes has no short type
    def call(self: Tensor, axes: Any = None) -> Tensor:
        return reduction.reduce(name, self, axes)

    return _method(name, call)


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

    __add__ = _operator("__add__", elementwise.ADD)
    __radd__ = _operator("__radd__", elementwise.ADD, is_reflected=True)
    __sub__ = _operator("__sub__", elementwise.SUB)
    __rsub__ = _operator("__rsub__", elementwise.SUB, is_reflected=True)
    __mul__ = _operator("__mul__", elementwise.MUL)
    __rmul__ = _operator("__rmul__", elementwise.MUL, is_reflected=True)
    __truediv__ = _operator("__truediv__", elementwise.DIV)
    __rtruediv__ = _operator("__rtruediv__", elementwise.DIV, is_reflected=True)
    __floordiv__ = _operator("__floordiv__", elementwise.FLOOR_DIV)
    __mod__ = _operator("__mod__", elementwise.MOD)
    __pow__ = _operator("__pow__", elementwise.POW)
    __rpow__ = _operator("__rpow__", elementwise.POW, is_reflected=True)

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

    equal = _operator("equal", elementwise.COMPARISONS["equal"])
    not_equal = _operator("not_equal", elementwise.COMPARISONS["not_equal"])
    less = _operator("less", elementwise.COMPARISONS["less"])
    less_equal = _operator("less_equal", elementwise.COMPARISONS["less_equal"])
    greater = _operator("greater", elementwise.COMPARISONS["greater"])
    greater_equal = _operator("greater_equal", elementwise.COMPARISONS["greater_equal"])
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

    __and__ = elementwise.logical_and
    __or__ = elementwise.logical_or
    __xor__ = elementwise.logical_xor

    def cast(self, dtype: str = "fp16") -> Tensor:
        return leaf.cast(self, dtype)

    def ones(self) -> Tensor:
        """A constant of ones of this shape (gradients of reductions need it)."""
        import numpy as np

        return leaf.const(np.ones(self.shape, np.float16))

    # Pointwise functions.

    relu = _function("relu")
    relu6 = _function("relu6")
    gelu = _function("gelu")
    silu = _function("silu")
    sigmoid = _function("sigmoid")
    tanh = _function("tanh")
    exp = _function("exp")
    exp2 = _function("exp2")
    sqrt = _function("sqrt")
    abs = _function("abs")
    square = _function("square")
    sin = _function("sin")
    cos = _function("cos")
    tan = _function("tan")
    asin = _function("asin")
    acos = _function("acos")
    atan = _function("atan")
    sinh = _function("sinh")
    cosh = _function("cosh")
    asinh = _function("asinh")
    acosh = _function("acosh")
    atanh = _function("atanh")
    erf = _function("erf")
    softplus = _function("softplus")
    softsign = _function("softsign")
    floor = _function("floor")
    ceil = _function("ceil")
    round = _function("round")
    sign = _function("sign")

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

    clip = clamp = elementwise.clip

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

    prelu = elementwise.prelu

    # Products.

    def linear(self, W: Any, bias: Any = None) -> Tensor:  # noqa: N803 - the name that existing code passes
        """``x @ W.T + bias`` with W [out, in]."""
        return node.make(contraction.LINEAR, contraction.with_bias(self, W, bias))

    def bmm_weight(self, W: Any) -> Tensor:  # noqa: N803
        """Batched product with a stored weight [B, K, N]."""
        return contraction.bmm_weight(self, W)

    # Reductions keep their axes.

    sum = _reduction("sum")
    mean = _reduction("mean")
    amax = _reduction("amax")
    amin = _reduction("amin")
    sum_square = _reduction("sum_square")
    l1_norm = _reduction("l1_norm")
    log_sum = _reduction("log_sum")
    reduce_log_sum_exp = _reduction("reduce_log_sum_exp")
    prod = _reduction("prod")

    def cumsum(self, axis: int = -1) -> Tensor:
        return reduction.cumsum(self, axis)

    argmax = ranking.argmax

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

    max_pool = spatial.max_pool
    avg_pool = spatial.avg_pool

    def upsample(self, scale: Any = 2) -> Tensor:
        return spatial.upsample(self, scale)

    def space_to_batch(self, bh: int, bw: int) -> Tensor:
        return layers.space_to_batch(self, bh, bw)

    def batch_to_space(self, bh: int, bw: int) -> Tensor:
        return layers.batch_to_space(self, bh, bw)


node.factory.tensor = Tensor
