"""A compiled program in words: a tree of ports, sections and tasks, one task in full, and what differs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from aneforge.chips import store
from aneforge.codegen.anec import SCRATCH_BAR, TILE, Anec
from aneforge.codegen.anec_check import driver_lines
from aneforge.codegen.container import Container
from aneforge.codegen.dialect import meaning_of, resolved
from aneforge.codegen.reading import table_name
from aneforge.codegen.record import rows_of
from aneforge.codegen.registers import Register, generations, register_map
from aneforge.codegen.tasks import Task, header_fields
from aneforge.errors import AneforgeError

_PLANAR, _REDUCTION, _SHOWN = 0, 5, 8
_STREAM, _STREAM_SIZE = "CoeffDMAConfig", "CoeffBfrSize"
Compiled = Container | Anec


def tree(program: Compiled) -> Iterator[str]:
    """Ports, sections and tasks, a few lines each."""
    tasks = program.tasks
    count = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    if isinstance(program, Anec):
        names = {port.bar: port.role for port in program.ports}
        names |= {SCRATCH_BAR: "scratch"} if program.scratch_tiles else {}
        yield f"ANEC program for {program.generation}: {count}"
        yield from _anec_parts(program)
        yield from driver_lines(program)
    else:
        bars = {address: number for number, address in enumerate(program.program.bars) if address}
        places = {section.address: "scratch" for section in program.sections if section.name == "__bss"}
        names = {bars[address]: name for address, name in places.items() if address in bars}
        names |= {bar: port.name for port in program.ports if (bar := program.port_bar(port)) is not None}
        yield f"program for {program.generation}: {count}, procedure {program.program.name}"
        yield from _container_parts(program, bars)
    constants = program.stored
    texts = {} if isinstance(program, Anec) else _evidence(program)
    for number, task in enumerate(tasks):
        yield from _task(task, names, constants)
        if number in texts:
            yield f"  {texts[number]}"


def _evidence(container: Container) -> dict[int, str]:
    """What the words of the tasks of our own containers rest on; an op whose work no register says."""
    rows = rows_of(container)
    return {row["task"] + place: _words_of(row) for row in rows for place in range(row["passes"])}


def _words_of(row: Mapping[str, Any]) -> str:
    return f"words {row['verdict']}: {row['form']}" if row["expressed"] else f"work carried as text: {row['form']}"


def _anec_parts(program: Anec) -> Iterator[str]:
    yield "ports"
    for port in program.ports:
        extents = " x ".join(map(str, port.shape))
        yield f"  {port.role}: {extents}, row {port.row_bytes}, plane {port.plane_bytes}, BAR {port.bar}"
    yield "sections"
    yield f"  text: {_bytes(len(program.text))}, file {program.header_bytes:#x}"
    yield f"  constants: {_bytes(len(program.constants))}"
    if program.scratch_tiles:
        yield f"  scratch: {_bytes(program.scratch_tiles * TILE)}, no bytes in the file"


def _container_parts(container: Container, bars: Mapping[int, int]) -> Iterator[str]:
    if container.note:
        yield f"note: {container.note.splitlines()[0]}"
    yield "ports"
    for port in container.ports:
        extents = " x ".join(map(str, port.shape))
        number = container.port_bar(port)
        bar = "" if number is None else f", BAR {number} at {container.program.bars[number]:#x}"
        _, plane, row, _ = port.strides
        sizes = f"row {row}, plane {plane}, {_bytes(port.total_bytes)}"
        yield f"  {port.role} {port.name}: {port.element} {extents}, {sizes}{bar}"
    yield "sections"
    for segment in container.segments:
        for section in segment.sections:
            moved = f", {section.relocation_count} relocations" if section.relocation_count else ""
            place = f"file {section.offset:#x}" if section.has_bytes else "no bytes in the file"
            yield f"  {segment.name},{section.name}: {section.address:#x}, {_bytes(section.size)}, {place}{moved}"
    kernels = sum(symbol.is_kernel_tile for symbol in container.symbols)
    if container.symbols:
        yield f"symbols: {len(container.symbols)}, of which {kernels} name kernel tiles"


def _bytes(count: int) -> str:
    return f"{count:,} bytes"


def _task(task: Task, names: Mapping[int, str], constants: Mapping[int, bytes]) -> Iterator[str]:
    header = task.header
    unknown = sum(register is None or not register.is_known for _, value, register in task.written() if value)
    words = "1 word" if unknown == 1 else f"{unknown} words"
    rest = f", {words} without a known meaning" if unknown else ""
    waits = f", waits for task {header['DTID']}" if "DTID" in header else ""
    size = (task.end - task.offset) // 4
    yield f"task {header.get('TID')} at {task.offset:#x}: {size} words{_engine(task)}{waits}{rest}"
    about = (_extents(task), _kernel(task), *_operands(task, names), _streams(task, constants), _slots(task))
    for line in (*about, _cores(task)):
        if line:
            yield f"  {line}"


def _engine(task: Task) -> str:
    """Nothing where the registers of the generation are not published."""
    if task.generation not in generations():
        return ""
    return ", planar engine" if is_planar(task) else ", MAC engine"


def is_planar(task: Task) -> bool:
    """Generations without a planar engine (h11) enable single cores with the same field."""
    return task.header.get("ENE") == _PLANAR and "PE" in register_map(task.generation).blocks


def _extents(task: Task) -> str:
    sides = []
    for side in ("in", "out"):
        values = [meaning_of(task, f"{side}.{axis}") for axis in ("channels", "height", "width")]
        sides.append(f"{side} " + " x ".join("default" if value is None else str(value) for value in values))
    if all(side.endswith("default x default x default") for side in sides):
        return ""
    tile = meaning_of(task, "tile.height")
    rows = "1 row" if tile == 1 else f"{tile} rows"
    return ", ".join(sides) + ("" if tile is None else f", tiles of {rows}")


def _kernel(task: Task) -> str:
    width, height = meaning_of(task, "kernel.width"), meaning_of(task, "kernel.height")
    if width is None or (is_planar(task) and not _pool(task)):
        return ""
    stride = f"{meaning_of(task, 'kernel.stride_y')} x {meaning_of(task, 'kernel.stride_x')}"
    pad = f"{meaning_of(task, 'kernel.top')} above, {meaning_of(task, 'kernel.left')} left"
    groups = meaning_of(task, "groups")
    split = f", {groups} groups" if groups and groups > 1 else ""
    return f"kernel {height} x {width}, stride {stride}, padding {pad}{split}"


def _pool(task: Task) -> int:
    """The pooling code of a planar task: where the map has no such field, the bits where later maps have it."""
    code = meaning_of(task, "planar.pool")
    if code is None and meaning_of(task, "task.type") == _REDUCTION:
        code = (meaning_of(task, "planar.config") or 0) & 3
    return code or 0


def _operands(task: Task, names: Mapping[int, str]) -> Iterator[str]:
    """Where operands and the result lie in memory and in scratch."""
    relocated = {command.places[0]: command.bar for command in task.commands if command.bar is not None}
    header = task.header
    plain = {"source": ("RBase0", "RBE0"), "second": ("RBase1", "RBE1"), "result": ("WBase", "WBE")}
    for side in ("source", "second", "result"):
        base = _base_address(task, side)
        bar = relocated.get(base) if base is not None else None
        if bar is None and header.get(plain[side][1]):
            bar = header[plain[side][0]]
        parts = [f"BAR {bar}" + (f" ({names[bar]})" if bar in names else "")] if bar is not None else []
        offset = meaning_of(task, f"{side}.base")
        parts += [f"offset {offset:#x}"] if offset and bar is not None else []
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
    found = resolved(task.generation, f"{side}.base")
    return None if found is None else found[0].address


def _cores(task: Task) -> str:
    """How many cores of the MAC engine work."""
    log = meaning_of(task, "task.cores")
    if log is None or task.generation not in generations() or is_planar(task):
        return ""
    return "1 core" if log == 0 else f"{1 << log} cores"


def _streams(task: Task, constants: Mapping[int, bytes]) -> str:
    """The coefficients that the task loads: a stream for each core that is enabled, or a table."""
    named = {register.name: value for _, value, register in task.written() if register is not None}
    table = table_name(task, constants)
    table = f" ({table})" if table else ""
    enabled = [name for name, value in named.items() if name.startswith(_STREAM) and value & 1]
    if not enabled:
        size = meaning_of(task, "table.size")
        return f"table of {_bytes(size)}{table}" if size and (meaning_of(task, "table.config") or 0) & 1 else ""
    sizes = sorted({named.get(name.replace(_STREAM, _STREAM_SIZE), 0) for name in enabled})
    each = f"{_bytes(sizes[0])} each" if len(sizes) == 1 else f"{sizes[0]:,} to {_bytes(sizes[-1])}"
    streams = "1 stream" if len(enabled) == 1 else f"{len(enabled)} streams"
    return f"kernels: {streams}, {each}" + (f", which begin with a table{table}" if table else "")


def _slots(task: Task) -> str:
    """The operation and what is fused behind it. A part that the generation's map does not have is left out."""
    codes = store.load("programs")["codes"]

    def named(kind: str, code: int) -> str:
        table = codes[kind].get("values", codes[kind])
        return table.get(str(code), f"code {code}")

    if task.generation not in generations():
        return ""
    planar = is_planar(task)
    engine, operations = ("planar", "pe_op") if planar else ("mac", "ne_op_mode")
    operation = meaning_of(task, f"{engine}.operation")
    if planar and not meaning_of(task, "planar.config"):
        operation = None  # the engine is off
    parts = [] if operation is None else [f"operation {named(operations, operation)}"]
    own = _reduced(task) if planar else _across_channels(task)
    if own and planar:
        return f"operation {own}"
    parts = [f"operation {own}"] if own else parts
    if planar:
        pool, condition = _pool(task), meaning_of(task, "planar.condition")
        parts = [f"pool {named('pe_pool', pool)}"] if pool else parts
        parts += [f"condition {named('pe_condition', condition)}"] if condition else []
        parts += ["relu"] if meaning_of(task, "planar.relu") else []
    else:
        parts += ["bias"] if meaning_of(task, "mac.bias") else []
        parts += ["scale"] if meaning_of(task, "mac.scaled") else []
    activation = meaning_of(task, f"{engine}.activation")
    parts += [f"activation {named('ne_nonlinear', activation)}"] if activation else []
    parts += ["result transposed"] if meaning_of(task, "task.transposes") else []
    return ", ".join(parts)


