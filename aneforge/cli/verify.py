"""``aneforge verify``: a model on this Mac's engine beside what was predicted; elsewhere, what it would do."""

from __future__ import annotations

import sys

from aneforge import text
from aneforge.chips.host import product_of_host
from aneforge.chips.names import chip_label, one_chip
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, load_model

_STEPS = (
    "write the model as a Core ML package, as aneforge export does",
    "read the compute plan of this Mac, and call the model 30 times on its engine",
    "show both placements, the first operation whose numbers differ, and both times",
)


def run(model: str | ModelFile, target: str | None, inputs: str | None, as_json: bool) -> int:
    """Run and compare; the exit status."""
    file = ModelFile.of(model)
    named = chip_label(one_chip(target)) if target else None
    graph = load_model(file)
    if sys.platform != "darwin":
        elsewhere(file, as_json)
        return 0
    from aneforge.reports.kit.predict import KitSetting
    from aneforge.reports.kit.verify import verified

    chip = named or product_of_host()
    with working(f"running {file.name} on this {chip}"):
        answer = verified(graph, KitSetting(chip), inputs)
    print(text.as_json(answer.to_json()) if as_json else answer)
    return 0 if answer.agrees else 1


def elsewhere(file: ModelFile, as_json: bool) -> None:
    """What the command would do on a Mac."""
    offer = "aneforge kit -o kit/ writes experiments that somebody with a Mac can run"
    if as_json:
        print(text.as_json({"ran": False, "would": list(_STEPS), "instead": offer}))
        return
    print(f"{file.name}: not run, this is not a Mac. On a Mac the command would")
    print("\n".join(f"  {number}. {step}" for number, step in enumerate(_STEPS, 1)))
    print(offer)
