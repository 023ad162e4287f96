"""The register maps of all generations against each other, against the published programs and against table 35.5."""

from __future__ import annotations

from itertools import pairwise

import pytest
from container_kit import NAMES, SUBTYPES, assembled, example

from aneforge.chips import store
from aneforge.codegen.dialect import NAMES as MEANINGS
from aneforge.codegen.dialect import meaning_of, resolved
from aneforge.codegen.registers import generation_of, generations, register_map
from aneforge.codegen.tasks import header_fields

PATCH_WIDTH = {7: "0x200", 8: "0x224", 10: "0x12c", 11: "0x21c", 17: "0x23c", 19: "0x248", 20: "0x26c"}
"""Table 35.5: the offset of the patch width in the descriptor, by generation of descriptors."""


@pytest.mark.parametrize("generation", generations())
def test_no_two_fields_share_a_bit(generation):
    for block in register_map(generation).blocks.values():
        for register in block.registers:
            ordered = sorted(register.fields, key=lambda field: field.lsb)
            for field in ordered:
                assert field.width > 0, (register.name, field)
                assert field.lsb + field.width <= 32, (register.name, field)
            for below, above in pairwise(ordered):
                assert not below.mask & above.mask, (block.name, register.name, below, above)
            names = [field.name for field in register.fields]
            assert len(set(names)) == len(names), register.name


@pytest.mark.parametrize("generation", SUBTYPES)
def test_no_two_fields_of_a_header_share_a_bit(generation):
    for fields in header_fields(generation):
        for below, above in pairwise(sorted(fields, key=lambda field: field.lsb)):
            assert not below.mask & above.mask, (below, above)


@pytest.mark.parametrize("generation", ["h16", "h17"])
def test_the_published_overlap_stays_visible(generation):
    register = register_map(generation).register("TileDMASrc", "TextureConfig")
    assert register.field("Filter").width == 1
    assert "bits 12 to 14" in register.field("Filter").meaning
    assert "overlapping fields as published" in register.note
    rows = store.load("registers")["registers"][f"{generation} TileDMASrc"]
    (row,) = [row for row in rows if row["name"] == "TextureConfig"]
    assert ["Filter", 12, 3] in [field[:3] for field in row["fields"]]


@pytest.mark.parametrize("generation", generations())
def test_blocks_lie_apart(generation):
    blocks = [block for block in register_map(generation).blocks.values() if block.base is not None]
    runs = sorted((block.registers[0].address or 0, block.registers[-1].address or 0, block.name) for block in blocks)
    for (_, last, name), (first, _, other) in pairwise(runs):
        assert last < first, (name, other)
    labels = [(block.name, register.label) for block in blocks for register in block.registers]
    assert len(set(labels)) == len(labels)


def test_numbers_of_the_header_name_generations_once():
    assert {generation: generation_of(number) for generation, number in SUBTYPES.items()} == {
        generation: generation for generation in SUBTYPES
    }
    assert generation_of(2) is None
    for generation in generations():
        assert register_map(generation).cpusubtype == SUBTYPES[generation]


@pytest.mark.parametrize("generation", generations())
def test_a_meaning_is_a_field_of_its_own_generation_or_nothing(generation):
    known = register_map(generation)
    found = {meaning: resolved(generation, meaning) for meaning in MEANINGS}
    for meaning, place in found.items():
        if place is None:
            names = [name.split(".") for name in MEANINGS[meaning]]
            for block, register, *field in names:
                row = known.blocks[block].by_name.get(register) if block in known.blocks else None
                assert row is None or (field and field[0] not in [part.name for part in row.fields]), meaning
        else:
            register, field = place
            assert known.blocks[register.block].by_name[register.name] is register
            assert field is None or field in register.fields
    words = [(place[0].block, place[0].name, place[1]) for place in found.values() if place]
    assert len(set(words)) == len(words), "two meanings in the same bits"


def test_patch_widths_are_those_of_the_table():
    records = {row["generation"]: row for row in store.load("td_generations")["generations"]}
    stated = {number: row["patch_width_offset"]["v"] for number, row in records.items()}
    assert {number: offset for number, offset in stated.items() if offset} == {
        number: f"desc+{offset}" for number, offset in PATCH_WIDTH.items()
    }


@pytest.mark.parametrize("generation", generations())
def test_only_generations_with_patches_write_them(generation):
    """And each in its own register: the defect that is reported of generation 7 (C31), which writes the reflect bit by
    the layout of generation 8, is not reproduced."""
    known = register_map(generation)
    place = resolved(generation, "patch.width")
    assert (place is not None) == (known.descriptor in PATCH_WIDTH)
    if place is not None:
        assert known.by_address[place[0].address or 0] is place[0]
    reflect = [field for block in known.blocks.values() for row in block.registers for field in row.fields]
    names = [field.name for field in reflect if "reflect" in field.name.casefold()]
    assert generation != "h13" or not names, "h13 has no published reflect bit, so that none is written"


@pytest.mark.parametrize("name", NAMES)
def test_every_relocation_of_a_published_program_lands_in_its_field(name):
    container = assembled(name)
    known = register_map(container.generation).by_address
    relocated = [command for task in container.tasks for command in task.commands if command.bar is not None]
    for command in relocated:
        register = known[command.address]
        assert any(part in register.name for part in ("BaseAddr", "DMAConfig", "DataSet")), register.name
        if "BaseAddr" in register.name:
            assert len(command.values) == 2
            assert register.name.endswith("Lo")
            assert known[command.address + 4].name == register.name[:-2] + "Hi"
        else:
            assert len(command.values) == 1
    text = container.text
    words = list(container.contents(text).data.cast("I"))
    entries = container.relocations(text)
    assert bool(entries) == (container.generation == "h13" and "add" not in name)
    for entry in entries:
        task = max((task for task in container.tasks if task.offset <= entry.offset), key=lambda task: task.offset)
        place = (entry.offset - task.offset) // 4 - len(task.header_words)
        for command in task.commands:
            if place <= len(command.values):
                register = known[command.places[place - 1]]
                assert register.name.startswith("CoeffBaseAddr")
                assert words[entry.offset // 4] == command.values[place - 1]
                break
            place -= 1 + len(command.values)


def test_one_network_means_the_same_in_every_generation():
    adds = [assembled(f"{generation}__binary_add_1x3x224x224").tasks[0] for generation in ("h14", "h16", "h17", "h18")]
    shape = example("h14__binary_add_1x3x224x224")["tensors"][0]
    for meaning, wanted in (
        ("in.channels", shape["shape"][1]),
        ("out.height", shape["shape"][2]),
        ("in.width", shape["shape"][3]),
        ("source.row", shape["strides"][2]),
        ("second.plane", shape["strides"][1]),
        ("result.plane", shape["strides"][1]),
        ("planar.operation", 0),
    ):
        found = {meaning_of(task, meaning) for task in adds} - {None}
        assert found == {wanted}, (meaning, found)
