"""Whether the tasks of a layer give the layer back: what a reader gets from them is compared with its ops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from aneforge.codegen.forms import TURNED, Form
from aneforge.compiler.plan import Name
from aneforge.compiler.shown import ProgramLayer
from aneforge.engine.interpret import laid_out, rule_of
from aneforge.engine.ir import Module, Op
from aneforge.engine.traits import Trait
from aneforge.engine.windows import effective_padding, effective_stride

_COMMUTES = ("add", "mult", "max", "min")
_CHANNELS, _ROWS = (2,), (3,)
_SAME, _TOLERANCE = 1e-9, 1e-3
"""Of what is worked out in float64: a factor of log2 e or an epsilon is a half in the registers."""


class LayerCheck:
    """One layer, and what its tasks were read as."""

    def __init__(
        self,
        layer: ProgramLayer,
        form: Form,
        modules: tuple[Module, Module],
        values: Mapping[Op, Name],
        name_of: Callable[[Op], Name],
    ) -> None:
        self.layer, self.form = layer, form
        self.read, self.written = modules
        self.values, self.name_of = values, name_of
        """Which values the leaves of what was read stand for."""
        self.own = set(layer.ops)

    def problem(self, found: Op) -> str:
        """What of the layer its registers do not give back; empty where they give all of it."""
        found, first = _plain(found), 0
        parts = found.operands if found.kind == "concat" and self.form.weights is not None else [found]
        for operand in parts:
            part = _plain(operand)
            if self.form.is_matrix and self.form.transposes:
                if not _turns(part):
                    return "its registers do not turn the product"
                part = _plain(part.operands[0])
            count = part.operands[0].shape[2] if _turns(part) else part.shape[2]
            count = part.shape[4] if _turns(part) else count
            last = self.layer.ops[-1 if self.form.transposes or not self.form.is_matrix else -2]
            problem = self._differs(part, last, slice(first, first + count))
            if problem:
                return problem
            first += count
        return ""

    def problem_by_numbers(self, found: Op, known: dict[tuple[str, str], str]) -> str:
        """The same, from what both give for numbers that are drawn. ``known`` has the answers of earlier layers: equal
        ops on other values need not be worked out again."""
        key = _text(found, self.read), _text(self.layer.ops[-1], self.written, self.own)
        if key not in known:
            known[key] = self._by_numbers(found)
        return known[key]

    def _by_numbers(self, found: Op) -> str:
        leaves: dict[Name, np.ndarray] = {}
        wanted = self._meaning(self.layer.ops[-1], self.written, leaves, {})
        got = self._meaning(found, self.read, leaves, {}).reshape(wanted.shape)
        tolerance = _TOLERANCE if self.form.rounds else _SAME
        far = np.abs(got - wanted).max(initial=0) > tolerance * max(1.0, np.abs(wanted).max(initial=0))
        return f"its registers do not give a {self.layer.op}" if far else ""

    def _meaning(self, op: Op, module: Module, leaves: dict[Name, np.ndarray], values: dict[Op, Any]) -> np.ndarray:
        if op not in values:
            name = self.values.get(op) if module is self.read else None
            if module is not self.read and op not in self.own and op.kind != "const_in":
                name = self.name_of(op)
            if name is not None:
                seed = np.random.default_rng(len(leaves))
                leaves.setdefault(name, 4 * seed.random(op.shape) - 2)
                values[op] = leaves[name].reshape(op.shape)
            elif op.kind == "const_in":
                values[op] = self._array(module, op).astype(np.float64)
            else:
                operands = [self._meaning(operand, module, leaves, values) for operand in op.operands]
                rule = _product if op.kind == "matmul" else rule_of(op)
                values[op] = np.asarray(rule(op, *operands))
        return values[op]

    def _differs(self, found: Op, op: Op, span: slice) -> str:
        found = _plain(found)
        if op not in self.own:
            if op.kind == "const_in":
                return "" if self._is_constant(found, op) else f"a constant of {self.layer.op} does not come back"
            same = found in self.values and self.values[found] == self.name_of(op)
            return "" if same else "an operand shares its place with another value"
        if op.kind in ("linear", "matmul") and self.form.weights is not None:
            return self._differs_in_matrix(found, op, span)
        if op.kind == "reshape" and _turns(found):
            return self._differs(found.operands[0], op.operands[0], span)
        if found.kind != ("clamped_relu" if op.kind == "n_relu" else op.kind):  # one clamp has two names
            return f"its registers read as {found.kind or 'nothing'}"
        if op.kind == "matmul":
            sides = zip(found.operands, op.operands, ("transpose_lhs", "transpose_rhs"), strict=True)
            problems = [self._differs(self._unturned(one, op, key), other, span) for one, other, key in sides]
            return next(filter(None, problems), "")
        if found.attrs != self._as_read(op):
            return f"an attribute of {op.kind} has no register"
        if op.kind == "convolution":
            return self._kernel(found, span) or self._differs(found.operands[0], op.operands[0], span)
        pairs = [list(zip(found.operands, op.operands, strict=False))]
        if op.kind in _COMMUTES:
            pairs.append(list(zip(found.operands, op.operands[::-1], strict=False)))
        if len(found.operands) != len(op.operands):
            return f"{op.kind} has {len(op.operands)} operands, and its registers {len(found.operands)}"
        problems = [next(filter(None, (self._differs(one, other, span) for one, other in each)), "") for each in pairs]
        return "" if "" in problems else problems[0]

    def _differs_in_matrix(self, found: Op, op: Op, span: slice) -> str:
        """A matrix by a constant, which is read as a convolution."""
        if found.kind != "convolution":
            return f"its registers read as {found.kind}"
        source = _plain(found.operands[0])
        if self.form.turns_source and not _turns(source):
            return "its registers do not turn the matrix"
        source = source.operands[0] if self.form.turns_source else source
        return self._kernel(found, span) or self._differs(source, op.operands[0], span)

    @staticmethod
    def _unturned(found: Op, op: Op, key: str) -> Op:
        """What is turned in front of a product, where the product itself says so."""
        return _plain(found).operands[0] if op.attrs.get(key) and _turns(_plain(found)) else found

    def _kernel(self, found: Op, span: slice) -> str:
        weights, bias = self.form.weights, self.form.bias
        assert weights is not None
        bias = np.full(len(weights), self.form.same_bias, np.float16) if self.form.same_bias else bias
        wanted = [weights[span].reshape(-1)] + ([] if bias is None else [bias[span]])
        arrays = [self._array(self.read, op).reshape(-1) for op in found.operands[1:]]
        same = len(arrays) == len(wanted) and all(map(_same, arrays, wanted))
        return "" if same else "its coefficients do not come back from the constants"

    def _is_constant(self, found: Op, op: Op) -> bool:
        if found.kind != "const_in":
            return False
        one, other = self._array(self.read, found).reshape(-1), self._array(self.written, op).reshape(-1)
        if 1 in (one.size, other.size):
            one, other = (np.ascontiguousarray(array) for array in np.broadcast_arrays(one, other))
        return _same(one, other)

    @staticmethod
    def _array(module: Module, op: Op) -> np.ndarray:
        return laid_out(module.weights[op.attrs["weight"]].array, op.shape)

    def _as_read(self, op: Op) -> dict[str, Any]:
        """The attributes of an op as registers keep them: no padding that no window reads, no step that none takes."""
        attrs = dict(op.attrs)
        if op.kind == "n_relu":
            return {"min_val": 0.0, **attrs}
        if op.is_a(Trait.REDUCTION):
            return {**attrs, "axes": _ROWS if self.form.axes == _CHANNELS else self.form.axes}
        if op.kind == "convolution":
            before, size, stride = attrs["explicit_padding"], attrs["kernel_sizes"], attrs["strides"]
            key, steps = "explicit_padding", "strides"
        elif op.is_a(Trait.POOL):
            before, size, stride = attrs["padding"], attrs["ksize"], attrs["stride"]
            key, steps = "padding", "stride"
            if op.kind == "average_pool" and not any(before):
                attrs["inc_pad"] = True
        else:
            return {key: value for key, value in attrs.items() if key != "base_e"} if self._is_table(op) else attrs
        if (size[0], stride[0], *before[:2]) == (1, 1, 0, 0):
            source, pads = op.operands[0].shape, (before[2], before[4])
            step = effective_stride(source, op.shape, size[1:], stride, pads)
            attrs[steps] = (1, *step)
            attrs[key] = effective_padding(source, op.shape, size[1:], step, pads)
        return attrs

    @staticmethod
    def _is_table(op: Op) -> bool:
        return "base_e" in op.attrs and not op.attrs["base_e"]


def _text(op: Op, module: Module, own: set[Op] | None = None) -> str:
    """Ops and attributes from an op back to what it reads: tensors by the order in which they are met, constants by
    their contents."""
    places: dict[Op, int] = {}
    lines: list[str] = []

    def visit(one: Op) -> int:
        if one in places:
            return places[one]
        outside = own is not None and one not in own
        operands = [] if outside else [visit(operand) for operand in one.operands]
        attrs = module.weights[one.attrs["weight"]].key if one.kind == "const_in" else dict(one.attrs)
        lines.append(f"{'live_in' if outside and one.kind != 'const_in' else one.kind} {one.shape} {operands}")
        if one.kind != "live_in" and not (outside and one.kind != "const_in"):
            lines.append(str(attrs))
        places[one] = len(places)
        return places[one]

    visit(op)
    return "\n".join(lines)


def _product(op: Op, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Channels by columns, for each row: as the op's own meaning, which is not made for speed."""
    left, right = left.swapaxes(2, 3), right.swapaxes(2, 3)
    if op.attrs.get("transpose_lhs"):
        left = left.swapaxes(3, 4)
    if op.attrs.get("transpose_rhs"):
        right = right.swapaxes(3, 4)
    return np.matmul(np.ascontiguousarray(left), np.ascontiguousarray(right)).swapaxes(2, 3)


def _plain(op: Op) -> Op:
    """The op behind views of the same bytes."""
    while op.kind == "reshape":
        op = op.operands[0]
    return op


def _turns(op: Op) -> bool:
    return op.kind == "transpose" and op.attrs["transpose_list"] == TURNED


def _same(left: np.ndarray, right: np.ndarray) -> bool:
    """Whether two arrays have the same bits."""
    return left.shape == right.shape and left.tobytes() == right.tobytes()
