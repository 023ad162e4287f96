"""The tasks of each form, in order, with the constants that they read."""

from __future__ import annotations

from dataclasses import replace

from aneforge.codegen.building import TaskBuilder, copy_of, plain, table_of
from aneforge.codegen.dialect import dialect_of
from aneforge.codegen.forms import Form, product_lanes, product_parts
from aneforge.codegen.norm_tasks import Tables, layer_norm, needs_inverses, softmax
from aneforge.codegen.packing import pack_convolution, pack_scale
from aneforge.codegen.plan import PIECE, Scratch, Streams, TaskBuffer
from aneforge.codegen.reduction_tasks import reduction
from aneforge.codegen.scratch_tensors import cuts, part_along, rows_for_channels
from aneforge.codegen.split import channels_of, part_of, split_channels, split_outputs
from aneforge.codegen.stream import is_indexed
from aneforge.codegen.tables import bounds_bytes, table_bytes
from aneforge.codegen.words import sharing_of

_LINE, _CORES = 64, 16
CONSTANT_BAR, _TURNED_SECOND = 1, 0x200
_LN_2 = 0.6931471805599453
_WEIGHTS_OF_TASK = 1 << 20
"""Bytes of weights that one task of a product reads in published programs."""


class Sequences:
    """Builds the tasks of forms, and the constant section that they share."""

    def __init__(self, generation: str) -> None:
        self.generation = generation
        self.dialect = dialect_of(generation)
        self.constants = bytearray()
        self.rows = bytearray() if self.dialect.kernel_section else self.constants
        """Rows of numbers that a task reads as a tensor: they lie in the section behind the text, where kernels may
        have one of their own."""
        self.tiles: list[tuple[int, int]] = []
        """Offset and size of each stream of coefficients."""

    def cut(self, size: int, rows: int, tiles: int) -> None:
        """Forget the constants behind a place."""
        del self.constants[size:], self.tiles[tiles:]
        if self.rows is not self.constants:
            del self.rows[rows:]

    def add(self, builder: TaskBuilder, form: Form, operands: list[TaskBuffer], result: TaskBuffer) -> str:
        """Adds the tasks of a form; returns the rule that its constants are laid out by."""
        source = operands[0]
        second = operands[1] if len(operands) > 1 else None
        parts = 1 if form.kernel.is_depthwise else form.kernel.groups
        if form.images > 1 or parts > 1:
            source, result = _image(source, max(form.images, parts)), _image(result, max(form.images, parts))
            if second is not None and form.operands[1].shape[0] == form.images:
                second = _image(second, form.images)
        if second is not None:
            return self._of_two(builder, form, source, second, result)
        return self._of_one(builder, form, source, result)

    def _of_two(
        self, builder: TaskBuilder, form: Form, source: TaskBuffer, second: TaskBuffer, result: TaskBuffer
    ) -> str:
        if form.name == "division":
            return self._divide(builder, form, source, second, result)
        if form.name == "product":
            return self._product(builder, form, source, second, result)
        if form.mask and not self.dialect.configures_second and second.in_memory:
            between = builder.temporary(*second.extents)
            builder.add(copy_of(second, between))
            second = between
        plan = replace(plain(form, source, result, second), activation="none")
        spans = [slice(0, source.channels)]
        if form.images == 1:
            spans = split_channels([source, second], source.channels, builder.cursor)
        for span in reversed(spans):
            other = channels_of(second, span) if second.channels > 1 else second
            part = replace(plan, source=channels_of(source, span), second=other)
            builder.add(replace(part, result=channels_of(result, span)))
        if form.activation == "relu":
            builder.add(replace(copy_of(result, result), activation="relu"))  # in place
        return ""

    def _of_one(self, builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> str:
        kind = form.name.partition(" of ")[0]
        build = {"logarithm": self._logarithm, "softmax": self._softmax, "norm": self._norm}.get(kind)
        if build is None and form.is_matrix:
            build = self._matrix
        elif build is None and form.vector is not None:
            build = self._by_vector
        elif build is None and form.operation == "convolution" and not form.transposes:
            build = self._convolution
        if build is not None:
            return build(builder, form, source, result)
        if form.name == "tile":
            builder.add(replace(plain(form, source, result), source_stays=source.in_memory))
            return ""
        if form.name == "slice":
            source = part_along(source, form.axes[0], form.first, result.extents)
            builder.add(copy_of(source, result))
            return ""
        if form.name == "rows for channels":
            builder.add(copy_of(rows_for_channels(source), result))
            return ""
        if form.axes:
            reduction(builder, form, source, result)
            return ""
        streams, lanes, rule = self._streams(form)
        builder.add(replace(plain(form, source, result), streams=streams, lanes=lanes))
        return rule

    def _logarithm(self, builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> str:
        """The second task follows the first one a few columns behind, where a chip does so with wide rows: then what
        both have in scratch lies apart."""
        streams, rule = self._table(form.activation)
        between = builder.temporary(*source.extents)
        follows = source.in_memory and result.in_memory and source.channels == 1 and cuts(self.dialect, source.width)
        start = builder.cursor
        builder.cursor += 2 * PIECE * result.height if follows else 0
        table = table_of(source, between, form.activation, streams)
        builder.add(replace(table, is_biased=True, in_pieces=follows))
        builder.cursor = start
        plan = replace(plain(form, between, result), engine="planar", activation="none", numbers=(0.0, _LN_2))
        builder.add(replace(plan, in_pieces=follows))
        return rule

    def _softmax(self, builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> str:
        powers, rule = self._table("exp2", source.channels)
        inverses, more = self._table("invert", 1) if needs_inverses(form, self.dialect) else (Streams(), "")
        softmax(builder, form, source, result, Tables(powers, inverses))
        return "; ".join(filter(None, (rule, more)))

    def _norm(self, builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> str:
        """A norm, and what is multiplied with and added to each channel behind it."""
        layer_norm(builder, form, source, result)
        return "" if form.vector is None else self._by_vector(builder, form, result, result)

    def _convolution(self, builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> str:
        """One task, or several that each load a part of the kernel, the last output channels first. The first one
        brings the source into scratch for all."""
        whole = plain(form, source, result)
        spans = split_outputs(form, sharing_of(self.dialect, whole).is_small)
        rules: dict[str, None] = {}
        for span in reversed(spans):
            part = form if len(spans) == 1 else part_of(form, span)
            streams, lanes, rule = self._streams(part)
            plan = replace(whole, source=source, streams=streams, lanes=lanes)
            if len(spans) > 1:
                stays = source.in_memory and builder.fits(plan)
                plan = replace(plan, result=channels_of(result, span), source_stays=stays)
            plan = builder.add(plan)
            if plan.source_stays:
                source = builder.stays(plan.source)
            rules[rule] = None
        return "; ".join(rules)

    def _divide(
        self, builder: TaskBuilder, form: Form, source: TaskBuffer, second: TaskBuffer, result: TaskBuffer
    ) -> str:
        """The reciprocal of the second operand by a table, then the product."""
        streams, rule = self._table("invert")
        between = builder.temporary(*second.extents)
        task = builder.add(table_of(second, between, "invert", streams))
        assert task.table == "invert"
        builder.add(plain(form, source, result, between))
        return rule

    def _matrix(self, builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> str:
        """Turns the matrix, then multiplies it: a task for each mebibyte of weights, in the order of the columns."""
        assert form.weights is not None
        turned, columns = source, source.channels
        if form.turns_source:
            rows, columns = source.channels, source.width
            turned = builder.turned(rows, columns)
            builder.add(replace(copy_of(source, turned), transposes_result=True))
        step = max(_CORES, _WEIGHTS_OF_TASK // (2 * columns))
        rules: dict[str, None] = {}
        for first in range(0, len(form.weights), step):
            span = slice(first, min(first + step, len(form.weights)))
            part = part_of(form, span)
            place = _columns(result, first, span.stop - first) if form.transposes else channels_of(result, span)
            streams, lanes, rule = self._streams(part)
            builder.add(replace(plain(part, turned, place), streams=streams, lanes=lanes))
            rules[rule] = None
        return "; ".join(rules)

    def _product(
        self, builder: TaskBuilder, form: Form, source: TaskBuffer, second: TaskBuffer, result: TaskBuffer
    ) -> str:
        """One product after the other."""
        rules: dict[str, None] = {}
        start = builder.cursor
        for pair in range(form.pairs):
            builder.cursor = start
            parts = (
                (source, second, result)
                if form.pairs == 1 and not form.swaps
                else (
                    _row_of(source, pair),
                    _row_of(second, pair),
                    (_channel_of if form.swaps else _row_of)(result, pair),
                )
            )
            for first, rows in product_parts(form.rows):
                part = replace(form, rows=rows)
                whole = form.rows == rows
                left = parts[0] if whole else _rows_of_kernel(parts[0], form, first, rows)
                place = parts[2] if whole else channels_of(parts[2], slice(first, first + rows))
                rules[self._one_product(builder, part, left, parts[1], place)] = None
        return "; ".join(filter(None, rules))

    def _one_product(
        self, builder: TaskBuilder, form: Form, source: TaskBuffer, second: TaskBuffer, result: TaskBuffer
    ) -> str:
        """The first matrix is the kernel: it is copied to memory with the rows of a core side by side, unless a core
        has one row. The second one may have to be turned first. The last rows come first."""
        rows, lanes = form.rows, product_lanes(form.rows)
        kernel, number, copy = source, None, None
        if form.turns_kernel:
            kernel = builder.memory(replace(source, channels=source.width, width=source.channels), lanes)
            copy = replace(copy_of(source, kernel), transposes_result=True)
        elif lanes > 1 or not source.in_memory or source.plane != 2 * source.width:
            kernel = builder.memory(source, lanes)
            copy = copy_of(source, kernel)
            if rows & rows - 1 == 0 and lanes > 1:
                copy = replace(copy, engine="planar", operation="copy")
        if copy is not None:
            number = builder.add(replace(copy, result_lanes=lanes, result_is_awaited=True)).number
        if form.turns_source:
            turned = builder.turned(second.channels, second.width)
            builder.add(replace(copy_of(second, turned), transposes_result=True))
            second = turned
        table, rule = Streams(), ""
        if form.activation not in ("none", "relu"):
            table, _, rule = self._streams(form)
        size = 2 * lanes * kernel.width
        base = 0 if is_indexed(self.generation) else kernel.offset  # where streams have no base of their own
        step = min(self.dialect.product_rows, rows) if rows & rows - 1 == 0 else _CORES * lanes
        for first in reversed(range(0, rows, step)):
            span = slice(first, min(first + step, rows))
            cores = min(_CORES, (span.stop - first) // lanes)
            start = base + 2 * first * kernel.width
            streams = replace(table, coefficients=tuple((start + core * size, size) for core in range(cores)))
            plan = replace(plain(form, second, channels_of(result, span)), transposes_result=False, streams=streams)
            plan = replace(plan, lanes=lanes, kernel_bar=kernel.bar, kernel_offset=kernel.offset, kernel_task=number)
            plan = builder.add(replace(plan, source_stays=second.in_memory and first > 0))
            if plan.source_stays:
                second = builder.stays(plan.source)
        return rule

    def _by_vector(self, builder: TaskBuilder, form: Form, source: TaskBuffer, result: TaskBuffer) -> str:
        """A number for each channel, from the constants: a row of offsets, a row of gains. Earlier generations
        copy both into scratch first."""
        assert form.vector is not None
        self.rows += bytes(-len(self.rows) % _LINE)
        start = len(self.rows)
        packed = pack_scale(*form.vector)
        channels = len(form.vector[0])
        row = _up(2 * channels, _LINE)
        for values in form.vector:  # rows of whole lines: without padding for a multiple of 32 channels
            self.rows += values.tobytes() + bytes(row - 2 * channels)
        constant = TaskBuffer(1, 2, channels, row, 2 * row, 2 * row, source.scratch, CONSTANT_BAR, start)
        plan = replace(plain(form, source, result), operation="add", mask=_TURNED_SECOND, is_vector=True)
        if self.dialect.configures_second:
            builder.add(replace(plan, second=constant))
        else:
            between = builder.temporary(1, 2, channels)
            builder.add(copy_of(constant, between))
            builder.add(replace(plan, second=between))
        return f"offsets and gains by rows ({packed.evidence})"

    def _table(self, name: str, cores: int = _CORES) -> tuple[Streams, str]:
        """A table behind the other constants, for a task of its own on so many cores."""
        form = Form("activation", "mac", "bypass", (), activation=name)
        streams, _, rule = self._streams(form, cores=cores)
        return streams, rule

    def _streams(self, form: Form, cores: int | None = None) -> tuple[Streams, int, str]:
        """Puts the kernel and the table of a form behind the other constants."""
        coefficients: tuple[tuple[int, int], ...] = ()
        table, lanes, rules = b"", 1, []
        if form.activation not in ("none", "relu"):
            if form.table is not None:
                table = bounds_bytes(form.table)
                evidence = "sampled" if form.table.is_range else "formula"
                rules.append(f"table of {form.activation} ({evidence})")
            else:
                content = table_bytes(form.activation, self.generation)
                table = content.data
                rules.append(f"table of {form.activation} ({content.evidence})")
        base = self._behind() if is_indexed(self.generation) else 0
        start = self._behind()
        heads = self.dialect.table_in_streams
        if form.weights is not None:
            shape = form.operands[0].shape
            side = None if form.transposes or form.is_matrix else max(shape[3:])  # a product has no map
            packed = pack_convolution(form.weights, form.kernel.groups, form.bias, form.kernel.stride, side)
            head = table if heads in ("all", "weights") else b""
            for offset, size in packed.streams:
                at = len(self.constants)
                self.constants += head + packed.data[offset : offset + size]
                coefficients += ((at - base, len(head) + size),)
            table = b"" if head else table
            self.tiles += [(base + at, size) for at, size in coefficients]
            lanes = packed.lanes
            rules.insert(0, f"kernel by {packed.rule} ({packed.evidence})")
        place = None
        if table and heads == "all":
            count = min(_CORES, cores or form.operands[0].shape[2])
            coefficients = ((start, len(table)),) * count
            self.constants += table + bytes((count - 1) * len(table))
        elif table:
            start = self._behind()
            self.constants += table
            place = start - base, len(table)
        return Streams(coefficients, place, base), lanes, "; ".join(rules)

    def _behind(self) -> int:
        self.constants += bytes(-len(self.constants) % _LINE)
        return len(self.constants)


def _columns(tensor: TaskBuffer, first: int, count: int) -> TaskBuffer:
    """Some columns of a matrix."""
    if tensor.in_memory:
        return replace(tensor, width=count, offset=tensor.offset + 2 * first)
    scratch = replace(tensor.scratch, base=tensor.scratch.base + 2 * first)
    return replace(tensor, width=count, scratch=scratch)


def _rows_of_kernel(tensor: TaskBuffer, form: Form, first: int, rows: int) -> TaskBuffer:
    """Some rows of the first matrix of a product; columns of one that has to be turned."""
    if form.turns_kernel:
        return part_along(tensor, 4, first, (tensor.channels, tensor.height, rows))
    return part_along(tensor, 2, first, (rows, tensor.height, tensor.width))


def _row_of(tensor: TaskBuffer, row: int) -> TaskBuffer:
    """One row of a tensor: its channels are the rows of a matrix."""
    if tensor.in_memory:
        return replace(tensor, height=1, offset=tensor.offset + row * tensor.row)
    place = tensor.scratch
    return replace(tensor, height=1, scratch=replace(place, base=place.base + row * place.row))


def _channel_of(tensor: TaskBuffer, channel: int) -> TaskBuffer:
    """One channel of a tensor, whose rows are those of a matrix."""
    place = tensor.scratch
    part = replace(tensor, channels=tensor.height, height=1, plane=tensor.row, total=tensor.plane)
    if tensor.in_memory:
        return replace(part, offset=tensor.offset + channel * tensor.plane)
    scratch = Scratch(place.base + channel * place.channel, place.row, place.row * tensor.height, place.row)
    return replace(part, scratch=scratch)


def _image(tensor: TaskBuffer, images: int) -> TaskBuffer:
    """One image, or one group of channels, of a tensor."""
    channels = tensor.channels // images
    return replace(tensor, channels=channels, total=tensor.plane * channels)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step
