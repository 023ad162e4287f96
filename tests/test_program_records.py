"""Evidence from people with a Mac: what differs between two programs and why, and a program as a record."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from container_kit import assembled
from test_vendor_programs import bench

import aneforge as af
from aneforge.codegen.container import read_container
from aneforge.codegen.describe import differences
from aneforge.codegen.dialect import NAMES, resolved, written_generations
from aneforge.codegen.emission import emit
from aneforge.codegen.word_rules import rule_of
from aneforge.errors import AneforgeError
from aneforge.study.contribute_program import program_record


def run(*words, status=0):
    command = [sys.executable, "-m", "aneforge", *map(str, words)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == status, result.stderr
    return result


@pytest.mark.parametrize("generation", written_generations())
def test_every_word_with_a_meaning_has_a_rule(generation):
    for meaning in NAMES:
        found = resolved(generation, meaning)
        if found is not None:
            register, field = found
            name = f"task 0 {register.block}.{register.label}" + (f".{field.name}" if field else "")
            assert not rule_of(name, generation).startswith("none"), name
    assert rule_of("task 0 L2.NoSuchWord", generation).startswith("none")
    assert rule_of("port x shape", generation) == ""


def test_a_difference_names_the_field_and_its_rule(tmp_path):
    one = assembled("h13__conv_k3_c64_n64_s8_bias0")
    other = read_container(one.to_bytes())
    register = next(register for _, _, register in other.tasks[0].written() if register and register.name == "Cfg")
    for command in other.tasks[0].commands:
        for place, address in enumerate(command.places):
            if address == register.address:
                command.values[place] ^= 1 << 19
    ((name, _, _),) = differences(one, other)
    assert name == "task 0 Common.Cfg.ActiveNE"
    assert rule_of(name, "h13") == "log2 of min(16, outputs), rounded up"
    for number, program in enumerate((one, other)):
        program.write(tmp_path / f"{number}.hwx")
    shown = run("inspect", tmp_path / "0.hwx", "--compare", tmp_path / "1.hwx", status=1).stdout
    assert shown.splitlines() == [f"{name}: 4 | 5", "    rule: log2 of min(16, outputs), rounded up"]
    told = json.loads(run("inspect", tmp_path / "0.hwx", "--compare", tmp_path / "1.hwx", "--json", status=1).stdout)
    assert told["differences"][0]["rule"] == "log2 of min(16, outputs), rounded up"


def test_a_program_becomes_a_record_that_the_bench_reads(tmp_path):
    container = assembled("h13__conv_k3_c64_n64_s8_bias0")
    container.write(tmp_path / "secret_model.hwx")
    out = tmp_path / "record.json"
    told = run("contribute", tmp_path / "secret_model.hwx", "--os", "macOS 26.1", "-o", out)
    assert "1 task for h13, 157 words" in told.stdout
    text = out.read_text()
    assert "secret" not in text
    assert all(f'"{port.name}"' not in text for port in container.ports)
    (record,) = bench().records_of(out)
    words = [int(word, 16) for word in record["tasks"][0]["words"]]
    assert words == container.tasks[0].words
    assert [tuple(int(number, 16) for number in pair) for pair in record["tasks"][0]["registers"]] == list(
        container.tasks[0].writes
    )
    assert not bench().score(record).is_exact, "the network is not filled in yet"
    network = {"op": "conv", "kernel": 3, "cin": 64, "cout": 64, "size": 8, "stride": 1, "groups": 1, "pad": "same"}
    assert bench().score({**record, "network": network}).is_exact


def test_tables_come_along_and_weights_do_not():
    container = assembled("h16__unary_sigmoid_c64")
    record = program_record(container, "h16g", "macOS 26.1", "lab-7")
    assert record["target"] == "h16g"
    assert record["id"].startswith("h16g__")
    assert "constants" not in record
    ours = emit(af.compile(af.input((1, 64, 8, 8), name="x").sigmoid().named("y"), target="h13").program)
    with pytest.raises(AneforgeError, match="aneforge wrote this program"):
        program_record(ours, None, "macOS 26.1", "lab-7")


@pytest.mark.parametrize(
    ("chip", "system", "source", "message"),
    [
        ("m1", "macOS 26.1", "lab-7", "have the registers of h13"),
        (None, "Anna's Mac", "lab-7", "--os Anna's Mac"),
        (None, "macOS 26.1", "Anna Smith", "--source Anna Smith"),
    ],
)
def test_names_and_other_chips_are_refused(chip, system, source, message):
    with pytest.raises(AneforgeError, match=message):
        program_record(assembled("h16__unary_sigmoid_c64"), chip, system, source)
