"""Planes of a kernel that leave zeros out: what windows that step further than one read.

A plane is a halfword of bias for each lane, the number of bytes of its body in three bytes, and the body, rounded up
to 64 bytes. The body has a slot for each lane in each step; for every eight slots a byte of marks, and then the
halfwords that are not zero. Steps go by phase: taps of even rows and even columns first, then even and odd, odd and
even, odd and odd, in a window whose sides are rounded up to even numbers.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from aneforge.codegen.bounds import ContainerError

_SLOTS, _COUNT, _TILE = 8, 3, 64
_SIZES = [1 + 2 * bin(mark).count("1") for mark in range(256)]
"""Bytes of a mark and of the values that it announces."""
_SIZE_TABLE = np.array(_SIZES)
_JUMP = 16
Array = np.ndarray


@cache
def order_of(height: int, width: int) -> tuple[int, ...]:
    """The taps of a window in the order of its steps; the number behind the last one stands for a tap that does not
    exist."""
    rows, columns = height + height % 2, width + width % 2
    order = []
    for row_phase in (0, 1):
        for column_phase in (0, 1):
            for row in range(row_phase, rows, 2):
                for column in range(column_phase, columns, 2):
                    exists = row < height and column < width
                    order.append(row * width + column if exists else height * width)
    return tuple(order)


def plane_bytes(bias: Array, steps: Array) -> bytes:
    """``steps`` is [step, lane], as bits of halves."""
    slots = np.ascontiguousarray(steps, np.uint16).reshape(-1)
    slots = np.concatenate([slots, np.zeros(-len(slots) % _SLOTS, np.uint16)])
    groups = slots.reshape(-1, _SLOTS)
    used = groups != 0  # a zero below zero keeps its sign
    marks = np.packbits(used, axis=1, bitorder="little")
    parts = np.concatenate([marks, groups.astype("<u2").view(np.uint8)], axis=1)
    body = parts[np.concatenate([np.ones_like(marks, bool), np.repeat(used, 2, axis=1)], axis=1)]
    plane = bias.astype("<u2").tobytes() + len(body).to_bytes(_COUNT, "little") + body.tobytes()
    return plane + bytes(-len(plane) % _TILE)


def _marks(body: Array, count: int) -> tuple[Array, int]:
    """Where each of so many marks lies, and where the values of the last one end; more than there are bytes if it is
    behind them. Each mark says where the next one is: jumps of sixteen at a time find every sixteenth."""
    size = len(body)
    following = np.empty(size + 2, np.int64)
    following[:size] = np.minimum(np.arange(size) + _SIZE_TABLE[body], size + 1)
    following[size:] = size + 1
    jump = following
    for _ in range(4):
        jump = jump[jump]
    place, anchors = 0, []
    for _ in range(-(-count // _JUMP)):
        anchors.append(place)
        place = int(jump[place])
    rows = np.empty((_JUMP, len(anchors)), np.int64)
    rows[0] = anchors
    for number in range(1, _JUMP):
        rows[number] = following[rows[number - 1]]
    places = rows.T.reshape(-1)[:count]
    return places, int(following[places[-1]]) if count else 0


def read_plane(data: bytes, start: int, end: int, lanes: int, steps: int) -> tuple[Array, Array, int]:
    """The biases and the steps of a plane, and where the next one begins."""
    head = start + 2 * lanes + _COUNT
    end = min(end, len(data))
    if head > end:
        raise ContainerError(
            start, f"a plane of {lanes} lanes begins at {start:#x}, {end - start} bytes before its end"
        )
    bias = np.frombuffer(data[start : start + 2 * lanes], "<u2")
    stop = head + int.from_bytes(data[head - _COUNT : head], "little")
    if stop > end:
        raise ContainerError(start, f"the plane at {start:#x} ends at {stop:#x}, behind its stream")
    count = -(-lanes * steps // _SLOTS)
    raw = np.frombuffer(data, np.uint8, stop - head, head)
    at, length = _marks(raw, count)
    if length > len(raw):
        raise ContainerError(start, f"the plane at {start:#x} has too few values for {steps} steps")
    raw = raw[:length]
    used = np.unpackbits(raw[at][:, None], axis=1, bitorder="little").astype(bool)
    slots = np.zeros((count, _SLOTS), np.uint16)
    slots[used] = np.delete(raw, at).view("<u2")
    slots = slots.reshape(-1)
    return bias, slots[: lanes * steps].reshape(steps, lanes), start + -(-(stop - start) // _TILE) * _TILE
