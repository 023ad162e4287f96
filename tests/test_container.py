"""Containers: the published examples both ways, and any well-formed file written back byte for byte."""

from __future__ import annotations

import struct

import pytest
from container_kit import (
    NAMES,
    SUBTYPES,
    File,
    Piece,
    assembled,
    command,
    example,
    indexed,
    plain,
    small_file,
    words_of,
)
from hypothesis import given
from hypothesis import strategies as st

from aneforge.codegen.anec import read_anec
from aneforge.codegen.bounds import LONGEST_NAME, ContainerError
from aneforge.codegen.container import read_container
from aneforge.codegen.load_commands import NOTE, Note
from aneforge.codegen.stream import Command, decode, encode, grouped
from aneforge.errors import AneforgeError


@pytest.mark.parametrize("name", NAMES)
def test_published_tasks_come_back_word_for_word(name):
    document = example(name)
    container = read_container(assembled(name).to_bytes())
    assert container.generation == document["target"]
    assert container.header.cpusubtype == document["cpusubtype"]
    assert len(container.tasks) == len(document["tasks"])
    for task, published in zip(container.tasks, document["tasks"], strict=True):
        words = words_of(published)
        assert task.words == words
        assert task.header_words == words[: published["header"]]
        stream = words[published["header"] :]
        assert encode(decode(stream, container.generation, 0), container.generation) == stream
        assert [len(command.values) for command in task.commands] == [count for _, count in published["commands"]]
        assert all(register is not None for _, _, register in task.written())


@pytest.mark.parametrize("name", NAMES)
def test_published_descriptors_are_read(name):
    document = example(name)
    container = read_container(assembled(name).to_bytes())
    facts = document["program_descriptor"]
    if not facts:
        pytest.skip("the source gives no descriptor of this example")
    program = container.program
    assert len(program.state.to_bytes()) == facts["command_size"]
    assert program.task_count == facts["task_count"]
    bars = {int(number): int(address, 16) for number, address in facts.get("bars", {}).items()}
    named = {0: "text_address", 1: "const_address"}
    bars |= {number: int(facts[key], 16) for number, key in named.items() if key in facts}
    bars |= {4 + place: int(address, 16) for place, address in enumerate(facts.get("bar4_up", ()))}
    assert bars
    assert {number: program.bars[number] for number in bars} == bars
    for port, tensor in zip(container.ports, document["tensors"], strict=True):
        assert port.role.startswith(tensor["role"])
        assert list(port.shape) == tensor["shape"]
        assert list(port.strides) == tensor["strides"]
        assert (port.element_code, port.total_bytes) == (tensor["elem_code"], tensor["total_bytes"])


@pytest.mark.parametrize("name", NAMES)
def test_reading_everything_leaves_the_bytes_alone(name):
    data = assembled(name).to_bytes()
    container = read_container(data)
    assert container.to_bytes() == data
    container.to_json()
    assert container.to_bytes() == data


ORDERS, FEW = st.integers(0, 20), st.integers(0, 3)
GENERATIONS = st.sampled_from(list(SUBTYPES))


@st.composite
def files(draw) -> File:
    """Any order of commands, gaps of any bytes, several kernel sections, debugging, scratch, unknown commands."""
    some, gap = st.binary(min_size=1, max_size=200), st.binary(max_size=9)
    pieces = [Piece(f"__KERN_{number}", f"__kern_{number}", draw(some), draw(gap)) for number in range(draw(FEW))]
    pieces += [Piece("__DEBUG", "__debug_info", draw(some))] if draw(st.booleans()) else []
    pieces += [Piece("__DATA", "__bss", size=draw(st.integers(1, 1 << 20)))] if draw(st.booleans()) else []
    extra = [command(draw(st.sampled_from([8, 0x77, 0x1B])), draw(some)) for _ in range(draw(FEW))]
    names = st.text("abcé_./", min_size=1, max_size=20)
    ports = [(name, 1 + place % 2, (1, 2, 3, 4)) for place, name in enumerate(draw(st.lists(names, max_size=3)))]
    kinds = st.sampled_from([0xF, 0x80, 0x20])
    symbols = [(draw(names), draw(kinds), place) for place in range(draw(FEW))]
    return small_file(
        draw(GENERATIONS),
        draw(st.integers(1, 4)),
        pieces=draw(st.permutations(pieces)),
        extra=extra,
        ports=ports,
        old_ports=draw(st.booleans()),
        symbols=symbols,
        tail=draw(st.binary(max_size=30)),
        order=draw(ORDERS),
    )


@given(files())
def test_any_well_formed_file_is_written_back(file):
    data = file.to_bytes()
    container = read_container(data)
    assert container.to_bytes() == data
    assert len(container.tasks) == file.task_count
    assert container.to_bytes() == data, "after its tasks were read"
    for found in (container.bindings, container.ports):
        assert sorted(part.name for part in found) == sorted(name for name, _, _ in file.ports)
    assert sorted(symbol.name for symbol in container.symbols) == sorted(name for name, _, _ in file.symbols)
    kernels = b"".join(piece.data for piece in file.pieces if piece.segment.startswith("__KERN_"))
    assert sorted(container.constants) == sorted(kernels)


