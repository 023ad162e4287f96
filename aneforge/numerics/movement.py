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

__all__ = ["Origins"]

Digest = bytes
_CHANNELS = 2
_DIGEST_SIZE = 16  # that of every digest of a channel
_MOST = 1 << 22  # elements of a move that is followed; larger ones are compared step by step
_MOVES = kinds_with(Trait.MOVEMENT) - {
    *("padding", "select"),  # add numbers of their own, or choose by a value
    *("ring_buffer_reader", "ring_buffer_writer", "tensor_buffer_to_tensor", "tensor_to_tensor_buffer"),
}


class Origins:
    """The origins of the moved values of one program."""

    def __init__(self) -> None:
        self._codes: dict[Op, np.ndarray] = {}
        self._first: dict[Digest, int] = {}
        """The code of the first element of each channel that something was moved from, by digest and shape."""
        self._channels: list[tuple[int, Digest]] = []
        """The same channels in the order of their codes."""
        self._next = 0

    def follows(self, op: Op) -> bool:
        """Whether an op only hands elements on, and is small enough to look at each of them."""
        if op.kind not in _MOVES or int(np.prod(op.shape)) > _MOST:
            return False
        return op.kind != "gather_nd" or len(op.operands) == 1

    def digests(self, op: Op, read: list[tuple[Digest, ...]]) -> tuple[Digest, ...]:
        """The digest of each channel of a move; a channel that is handed on as it was keeps its digest."""
        operands = [self._of(operand, channels) for operand, channels in zip(op.operands, read, strict=True)]
        codes = np.asarray(rule_of(op)(op, *operands)).reshape(op.shape)
        self._codes[op] = codes
        firsts = np.array([first for first, _ in self._channels])
        return tuple(self._digest(codes[:, :, channel], firsts) for channel in range(op.shape[_CHANNELS]))

    def _of(self, op: Op, channels: tuple[Digest, ...]) -> np.ndarray:
        """The codes of a value: its own where it was moved itself, else new ones by channel."""
        if op not in self._codes:
            n, d, _, h, w = op.shape
            inside = np.arange(n * d * h * w).reshape(n, d, 1, h, w)
            starts = np.array([self._start(digest, inside.shape) for digest in channels])
            self._codes[op] = inside + starts.reshape(1, 1, -1, 1, 1)
        return self._codes[op]

    def _start(self, digest: Digest, shape: tuple[int, ...]) -> int:
        """Channels of one digest and of several shapes are not mixed up."""
        key = digest + repr(shape).encode()
        if key not in self._first:
            self._first[key] = self._next
            self._channels.append((self._next, key))
            self._next += int(np.prod(shape))
        return self._first[key]

    def _digest(self, codes: np.ndarray, firsts: np.ndarray) -> Digest:
        sources = np.searchsorted(firsts, codes, side="right") - 1
        used, local = np.unique(sources, return_inverse=True)
        places = codes - firsts[sources]
        shape = repr((*codes.shape[:2], 1, *codes.shape[2:])).encode()
        if len(used) == 1 and np.array_equal(places.reshape(-1), np.arange(codes.size)):
            key = self._channels[int(used[0])][1]
            if key[_DIGEST_SIZE:] == shape:
                return key[:_DIGEST_SIZE]
        names = [self._channels[int(number)][1] for number in used]
        order = sorted(range(len(names)), key=names.__getitem__)
        rank = np.empty(len(names), np.int64)
        rank[order] = np.arange(len(names))
        state = blake2b(digest_size=_DIGEST_SIZE)
        for part in (shape, *(names[number] for number in order)):
            state.update(part + b"\0")
        state.update(rank[local.reshape(-1)].tobytes())
        state.update(places.astype(np.int64).tobytes())
        return state.digest()
