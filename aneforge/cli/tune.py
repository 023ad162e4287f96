"""``aneforge tune``: which equivalent form of a model is estimated to be fastest on a chip."""

from __future__ import annotations

from aneforge import text
from aneforge.advice.form_search import SearchLimits, search
from aneforge.advice.forms import apply_form
from aneforge.chips.names import one_chip
from aneforge.cli.notes import working
from aneforge.cli.options import ModelFile, load_model, require_file
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph


def run_form(model: str | ModelFile, form: str, save: str | None) -> None:
    """Apply one form wherever it fits, and write the graph."""
    if save is None:
        raise AneforgeError(
            "--form writes the changed graph and needs a place for it. Give one with --out FILE.aneforge."
        )
    require_file(save)
    _write(apply_form(load_model(model), form), save)
    print(f"the graph with {form} is in {save}; aneforge check, compile and run take it as a model")


def _write(graph: Graph, save: str) -> None:
    try:
        graph.save(save)
    except OSError as error:
        raise AneforgeError(f"{save}: cannot write the graph ({error})") from None


def run(
    model: str | ModelFile,
    chip: str,
    budget: int,
    target_error: float | None,
    save: str | None,
    as_json: bool,
    verbose: bool = False,
    everything: bool = False,
) -> None:
    """Search, print every candidate with its verdict, and write the chosen graph where that was asked for."""
    require_file(save)
    limits = SearchLimits(budget=budget, target_error=target_error)
    target = one_chip(chip)
    with working(f"tuning {ModelFile.of(model).name} for {chip}") as progress:
        tuning = search(load_model(model), target, limits, verbose=verbose, progress=None if verbose else progress)
    if save is not None:
        _write(tuning.graph, save)
    if as_json:
        print(text.as_json({**tuning.to_json(), "saved": save}))
        return
    print(tuning.text(everything))
    if save is not None:
        print(f"the chosen graph is in {save}; aneforge compile, run and export take it as a model")