@pytest.mark.parametrize("generation", SUBTYPES)
def test_every_generation_is_read_to_its_writes(generation):
    container = read_container(small_file(generation, 3).to_bytes())
    assert container.generation == generation
    assert [task.header["TID"] for task in container.tasks] == [0, 1, 2]
    for task in container.tasks:
        assert task.writes == [(0, 1), (4, 2), (8, 3)]
        assert list(task.registers.values()).count(0) < len(task.registers)


def test_words_of_h12_are_unknown_and_still_there():
    (task,) = read_container(small_file("h12", 1).to_bytes()).tasks
    assert task.registers == {"unknown.0x00000": 1, "unknown.0x00004": 2, "unknown.0x00008": 3}


def test_blocks_of_h11_are_named_by_their_order():
    kernel = [100 + number for number in range(40)]
    common = [200 + number for number in range(13)]
    body = plain(0x1F800, kernel) + plain(0, common)
    (task,) = read_container(small_file("h11", 1, body=body).to_bytes()).tasks
    blocks = [register.block if register else None for _, _, register in task.written()]
    assert blocks == ["KernelDMASrc"] * 40 + ["Common"] * 13
    assert len({name.split(".")[0] for name in task.registers}) == 9, "eight kernel blocks, each with its own name"


def test_a_stream_of_h11_in_another_order_is_unknown():
    (task,) = read_container(small_file("h11", 1, body=plain(0, [1, 2, 3])).to_bytes()).tasks
    assert [register for _, _, register in task.written()] == [None, None, None]


def test_no_written_word_is_lost_from_the_names():
    """Reserved words share a published name, and bits of no field have none."""
    from aneforge.codegen.registers import register_map

    block = register_map("h16").blocks["TileDMASrc"]
    reserved = [register for register in block.registers if register.name == "TileDmaSrcReserved"]
    body = [
        word for number, register in enumerate(reserved[:5]) for word in indexed(register.address or 0, [number + 1])
    ]
    (task,) = read_container(small_file("h16", 1, body=body).to_bytes()).tasks
    assert sorted(task.registers.values()) == [1, 2, 3, 4, 5]
    texture = register_map("h16").register("Common", "ChannelCfg")
    (task,) = read_container(small_file("h16", 1, body=indexed(texture.address or 0, [0xFFFFFFFF])).to_bytes()).tasks
    fields = {name: value for name, value in task.registers.items() if name.endswith("unknown_bits")}
    assert list(fields.values()) == [texture.unknown_bits]


@given(st.lists(st.tuples(st.integers(0, 0x7FFF), st.integers(0, 0xFFFFFFFF)), min_size=1, max_size=90))
def test_grouped_writes_say_the_same(writes):
    writes = sorted({4 * address: value for address, value in writes}.items())
    commands = grouped(writes)
    assert [write for command in commands for write in command.writes()] == writes
    words = encode(commands, "h16")
    assert [(c.address, c.values, c.mask, c.bar) for c in decode(words, "h16", 0)] == [
        (c.address, c.values, c.mask, c.bar) for c in commands
    ]


@given(st.lists(st.integers(0, 0xFFFFFFFF), min_size=1, max_size=60), st.sampled_from(["h11", "h13", "h14", "h18"]))
def test_any_stream_that_decodes_is_written_back(words, generation):
    try:
        commands = decode(words, generation, 0)
    except ContainerError:
        return
    assert encode(commands, generation) == words


def test_a_high_base_register_is_read_whole():
    (found,) = decode(indexed(0x100, [7, 8], bar=37), "h16", 0)
    assert (found.bar, found.extra, found.values) == (37, 0, [7, 8])
    assert Command(0, [1, 2], mask=1).places == (0, 4)


def test_a_section_of_the_caller_has_no_bytes_whatever_its_offset():
    """The flags say that it is an input, an output or scratch; an offset beside them claims nothing."""
    data = bytearray(small_file("h13", 1, pieces=[Piece("__DATA", "__bss", size=1 << 30)]).to_bytes())
    place = data.index(b"__bss\0")
    struct.pack_into("<I", data, place + 48, 0x4000)
    struct.pack_into("<I", data, place + 64, 0x25)
    container = read_container(bytes(data))
    section = container.section("__bss")
    assert section is not None
    assert not section.has_bytes
    assert len(container.contents(section)) == 0
    assert container.to_bytes() == data


def test_a_load_command_of_any_length_is_kept():
    odd = struct.pack("<II", 8, 8 + 5) + b"note\0"
    file = small_file("h13", 1, extra=[odd])
    container = read_container(file.to_bytes())
    assert container.note == "note"
    assert container.to_bytes() == file.to_bytes()


# Changes.


def test_a_changed_task_is_written():
    container = read_container(assembled("h16__unary_sigmoid_c64").to_bytes())
    before = container.to_bytes()
    container.tasks[0].commands[0].values[0] ^= 1
    container.tasks[0].header_words[1] = 77
    after = container.to_bytes()
    assert len(after) == len(before)
    assert after != before
    again = read_container(after)
    assert again.tasks[0].header["ExeCycles"] == 77
    assert again.tasks[0].writes == container.tasks[0].writes


