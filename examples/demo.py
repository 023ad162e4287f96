"""The first minute, ``make demo``: one model file, six chips, and the questions in the order people ask them.

Each part runs the command that it shows, and prints the paragraphs of the answer that matter first, with long lines
wrapped. The last one writes a page about every chip, to open in a browser. ``make tour`` shows more.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL, CLIP = "examples/detector.onnx", "examples/clip.npz"
PAGE = ROOT / "build" / "report.html"
WIDTH = 100
FOUND = 1  # the exit status of a check that found something


def printed(words: list[str], folder: str, status: int) -> str:
    """What a command prints on standard output; another exit status than the expected one ends the demo."""
    placed = [f"{folder}/{word}" if word.endswith(".aneforge") else word for word in words]
    run = subprocess.run(  # noqa: S603
        [sys.executable, "-m", "aneforge", *placed], check=False, cwd=ROOT, capture_output=True, text=True
    )
    if run.returncode != status:
        sys.exit(f"aneforge {' '.join(words)} ended with status {run.returncode}\n{run.stdout}{run.stderr}")
    return run.stdout.replace(f"{folder}/", "")


def wrapped(line: str, column: int) -> list[str]:
    """A line in pieces that fit; the pieces of a row of a table go on in its last column."""
    indented = len(line) - len(line.lstrip())
    indent = " " * (indented or column)
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent) if len(line) > WIDTH else [line]


def is_rule(line: str) -> bool:
    return bool(line) and set(line) <= {"-", " "}


def part(question: str, command: str, folder: str, keep: tuple[str, ...], status: int = 0) -> None:
    """A question, the command that answers it, and the paragraphs of its answer that begin with one of ``keep``."""
    print(f"\n{question}\n$ aneforge {command}")
    paragraphs = printed(command.split(), folder, status).strip().split("\n\n")
    for start in keep:
        shown = next((paragraph for paragraph in paragraphs if paragraph.startswith(start)), None)
        if shown is None:
            sys.exit(f"aneforge {command} prints no paragraph that begins with {start!r}")
        lines = shown.splitlines()
        rule = next((line for line in lines if is_rule(line)), "")
        print("\n".join(piece for line in lines if not is_rule(line) for piece in wrapped(line, rule.rfind(" ") + 1)))


def main() -> None:
    print(f"{MODEL} detects events in sound. Will it work on the Neural Engine of an M1 to M6?")
    with tempfile.TemporaryDirectory() as folder:
        part("1. Which chips run all of it? What is refused?", f"check {MODEL}", folder, ("chips", "reject"), FOUND)
        part("2. What runs where on the M1?", f"partition {MODEL} --target m1", folder, ("region",))
        times = f"estimate {MODEL} --target m2,m3,m5,m6"
        part("3. How long does a call take, in microseconds?", times, folder, ("microseconds",))
        compare = f"--input {CLIP} --target m5,m2"
        part("4. Do an M5 and an M2 give the same numbers?", f"compare {MODEL} {compare}", folder, ("chip",))
        risks = f"risks {MODEL} --target m2 --max-abs 16000 --out fixed.aneforge"
        part("5. Why is the M2 wrong, and what is the cure?", risks, folder, ("",), FOUND)
        part("6. Is the M2 right now?", f"compare fixed.aneforge {compare}", folder, ("chip",))
    PAGE.parent.mkdir(exist_ok=True)
    report = f"report {MODEL} -o {PAGE.relative_to(ROOT)}"
    part("7. Where is all of this, for every chip, on one page?", report, str(ROOT), ())
    print(
        "\nWhat to do: for the M1, compute TopK outside the model; for M1 and M2, slice as fixed.aneforge does.\n"
        f"Open in a browser: {PAGE.as_uri()}\n"
        "Your own model: source .venv/bin/activate, then aneforge report YOUR_MODEL -o report.html\n"
        "Read more: docs/start.md reads the page with you; docs/tutorial/, aneforge --help, make tour"
    )


if __name__ == "__main__":
    main()
