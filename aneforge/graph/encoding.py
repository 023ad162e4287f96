"""Weights in their stored form: codes and the constants that decode them, in the forms that the engine's weight path
knows (compression.json: affine, palette, sparse, blockwise; N52: the two 8-bit floating-point formats).
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aneforge.errors import GraphError
from aneforge.graph.encoded_bytes import EncodedSection, part_from_bytes, sections_of, to_bytes
from aneforge.graph.encoded_numbers import decoded, decoded_halves
from aneforge.graph.fp8 import FP8

FORMS = ("affine", "palette", "sparse", "blockwise", *FP8)
"""The forms by name."""

SMALLEST_NORMAL = 2.0**-14
"""Below it fp16 loses digits."""
_PARTS = ("codes", "scale", "zero_point", "table", "mask")
_NEEDED = {"palette": ("table",), "sparse": ("mask",), **dict.fromkeys(FP8, ())}
LARGE_PARTS = ("codes", "mask")
"""The parts that have a number for each weight, and are checked only when they are read."""
_BITS = (1, 2, 3, 4, 6, 8)


@dataclass(frozen=True, eq=False)
class Encoded:
    """A weight in its stored form. It can be passed wherever an array of numbers can, and the graph keeps its form."""

    form: str
    bits: int
    """The bits of one code; 16 for the kept values of a sparse weight, fewer where they are places of a table."""
    shape: tuple[int, ...]
    codes: np.ndarray
    """Whole numbers in the weight's shape; of a sparse weight the kept values in order, or their places in a table."""
    scale: np.ndarray | None = None
    """The scales, of the weight's rank: one for each of equal blocks along every axis; a palette may have them too."""
    zero_point: np.ndarray | None = None
    table: np.ndarray | None = None
    """The table of a palette: [groups along every axis..., entries, numbers in an entry]. A sparse weight may have one
    table of single numbers for its kept values."""
    mask: np.ndarray | None = None
    vector_axis: int = 0
    """The axis along which an entry of several numbers lies."""
    check: Callable[[], None] | None = None
    """Refuses codes and a mask that are no longer what was stored: called before their numbers are used."""

    @classmethod
    def affine(cls, codes: Any, scale: Any, zero_point: Any = None, axis: int | None = None, bits: int = 8) -> Encoded:
        """(code - zero point) * scale, one of each for the whole weight or for each place along ``axis``."""
        stored = _narrowed(_whole_numbers(codes))
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
        """(code - zero point) * scale, one of each for equal blocks: the scale has the weight's rank.

        One scale for all, or one for each element of an axis, is the affine form, which more chips stream and whose
        sums are known (N67)."""
        stored = _narrowed(_whole_numbers(codes))
        extents = np.shape(scale)
        several = [axis for axis, count in enumerate(extents) if count > 1]
        is_ranked = len(extents) == stored.ndim and np.shape(zero_point) in ((), extents)
        if is_ranked and len(several) < 2 and all(extents[axis] == stored.shape[axis] for axis in several):
            return cls.affine(stored, scale, zero_point, several[0] if several else None, bits)
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
        stored, lookup = _places(indices), np.asarray(table)
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
    def fp8(cls, codes: Any, name: str, scale: Any = None) -> Encoded:
        """Bytes in a floating-point format (``fp8-e4m3``, ``fp8-e5m2``), with scales for blocks if any."""
        stored = _whole_numbers(codes)
        if name not in FP8 or stored.dtype != np.uint8:
            raise GraphError(
                f"{name!r} codes of {stored.dtype} are not supported; give uint8 and one of {', '.join(FP8)}"
            )
        factor = None if scale is None else _along(scale, stored.ndim, None, "scale")
        return cls(name, 8, stored.shape, stored, scale=factor)._checked()

    @classmethod
    def sparse(cls, mask: Any, values: Any, table: Any = None, bits: int = 16) -> Encoded:
        """The numbers where the mask is set, in order; zeros elsewhere. With a table, ``values`` are places in it, of
        so many ``bits``."""
        kept, places = np.asarray(values).reshape(-1), np.asarray(mask).astype(bool)
        if int(places.sum()) != kept.size:
            raise GraphError(
                f"the mask sets {int(places.sum())} places, but there are {kept.size} values; "
                "give one value for each place"
            )
        if table is None:
            return cls("sparse", 16, places.shape, kept, mask=places)
        lookup = np.asarray(table).reshape(*(1,) * places.ndim, -1, 1)
        kept = _places(kept) if kept.size else kept.astype(np.uint8)
        return cls("sparse", _known_bits(bits), places.shape, kept, mask=places, table=lookup)._checked()

    def _checked(self) -> Encoded:
        absent = [name for name in _NEEDED.get(self.form, ("scale",)) if getattr(self, name) is None]
        if absent:
            raise GraphError(f"a weight in the form {self.form} has no {absent[0]}; give one")
        if self.form in ("affine", "blockwise", *FP8) and self.codes.shape != self.shape:
            raise GraphError(f"codes of shape {list(self.codes.shape)} are not a weight of {list(self.shape)}")
        for name in ("scale", "zero_point"):
            part = getattr(self, name)
            if part is not None and not _divides(part.shape, self.shape):
                raise GraphError(
                    f"{name} of shape {list(part.shape)} does not divide {list(self.shape)} into equal blocks"
                )
        if self.table is not None:
            grouped = self.shape if self.form == "sparse" else self.codes.shape
            if not _divides(self.table.shape[:-2], grouped):
                raise GraphError(
                    f"look-up table of shape {list(self.table.shape)} does not divide indices {list(self.codes.shape)}"
                )
            entries = self.table.shape[-2]
            if self.codes.size and int(self.codes.max()) >= entries:
                index = int(self.codes.max())
                raise GraphError(f"index {index} is outside the look-up table; it has {entries} entries")
            if entries > 1 << self.bits:
                raise GraphError(
                    f"look-up table has {entries} entries; an index of {self.bits} bits reaches {1 << self.bits}"
                )
        return self

    # Properties that arrays have too.

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of weights."""
        return math.prod(self.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.decode().astype(dtype or np.float64, copy=False)

    @property
    def T(self) -> Encoded:  # noqa: N802 - as arrays have it
        """The same weights with their axes in reverse."""
        return self.transpose(range(self.ndim)[::-1])

    def transpose(self, order: Sequence[int]) -> Encoded:
        """The same codes with the axes in another order. The values of a sparse weight are reordered."""
        if self.form == "sparse":
            self.settled()
            assert self.mask is not None
            numbered, mask = np.zeros(self.shape, np.int64), self.mask.transpose(*order)
            numbered[self.mask] = np.arange(self.codes.size)
            kept = self.codes[numbered.transpose(*order)[mask]]
            shape = tuple(self.shape[i] for i in order)
            return replace(self, shape=shape, mask=mask, codes=kept)  # its only table has one group along each axis
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

    def rows(self, start: int, stop: int) -> Encoded | None:
        """The part from one place along the first axis to another; None where it would cut a block or a vector."""
        if self.mask is not None:
            self.settled()
            kept = int(np.count_nonzero(self.mask[:start]))
            mask = self.mask[start:stop]
            many = int(np.count_nonzero(mask))
            return replace(self, shape=mask.shape, mask=mask, codes=self.codes[kept : kept + many])
        parts: dict[str, np.ndarray] = {}
        for name, part in self._parts().items():
            step = self.shape[0] // part.shape[0]
            if part.shape[0] == 1 and name != "codes":
                continue
            if start % step or stop % step:
                return None
            parts[name] = part[start // step : stop // step]
        return replace(self, shape=(stop - start, *self.shape[1:]), **parts)

    def frozen(self) -> Encoded:
        """The same in arrays that cannot be written to; those of a mapped file are read-only already."""
        own = {name: part.copy() for name, part in self.parts.items() if part.flags.writeable}
        for part in own.values():
            part.setflags(write=False)
        return replace(self, **own) if own else self

    # Numbers.

    def decode(self, dtype: Any = np.float64) -> np.ndarray:
        """The numbers: in float64 before any rounding, or rounded once to the type that is asked for. float16 has a
        fast path with the same bits."""
        self.settled()
        if np.dtype(dtype) == np.float16:
            return decoded_halves(self)
        return decoded(self).astype(dtype, copy=False)

    # Bytes.

    @property
    def name(self) -> str:
        """What the gate's rules and reports call it: ``int8``, ``int4-affine``, ``lut6``, ``sparse``, ``sparse-lut4``,
        ``blockwise``, ``fp8-e4m3``."""
        if self.form == "palette":
            return f"lut{self.bits}"
        if self.form == "sparse" and self.table is not None:
            return f"sparse-lut{self.bits}"
        if self.form == "affine":
            return "int8" if self.bits == 8 else f"int{self.bits}-affine"  # int4 is the seed page's word for a palette
        return self.form

    @property
    def stored_bytes(self) -> int:
        """How many bytes :meth:`to_bytes` gives."""
        return sum(section.bytes for section in self.sections)

    @property
    def sections(self) -> tuple[EncodedSection, ...]:
        """The parts in the order in which they are stored, with their places among the bytes."""
        return sections_of(self)

    def to_bytes(self) -> bytes:
        """The weight as it is stored: codes bit by bit, the constants beside them in fp16 (see ``encoded_bytes``)."""
        self.settled()
        return to_bytes(self)

    def layout(self) -> dict[str, Any]:
        """What :meth:`from_bytes` needs besides the bytes, as plain data."""
        return {**self.to_json(), "sections": [section.to_json() for section in self.sections]}

    @classmethod
    def from_bytes(cls, layout: dict[str, Any], data: bytes) -> Encoded:
        """The weight that :meth:`layout` and :meth:`to_bytes` gave."""
        sections = [EncodedSection.from_json(record) for record in layout["sections"]]
        return cls.from_parts(layout, {section.name: part_from_bytes(section, data) for section in sections})

    @property
    def key(self) -> str:
        """A digest of the stored parts: equal weights have equal keys."""
        digest = hashlib.blake2b(repr((self.form, self.bits, self.shape, self.vector_axis)).encode(), digest_size=16)
        for name, part in self.parts.items():
            digest.update(f"{name}{part.dtype.str}{part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        return digest.hexdigest()

    @property
    def parts(self) -> dict[str, np.ndarray]:
        """The arrays of the weight, by name: what a file stores."""
        self.settled()
        return self._parts()

    def settled(self) -> Encoded:
        """This weight, once codes and mask are known to be what was stored."""
        if self.check is not None:
            self.check()
            object.__setattr__(self, "check", None)
        return self

    def _parts(self) -> dict[str, np.ndarray]:
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
        bits = 16 if form == "sparse" and "table" not in parts else _known_bits(document["bits"])
        axis: dict[str, Any] = {"vector_axis": int(document["vector_axis"])}
        encoded = cls(form, bits, shape, **parts, **axis)._checked()
        if form == "sparse":
            mask = parts.get("mask")
            fits = mask is not None and mask.shape == shape and int(mask.sum()) == encoded.codes.size
        else:
            fits = form not in FP8 or encoded.codes.dtype == np.uint8
            fits = fits and encoded.decode(np.float16).shape == shape
        if not fits:
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


def _narrowed(codes: np.ndarray) -> np.ndarray:
    """Codes in one byte each, where they fit one."""
    if codes.dtype.itemsize == 1 and codes.dtype.kind in "iu":
        return codes
    least, most = int(codes.min()), int(codes.max())
    if least >= 0 and most <= 255 and codes.dtype.kind != "i":
        return codes.astype(np.uint8)
    if least >= -128 and most <= 127:
        return codes.astype(np.int8)
    return codes.astype(np.uint8) if least >= 0 and most <= 255 else codes


def _places(indices: Any) -> np.ndarray:
    """Places of a table, in one byte each."""
    stored = _whole_numbers(indices)
    if int(stored.min()) < 0:
        raise GraphError(f"index {int(stored.min())} of a look-up table is negative; it must be 0 or more")
    return stored.astype(np.uint8, copy=False) if int(stored.max()) <= 255 else stored


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
