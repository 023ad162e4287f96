"""``aneforge estimate``: how long a model takes on each chip, and what that rests on."""

from __future__ import annotations

from functools import partial

from aneforge.advice.estimates import DEFAULT_CHANGES, Estimates, estimate_all
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile
from aneforge.cli.shapes import at_each_shape


def run(
    model: str | ModelFile,
    chips: str,
    scope: str | None,
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
        settings = {"scope": scope, "vendor": vendor, "changes": changes, "machine": machine, "copy_gbs": copy_gbs}
        ask = partial(estimate_all, **settings)

        def show(estimates: Estimates) -> str:
            estimates.require()
            # The changes that would help are worked out here, when they are asked for.
            return estimates.text(layers, basis, everything)

        answer = at_each_shape(file, chips, ask, show, as_json)
    print(answer)
