"""``aneforge estimate``: how long a model takes on each chip, and what that rests on."""

from __future__ import annotations

from aneforge import text
from aneforge.advice.estimates import DEFAULT_CHANGES, estimate_all
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile


def run(
    model: str | ModelFile,
    chips: str,
    scope: str,
    layers: bool,
    basis: bool,
    vendor: bool,
    as_json: bool,
    everything: bool = False,
    changes: int = DEFAULT_CHANGES,
    machine: str | None = None,
    copy_gbs: float | None = None,
) -> None:
    file = ModelFile.of(model)
    with working(f"estimating {file.name} on {chips}"):
        estimates = estimate_all(
            file.path, chips, scope, vendor, changes, machine=machine, copy_gbs=copy_gbs, **file.options
        )
        if not as_json:
            estimates.require()
        # The changes that would help are worked out here, when they are asked for.
        answer = text.as_json(estimates.to_json()) if as_json else estimates.text(layers, basis, everything)
    print(answer)
