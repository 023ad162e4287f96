"""Damaged containers: an error with the place in the file, in bounded time and memory. Never another exception.

``make fuzz`` looks further than the tests, with ``ANEFORGE_MUTATIONS=20000``.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from container_kit import SUBTYPES, Piece, assembled, command, indexed, plain, small_file, small_text

from aneforge.codegen.anec import read_anec
from aneforge.codegen.bounds import ContainerError
from aneforge.codegen.container import read_container
from aneforge.codegen.describe import differences, raw, task_in_full, tree
from aneforge.errors import AneforgeError
from aneforge.study.validate import validate_program

COUNT = int(os.environ.get("ANEFORGE_MUTATIONS", "300"))
SECONDS = 10
VALUES = (0, 1, 3, 4, 0x10, 0x7F, 0x80, 0xFFFF, 0x4000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFF0)


@contextmanager
def in_time(seconds: int = SECONDS) -> Iterator[None]:
    """A hang fails the test and does not hold up the run."""

    def late(*_: object) -> None:
        raise TimeoutError(f"more than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def explore(data: bytes) -> bool:
    """Everything that can be asked of a container; whether it was sound all the way."""
    try:
        container = read_container(data)
    except ContainerError:
        return False
    assert container.to_bytes() == data, "what is read is written back"
    sound = True
    asked = (
        container.to_json,
        lambda: list(tree(container)),
        lambda: list(raw(container)),
        lambda: [list(task_in_full(container, place)) for place in range(len(container.tasks))],
        lambda: differences(container, read_container(data)),
        lambda: validate_program(container).to_json(),
        lambda: read_anec(container.to_anec()).tasks,
        lambda: container.constants,
    )
    for question in asked:
        try:
            question()
        except AneforgeError:
            sound = False
    return sound


def corpus() -> dict[str, bytes]:
    """One small file of each generation with everything in it, and assembled programs."""
    files = {}
    for generation in SUBTYPES:
        late = generation not in ("h11", "h12", "h13")
        body = indexed(0x100, [1, 2], bar=4) if late else plain(0x4800, [1, 2, 3])
        pieces = [
            Piece("__TEXT", "__const", bytes(range(64))),
            Piece("__KERN_0", "__kern_0", b"weights!" * 4, b"\0" * 4),
            Piece("__DATA", "__bss", size=4096),
        ]
        moved = [] if late else [44]
        symbols = [("K00_ne_0", 0xF, 1), ("x", 0xF, 2), ("x:t1=ar1;0;3", 0x20, 3)]
        extra = [command(8, b"ANEC v1 made by a test\0"), command(0x77, b"unknown!")]
        parts = {"pieces": pieces, "symbols": symbols, "extra": extra, "relocations": moved}
        files[generation] = small_file(generation, 3, body=body, **parts).to_bytes()
    for name in ("h13__binary_add_1x64x8x8", "h14__binary_add_1x3x224x224", "h18__unary_sigmoid_c64"):
        files[name] = assembled(name, b"tables!!" * 16).to_bytes()
    return files


CORPUS = corpus()


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Flipped bits, words with awkward values, words copied from elsewhere, and cuts; near the commands and the text,
    where bytes mean something."""
    changed = bytearray(data)
    places = [place for place in range(0, len(data) - 4, 4) if any(data[place : place + 4]) or place < 256]
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        place = chance.choice(places)
        kind = chance.randrange(6)
        if kind == 0:
            changed[min(place + chance.randrange(4), len(changed) - 1)] ^= 1 << chance.randrange(8)
        elif kind == 1:
            struct.pack_into("<I", changed, place, chance.choice(VALUES))
        elif kind == 2:
            old = struct.unpack_from("<I", changed, place)[0]
            struct.pack_into("<I", changed, place, (old + chance.choice((-8, -4, -1, 1, 4, 8, 16))) & 0xFFFFFFFF)
        elif kind == 3:
            source = chance.choice(places)
            changed[place : place + 4] = changed[source : source + 4]
        elif kind == 4:
            struct.pack_into("<I", changed, place, chance.getrandbits(32))
        else:
            changed = changed[: max(chance.choice((place, len(changed) - chance.randrange(1, 40))), 0)]
            break
    return bytes(changed)


