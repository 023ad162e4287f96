"""Where each element of a moved value comes from, however the moves are composed.

A chip that lacks a gather copies by slices, tiles and joins; another has the op. Both give the same numbers. To see
that, every element gets a code that says which channel it comes from (by the channel's digest) and where it lay in it;
the moves are then applied to the codes.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from aneforge.anec.interpret import rule_of
from aneforge.anec.ir import Op
from aneforge.anec.spec import kinds_with
from aneforge.anec.traits import Trait

Digest = bytes
_CHANNELS = 2
_DIGEST_SIZE = 16  # that of every digest of a channel
_MOST = 1 << 22  # elements of a move that is followed; larger ones are compared step by step
_STEP = np.uint64(0x9E3779B97F4A7C15)  # from one element to the next: odd, so that all codes of a channel differ
_MOVES = kinds_with(Trait.MOVEMENT) - {
    *("padding", "select"),  # add numbers of their own, or choose by a value
    *("ring_buffer_reader", "ring_buffer_writer", "tensor_buffer_to_tensor", "tensor_to_tensor_buffer"),
}


class Origins:
    """The origins of the moved values of one program.

    A code has 64 bits: a hash of the channel's digest and shape, and from there a step for each element. Two elements
    of different origin share a code by chance only, one in 2^64.
    """

    def __init__(self) -> None:
        self._codes: dict[Op, np.ndarray] = {}
        self._channels: dict[int, tuple[Digest, bytes]] = {}
        """The digest and shape of each channel that something was moved from, by the code of its first element."""

    def follows(self, op: Op) -> bool:
        """Whether an op only hands elements on, and is small enough to look at each of them."""
        if op.kind not in _MOVES or int(np.prod(op.shape)) > _MOST:
            return False
        return op.kind != "gather_nd" or len(op.operands) == 1

    def digests(self, op: Op, read: list[tuple[Digest, ...]]) -> tuple[Digest, ...]:
        """The digest of each channel of a move; a channel that is handed on as it was keeps its digest."""
        operands = [self._of(operand, channels) for operand, channels in zip(op.operands, read, strict=True)]
        self._codes[op] = np.asarray(rule_of(op)(op, *operands)).reshape(op.shape)
        rows = np.moveaxis(self._codes[op], _CHANNELS, 0).reshape(op.shape[_CHANNELS], -1)
        in_order = (rows == rows[:, :1] + _steps(rows.shape[1])).all(axis=1)
        shape = _shape_of_channel(op)
        return tuple(self._digest(row, shape, bool(whole)) for row, whole in zip(rows, in_order.tolist(), strict=True))

    def _of(self, op: Op, channels: tuple[Digest, ...]) -> np.ndarray:
        """The codes of a value: its own where it was moved itself, else new ones by channel."""
        if op not in self._codes:
            n, d, _, h, w = op.shape
            shape = _shape_of_channel(op)
            starts = np.array([self._start(digest, shape) for digest in channels], np.uint64)
            inside = _steps(n * d * h * w).reshape(n, d, 1, h, w)
            self._codes[op] = inside + starts.reshape(1, 1, -1, 1, 1)
        return self._codes[op]

    def _start(self, digest: Digest, shape: bytes) -> int:
        """The first code of a channel. Channels of one digest and of several shapes are not mixed up."""
        start = int.from_bytes(blake2b(digest + shape, digest_size=8).digest(), "little")
        self._channels[start] = digest, shape
        return start

    def _digest(self, codes: np.ndarray, shape: bytes, in_order: bool) -> Digest:
        if in_order:
            digest, known = self._channels.get(int(codes[0]), (b"", b""))
            if known == shape:
                return digest
        return blake2b(shape + codes.tobytes(), digest_size=_DIGEST_SIZE).digest()


def _steps(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.uint64) * _STEP


def _shape_of_channel(op: Op) -> bytes:
    n, d, _, h, w = op.shape
    return repr((n, d, h, w)).encode()