def test_a_task_that_grew_is_refused():
    container = read_container(assembled("h16__unary_sigmoid_c64").to_bytes())
    container.tasks[0].commands.append(Command(0, [1]))
    with pytest.raises(ContainerError, match="there is room for"):
        container.to_bytes()


def test_a_changed_section_is_written():
    container = read_container(assembled("h13__conv_k3_c64_n64_s8_bias0").to_bytes())
    section = container.section("__const", "__TEXT")
    assert section is not None
    data = bytes(range(256)) * (section.size // 256)
    container.replace_contents(section, data)
    assert read_container(container.to_bytes()).constants == data
    with pytest.raises(ContainerError, match="do not fit"):
        container.replace_contents(section, b"short")
    text = bytearray(container.contents(container.text).data)
    assert container.tasks[0].header["TID"] == 0
    text[0] = 9
    container.replace_contents(container.text, bytes(text))
    assert container.tasks[0].header["TID"] == 9


def test_a_note_is_added_where_zeros_leave_room():
    container = read_container(assembled("h14__binary_add_1x3x224x224").to_bytes())
    container.commands.append(Note(NOTE, b"made by a test\0\0"))
    again = read_container(container.to_bytes())
    assert again.note == "made by a test"
    assert again.tasks[0].words == container.tasks[0].words
    tight = read_container(small_file("h13").to_bytes())
    tight.commands.append(Note(NOTE, b"no room "))
    with pytest.raises(ContainerError, match="room up to"):
        tight.to_bytes()


# The Linux driver.


@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("h13")])
def test_anec_and_back(name):
    container = assembled(name)
    data = container.to_anec()
    anec = read_anec(data)
    assert anec.to_bytes() == data
    size, first, count, text, constants, sources, results = struct.unpack_from("<QIIQQII", data)
    assert len(data) == 0x1000 + size == 0x1000 + -(-text // 16) * 16 + constants
    assert data[0x1000 + -(-text // 16) * 16 :] == container.constants == anec.constants
    assert (first, count) == (4 * len(container.tasks[0].words), len(container.tasks))
    assert (sources, results) == tuple(sum(p.role == role for p in container.ports) for role in ("input", "output"))
    for task, other in zip(anec.tasks, container.tasks, strict=True):
        assert task.writes == other.writes
    tiles = struct.unpack_from("<32I", data, 40)
    assert tiles[0] == -(-size // 0x4000)
    assert tiles[3] == (1 if "matmul" in name else 0)


def test_anec_numbers_outputs_before_inputs():
    """The driver binds outputs from 4 on, then inputs; the container of y = x + z has x, y, z at 4, 5, 6."""
    container = assembled("h13__binary_add_1x64x8x8")
    anec = read_anec(container.to_anec())
    before, after = container.tasks[0].header, anec.tasks[0].header
    assert [before[key] for key in ("RBase0", "RBase1", "WBase")] == [4, 6, 5]
    assert [after[key] for key in ("RBase0", "RBase1", "WBase")] == [5, 6, 4]
    assert {key: value for key, value in before.items() if not key.endswith(("Base", "Base0", "Base1"))} == {
        key: value for key, value in after.items() if not key.endswith(("Base", "Base0", "Base1"))
    }
    assert [(port.role, port.bar, port.shape) for port in anec.ports] == [
        ("output", 4, (1, 64, 8, 8)),
        ("input", 5, (1, 64, 8, 8)),
        ("input", 6, (1, 64, 8, 8)),
    ]


def test_a_payload_whose_order_fits_is_copied_unchanged():
    container = assembled("h13__matmul_m8_k256_n512_ty1")  # product comes before x by name
    text, constants = container.text, container.section("__const", "__TEXT")
    assert constants is not None
    file = container.to_bytes()
    assert container.to_anec()[0x1000:] == file[text.offset : constants.offset + constants.size]


def test_what_an_anec_header_has_besides_is_kept():
    data = bytearray(assembled("h13__conv_k3_c64_n64_s8_bias0").to_anec())
    data[0xF00:0xF04] = b"note"
    anec = read_anec(bytes(data))
    assert anec.to_bytes() == data
    assert anec.spare.rstrip(b"\0").endswith(b"note")
    short = bytes(data[:0x800] + data[0x1000:])  # as the first loader read it
    assert read_anec(short).to_bytes() == short
    assert read_anec(short).tasks[0].words == anec.tasks[0].words


def test_anec_is_for_one_chip():
    with pytest.raises(AneforgeError, match="h13"):
        assembled("h14__conv_k3_c64_n64_s8_bias0").to_anec()


def test_names_have_a_bound():
    file = small_file("h13", symbols=[("n" * (LONGEST_NAME + 5), 0xF, 0)])
    with pytest.raises(ContainerError, match="more than"):
        _ = read_container(file.to_bytes()).symbols
