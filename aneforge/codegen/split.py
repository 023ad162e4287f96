"""Convolutions in several tasks: each loads a part of the kernel that fits the memory of a core.

Published programs take a map in the small mode (up to eight columns, :mod:`aneforge.codegen.sharing`) whole: every
output channel reads its coefficients once, so that they stream, whatever their size (3x3 of 256 inputs and outputs on
8x8 is one task). A larger map reads them again for its other pixels, and a core keeps 64 KiB of them: 1x1 of 1024
inputs on 1x375 takes 512 outputs a task, 3x3 of 256 inputs 224 and then 32, 3x3 of 1024 inputs 32 (U270).
"""

from __future__ import annotations

from dataclasses import replace

from aneforge.codegen.forms import Form
from aneforge.codegen.packing import CORES
from aneforge.codegen.plan import TaskBuffer

KERNEL_MEMORY = 1 << 16
"""Bytes of coefficients that a core keeps."""
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


def part_of(form: Form, span: slice) -> Form:
    """The same convolution for some of its output channels."""
    assert form.weights is not None
    return replace(form, weights=form.weights[span], bias=None if form.bias is None else form.bias[span])


def channels_of(result: TaskBuffer, span: slice) -> TaskBuffer:
    """Some channels of a tensor."""
    count = span.stop - span.start
    if result.in_memory:
        return replace(result, channels=count, offset=result.offset + span.start * result.plane)
    base = result.scratch.base + span.start * result.scratch.channel
    return replace(result, channels=count, scratch=replace(result.scratch, base=base))