@pytest.mark.parametrize("name", CORPUS)
def test_the_corpus_is_sound(name):
    explore(CORPUS[name])
    assert read_container(CORPUS[name]).to_json()["tasks"]


@pytest.mark.parametrize("name", CORPUS)
def test_mutated_files_are_read_or_refused(name):
    data = CORPUS[name]
    chance = random.Random(f"containers {name}")  # noqa: S311
    outcomes = set()
    for number in range(COUNT):
        changed = mutated(data, chance)
        with in_time():
            try:
                outcomes.add(explore(changed))
            except Exception as error:
                raise AssertionError(f"mutation {number} of {name}: {error!r}") from error
    assert False in outcomes, "some mutations must have been refused, or the test does not look"


@pytest.mark.parametrize("generation", SUBTYPES)
def test_every_cut_is_refused(generation):
    """Everything up to the last byte that the load commands claim is needed."""
    data = CORPUS[generation]
    for end in range(0, len(data), 3):
        with pytest.raises(ContainerError) as caught:
            read_container(data[:end])
        assert 0 <= caught.value.offset <= len(data)


def test_mutated_anec_files_are_read_or_refused():
    data = assembled("h13__conv_k3_c64_n64_s8_bias0", b"weights!" * 8).to_anec()
    chance = random.Random("anec")  # noqa: S311
    for _ in range(COUNT):
        with in_time():
            try:
                anec = read_anec(mutated(data, chance))
                assert anec.to_json()
            except ContainerError:
                continue


# One fault each, and the place that the error names.


def patched(data: bytes, offset: int, form: str, *values: int) -> bytes:
    changed = bytearray(data)
    struct.pack_into("<" + form, changed, offset, *values)
    return bytes(changed)


def refusal(data: bytes) -> ContainerError:
    with in_time(), pytest.raises(ContainerError) as caught:
        read_container(data).to_json()
    assert caught.value.offset >= 0
    assert f"offset {caught.value.offset:#x}" in str(caught.value)
    return caught.value


def test_wrong_magic():
    error = refusal(patched(CORPUS["h13"], 0, "I", 0xFEEDFACF))
    assert error.offset == 0
    assert "0xfeedfacf" in str(error)


@pytest.mark.parametrize("data", [b"", b"\xce\xfa\xef\xbe", b"\0" * 31])
def test_too_short_for_a_header(data):
    assert refusal(data).offset == 0


def test_a_number_of_commands_without_room():
    assert refusal(patched(CORPUS["h13"], 16, "I", 0xFFFFFFFF)).offset == 16
    assert "load commands" in str(refusal(patched(CORPUS["h13"], 20, "I", 0x7FFFFFF0)))


