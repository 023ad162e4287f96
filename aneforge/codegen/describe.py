"""A container in words: a tree of ports, sections and tasks, one task register by register, and what differs."""

from __future__ import annotations

from collections.abc import Iterator

from aneforge.codegen.container import Container
from aneforge.codegen.meanings import meaning_of
from aneforge.codegen.registers import Register
from aneforge.codegen.tasks import Task, header_fields
from aneforge.targets import store

__all__ = ["differences", "raw", "task_in_full", "tree"]

_PLANAR, _SHOWN = 0, 8


def tree(container: Container) -> Iterator[str]:
    """Ports, sections and tasks, a few lines each."""
    tasks = container.tasks
    count = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    yield f"program for {container.generation}: {count}, procedure {container.program.name}"
    if container.note:
        yield f"note: {container.note.splitlines()[0]}"
    yield "ports"
    addresses = {binding.name: binding.address for binding in container.bindings}
    bars = {address: number for number, address in enumerate(container.program.bars) if address}
    for port in container.ports:
        extents = " x ".join(map(str, port.shape))
        address = addresses.get(port.name)
        bar = "" if address is None else f", BAR {bars.get(address, 'none')} at {address:#x}"
        _, plane, row, _ = port.strides
        sizes = f"row {row}, plane {plane}, {port.total_bytes} bytes"
        yield f"  {port.role} {port.name}: {port.element} {extents}, {sizes}{bar}"
    yield "sections"
    for segment in container.segments:
        for section in segment.sections:
            moved = f", {section.relocation_count} relocations" if section.relocation_count else ""
            held = f"file {section.offset:#x}" if section.has_bytes else "no bytes in the file"
            yield f"  {segment.name},{section.name}: {section.address:#x}, {section.size} bytes, {held}{moved}"
    for task in tasks:
        yield from _task(task)


def _task(task: Task) -> Iterator[str]:
    header = task.header
    engine = "planar engine" if header.get("ENE") == _PLANAR else "MAC engine"
    unknown = sum(register is None or not register.is_known for _, value, register in task.written() if value)
    rest = f", {unknown} words without a known meaning" if unknown else ""
    yield f"task {header.get('TID')} at {task.offset:#x}: {len(task.words)} words, {engine}{rest}"
    for line in (_extents(task), _kernel(task), *_operands(task), _streams(task), _slots(task)):
        if line:
            yield f"  {line}"


def _extents(task: Task) -> str:
    sides = []
    for side in ("in", "out"):
        values = [meaning_of(task, f"{side}.{axis}") for axis in ("channels", "height", "width")]
        sides.append(f"{side} " + " x ".join("default" if value is None else str(value) for value in values))
    tile = meaning_of(task, "tile.height")
    return ", ".join(sides) + ("" if tile is None else f", tiles of {tile} rows")


def _kernel(task: Task) -> str:
    width, height = meaning_of(task, "kernel.width"), meaning_of(task, "kernel.height")
    if width is None or task.header.get("ENE") == _PLANAR:
        return ""
    stride = f"{meaning_of(task, 'kernel.stride_y')} x {meaning_of(task, 'kernel.stride_x')}"
    pad = f"{meaning_of(task, 'kernel.top')} above, {meaning_of(task, 'kernel.left')} left"
    groups = meaning_of(task, "groups")
    return f"kernel {height} x {width}, stride {stride}, padding {pad}" + (f", {groups} groups" if groups else "")


def _operands(task: Task) -> Iterator[str]:
    """Where operands and the result lie in memory and in scratch."""
    relocated = {command.places[0]: command.bar for command in task.commands if command.bar is not None}
    header = task.header
    plain = {"source": ("RBase0", "RBE0"), "second": ("RBase1", "RBE1"), "result": ("WBase", "WBE")}
    for side in ("source", "second", "result"):
        base = _base_address(task, side)
        bar = relocated.get(base) if base is not None else None
        if bar is None and header.get(plain[side][1]):
            bar = header[plain[side][0]]
        parts = [f"BAR {bar}"] if bar is not None else []
        for part in ("row", "plane"):
            stride = meaning_of(task, f"{side}.{part}")
            parts += [f"{part} {stride}"] if stride and bar is not None else []
        place = meaning_of(task, f"scratch.{side}.base")
        channel, row = (meaning_of(task, f"scratch.{side}.{part}") for part in ("channel", "row"))
        if channel or place:
            parts.append(f"scratch {place or 0:#x}" + (f" (channel {channel}, row {row})" if channel and row else ""))
        if parts:
            yield f"{side}: {', '.join(parts)}"


def _base_address(task: Task, side: str) -> int | None:
    from aneforge.codegen.meanings import resolved

    found = resolved(task.generation, f"{side}.base")
    return None if found is None else found[0].address


