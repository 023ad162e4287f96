"""Plans of Core AI: the device mps is the GPU, and regions are listed with their devices."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from aneforge.cli.app import app
from aneforge.errors import AneforgeError
from aneforge.study.plan_files import plan_from_json

REGIONS = [{"name": "encoder", "device": "ane", "operations": 12}, {"device": "mps", "operations": [{}, {}]}]


def shown(document: Any, folder: Path) -> tuple[int, str]:
    file = folder / "plan.json"
    file.write_text(json.dumps(document))
    result = CliRunner().invoke(app, ["plan", str(file)])
    return result.exit_code, result.output


def test_regions_are_listed_with_the_device_of_each(tmp_path: Path) -> None:
    status, output = shown({"regions": REGIONS}, tmp_path)
    assert status == 1
    assert output.splitlines() == [
        "2 regions: 1 on the Neural Engine, 1 on the GPU (mps)",
        "  encoder: Neural Engine, 12 operations",
        "  region 1: GPU (mps), 2 operations",
    ]
    assert shown({"regions": REGIONS[:1]}, tmp_path)[0] == 0


def test_an_operation_on_mps_is_on_the_gpu(tmp_path: Path) -> None:
    rows = [{"op": "ios17.conv", "name": "c", "device": "mps"}, {"op": "relu", "name": "r", "device": "ane"}]
    status, output = shown({"operations": rows}, tmp_path)
    assert status == 1
    assert "1 on the Neural Engine, 1 on the GPU" in output
    assert "GPU (mps)" in output


def test_regions_are_written_as_they_were_read() -> None:
    plan = plan_from_json({"regions": REGIONS})
    assert plan_from_json(plan.to_json()).regions == plan.regions


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ({}, "plan: regions: expected a list"),
        ([1], "plan: region 0: it names no device"),
        ([{"device": "abacus"}], "plan: region 0: 'abacus' is not a device"),
        ([{"device": "ane", "operations": -1}], "plan: region 0: operations: expected a list or a number, not -1"),
    ],
)
def test_wrong_regions_are_one_line(regions: Any, message: str) -> None:
    with pytest.raises(AneforgeError, match=message):
        plan_from_json({"regions": regions})