_REDUCTIONS, _EXTREMES = (5, 6), {2: "largest", 3: "smallest"}
_SQUARES, _INVERSE, _ROOT, _DIFFERENCE = 0x10, 0x1000, 0x2000, 3


def _reduced(task: Task) -> str:
    """What a planar task makes of its rows, as softmax and norms of published programs do; a difference, too."""
    config = meaning_of(task, "planar.config") or 0
    if meaning_of(task, "task.type") not in _REDUCTIONS:
        return "sub" if config >> 18 == _DIFFERENCE and not config >> 2 & 7 else ""
    if meaning_of(task, "planar.pool") and (config & 3) not in _EXTREMES:
        return ""
    of = "squares of the difference" if config >> 18 and config & _SQUARES else "squares" if config & _SQUARES else ""
    kind = _EXTREMES.get(config & 3, "sum") + (f" of the {of}" if of else "")
    behind = ", reciprocal" if config & _INVERSE else ", reciprocal of the root" if config & _ROOT else ""
    return f"{kind} over the rows{behind}"


def _across_channels(task: Task) -> str:
    """What a MAC task makes of all channels without a kernel."""
    channels = [meaning_of(task, f"{side}.channels") for side in ("in", "out")]
    if channels[1] != 1 or channels[0] in (1, None):
        return ""
    mode = (meaning_of(task, "mac.config") or 0) & 0xF
    return {0xB: "largest of all channels", 0x8: "sum of all channels"}.get(mode, "")