def test_two_gigabytes_claimed_by_four_kilobytes():
    data = CORPUS["h13"].ljust(4096, b"\0")
    container = read_container(data)
    section = container.text
    place = data.index(b"__text\0") + 40  # the size of the section
    assert struct.unpack_from("<Q", data, place)[0] == section.size
    tracemalloc.start()
    error = refusal(patched(data, place, "Q", 2 << 30))
    assert "2147483648 bytes" in str(error)
    assert error.offset == section.offset
    assert "state" in str(refusal(patched(data, data.index(struct.pack("<II", 1, 0x21A)) + 4, "I", 2 << 28)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_section_outside_the_file():
    data = CORPUS["h16"]
    place = data.index(b"__text\0") + 48
    assert refusal(patched(data, place, "I", len(data) + 64)).offset == len(data) + 64


def test_a_section_over_another():
    data = CORPUS["h16"]
    text = read_container(data).text
    place = data.index(b"__kern_0\0") + 48
    assert "overlaps" in str(refusal(patched(data, place, "I", text.offset)))


def test_a_section_over_the_load_commands():
    data = CORPUS["h16"]
    assert "overlaps the load commands" in str(refusal(patched(data, data.index(b"__kern_0\0") + 48, "I", 40)))


def test_segments_that_share_addresses_or_bytes():
    data = CORPUS["h16"]
    container = read_container(data)
    text, kernel = container.segments[0], container.segments[2]
    error = refusal(patched(data, kernel.offset + 24, "Q", text.address + 16))
    assert "shares addresses" in str(error)
    assert error.offset in (kernel.offset, container.segments[1].offset)
    assert "shares bytes" in str(refusal(patched(data, kernel.offset + 40, "Q", text.file_offset)))


def test_more_sections_than_a_segment_has_room_for():
    data = CORPUS["h13"]
    segment = read_container(data).segments[0]
    error = refusal(patched(data, segment.offset + 64, "I", 1 << 30))
    assert "room for 1" in str(error)
    assert error.offset == segment.offset + 64


@pytest.mark.parametrize("generation", ["h11", "h12", "h13"])
def test_a_chain_that_comes_back(generation):
    text, size = small_text(generation, 3, plain(0, [1]))
    step = -(-4 * size // 16) * 16
    place = 4 * (5 if generation != "h13" else 7)
    looped = patched(text, 2 * step + place, "I", step)
    file = small_file(generation, 3, body=plain(0, [1]))
    file.pieces[0].data = looped
    file.task_count = 200
    refused = refusal(file.to_bytes())
    assert "claims 200 tasks" in str(refused) or "comes back" in str(refused)
    file.task_count = 4
    assert "comes back" in str(refusal(file.to_bytes()))
    file.task_count = 3
    assert "goes on" in str(refusal(file.to_bytes()))
    file.pieces[0].data = text
    file.task_count = 4
    assert "ends after 3 tasks" in str(refusal(file.to_bytes()))


def test_tasks_that_overlap():
    """A second task among the values that the first one writes."""
    inner = [1] + [0] * 9 + plain(0, [7])
    file = small_file("h13", 1, body=plain(0, inner))
    text = patched(file.pieces[0].data, 4, "I", (len(inner) - 1) << 16)
    file.pieces[0].data = patched(text, 28, "I", 44)
    file.task_count = 2
    error = refusal(file.to_bytes())
    assert "overlaps" in str(error)
    assert error.offset == read_container(file.to_bytes()).text.offset + 44


def test_a_command_longer_than_its_task():
    file = small_file("h16", 1, body=[63 << 15, 1, 2])
    error = refusal(file.to_bytes())
    text = read_container(file.to_bytes()).text
    assert "writes 64 words" in str(error)
    assert error.offset == text.offset + 16 + 4 * 9


def test_a_task_count_far_beyond_the_text():
    file = small_file("h16", 2)
    file.task_count = 0x7FFFFFFF
    assert "claims 2147483647 tasks" in str(refusal(file.to_bytes()))


def test_names_without_an_end():
    file = small_file("h13", ports=[("input", 1, (1, 1, 1, 1))])
    data = file.to_bytes()
    place = data.index(struct.pack("<II", 0x18, 0))
    end = data.index(b"input", place)
    size = struct.unpack_from("<I", data, place - 4)[0]
    filled = data[:end] + b"i" * (place - 8 + size - end) + data[place - 8 + size :]
    assert "has no end" in str(refusal(filled))
    assert "has no end" in str(refusal(patched(data, place, "I", 0xFFFFFFF0)))


def test_symbol_names_that_share_everything_are_refused_soon():
    """Sixty thousand symbols that each point into one long name: a gigabyte of text from a megabyte of file."""
    file = small_file("h13", symbols=[("n" * 16000, 0xF, place) for place in range(2)])
    data = file.to_bytes()
    table = read_container(data)
    first = next(item for item in table.commands if item.code == 2)
    start, count = struct.unpack_from("<II", data, first.offset + 8)
    strings, _ = struct.unpack_from("<II", data, first.offset + 16)
    many = 60_000
    entries = b"".join(struct.pack("<IBBHQ", 1 + number % 15_000, 0xF, 0, 0, 0) for number in range(many))
    moved = data[:start] + entries + data[start + 16 * count :]
    moved = patched(moved, first.offset + 8, "III", start, many, strings + 16 * (many - count))
    assert "overlap each other" in str(refusal(moved))


def test_a_generation_that_is_not_published():
    assert "cpusubtype 99" in str(refusal(patched(CORPUS["h13"], 8, "I", 99)))


def test_a_descriptor_of_another_form():
    assert "flavor" in str(refusal(patched(CORPUS["h13"], 8, "I", SUBTYPES["h16"])))


def test_no_program_and_no_text():
    file = small_file("h13", 1)
    data = file.to_bytes()
    state = data.index(struct.pack("<II", 1, 0x21A))
    assert "no program descriptor" in str(refusal(patched(data, state, "I", 9)))
    renamed = data.replace(b"__text\0", b"__tixt\0")
    assert "no text section" in str(refusal(renamed))


def test_the_first_task_outside_the_text():
    file = small_file("h13", 1)
    file.first_offset = 1 << 20
    assert "outside the text" in str(refusal(file.to_bytes()))


def test_bytes_that_a_form_does_not_allow():
    data = CORPUS["h13"].replace(b"__KERN_0\0", b"__KERN_\xff\0")
    assert "does not allow" in str(refusal(data))


# What the loader would say.


@pytest.mark.parametrize("name", ["h13__matmul_m8_k256_n512_ty1", "h17__matmul_m8_k256_n512_ty1"])
def test_assembled_programs_pass_the_loader(name):
    verdict = validate_program(assembled(name))
    assert verdict.accepted, str(verdict)
    assert verdict.checked["tasks"] == 2
    assert verdict.checked["ports"] == 2


def faults(data: bytes) -> str:
    return str(validate_program(read_container(data)))


def test_a_relocation_that_lands_elsewhere_is_a_fault():
    data = assembled("h13__conv_k3_c64_n64_s8_bias0").to_bytes()
    text = read_container(data).text
    assert text.relocation_count == 16
    assert "not a base address" in faults(patched(data, text.relocation_offset, "I", 10 * 4 + 4))
    assert "no task writes" in faults(patched(data, text.relocation_offset, "I", 0))
    assert "no word of a section" in faults(patched(data, text.relocation_offset, "I", text.size))


def test_descriptors_out_of_range_are_faults():
    container = assembled("h13__binary_add_1x64x8x8")
    data = container.to_bytes()
    port = read_container(data).ports[0].state.offset
    assert "an extent is 0" in faults(patched(data, port + 0x2C, "I", 0))
    assert "role 7" in faults(patched(data, port + 0x14, "I", 7))
    assert "do not fit" in faults(patched(data, port + 0x30, "I", 4096))
    assert "elements of code 77" in faults(patched(data, port + 0x24, "I", 77))
    program = read_container(data).program.state.offset
    assert "lies in no segment" in faults(patched(data, program + 0x10 + 8 * 9, "Q", 0xDEAD0000))
    assert "outside" in faults(patched(data, port + 0x70, "Q", 1 << 40))


def test_a_section_for_debugging_has_no_addresses():
    """A segment that is not mapped: no constants, no place among the addresses, and no fault."""
    data = small_file("h13", 1, pieces=[Piece("__DEBUG", "__debug_info", b"notes")]).to_bytes()
    segment = read_container(data).segments[1]
    data = patched(patched(data, segment.offset + 24, "QQ", 0, 0), segment.offset + 56, "ii", 0, 0)
    container = read_container(data)
    assert container.constants == b""
    assert validate_program(container).checked["weights"] == 0
    assert "section __debug_info" not in faults(data)
    outside = patched(data, segment.offset + 56, "ii", 5, 5)
    assert "section __debug_info: it lies outside segment __DEBUG" in faults(outside)
