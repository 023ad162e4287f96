"""The page of devices: every model by name and identifier, its chip and both names of the engine."""

from __future__ import annotations

from aneforge.chips.devices import Device, all_devices, chip_records
from aneforge.chips.names import engine_names
from aneforge.errors import UnknownNameError


def devices() -> str:
    """The page: chips with their engine names first, then devices by kind."""
    lines = [
        "# Devices and their chips",
        "",
        'Every name and identifier on this page is a target: `aneforge check MODEL --target "iPhone 15 Pro"` or '
        "`--target Mac18,5`. `aneforge targets NAME` shows the evidence.",
        "",
        "## Engine names",
        "",
        "The system reports one name and a compiler is given another (C71, C84). Where the tables used are those of "
        "another target than the compile name, that is choice U190.",
        "",
        "| chip | T number | reported by the system | given to a compiler | tables used here |",
        "| --- | --- | --- | --- | --- |",
        *(_chip_row(name) for name in chip_records()),
    ]
    kinds = list(dict.fromkeys(device.kind for device in all_devices()))
    for kind in kinds:
        title = {"tv": "TV", "mac": "Mac"}.get(kind, kind.capitalize())
        lines += [
            "",
            f"## {title}",
            "",
            "| name | identifier | chip | year | memory (GB) |",
            "| --- | --- | --- | --- | --- |",
        ]
        lines += [_row(device) for device in all_devices() if device.kind == kind]
    return "\n".join(lines) + "\n"


def _chip_row(name: str) -> str:
    record = chip_records()[name]
    numbers = ", ".join(number.upper() for number in record.t_numbers)
    try:
        facts = list(engine_names(name).values())
    except (KeyError, UnknownNameError):
        return f"| {name} | {numbers} | - | - | none: {record.note} |"
    cells = [facts[0], facts[1], facts[-1]]
    shown = [f"{fact.value} {fact.label()}" if fact.known else "not published" for fact in cells]
    return f"| {name} | {numbers} | {' | '.join(shown)} |"


def _row(device: Device) -> str:
    memory = ", ".join(map(str, device.memory_gb.value)) if device.memory_gb.known else "-"
    return f"| {device.name} | `{device.identifier}` | {device.chip} | {device.year} | {memory} |"
