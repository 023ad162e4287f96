"""The same version, model and target give the same bytes on every Python: programs, archives, pages and answers.

The digests are kept in a file, and ``make test-pythons`` compares them on the oldest and the newest Python. ``make
snapshots`` writes the file anew.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
from cli_kit import run
from docpages import written

KEPT = Path(__file__).resolve().parent / "snapshots" / "digests.json"
SMALL, DETECTOR = "examples/small.py", "examples/detector.onnx"
COMMANDS = {
    "program": f"compile {SMALL} --target m1 --out p.hwx -q",
    "program of an M5": f"compile {SMALL} --target m5 --out p.hwx -q",
    "file of the driver": f"compile {SMALL} --target m1 --out p.anec --allow-text -q",
    "archive": f"compile {SMALL} --target m1 --out p.anef -q",
    "backend text": f"lower {SMALL} --target m1 --out p.mlir -q",
    "netplist": "export examples/convnet.plist --out p.plist --target m1",
    "page": f"report {SMALL} --target m1,m2,m5 --out p.html -q",
    "page of an ONNX file": f"report {DETECTOR} --target m1,m5 --out p.html -q",
    "report": f"report {DETECTOR} --target m1,m5 --out p.json -q",
    "table": f"report {DETECTOR} --target m1,m5 --out p.csv -q",
    "trace": f"report {SMALL} --target m1 --out p.trace.json -q",
    "baseline": f"ci record {DETECTOR} --target m1,m5 --skip numerics --baseline p.json -q",
    "outputs": f"run {SMALL} --target m1 --out p.npz -q",
    "picture": f"plot {SMALL} chips --out p.svg",
}
ANSWERS = {
    "estimate": f"estimate {DETECTOR} --target m1,m3,m5 --json",
    "estimate of a network": "estimate examples/resnet.py --target m1,m4 --changes 0 --json",
    "check": f"check {DETECTOR} --target m1..m6 --json",
    "partition": f"partition {DETECTOR} --target m1 --json",
    "risks": f"risks {DETECTOR} --target m1,m2 --json",
    "plan": f"plan {DETECTOR} --target m1 --json",
    "compress": f"compress {SMALL} --target m2 --json",
    "lifecycle": f"lifecycle {DETECTOR} --target m1 --json",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    written.prepare(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("name", [*COMMANDS, *ANSWERS])
def test_bytes_do_not_depend_on_the_python(name, place, monkeypatch, capsys, request):
    if "detector" in {**COMMANDS, **ANSWERS}[name]:
        pytest.importorskip("onnx")
    before = set(place.rglob("*"))
    status, out, err = run({**COMMANDS, **ANSWERS}[name], monkeypatch, capsys)
    assert status in (0, 1), err
    made = sorted(path for path in place.rglob("p.*") if path not in before and path.is_file())
    content = out.encode() if name in ANSWERS else b"".join(path.read_bytes() for path in made)
    assert content
    digest = hashlib.blake2b(content, digest_size=12).hexdigest()
    kept = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    if request.config.getoption("--write-snapshots"):
        KEPT.write_text(json.dumps(dict(sorted({**kept, name: digest}.items())), indent=1) + "\n", encoding="utf-8")
        return
    assert digest == kept.get(name), f"{name}: other bytes than tests/snapshots/digests.json; make snapshots writes it"
