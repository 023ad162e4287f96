"""Programs of the vendor's compiler, word for word: how many come out, and that the rules behind them hold elsewhere.

``tests/evidence/vendor_programs.json.gz`` is an extract of the third collection: networks and words. The bench script
builds and compiles them; `python bench/vendor_programs.py tests/evidence/vendor_programs.json.gz` prints the table.
"""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from random_graphs import random_graph

import aneforge as af
from aneforge.chips import store
from aneforge.codegen import banks
from aneforge.codegen.container import read_container
from aneforge.codegen.decoding import decode
from aneforge.codegen.dialect import dialect_of, written_generations
from aneforge.codegen.emission import emit
from aneforge.codegen.sharing import (
    Sharing,
    active_cores,
    dealt_parts,
    shared_by_convolution,
    shared_by_copy,
    shared_by_dealing,
    shared_by_pieces,
)
from aneforge.codegen.tasks import Task
from aneforge.codegen.verdicts import VERDICTS, digest, proven_forms
from aneforge.errors import AneforgeError
from aneforge.study.model import Model
from aneforge.study.validate.program import validate_program

ROOT = Path(__file__).resolve().parents[1]
EVIDENCE = ROOT / "tests" / "evidence" / "vendor_programs.json.gz"
EXACT = {"h13": 96, "h14": 83, "h15": 9, "h16": 56, "h17": 44, "h18": 32}
"""How many records of a generation come out word for word; never fewer."""
RECORDS = {"h13": 104, "h14": 91, "h15": 9, "h16": 60, "h17": 45, "h18": 34}
rng = np.random.default_rng(38)


