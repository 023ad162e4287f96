"""What a release consists of: its bill of materials, the lock of the tests, and the names that users' code calls."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest
import sbom
from docpages.api import own_members

import aneforge as af
from aneforge.errors import DISTRIBUTION

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "tests" / "snapshots" / "api.txt"


def test_the_bill_of_materials_lists_what_is_needed_and_what_that_needs():
    bill = sbom.bill()
    names = {component["name"].lower() for component in bill["components"]}
    assert {"numpy", "typer", "jinja2", "markupsafe"} <= names
    assert "onnx" not in names
    assert bill["metadata"]["component"]["name"] == DISTRIBUTION
    references = {component.get("bom-ref") for component in (*bill["components"], bill["metadata"]["component"])}
    for row in bill["dependencies"]:
        assert {row["ref"], *row["dependsOn"]} <= references
    pytest.importorskip("onnx")
    assert "onnx" in {component["name"].lower() for component in sbom.bill(["onnx"])["components"]}


def test_nothing_beyond_the_hard_dependencies_is_listed():
    hard = sbom.needed()[DISTRIBUTION][1]
    assert sorted(hard) == ["jinja2", "numpy", "typer"]


def test_the_lock_pins_every_package_and_names_no_place():
    lines = (ROOT / "requirements-dev.lock").read_text(encoding="utf-8").splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert len(pins) > 20
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!_-]+", line) for line in pins), pins
    assert {"numpy", "pytest", "ruff", "pyright"} <= {line.partition("==")[0].lower() for line in pins}


def signatures() -> str:
    """Every public name with its parameters: what existing code may rely on."""
    lines = []
    for name in sorted(af.__all__):
        value = getattr(af, name)
        if inspect.isclass(value):
            lines.append(f"class {name}")
            members = [
                (member, getattr(value, member)) for member in sorted(own_members(value)) if not member.startswith("_")
            ]
            for member, attribute in members:
                parameters = _parameters(attribute) if callable(attribute) else ""
                lines.append(f"  {member}{parameters}")
        else:
            lines.append(f"{name}{_parameters(value) if callable(value) else ''}")
    return "\n".join(lines) + "\n"


def _parameters(function: object) -> str:
    try:
        signature = inspect.signature(function)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return "(...)"
    names = [re.sub(r":.*?(?= = |$)", "", str(part)) for part in signature.parameters.values()]
    return f"({', '.join(re.sub(r' = <.*>$', ' = ...', name) for name in names)})"


def test_the_public_names_are_those_that_were_released(request):
    """A name that goes away breaks users' code: ``make snapshots`` accepts it, and CHANGELOG says it."""
    now = signatures()
    if request.config.getoption("--write-snapshots"):
        KEPT.write_text(now, encoding="utf-8")
    kept = KEPT.read_text(encoding="utf-8") if KEPT.exists() else ""
    gone = sorted(set(kept.splitlines()) - set(now.splitlines()))
    new = sorted(set(now.splitlines()) - set(kept.splitlines()))
    assert now == kept, f"gone: {gone}; new: {new}"