def find_task(program: Compiled, number: int) -> Task:
    """A task by its place in the chain."""
    tasks = program.tasks
    if not 0 <= number < len(tasks):
        raise AneforgeError(f"--task {number}: the program has {len(tasks)} tasks, numbered from 0")
    return tasks[number]


def task_in_full(program: Compiled, number: int) -> Iterator[str]:
    """Every field that one task writes, with what is known of it. Words without a meaning are shown too."""
    task = find_task(program, number)
    yield f"task {number} at {task.offset:#x}: {len(task.words)} words"
    yield "header"
    named = header_fields(task.generation)
    for place, word in enumerate(task.header_words):
        fields = named[place] if place < len(named) else ()
        shown = ", ".join(f"{field.name} {field.read(word)}" for field in fields if field.read(word))
        left = word & ~sum(field.mask for field in fields) if fields else 0
        shown += f"{', ' if shown else ''}bits {left:#x} belong to no published field" if left else ""
        yield f"  word {place}: {word:#010x} {shown or ('DTID' if place >= len(named) else '')}".rstrip()
    block = ""
    heads = _command_notes(task)
    for place, (address, value, register) in enumerate(task.written()):
        name = "unknown" if register is None else register.block
        if name != block:
            block = name
            yield block
        yield from _register(address, value, register, heads.get(place, ""))


def _command_notes(task: Task) -> dict[int, str]:
    """What commands state besides addresses, by the place of their first value among the writes."""
    notes, place = {}, 0
    for command in task.commands:
        added = f", BAR {command.bar} is added" if command.bar is not None else ""
        spare = f", command bits {command.extra:#x} belong to no published field" if command.extra else ""
        notes[place] = added + spare
        place += len(command.values)
    return notes


