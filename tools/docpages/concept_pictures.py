"""The pictures of ``docs/concepts/``, drawn from the data of the targets, a compiled example and a container.

Only the boxes of how things follow each other are set by hand; every number and every cell comes from a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import aneforge as af
from aneforge.codegen import read_container
from aneforge.errors import UnknownNameError
from aneforge.output.svg import Box, Drawing, Spot, shortened
from aneforge.targets import Fact, op_names, op_routes, store, target_names

__all__ = [
    "accumulator_picture",
    "capabilities_picture",
    "container_picture",
    "families_picture",
    "phases_picture",
    "routes_picture",
]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
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
    ("hardware version", "gives the family below", lambda target: target["hardware_version"]),
    ("8-value family", "op floors, cost bucket", lambda target: target["family8"]),
    ("descriptor generation", "how tasks are written", lambda target: target["td_generation"]),
    ("5-tier family", "public limits, streams", lambda target: target["family5"]),
    ("HAL: tensor width", "limits and routes", lambda target: target.hal["max_tensor_width"]),
    ("HAL: engine cores", "division of work", lambda target: target["cores"]),
)


def families_picture() -> str:
    """Targets side by side; a row for each look-up, in which neighbours with one value share a cell."""
    targets, left, wide, tall = _with_products(), 160, 70, 40
    sheet = Drawing(left + wide * len(targets) + 20, "Targets and their look-ups", "One row for each look-up.")
    sheet.text(Spot(20, 28), "Four look-ups of one name, and where their values change", 16, font_weight="bold")
    top = 48.0
    for number, target in enumerate(targets):
        column = Box(left + number * wide, top, left + (number + 1) * wide, top + 74)
        chips = [chip.removesuffix(" Bionic") for chip in target["chips"].value]
        _boxed(sheet, column, [target.name, *chips[:4]], "#ffffff", 11)
    sheet.text(Spot(20, top + 34), "compiler target", 12, font_weight="bold")
    sheet.text(Spot(20, top + 50), "and what is sold with it", 11, fill="#555555")
    top += 74
    for title, use, value in _LOOK_UPS:
        sheet.text(Spot(20, top + 18), title, 12, font_weight="bold")
        sheet.text(Spot(20, top + 33), use, 11, fill="#555555")
        place = left
        for shade, (shown, same) in enumerate(groupby(targets, key=lambda target: _shown(value(target)))):
            width = wide * len(list(same))
            fill = "#eeeeee" if shown == "?" else _SHADES[shade % len(_SHADES)]
            _boxed(sheet, Box(place, top, place + width, top + tall), [shown], fill)
            place += width
        top += tall
    top = sheet.paragraph(
        top + 10,
        "A cell is as wide as its value holds. The boundaries of the rows lie in different places, which is why no "
        "look-up can stand for another. ? is not published.",
    )
    return sheet.svg(top + 10)


def _shown(fact: Fact) -> str:
    return "?" if fact.value is None else str(getattr(fact.value, "name", fact.value))


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
    left, wide, tall = 250, 70, 26
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
    sheet = Drawing(860, "Routes to the engine", "A model reaches the engine by conversion or as authored layers.")
    sheet.text(Spot(20, 28), "Two routes to the engine, three ways to run", 16, font_weight="bold")
    _boxed(sheet, Box(20, 95, 140, 145), ["your model"], "#ffffff")
    _boxed(sheet, Box(180, 55, 370, 105), ["conversion", "a model program (MIL)"], _SHADES[0])
    _boxed(sheet, Box(180, 135, 370, 185), ["direct", "native layers (netplist)"], _SHADES[1])
    _boxed(sheet, Box(420, 42, 575, 74), ["Core ML"], "#ffffff")
    _boxed(sheet, Box(420, 86, 575, 118), ["Core AI"], "#ffffff")
    _boxed(sheet, Box(420, 144, 575, 176), ["a program of its own"], "#ffffff")
    _boxed(sheet, Box(620, 60, 700, 160), ["compiler", "of the", "engine"], _SHADES[2])
    _boxed(sheet, Box(750, 85, 840, 135), ["engine"], _SHADES[3])
    for start, end in (
        ((140, 112), (180, 82)),
        ((140, 128), (180, 158)),
        ((370, 74), (420, 60)),
        ((370, 86), (420, 102)),
        ((370, 160), (420, 160)),
        ((575, 60), (620, 80)),
        ((575, 102), (620, 104)),
        ((575, 160), (620, 140)),
        ((700, 110), (750, 110)),
    ):
        _arrow(sheet, start, end)
    top, left, wide = 225.0, 260, 95
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
    """The phases as boxes, with what each did for examples/small.py on two chips."""
    sheet = Drawing(1100, "The phases of the compiler", "Each phase with what it did for one network on two chips.")
    sheet.text(Spot(20, 28), "What each phase does to examples/small.py", 16, font_weight="bold")
    wide, gap, left, top = 178.0, 16.0, 110.0, 46.0
    for number, phase in enumerate(_PHASES):
        box = Box(left + number * (wide + gap), top, left + number * (wide + gap) + wide, top + 40)
        _boxed(sheet, box, [f"phase {number}: {phase}"], _SHADES[number], 13)
        if number:
            _arrow(sheet, (box.left - gap, top + 20), (box.left, top + 20))
    top += 52
    for chip in ("M1", "M5"):
        program = _compiled(chip.lower())
        columns = [[log for log in program.log if log.phase == number] for number in range(len(_PHASES))]
        changed = [[f"{log.name}: {log.changes}" for log in logs if log.changes] for logs in columns]
        tall = 34 + 16 * max(map(len, changed))
        sheet.text(Spot(20, top + 20), f"on {chip}", 14, font_weight="bold")
        for number, (logs, lines) in enumerate(zip(columns, changed, strict=True)):
            place = left + number * (wide + gap)
            sheet.rect(Box(place, top, place + wide, top + tall), "#ffffff", stroke=_LINE)
            head = f"{logs[0].ops_before} ops in, {logs[-1].ops_after} out"
            sheet.text(Spot(place + 8, top + 18), head, 12, font_weight="bold")
            for row, line in enumerate(lines):
                sheet.text(Spot(place + 8, top + 36 + 16 * row), shortened(line, 11, wide - 12), 11)
        sheet.text(Spot(20, top + 38), f"{len(program.layers)} layers", 12)
        top += tall + 12
    top = sheet.paragraph(top, "Numbers behind a pass count its changes. Stored weights are counted as ops.")
    return sheet.svg(top + 10)


def _compiled(chip: str) -> af.Program:
    return af.compile_all(str(EXAMPLES / "small.py"), chip)[chip.upper()]


# Numerics.

_STEPS = (
    ("fp16 inputs", "and weights"),
    ("product", "exact"),
    ("rounded to 2^-16", "ties away from 0"),
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
    sheet = Drawing(920, "The accumulator", "Steps of a sum of products, and what differs between chips.")
    sheet.text(Spot(20, 28), "One output of a convolution or matrix product", 16, font_weight="bold")
    wide, gap, top = 130.0, 18.0, 46.0
    for number, words in enumerate(_STEPS):
        box = Box(20 + number * (wide + gap), top, 20 + number * (wide + gap) + wide, top + 48)
        _boxed(sheet, box, words, _SHADES[number])
        if number:
            _arrow(sheet, (box.left - gap, top + 24), (box.left, top + 24))
    top, left, column = 132.0, 420.0, 76.0
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
    sheet = Drawing(860, "A container", "The sections of a compiled program and the parts of its task.")
    sheet.text(Spot(20, 28), f"examples/conv.hwx: a convolution for {container.generation}", 16, font_weight="bold")
    roles = {"__text": "the tasks, one after another", "__const": "weights, a stream for each core"}
    top = 46.0
    for shade, section in enumerate(container.sections):
        inside = section.offset > 0
        port = ports.get(section.address)
        words = f"{section.segment},{section.name}"
        use = roles.get(section.name, "") if inside else f"{port.role} {port.name}" if port else "of the caller"
        box = Box(20, top, 400, top + 48)
        _boxed(sheet, box, [words, f"{section.size:,} bytes: {use}"], _SHADES[shade] if inside else "#f4f4f4")
        if section.name == "__text":
            _arrow(sheet, (400, top + 24), (450, top + 24))
            _task(sheet, 450, top, _parts(task))
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
        _boxed(sheet, Box(left, top + 26 * number, left + 260, top + 26 * (number + 1)), [part], "#ffffff", 11)
