"""The pictures of ``docs/concepts/``, drawn from the data of the targets, a compiled example and a container.

Only the boxes of how things follow each other are set by hand; every number and every cell comes from a look-up.
No sheet is wider than the text of a page, so that no page shrinks its letters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import aneforge as af
from aneforge.chips import Fact, op_names, op_routes, store, target_names
from aneforge.codegen.container import read_container
from aneforge.compiler.facts import facts_of
from aneforge.compiler.passes import PASSES
from aneforge.errors import UnknownNameError
from aneforge.svg import Box, Drawing, Spot, shortened, wrapped

__all__ = [
    "accumulator_picture",
    "capabilities_picture",
    "container_picture",
    "families_picture",
    "one_compiler_picture",
    "phases_picture",
    "routes_picture",
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WIDTH = 750
MACS = ("m1", "m2", "m3", "m4", "m5", "m6")
_SHADES = ("#dbe7fb", "#fde8c8", "#d9f0dc", "#f6d9e6", "#e4ddf7", "#f3f0c9", "#d5eef2", "#eadfd3")
_LINE = "#8a8a8a"


def _boxed(sheet: Drawing, box: Box, words: Sequence[str], fill: str, size: float = 12) -> None:
    """A box with lines of text in its middle."""
    sheet.rect(box, fill, stroke=_LINE)
    middle, step = (box.left + box.right) / 2, 1.3 * size
    top = (box.top + box.bottom) / 2 - step * (len(words) - 1) / 2 + 0.35 * size
    for number, line in enumerate(words):
        sheet.text(Spot(middle, top + number * step, "middle"), shortened(line, size, box.right - box.left - 6), size)


def _arrow(sheet: Drawing, start: tuple[float, float], end: tuple[float, float]) -> None:
    """A line to the right or downwards with a head."""
    sheet.line(start, end, stroke=_LINE, stroke_width=1.5)
    x, y = end
    points = f"{x},{y} {x - 7},{y - 4} {x - 7},{y + 4}" if start[0] < x else f"{x},{y} {x - 4},{y - 7} {x + 4},{y - 7}"
    sheet.mark("polygon", points=points, fill=_LINE)


# Families and targets.


def _with_products() -> list[af.Target]:
    """The targets that are sold as something, oldest first."""
    targets = [af.target(name) for name in target_names() if af.target(name)["chips"].value]
    return sorted(targets, key=lambda target: (target["hardware_version"].value, target["td_generation"].value))


_LOOK_UPS: tuple[tuple[str, str, Callable[[af.Target], Fact]], ...] = (
    ("hardware version", "gives the family", lambda target: target["hardware_version"]),
    ("8-value family", "op floors, costs", lambda target: target["family8"]),
    ("descriptor generation", "words of tasks", lambda target: target["td_generation"]),
    ("5-tier family", "public limits", lambda target: target["family5"]),
    ("HAL: tensor width", "a limit", lambda target: target.hal["max_tensor_width"]),
    ("HAL: cores", "division of work", lambda target: target["cores"]),
)


def _sold_as(target: af.Target) -> str:
    """The products of a target, without the words that they share: M2, Pro, Max, Ultra."""
    first, *others = (chip.removesuffix(" Bionic") for chip in target["chips"].value)
    return ", ".join([first, *(chip.removeprefix(f"{first.split()[0]} ") for chip in others)])


def families_picture() -> str:
    """A row for each target, a column for each look-up, in which neighbours with one value share a cell."""
    targets, name, left, wide, tall = _with_products(), 60, 228, 84, 24
    sheet = Drawing(WIDTH, "Targets and their look-ups", "A row for each target, a column for each look-up.")
    sheet.text(Spot(20, 28), "Four look-ups of one name, and where their values change", 16, font_weight="bold")
    top = 92.0
    sheet.text(Spot(20, top - 12), "target, and what is sold with it", 12, font_weight="bold")
    for row, target in enumerate(targets):
        chips = _sold_as(target)
        middle = top + (row + 0.5) * tall + 4
        sheet.text(Spot(20, middle), target.name, 12, font_weight="bold")
        sheet.text(Spot(name, middle), shortened(chips, 11, left - name - 4), 11, hover=chips)
    for column, (title, use, value) in enumerate(_LOOK_UPS):
        place, row = left + column * wide, 0
        head = [*wrapped(title, 12, wide), *wrapped(use, 11, wide)]
        for line, words in enumerate(head):
            bold = {"font_weight": "bold"} if line < len(wrapped(title, 12, wide)) else {"fill": "#555555"}
            spot = Spot(place + wide / 2, top - 6 - 13 * (len(head) - 1 - line), "middle")
            sheet.text(spot, words, 11, **bold)
        for shade, (shown, same) in enumerate(groupby(targets, key=lambda target: _shown(value(target)))):
            rows = len(list(same))
            fill = "#eeeeee" if shown == "?" else _SHADES[shade % len(_SHADES)]
            box = Box(place, top + row * tall, place + wide, top + (row + rows) * tall)
            _boxed(sheet, box, [shown], fill)
            row += rows
    top = sheet.paragraph(
        top + len(targets) * tall + 10,
        "A cell is as tall as its value holds. The columns change at different targets, which is why no look-up can "
        "stand for another. ? is not published.",
    )
    return sheet.svg(top + 10)


def _shown(fact: Fact) -> str:
    return "?" if fact.value is None else str(getattr(fact.value, "name", fact.value))


# One compiler, and data.

_DECIDE = {
    "rewrite-movement": "op:gather",
    "resize-strategies": "texture_engine",
    "crop-slices": "slice_saturates",
    "discover-chains": "chaining_enable",
    "pack-kernels": "kernel_path",
    "dedicate-buffers": "l2_resident_threshold",
}
"""Facts that give examples/small.py another program, by a pass that reads them."""


def one_compiler_picture() -> str:
    """One compiler and the facts of every target; the programs that examples/small.py gets, and which facts decide."""
    programs = af.compile_all(str(EXAMPLES / "small.py"), "all")
    sheet = Drawing(WIDTH, "One compiler builds every chip", "The facts that differ, and the programs they give.")
    sheet.text(Spot(20, 28), "One compiler builds every chip; what differs is data", 16, font_weight="bold")
    _boxed(sheet, Box(20, 62, 180, 112), ["one model", "examples/small.py"], "#ffffff")
    compiler = ["one compiler", f"{len(PASSES)} passes, no chip's name in them"]
    _boxed(sheet, Box(225, 62, 505, 112), compiler, _SHADES[2])
    counts = [f"{programs.distinct} programs", f"for {len(programs)} targets"]
    _boxed(sheet, Box(550, 62, 730, 112), counts, _SHADES[3])
    fields = len(list(af.target("m1").hal.fields()))
    data = [f"tables of {len(programs)} targets: {fields} HAL fields,", f"{len(op_names())} ops, each with evidence"]
    _boxed(sheet, Box(225, 136, 505, 186), data, _SHADES[0])
    _arrow(sheet, (180, 87), (225, 87))
    _arrow(sheet, (505, 87), (550, 87))
    sheet.line((365, 136), (365, 119), stroke=_LINE, stroke_width=1.5)
    sheet.mark("polygon", points="365,112 361,119 369,119", fill=_LINE)
    return sheet.svg(_decided(sheet, programs, 226.0) + 10)


def _decided(sheet: Drawing, programs: Any, top: float) -> float:
    """A row for each distinct program: the targets that share it, the facts that decided, its layers."""
    left, wide, last = 170, 84, 56
    sheet.text(Spot(20, top + 26), "targets in one program", 12, font_weight="bold")
    for column, (reader, fact) in enumerate([*_DECIDE.items(), ("", "layers")]):
        middle = left + column * wide + (wide if reader else last) / 2
        title = wrapped(fact.replace("_", " ").replace(":", " "), 12, wide)
        for line, words in enumerate(title):
            sheet.text(Spot(middle, top + 13 * line, "middle"), words, 12, font_weight="bold")
        for line, words in enumerate(wrapped(reader.replace("-", "- "), 11, wide), len(title)):
            sheet.text(Spot(middle, top + 13 * line, "middle"), words.replace("- ", "-"), 11, fill="#555555")
    top += 48
    shades: list[dict[str, str]] = [{} for _ in _DECIDE]
    for names in programs.groups():
        program, lines = programs[names[0]], wrapped(" ".join(names), 12, left - 30)
        tall = max(26, 15 * len(lines) + 8)
        for row, line in enumerate(lines):
            sheet.text(Spot(20, top + 16 + 15 * row), line, 12)
        for column, (pass_name, fact) in enumerate(_DECIDE.items()):
            value = facts_of(program.target, PASSES[pass_name].reads).fact(fact).value
            shown = {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else str(value)
            fill = shades[column].setdefault(shown, _SHADES[len(shades[column])])
            box = Box(left + column * wide, top, left + (column + 1) * wide, top + tall)
            _boxed(sheet, box, [shown], fill)
        end = left + len(_DECIDE) * wide
        _boxed(sheet, Box(end, top, end + last, top + tall), [str(len(program.layers))], "#ffffff")
        top += tall
    if any(len(values) < 2 for values in shades):
        raise ValueError("a fact of _DECIDE is the same for every program: choose another")
    words = "Below a fact stands a pass that reads it. Targets whose facts agree get the same program."
    return sheet.paragraph(top + 10, words)


# The HAL table.


def capabilities_picture() -> str:
    """Capability bytes that differ between the Macs: set, clear or not published."""
    targets = [af.target(chip) for chip in MACS]
    rows = []
    for field in targets[0].hal.fields():
        if field.kind != "capability byte":
            continue
        values = [_bit(target, field.name) for target in targets]
        if len({value for value in values if value is not None}) > 1:
            rows.append((field.offset, field.name, values))
    left, wide, tall = 260, 70, 26
    sheet = Drawing(left + wide * len(targets) + 20, "Capability bytes", "Capability bytes that differ between Macs.")
    sheet.text(Spot(20, 28), "Capability bytes that tell the Macs apart", 16, font_weight="bold")
    top = 60.0
    for number, chip in enumerate(MACS):
        sheet.text(Spot(left + (number + 0.5) * wide, top, "middle"), chip.upper(), 12, font_weight="bold")
    top += 8
    for offset, name, values in rows:
        sheet.text(Spot(20, top + 17), f"{offset:#x} {name}", 12)
        for number, value in enumerate(values):
            box = Box(left + number * wide, top, left + (number + 1) * wide, top + tall)
            fill, word = {1: ("#bfe3c6", "set"), 0: ("#ffffff", "clear"), None: ("#e6e6e6", "?")}[value]
            _boxed(sheet, box, [word], fill, 11)
        top += tall
    top = sheet.paragraph(top + 10, "A byte is read as its lowest bit. ? is not published for this chip.")
    return sheet.svg(top + 10)


def _bit(target: af.Target, name: str) -> int | None:
    """The lowest bit of a byte, by its name: its offset depends on the build of the compiler."""
    try:
        value = target.hal[name].value
    except UnknownNameError:  # the newer build is not known to have this byte
        return None
    return None if value is None else int(value) & 1


# Routes.


def routes_picture() -> str:
    """Who hands a program to the engine, and how many ops each route takes as they are."""
    tiers = [af.target(chip)["family5"].value for chip in MACS]
    counts = {route: [_native(route, tier) for tier in tiers] for route in ("conversion", "direct")}
    sheet = Drawing(WIDTH, "Routes to the engine", "A model reaches the engine by conversion or as authored layers.")
    sheet.text(Spot(20, 28), "Two routes to the engine, three ways to run", 16, font_weight="bold")
    _boxed(sheet, Box(20, 95, 105, 145), ["your model"], "#ffffff")
    _boxed(sheet, Box(130, 55, 300, 105), ["conversion", "a model program (MIL)"], _SHADES[0])
    _boxed(sheet, Box(130, 135, 300, 185), ["direct", "native layers (netplist)"], _SHADES[1])
    _boxed(sheet, Box(335, 42, 505, 74), ["Core ML"], "#ffffff")
    _boxed(sheet, Box(335, 86, 505, 118), ["Core AI"], "#ffffff")
    _boxed(sheet, Box(335, 144, 505, 176), ["a program of its own"], "#ffffff")
    _boxed(sheet, Box(530, 60, 610, 160), ["compiler", "of the", "engine"], _SHADES[2])
    _boxed(sheet, Box(645, 85, 730, 135), ["engine"], _SHADES[3])
    for start, end in (
        ((105, 112), (130, 82)),
        ((105, 128), (130, 158)),
        ((300, 74), (335, 60)),
        ((300, 86), (335, 102)),
        ((300, 160), (335, 160)),
        ((505, 60), (530, 80)),
        ((505, 102), (530, 104)),
        ((505, 160), (530, 140)),
        ((610, 110), (645, 110)),
    ):
        _arrow(sheet, start, end)
    top, left, wide = 225.0, 190, 91
    sheet.text(Spot(20, top), f"native, of {len(op_names())} names of ops", 12, font_weight="bold")
    for number, chip in enumerate(MACS):
        sheet.text(Spot(left + (number + 0.5) * wide, top, "middle"), chip.upper(), 12, font_weight="bold")
    for shade, (route, values) in enumerate(counts.items()):
        top += 12
        sheet.text(Spot(20, top + 17), route, 12)
        for number, value in enumerate(values):
            box = Box(left + number * wide, top, left + (number + 1) * wide - 8, top + 24)
            sheet.rect(box, "#f4f4f4", stroke=_LINE)
            share = box.left + (box.right - box.left) * value / len(op_names())
            sheet.rect(Box(box.left, box.top, share, box.bottom), _SHADES[shade], stroke=_LINE)
            sheet.text(Spot((box.left + box.right) / 2, top + 16, "middle"), str(value), 12)
        top += 20
    top = sheet.paragraph(top + 18, "An op that is not native may still run: rewritten into others, or on the host.")
    return sheet.svg(top + 10)


def _native(route: str, tier: Any) -> int:
    family = af.Family[tier] if isinstance(tier, str) else tier
    routes = (getattr(op_routes(name), route) for name in op_names())
    return sum(1 for by_family in routes if by_family and family in by_family and by_family[family].value == "native")


# The phases.

_PHASES = ("legal", "fuse", "legalise", "schedule", "memory")


def phases_picture() -> str:
    """The phases from top to bottom, with what each did for examples/small.py on two chips."""
    sheet = Drawing(WIDTH, "The phases of the compiler", "Each phase with what it did for one network on two chips.")
    sheet.text(Spot(20, 28), "What each phase does to examples/small.py", 16, font_weight="bold")
    left, wide, gap, top = 190.0, 260.0, 20.0, 56.0
    logs = {}
    for number, chip in enumerate(("M1", "M5")):
        program = _compiled(chip.lower())
        head = f"on {chip}: {len(program.layers)} layers"
        sheet.text(Spot(left + number * (wide + gap) + 8, top), head, 14, font_weight="bold")
        logs[chip] = [[log for log in program.log if log.phase == phase] for phase in range(len(_PHASES))]
    top += 10
    for number, phase in enumerate(_PHASES):
        changed = {
            chip: [f"{log.name}: {log.changes}" for log in of_chip[number] if log.changes]
            for chip, of_chip in logs.items()
        }
        tall = 32 + 16 * max(map(len, changed.values()))
        _boxed(sheet, Box(20, top, 170, top + tall), [f"phase {number}: {phase}"], _SHADES[number], 13)
        for column, (chip, lines) in enumerate(changed.items()):
            place = left + column * (wide + gap)
            sheet.rect(Box(place, top, place + wide, top + tall), "#ffffff", stroke=_LINE)
            first, last = logs[chip][number][0], logs[chip][number][-1]
            head = f"{first.ops_before} ops in, {last.ops_after} out"
            sheet.text(Spot(place + 8, top + 18), head, 12, font_weight="bold")
            for row, line in enumerate(lines):
                sheet.text(Spot(place + 8, top + 36 + 16 * row), shortened(line, 12, wide - 12), 12)
        if number + 1 < len(_PHASES):
            _arrow(sheet, (95, top + tall), (95, top + tall + 14))
        top += tall + 14
    top = sheet.paragraph(top, "Numbers behind a pass count its changes. Stored weights are counted as ops.")
    return sheet.svg(top + 10)


def _compiled(chip: str) -> af.Program:
    return af.compile_all(str(EXAMPLES / "small.py"), chip)[chip.upper()]


# Numerics.

_STEPS = (
    ("fp16 inputs", "and weights"),
    ("product", "exact"),
    ("rounded", "to 2^-16, half away from 0"),
    ("sum", "exact: Q15.16"),
    ("at 2^15", "infinite for good"),
    ("fp16", "one rounding"),
)
_SWITCHES = {
    "tile_losses": "four terms add in fp16 from 4096 on",
    "one_channel_planar": "one input channel: no accumulator",
    "winograd": "3 x 3 convolutions by Winograd",
    "int8_sums": "8-bit layers summed as integers",
    "scaled_code_sums": "4-bit codes summed, scaled at the end",
    "reciprocal_divide": "division by a rounded reciprocal",
}


def accumulator_picture() -> str:
    """The path of a product through the accumulator, and which chips leave it where."""
    arithmetic = store.load("choices")["arithmetic"]
    sheet = Drawing(WIDTH, "The accumulator", "Steps of a sum of products, and what differs between chips.")
    sheet.text(Spot(20, 28), "One output of a convolution or matrix product", 16, font_weight="bold")
    wide, gap, top = 110.0, 10.0, 46.0
    for number, words in enumerate(_STEPS):
        box = Box(20 + number * (wide + gap), top, 20 + number * (wide + gap) + wide, top + 68)
        lines = [line for part in words for line in wrapped(part, 11, wide - 6)]
        _boxed(sheet, box, lines, _SHADES[number], 11)
        if number:
            _arrow(sheet, (box.left - gap, top + 34), (box.left, top + 34))
    top, left, column = 152.0, 394.0, 56.0
    sheet.text(Spot(20, top), "What differs between chips", 14, font_weight="bold")
    for number, chip in enumerate(MACS):
        sheet.text(Spot(left + (number + 0.5) * column, top, "middle"), chip.upper(), 12, font_weight="bold")
    top += 10
    for key, words in _SWITCHES.items():
        record = arithmetic[key]
        sheet.text(Spot(20, top + 17), words, 12)
        label = f"{record['conf']}{', ' + record['conflict'] if record['conflict'] else ''}"
        sheet.text(Spot(left - 12, top + 17, "end"), label, 11, fill="#555555")
        for number, chip in enumerate(MACS):
            yes = af.target(chip)["td_generation"].value in record["generations"]
            box = Box(left + number * column, top, left + (number + 1) * column, top + 26)
            _boxed(sheet, box, ["yes" if yes else "no"], "#bfe3c6" if yes else "#ffffff", 11)
        top += 26
    top = sheet.paragraph(
        top + 10,
        "yes and no are what the simulator does. The label is that of the chips on which the fact was seen; a chip "
        "that nobody measured follows its generation.",
    )
    return sheet.svg(top + 10)


# Tasks and containers.


def container_picture() -> str:
    """The sections of examples/conv.hwx, and the commands of its one task."""
    container = read_container(str(EXAMPLES / "conv.hwx"))
    task = container.tasks[0]
    by_name = {port.name: port for port in container.ports}
    ports = {binding.address: by_name[binding.name] for binding in container.bindings if binding.name in by_name}
    sheet = Drawing(WIDTH, "A container", "The sections of a compiled program and the parts of its task.")
    sheet.text(Spot(20, 28), f"examples/conv.hwx: a convolution for {container.generation}", 16, font_weight="bold")
    roles = {"__text": "the tasks, one after another", "__const": "weights, a stream for each core"}
    top = 46.0
    for shade, section in enumerate(container.sections):
        inside = section.offset > 0
        port = ports.get(section.address)
        words = f"{section.segment},{section.name}"
        use = roles.get(section.name, "") if inside else f"{port.role} {port.name}" if port else "of the caller"
        box = Box(20, top, 380, top + 48)
        _boxed(sheet, box, [words, f"{section.size:,} bytes: {use}"], _SHADES[shade] if inside else "#f4f4f4")
        if section.name == "__text":
            _arrow(sheet, (380, top + 24), (430, top + 24))
            _task(sheet, 430, top, _parts(task))
        top += 58
    top = sheet.paragraph(top + 4, "Grey: buffers of the caller, with an address and without bytes in the file.")
    return sheet.svg(max(top, 46 + 58 * 2 + 26 * 8) + 10)


def _parts(task: Any) -> list[str]:
    """The blocks of a task in order, with the number of words that each has."""
    blocks = [name.partition(".")[0] for name in task.registers]
    named = {block: sum(1 for other in blocks if other == block) for block in dict.fromkeys(blocks)}
    return [f"header: {len(task.header_words)} words"] + [f"{block}: {count} fields" for block, count in named.items()]


def _task(sheet: Drawing, left: float, top: float, parts: Iterable[str]) -> None:
    for number, part in enumerate(parts):
        _boxed(sheet, Box(left, top + 26 * number, left + 300, top + 26 * (number + 1)), [part], "#ffffff", 11)