def _register(address: int, value: int, register: Register | None, more: str) -> Iterator[str]:
    if register is None:
        yield f"  {address:#07x} {value:#010x} not in the published map{more}"
        return
    note = f" ({register.confidence})" if register.is_known else " unknown"
    yield f"  {address:#07x} {value:#010x} {register.label}{note}{more}"
    for field in register.fields:
        if field.read(value):
            meaning = f"  {field.meaning}" if field.meaning else ""
            yield f"      {field.name} = {field.read(value)}{meaning}"
    left = value & register.unknown_bits
    if left and register.is_known:
        yield f"      bits {left:#x} belong to no published field"


def raw(program: Compiled, number: int | None = None) -> Iterator[str]:
    """The words of every task, or of one."""
    chosen = enumerate(program.tasks) if number is None else [(number, find_task(program, number))]
    for place, task in chosen:
        yield f"task {place}"
        words = task.words
        for start in range(0, len(words), _SHOWN):
            line = " ".join(f"{word:08x}" for word in words[start : start + _SHOWN])
            yield f"  {task.offset + 4 * start:06x}  {line}"


def differences(left: Compiled, right: Compiled, number: int | None = None) -> list[tuple[str, Any, Any]]:
    """What two programs state differently, by name: the name and both values, None where one does not state it.
    ``number`` asks for one task only."""
    one, other = (_stated(program, number) for program in (left, right))
    names = dict.fromkeys((*one, *other))
    found = [(name, one.get(name), other.get(name)) for name in names if one.get(name) != other.get(name)]
    if not found and number is None and left.to_bytes() != right.to_bytes():
        found.append(("bytes without a name (padding, symbols of debugging or spare words)", "differ", "differ"))
    return found


def _stated(program: Compiled, number: int | None) -> dict[str, Any]:
    """Everything that a program states, flat, by names that a person can read."""
    if number is not None:
        return _task_stated(find_task(program, number), number)
    stated: dict[str, Any] = {"generation": program.generation, "tasks": len(program.tasks)}
    for port in program.ports:
        stated |= {f"port {port.name} {key}": value for key, value in port.to_json().items() if key != "name"}
    if isinstance(program, Container):
        stated |= _container_stated(program)
    for place, task in enumerate(program.tasks):
        stated |= _task_stated(task, place)
    constants = program.constants
    stated["constants"] = f"{_bytes(len(constants))}, sha256 {hashlib.sha256(constants).hexdigest()[:16]}"
    return stated


def _container_stated(container: Container) -> dict[str, Any]:
    program = container.program.to_json()
    stated: dict[str, Any] = {"note": container.note}
    stated |= {f"program {key}": value for key, value in program.items() if key != "bars"}
    stated |= {f"BAR {bar}": address for bar, address in program["bars"].items()}
    stated |= {f"binding {port.name}": f"{port.address:#x}" for port in container.bindings}
    stated |= {f"descriptor word {place:#x}": word for place, word in container.program.unnamed().items()}
    seen: Counter[tuple[str, str]] = Counter()
    for section in container.sections:
        copy = seen[section.segment, section.name]
        seen[section.segment, section.name] += 1
        name = f"section {section.segment},{section.name}" + (f"[{copy}]" if copy else "")
        stated |= {f"{name} address": f"{section.address:#x}", f"{name} size": section.size}
        moved = container.relocations(section)
        stated |= {f"{name} relocations": [f"{entry.offset:#x}" for entry in moved]} if moved else {}
    tiles = [symbol.value for symbol in container.symbols if symbol.is_kernel_tile]
    first = min(tiles, default=0)  # their names are digests of the constants
    stated |= {f"kernel tile {place} from the first": f"{value - first:#x}" for place, value in enumerate(tiles)}
    others = (symbol for symbol in container.symbols if not symbol.is_kernel_tile)
    return stated | {f"symbol {symbol.name}": f"{symbol.value:#x}" for symbol in others}


def _task_stated(task: Task, number: int) -> dict[str, Any]:
    stated: dict[str, Any] = {f"task {number} header {key}": value for key, value in task.header.items()}
    stated |= {f"task {number} {key}": value for key, value in task.registers.items()}
    added = [command for command in task.commands if command.bar is not None]
    stated |= {f"task {number} BAR added at {command.address:#x}": command.bar for command in added}
    spare = [command for command in task.commands if command.extra]
    stated |= {f"task {number} command bits at {command.address:#x}": command.extra for command in spare}
    return stated