@cache
def bench():
    spec = importlib.util.spec_from_file_location("vendor_programs_bench", ROOT / "bench" / "vendor_programs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@cache
def records():
    return bench().records_of(EVIDENCE)


@cache
def scores(generation):
    return [bench().score(record) for record in records() if record["generation"] == generation]


def tasks_of(record):
    tasks = []
    for task in record["tasks"]:
        words, header = [int(word, 16) for word in task["words"]], task["header_words"]
        tasks.append(Task(record["generation"], words[:header], words[header:]))
    return tasks


def halves(*shape):
    return (0.2 * rng.normal(size=shape)).astype(np.float16)


def test_the_records_are_all_there():
    assert Counter(record["generation"] for record in records()) == RECORDS


@pytest.mark.parametrize("generation", written_generations())
def test_programs_come_out_word_for_word(generation):
    exact = [entry for entry in scores(generation) if entry.is_exact]
    assert len(exact) >= EXACT[generation]
    assert 2 * len(exact) > RECORDS[generation]


def test_most_programs_are_equal_and_nearly_all_words_of_the_rest():
    entries = [entry for name in written_generations() for entry in scores(name)]
    assert sum(entry.is_exact for entry in entries) >= 315
    rest = [entry for entry in entries if not entry.is_exact and entry.has_form]
    assert sum(entry.equal for entry in rest) >= 0.98 * sum(entry.words for entry in rest)


@pytest.mark.parametrize("generation", written_generations())
def test_the_table_knows_what_is_proven(generation):
    """What `bench/vendor_programs.py --refresh` would write: an exact record of each kind of work, and the digest of
    every published task."""
    kinds = [kind for entry in scores(generation) if entry.is_exact for kind in entry.kinds]
    parts = {part for kind in kinds for part in kind.replace(" with ", ", ").split(", ")}
    assert set(proven_forms(generation)) == parts
    published = {digest(task) for entry in scores(generation) for task in tasks_of(entry.record)}
    assert set(store.load("task_words")["digests"][generation].split()) == published


def test_a_changed_word_is_seen():
    record = next(record for record in records() if record["id"] == "h13__add_1x64x8x8")
    words = list(record["tasks"][0]["words"])
    words[60] = f"{int(words[60], 16) ^ 1:08x}"
    changed = {**record, "tasks": [{**record["tasks"][0], "words": words}]}
    entry = bench().score(changed)
    assert not entry.is_exact
    assert (entry.reason, len(entry.differences)) == ("1 words differ", 1)


def test_filler_of_h14_is_where_the_rule_puts_it():
    """In every published task of h14, whatever its work: none ends in the last 16 bytes of a line of 64, and no task
    has more filler than that takes."""
    seen = Counter()
    for record in records():
        place = 16
        for task in tasks_of(record) if record["generation"] == "h14" else ():
            size = place // 4 + len(task.words)
            fillers = sum(0xDEAD in command.values for command in task.commands)
            if any(command.bar is not None for command in task.commands):
                least = next(count for count in range(5) if (size - 2 * (fillers - count) - 1) % 16 < 12)
                seen[least == fillers] += 1
            place += -(-4 * len(task.words) // 16) * 16
    assert seen == {True: 148}


# The rules, on shapes that no record has.


@pytest.mark.parametrize("seed", range(50))
def test_padded_rows_lie_on_different_banks(seed):
    draw = np.random.default_rng(seed)
    line, rows = 16 * int(draw.integers(1, 4000)), int(draw.choice([4, 8]))
    distance, step = int(draw.integers(1, 64 // rows)), int(draw.integers(1, 3))
    pad = banks.pad_of(line, rows, distance, step)
    assert pad % 16 == 0

    def nearest(extra: int) -> int:
        places = sorted(row * step * (line + extra) // 16 % 64 for row in range(rows))
        gaps = [b - a for a, b in pairwise(places)]
        return min(*gaps, places[0] + 64 - places[-1])

    if nearest(pad) >= distance:
        assert all(nearest(less) < distance for less in range(0, pad, 16))
    else:
        assert pad == 0


@pytest.mark.parametrize("generation", written_generations())
def test_shared_rows_stay_within_their_fields(generation):
    dialect = dialect_of(generation)
    for channels in (1, 3, 16, 63, 64, 512):
        for rows, columns in ((1, 1), (1, 197), (7, 7), (14, 14), (56, 56), (112, 112), (3, 1000)):
            for window in ((1, 1), (3, 3), (1, 9)):
                found = shared_by_convolution(dialect, channels, rows, columns, window, False)
                assert 0 <= found.least <= found.most <= 4
                assert found.preferred <= found.most
            assert shared_by_copy(channels, rows, columns).most <= 4
    assert [active_cores(outputs) for outputs in (1, 2, 3, 8, 16, 1000)] == [0, 1, 2, 3, 4, 4]


@pytest.mark.parametrize(
    ("rows", "columns", "to_memory", "parts"),
    [(16, 128, True, (1, 3)), (8, 256, True, (1, 3)), (2, 128, False, (1, 0)), (1, 256, False, (1, 0))],
)
def test_a_wide_map_of_one_channel_is_dealt_in_parts_of_128_numbers(rows, columns, to_memory, parts):
    sharing = shared_by_dealing(columns, to_memory)
    assert dealt_parts(sharing, rows, columns) == parts
    assert (columns >> parts[0]) * (rows >> parts[1]) == 128
    assert (sharing.least == sharing.most) != (to_memory and sharing.most > 0)


def test_a_map_that_fills_one_part_is_not_dealt():
    assert dealt_parts(Sharing(4), 8, 8) == (0, 0)
    assert dealt_parts(Sharing(3), 32, 32) == (1, 2)  # the largest of 64 channels of h16
    assert dealt_parts(Sharing(4), 128, 1) == (0, 3)  # 128 sums of a softmax of h16


@pytest.mark.parametrize("columns", range(129, 800, 17))
def test_rows_in_pieces_leave_as_little_empty_as_any(columns):
    most = shared_by_pieces(columns).most
    empty = [-columns % (128 >> shared) for shared in range(5)]
    assert empty[most] == min(empty)
    assert most == empty.index(min(empty))
    line = 16 * columns
    before, behind = banks.cut_pads(line, most)
    places = [row * (line + behind) // 16 % 64 for row in range(1 << most)]
    assert len(set(places)) == len(places)
    assert before % 16 == behind % 16 == 0


# Whole models on every generation.


def network():
    x = af.input((1, 16, 16, 16), name="x")
    y = af.conv(x, halves(32, 16, 3, 3), stride=2, pad=1, bias=halves(32)).relu()
    y = af.conv(y, halves(32, 1, 3, 3), pad=1, groups=32).sigmoid()
    y = af.conv(y, halves(48, 32, 1, 1)).max_pool(2)
    z = y.mean((2, 3)).reshape(1, 48).linear(halves(10, 48), halves(10))
    return z.softmax(-1).named("p")


@pytest.mark.parametrize("generation", written_generations())
def test_every_generation_writes_whole_models(generation, tmp_path):
    model = af.compile(network(), target=generation, _check_precision=False)
    container = emit(model.program)
    record = container.record
    assert record is not None
    assert sum(record.verdicts.values()) == len(container.tasks)
    assert set(record.verdicts) <= set(VERDICTS)
    assert {task.form for task in record.not_expressed} <= {"softmax", "reshape", "reduce_avg", "average_pool"}
    assert record.can_run == (not record.not_expressed)
    assert ("cannot run on hardware" in str(record)) != record.can_run
    container.write(tmp_path / "net.hwx")
    again = read_container(tmp_path / "net.hwx")
    assert again.to_bytes() == container.to_bytes()
    feeds = {"x": halves(1, 16, 16, 16)}
    (expected,) = model.run(feeds).outputs.values()
    (found,) = Model(model.graph, decode(again)).run(feeds).outputs.values()
    assert found.tobytes() == expected.tobytes()
    faults = [fault for fault in validate_program(again).faults if fault.check == "words"]
    assert bool(faults) != record.can_run


def test_a_program_that_is_published_says_so():
    x = af.input((1, 64, 8, 8), name="x")
    record = emit(af.compile((x + af.input((1, 64, 8, 8), name="z")).named("y"), target="h13").program).record
    assert record is not None
    assert record.verdicts == {"as published": 1}
    assert record.can_run
    other = emit(af.compile((x - af.input((1, 64, 8, 8), name="z")).named("y"), target="h13").program).record
    assert other is not None
    assert other.verdicts == {"by rule": 1}


def test_files_of_the_driver_run_again(tmp_path):
    x = af.input((1, 16, 8, 8), name="x")
    model = af.compile((af.conv(x, halves(16, 16, 3, 3), pad=1).relu() + x).named("y"), target="m1")
    (tmp_path / "net.anec").write_bytes(emit(model.program).to_anec())
    loaded = af.load_program(tmp_path / "net.anec")
    feed = halves(1, 16, 8, 8)
    (name,) = (port.name for port in loaded.program.inputs)
    (expected,) = model.run({"x": feed}).outputs.values()
    (found,) = loaded.run({name: feed}).outputs.values()
    assert found.tobytes() == expected.tobytes()
    text = af.compile(af.input((8, 64), name="x").floor(), target="m1")
    with pytest.raises(AneforgeError, match="cannot run on hardware"):
        emit(text.program).to_anec()


@pytest.mark.parametrize("target", ["h14", "h16", "h18"])
@pytest.mark.parametrize("seed", range(4))
def test_random_programs_of_later_generations_run_to_the_bit(seed, target):
    model = af.compile(random_graph(seed)[0], target=target, _check_precision=False)
    if len(model.program.segments) > 1:
        pytest.skip("several segments are refused")
    feeds = {
        port.name: rng.integers(0, 256, port.user_shape, np.uint8) if "8" in port.dtype else halves(*port.user_shape)
        for port in model.program.inputs
        if port.initial is None
    }
    again = Model(model.graph, decode(read_container(emit(model.program).to_bytes())))
    before, after = model.run(feeds).outputs, again.run(feeds).outputs
    assert {name: value.tobytes() for name, value in before.items()} == {
        name: value.tobytes() for name, value in after.items()
    }
