"""An unknown chip ends a command before its model is loaded."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from aneforge.cli.app import app
from aneforge.errors import AneforgeError

COMMANDS = ("check", "partition", "risks", "plan", "report", "estimate", "compile", "tune", "run")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_chip_is_judged_before_the_model(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(*values: object, **named: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr("aneforge.formats.load", load)
    broken = tmp_path / "model.onnx"
    broken.write_bytes(b"")
    for model in (broken, tmp_path / "absent.onnx"):
        result = CliRunner().invoke(app, [command, str(model), "--target", "m99"])
        assert isinstance(result.exception, AneforgeError)
        assert "m99" in str(result.exception)
