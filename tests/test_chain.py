"""One view of the way from backend code to task words, and the assumptions of a program that are its own."""

from __future__ import annotations

import json

import numpy as np
import pytest
from cli_kit import run

import aneforge as af
from aneforge.codegen.describe import raw
from aneforge.codegen.emission import emit
from aneforge.study.chain import PARTS

DETECTOR = "examples/detector.onnx"


def network():
    """A convolution that fuses, a pool that chains, and a slice that takes the crop data path of an M1."""
    x = af.input((1, 3, 32, 32))
    weight = np.random.default_rng(0).normal(0, 0.1, (8, 3, 3, 3))
    y = af.conv(x, weight, stride=2, pad=1, bias=np.ones(8)).relu().max_pool(2)
    return y.slice_by_size([0, 0, 0, 2], [1, 8, 8, 6])


def test_every_phase_shows_what_it_changed():
    chain = af.compile(network(), target="m1").chain()
    changes = chain.changes()
    assert list(changes) == ["legal", "fuse", "legalise", "schedule", "memory"]
    assert any('"anec.convolution"' in line for line in changes["legal"])
    assert '~ %4 = anec.relu: layer = 0, slot = "post_activation"' in changes["fuse"]
    assert any('data_path = "crop"' in line and 'storage = "q4"' in line for line in changes["legalise"])
    assert any('engine = "NE"' in line for line in changes["schedule"])
    assert any("row_stride" in line for line in changes["memory"])


def test_ops_that_a_phase_replaces_are_shown_whole():
    """An M1 has no texture engine (byte 0x81d), so a resize becomes other ops: the old line goes, new ones come."""
    lines = af.compile(af.upsample_bilinear(af.input((1, 4, 16, 16))), target="m1").chain().changes()["legalise"]
    assert [line for line in lines if line.startswith("- ") and "anec.resize" in line]
    assert [line for line in lines if line.startswith("+ ") and "anec.deconvolution" in line]


def test_schedule_memory_and_words_are_the_program_s_own():
    model = af.compile(network(), target="m1")
    chain, program = model.chain(), model.program
    assert chain.program.fingerprint == program.fingerprint
    assert len(chain.schedule()) == len(program.steps) + 2
    assert len(chain.memory()) == len(program.buffers) + 2
    assert chain.tasks() == list(raw(emit(program)))


def test_a_program_without_a_container_says_why():
    chain = af.compile(network(), target="h15").chain()
    assert chain.tasks()[0].startswith("no task words: ") or chain.tasks()[0].startswith("task 0")


@pytest.fixture
def shown(monkeypatch, capsys):
    """Status, output and errors of a compile of the detector with some options."""
    return lambda options: run(f"compile {DETECTOR} {options}", monkeypatch, capsys)


def headings_of(output):
    return [line for line in output.splitlines() if line.startswith("== ")]


def test_the_command_shows_the_chosen_parts(shown):
    status, output, _ = shown("--target m2 --show all")
    assert status == 0
    headings = headings_of(output)
    assert headings[-3:] == ["== schedule", "== memory", "== tasks"]
    assert [line.split("(")[-1] for line in headings[:5]] == ["legal)", "fuse)", "legalise)", "schedule)", "memory)"]
    assert headings_of(shown("--target m2 --show memory,schedule")[1]) == ["== schedule", "== memory"]
    document = json.loads(shown("--target m2 --show all --json")[1])
    assert set(document) == {"target", *PARTS}


def test_a_model_in_regions_shows_each_region(shown):
    _, output, _ = shown("--target m1 --show schedule")
    assert [line for line in output.splitlines() if line.startswith("region")] == ["region 0", "region 2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--target m1 --show scedule", "--show scedule: unknown; choose from code, schedule"),
        ("--target m1,m2 --show all", "they take one chip"),
    ],
)
def test_bad_questions_are_answered_in_a_line(shown, options, message):
    status, _, errors = shown(options)
    assert status == 2
    assert message in errors


# What a program rests on.


def choices_behind(out, chip, **options):
    return {fact.conflict_id for _, _, fact in af.compile(out, target=chip, **options).program.assumptions}


def test_only_choices_about_what_a_program_holds_are_listed():
    """Choice U15 (random_normal, reduce_prod) stood in every listing."""
    x = af.input((1, 8, 16, 16))
    assert choices_behind(x.relu(), "m1") == set()
    assert "U15" in choices_behind(x.prod((2, 3)), "m1")
    assert "U15" not in choices_behind(x.sum((2, 3)), "m1")
    weight = np.random.default_rng(0).normal(0, 0.1, (64, 8, 3, 3))
    assert choices_behind(af.conv(x, weight), "m1") == {"U28"}
    assert "U114" in choices_behind(af.conv(x, weight), "m1", compress="int4")
