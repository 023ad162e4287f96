"""Work in several tasks: convolutions whose kernel a core cannot keep, and maps that scratch cannot hold.

Published programs take a map in the small mode (up to eight columns, :mod:`aneforge.codegen.sharing`) whole: every
output channel reads its coefficients once, so that they stream, whatever their size (3x3 of 256 inputs and outputs on
8x8 is one task). A larger map reads them again for its other pixels, and a core keeps 64 KiB of them: 1x1 of 1024
inputs on 1x375 takes 512 outputs a task, 3x3 of 256 inputs 224 and then 32, 3x3 of 1024 inputs 32 (U270).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aneforge.codegen.banks import BANK
from aneforge.codegen.forms import Form
from aneforge.codegen.packing import CORES
from aneforge.codegen.plan import TaskBuffer

KERNEL_MEMORY = 1 << 16
"""Bytes of coefficients that a core keeps."""
SCRATCH_FOR_SOURCES = 0x1E0000
"""Bytes of scratch for what comes from memory (U240)."""
_EVEN = 2 * CORES
"""Outputs of a task come in multiples of it: an even number for each core."""


def split_outputs(form: Form, is_small: bool) -> list[slice]:
    """The output channels of each task of a convolution, lowest first."""
    assert form.weights is not None
    outputs, inputs = form.weights.shape[:2]
    one = 2 * form.weights[0].size
    if form.kernel.skips_zeros:
        steps = (form.kernel.height + form.kernel.height % 2) * (form.kernel.width + form.kernel.width % 2)
        one += inputs * steps // 8
    if is_small or form.kernel.groups > 1 or -(-outputs // CORES) * one <= KERNEL_MEMORY:
        return [slice(0, outputs)]
    step = max(CORES, KERNEL_MEMORY // one * CORES // _EVEN * _EVEN)
    return [slice(first, min(first + step, outputs)) for first in range(0, outputs, step)]


def split_channels(tensors: Sequence[TaskBuffer], channels: int, free: int) -> list[slice]:
    """The channels of each task of work that goes channel by channel: as many as scratch holds of what comes from
    memory. Each task is one that published programs show for a tensor of so many channels."""
    staged = [tensor for tensor in tensors if tensor.in_memory]
    size = sum(_up(2 * tensor.width, BANK) * tensor.height * tensor.channels for tensor in staged)
    parts = max(1, -(-size // max(1, SCRATCH_FOR_SOURCES - free)))
    step = _up(-(-channels // parts), CORES)
    return [slice(first, min(first + step, channels)) for first in range(0, channels, step)]


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def part_of(form: Form, span: slice) -> Form:
    """The same convolution for some of its output channels."""
    assert form.weights is not None
    return replace(form, weights=form.weights[span], bias=None if form.bias is None else form.bias[span])


def channels_of(result: TaskBuffer, span: slice) -> TaskBuffer:
    """Some channels of a tensor; all of one that has a single channel."""
    count = span.stop - span.start
    if count == result.channels:
        return result
    if result.in_memory:
        return replace(result, channels=count, offset=result.offset + span.start * result.plane)
    base = result.scratch.base + span.start * result.scratch.channel
    return replace(result, channels=count, scratch=replace(result.scratch, base=base))
