"""Weights in their stored form: codes and the constants that decode them, in the four forms that the engine's weight
path knows (compression.json: affine, palette, sparse, blockwise)."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aneforge.errors import GraphError

__all__ = ["FORMS", "SMALLEST_NORMAL", "Encoded"]

FORMS = {
    "affine": "int8_affine",
    "palette": "int4_lut",
    "sparse": "sparse",
    "blockwise": "blockwise",
}
"""The forms, and the row of compression.json that says which chips stream each."""

SMALLEST_NORMAL = 2.0**-14
"""Below it fp16 loses digits."""
_PARTS = ("codes", "scale", "zero_point", "table", "mask")
_BITS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, eq=False)
class Encoded:
    """A weight in its stored form. It can be passed wherever an array of numbers can, and the graph keeps its form."""

    form: str
    bits: int
    """The bits of one code; 16 for the values of a sparse weight."""
    shape: tuple[int, ...]
    codes: np.ndarray
    """Whole numbers in the weight's shape; the kept values of a sparse weight, in order."""
    scale: np.ndarray | None = None
    """The scales, of the weight's rank: one for each of equal blocks along every axis; a palette may have them too."""
    zero_point: np.ndarray | None = None
    table: np.ndarray | None = None
    """The table of a palette: [groups along every axis..., entries, numbers in an entry]."""
    mask: np.ndarray | None = None
    vector_axis: int = 0
    """The axis along which an entry of several numbers lies."""

    @classmethod
    def affine(cls, codes: Any, scale: Any, zero_point: Any = None, axis: int | None = None, bits: int = 8) -> Encoded:
        """(code - zero point) * scale, one of each for the whole weight or for each place along ``axis``."""
        stored = _whole_numbers(codes)
        return cls(
            "affine",
            _known_bits(bits),
            stored.shape,
            stored,
            scale=_along(scale, stored.ndim, axis, "scale"),
            zero_point=_along(zero_point, stored.ndim, axis, "zero point") if _shifts(zero_point) else None,
        )._checked()

    @classmethod
    def blockwise(cls, codes: Any, scale: Any, zero_point: Any = None, bits: int = 8) -> Encoded:
        """(code - zero point) * scale, one of each for equal blocks: the scale has the weight's rank."""
        stored = _whole_numbers(codes)
        return cls(
            "blockwise",
            _known_bits(bits),
            stored.shape,
            stored,
            scale=_as_stored(scale),
            zero_point=np.asarray(zero_point) if _shifts(zero_point) else None,
        )._checked()

    @classmethod
    def palette(cls, indices: Any, table: Any, bits: int, vector_axis: int = 0, scale: Any = None) -> Encoded:
        """Numbers that are looked up: ``table`` is a line of them, or [groups along every axis..., entries, numbers].

        ``scale`` multiplies the looked-up numbers, one for each of equal blocks of the weight. It is not the same as a
        table of scaled numbers: some chips sum the table's numbers first and scale the sum (N67, N70).
        """
        stored, lookup = _whole_numbers(indices), np.asarray(table)
        if lookup.ndim == 1:
            lookup = lookup.reshape(*(1,) * stored.ndim, -1, 1)
        if lookup.ndim != stored.ndim + 2:
            raise GraphError(
                f"look-up table of shape {list(lookup.shape)} does not fit indices {list(stored.shape)}; "
                "pass a line of numbers, or one group of entries along every axis"
            )
        shape = list(stored.shape)
        shape[vector_axis] *= lookup.shape[-1]
        factor = None if scale is None else _along(scale, len(shape), None, "scale")
        packed = cls(
            "palette", _known_bits(bits), tuple(shape), stored, table=lookup, vector_axis=vector_axis, scale=factor
        )
        return packed._checked()

    @classmethod
    def sparse(cls, mask: Any, values: Any) -> Encoded:
        """The numbers where the mask is set, in order; zeros elsewhere."""
        kept, places = np.asarray(values).reshape(-1), np.asarray(mask).astype(bool)
        if int(places.sum()) != kept.size:
            raise GraphError(
                f"the mask sets {int(places.sum())} places, but there are {kept.size} values; "
                "give one value for each place"
            )
        return cls("sparse", 16, places.shape, kept, mask=places)

    def _checked(self) -> Encoded:
        for name in ("scale", "zero_point"):
            part = getattr(self, name)
            if part is not None and not _divides(part.shape, self.shape):
                raise GraphError(
                    f"{name} of shape {list(part.shape)} does not divide {list(self.shape)} into equal blocks"
                )
        if self.table is not None:
            if not _divides(self.table.shape[:-2], self.codes.shape):
                raise GraphError(
                    f"look-up table of shape {list(self.table.shape)} does not divide indices {list(self.codes.shape)}"
                )
            if self.codes.size and int(self.codes.max()) >= self.table.shape[-2]:
                index, entries = int(self.codes.max()), self.table.shape[-2]
                raise GraphError(f"index {index} is outside the look-up table; it has {entries} entries")
        return self

    # Properties that arrays have too.

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.decode().astype(dtype or np.float64, copy=False)

    @property
    def T(self) -> Encoded:  # noqa: N802 - as arrays have it
        return self.transpose(range(self.ndim)[::-1])

    def transpose(self, order: Sequence[int]) -> Encoded:
        """The same codes with the axes in another order. The values of a sparse weight are reordered."""
        if self.form == "sparse":
            turned = self.decode().transpose(*order)
            assert self.mask is not None
            mask = self.mask.transpose(*order)
            return Encoded.sparse(mask, turned[mask].astype(self.codes.dtype))
        deep = (*order, len(order), len(order) + 1)
        return replace(
            self,
            shape=tuple(self.shape[i] for i in order),
            codes=self.codes.transpose(*order),
            scale=None if self.scale is None else self.scale.transpose(*order),
            zero_point=None if self.zero_point is None else self.zero_point.transpose(*order),
            table=None if self.table is None else self.table.transpose(*deep),
            vector_axis=list(order).index(self.vector_axis),
        )

    def expand_dims(self, axis: int) -> Encoded:
        """One more axis, of a single place."""
        parts = {name: getattr(self, name) for name in _PARTS}
        raised = {
            name: part if part is None or (name == "codes" and self.form == "sparse") else np.expand_dims(part, axis)
            for name, part in parts.items()
        }
        behind = self.vector_axis + (self.vector_axis >= axis)
        return replace(self, shape=(*self.shape[:axis], 1, *self.shape[axis:]), vector_axis=behind, **raised)

    def frozen(self) -> Encoded:
        """The same in arrays that cannot be written to; those of a mapped file are read-only already."""
        own = {name: part.copy() for name, part in self.parts.items() if part.flags.writeable}
        for part in own.values():
            part.setflags(write=False)
        return replace(self, **own) if own else self

    # Numbers.

    def decode(self) -> np.ndarray:
        """The numbers, in float64, before any rounding."""
        if self.form == "sparse":
            assert self.mask is not None
            numbers = np.zeros(self.shape)
            numbers[self.mask] = self.codes
            return numbers
        if self.form == "palette":
            entries = self._looked_up()
            return entries if self.scale is None else entries * _spread(self.scale, self.shape).astype(np.float64)
        assert self.scale is not None
        numbers = self.codes.astype(np.float64)
        if self.zero_point is not None:
            numbers = numbers - _spread(self.zero_point, self.shape).astype(np.float64)
        return numbers * _spread(self.scale, self.shape).astype(np.float64)

    def _looked_up(self) -> np.ndarray:
        assert self.table is not None
        *groups, entries, numbers = self.table.shape
        lines = self.table.reshape(-1, numbers).astype(np.float64)
        group = _spread(np.arange(math.prod(groups)).reshape(groups), self.codes.shape)
        looked_up = lines[group * entries + self.codes.astype(np.int64)]  # [*codes, numbers]
        if numbers == 1:
            return looked_up[..., 0]
        return np.moveaxis(looked_up, -1, self.vector_axis + 1).reshape(self.shape)

    # Bytes.

    @property
    def name(self) -> str:
        """What the gate's rules and reports call it: ``int8``, ``int4``, ``lut6``, ``sparse``, ``blockwise``."""
        if self.form == "palette":
            return f"lut{self.bits}"
        return f"int{self.bits}" if self.form == "affine" else self.form

    @property
    def stored_bytes(self) -> int:
        """The stored bytes: codes bit by bit, and the constants beside them in fp16 (a mask bit for bit)."""
        total = -(-self.codes.size * self.bits // 8)
        total += 0 if self.mask is None else -(-self.mask.size // 8)
        for part, size in ((self.scale, 2), (self.zero_point, 1), (self.table, 2)):
            total += 0 if part is None else part.size * size
        return total

    @property
    def key(self) -> str:
        digest = hashlib.blake2b(repr((self.form, self.bits, self.shape, self.vector_axis)).encode(), digest_size=16)
        for name, part in self.parts.items():
            digest.update(f"{name}{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """The arrays of the weight, by name: what a file stores."""
        return {name: part for name in _PARTS if (part := getattr(self, name)) is not None}

    def to_json(self) -> dict[str, Any]:
        """All but the arrays."""
        return {"form": self.form, "bits": self.bits, "shape": list(self.shape), "vector_axis": self.vector_axis}

    @classmethod
    def from_parts(cls, document: dict[str, Any], parts: dict[str, np.ndarray]) -> Encoded:
        """The weight that :meth:`to_json` and :attr:`parts` describe."""
        form = document.get("form")
        if form not in FORMS or set(parts) - set(_PARTS) or "codes" not in parts:
            raise GraphError(
                f"weight encoding {form!r} with {', '.join(parts) or 'no parts'} is unknown; "
                f"choose one: {', '.join(FORMS)}"
            )
        shape = tuple(int(extent) for extent in document["shape"])
        bits = 16 if form == "sparse" else _known_bits(document["bits"])
        encoded = cls(form, bits, shape, **parts, vector_axis=int(document["vector_axis"]))
        if encoded._checked().decode().shape != shape:
            raise GraphError(f"the {form} weight does not have the declared shape {list(shape)}")
        return encoded

    def __repr__(self) -> str:
        return f"Encoded({self.form}, {self.bits} bits, {list(self.shape)})"


def _known_bits(bits: Any) -> int:
    if bits not in _BITS:
        raise GraphError(f"codes of {bits!r} bits are not supported; choose one: {', '.join(map(str, _BITS))}")
    return int(bits)


def _whole_numbers(codes: Any) -> np.ndarray:
    stored = np.asarray(codes)
    if stored.dtype.kind not in "iub":
        raise GraphError(f"codes of a weight must be whole numbers, not {stored.dtype}")
    if stored.size == 0:
        raise GraphError(f"weight of shape {list(stored.shape)} is empty; every axis needs at least one element")
    return stored


def _shifts(zero_point: Any) -> bool:
    """Whether there is a zero point at all: zeros in a file mean none, and are not kept."""
    return zero_point is not None and bool(np.any(np.asarray(zero_point).astype(np.int64)))


def _as_stored(values: Any) -> np.ndarray:
    """Scales are stored as fp16. A scale that would lose digits stays as it is, and its kernel is then expanded
    instead of streamed."""
    numbers = np.asarray(values)
    if numbers.dtype.kind != "f":
        return numbers
    with np.errstate(over="ignore"):
        half = numbers.astype(np.float16)
    sizes = np.abs(half)
    return half if ((sizes >= SMALLEST_NORMAL) & np.isfinite(sizes)).all() else numbers


def _along(values: Any, rank: int, axis: int | None, what: str) -> np.ndarray:
    """One number, or a line of them along an axis, in the weight's rank."""
    line = _as_stored(values)
    if line.size == 1:
        return line.reshape((1,) * rank)
    if line.ndim == rank and axis is None:
        return line
    if axis is None:
        raise GraphError(f"{line.size} {what}s need an axis; pass axis=")
    place = axis % rank
    return line.reshape(tuple(line.size if i == place else 1 for i in range(rank)))


def _divides(blocks: Sequence[int], shape: Sequence[int]) -> bool:
    return len(blocks) == len(shape) and all(b >= 1 and s % b == 0 for b, s in zip(blocks, shape, strict=True))


def _spread(blocks: np.ndarray, shape: Sequence[int]) -> np.ndarray:
    """A number for each block, at every place of the block."""
    for axis, (have, want) in enumerate(zip(blocks.shape, shape, strict=True)):
        if have not in (1, want):
            blocks = np.repeat(blocks, want // have, axis)
    return np.broadcast_to(blocks, shape)