def _streams(task: Task) -> str:
    sizes = [
        value
        for _, value, register in task.written()
        if register is not None and register.name.startswith("CoeffBfrSize") and value
    ]
    enabled = sum(
        value & 1
        for _, value, register in task.written()
        if register is not None and register.name.startswith("CoeffDMAConfig")
    )
    if not enabled:
        table = meaning_of(task, "table.size")
        return f"table of {table} bytes" if table and (meaning_of(task, "table.config") or 0) & 1 else ""
    same = sorted(set(sizes[:enabled]))
    each = f"{same[0]} bytes each" if len(same) == 1 else f"{min(same)} to {max(same)} bytes"
    return f"kernels: {enabled} streams, {each}"


def _slots(task: Task) -> str:
    """What is done to the result on its way out."""
    codes = store.load("programs")["codes"]
    if task.header.get("ENE") == _PLANAR:
        word = meaning_of(task, "planar.config")
        return "" if word is None else f"operation {codes['pe_op']['values'].get(str(word >> 2 & 7), 'unknown')}"
    word = meaning_of(task, "mac.config")
    if word is None:
        return ""
    mode = codes["ne_op_mode"]["values"].get(str(word & 7), "unknown")
    activation = codes["ne_nonlinear"]["values"].get(str(word >> 16 & 3), "unknown")
    turned = ", result transposed" if meaning_of(task, "task.transposes") else ""
    bias = ", bias" if word >> 4 & 1 else ""
    return f"operation {mode}{bias}, activation {activation}{turned}"


def task_in_full(container: Container, number: int) -> Iterator[str]:
    """Every field that one task writes, with what is known of it. Words without a meaning are shown too."""
    task = container.tasks[number]
    yield f"task {number} at {task.offset:#x}: {len(task.words)} words"
    yield "header"
    named = header_fields(task.generation)
    for place, word in enumerate(task.header_words):
        fields = named[place] if place < len(named) else ()
        shown = ", ".join(f"{field.name} {field.read(word)}" for field in fields if field.read(word))
        yield f"  word {place}: {word:#010x} {shown or ('DTID' if place >= len(named) else '')}".rstrip()
    block = ""
    for address, value, register in task.written():
        name = "unknown" if register is None else register.block
        if name != block:
            block = name
            yield block
        yield from _register(address, value, register)


def _register(address: int, value: int, register: Register | None) -> Iterator[str]:
    if register is None:
        yield f"  {address:#07x} {value:#010x} not in the published map"
        return
    note = f" ({register.confidence})" if register.is_known else " unknown"
    yield f"  {address:#07x} {value:#010x} {register.name}{note}"
    for field in register.fields:
        if field.read(value):
            meaning = f"  {field.meaning}" if field.meaning else ""
            yield f"      {field.name} = {field.read(value)}{meaning}"
    left = value & register.unknown_bits
    if left and register.is_known:
        yield f"      bits {left:#x} belong to no published field"


def raw(container: Container) -> Iterator[str]:
    """The words of every task."""
    for number, task in enumerate(container.tasks):
        yield f"task {number}"
        words = task.words
        for place in range(0, len(words), _SHOWN):
            line = " ".join(f"{word:08x}" for word in words[place : place + _SHOWN])
            yield f"  {task.offset + 4 * place:06x}  {line}"


def differences(left: Container, right: Container) -> Iterator[str]:
    """What two programs state differently, by name."""
    for name in ("generation", "note"):
        if getattr(left, name) != getattr(right, name):
            yield f"{name}: {getattr(left, name)} | {getattr(right, name)}"
    one, other = ([port.to_json() for port in side.ports] for side in (left, right))
    for number in range(max(len(one), len(other))):
        a, b = (ports[number] if number < len(ports) else {} for ports in (one, other))
        for key in dict.fromkeys((*a, *b)):
            if a.get(key) != b.get(key):
                yield f"port {number} {key}: {_shown(a.get(key))} | {_shown(b.get(key))}"
    if len(left.tasks) != len(right.tasks):
        yield f"tasks: {len(left.tasks)} | {len(right.tasks)}"
    for number, (a, b) in enumerate(zip(left.tasks, right.tasks, strict=False)):
        for kind, one_side, other_side in (("header", a.header, b.header), ("", a.registers, b.registers)):
            for key in dict.fromkeys((*one_side, *other_side)):
                if one_side.get(key) != other_side.get(key):
                    where = f"{kind} {key}".strip()
                    yield f"task {number} {where}: {_shown(one_side.get(key))} | {_shown(other_side.get(key))}"
    if left.constants != right.constants:
        yield f"constants: {len(left.constants)} bytes | {len(right.constants)} bytes, contents differ"


def _shown(value: object) -> str:
    return "not written" if value is None else str(value)
