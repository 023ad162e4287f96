"""The inputs of a command: named arrays of an ``.npz`` file, of one sample or of many, or numbers from a seed."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from itertools import islice

import numpy as np

from aneforge.budgets import check_archive, regular_file
from aneforge.cli import say
from aneforge.errors import AneforgeError, first_line
from aneforge.graph.graph import Graph
from aneforge.sim.inputs import SEED, default_samples, drawn_inputs

__all__ = ["input_samples", "read_arrays", "samples_of"]


def input_samples(
    graph: Graph, given: str | None, seed: int | None, samples: int | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """Samples of ``--input``, or drawn from ``--seed``; how many, if it is not said, depends on the graph's ranges."""
    if given is not None:
        if seed is not None:
            raise AneforgeError("--seed draws the inputs and --input reads them; choose one")
        return samples_of(graph, read_arrays(given), given, samples)
    if seed is not None and seed < 0:
        raise AneforgeError(f"--seed takes a whole number, 0 or more, not {seed}")
    count = default_samples(graph) if samples is None else samples
    what = "inputs were" if count == 1 else f"inputs of {count} samples were"
    say.note(f"{what} drawn with seed {seed or SEED}; --input FILE.npz gives your own")
    return drawn_inputs(graph, count, seed or SEED)


def read_arrays(file: str) -> dict[str, np.ndarray]:
    """The arrays of an ``.npz`` file by name."""
    try:
        with open(regular_file(file, file), "rb") as stream:  # ours to close: NumPy leaves a broken one open
            if not zipfile.is_zipfile(stream):
                raise ValueError("it is no archive, as np.savez writes it")
            with zipfile.ZipFile(stream) as archive:
                check_archive(archive, file)
            stream.seek(0)
            held = np.load(stream, allow_pickle=False)
            if not isinstance(held, np.lib.npyio.NpzFile):
                raise ValueError("it holds one array without a name")
            return {name: held[name] for name in held.files}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, MemoryError) as error:
        raise AneforgeError(f"{file}: no file of named arrays (.npz): {first_line(error)}") from None


def samples_of(
    graph: Graph, arrays: dict[str, np.ndarray], file: str, most: int | None = None
) -> Iterator[dict[str, np.ndarray]]:
    """One sample where the arrays have the inputs' ranks; many where all of them have one more axis in front."""
    names = graph.names()
    ranks = {names[each.uid]: len(each.shape) for each in (*graph.inputs, *graph.parameters)}
    unknown = [name for name in arrays if name not in ranks]
    if unknown:
        raise AneforgeError(f"{file}: no input {unknown[0]!r}; the model takes {', '.join(ranks) or 'none'}")
    more = {name: array.ndim - ranks[name] for name, array in arrays.items()}
    if not arrays or any(axes != 1 for axes in more.values()):
        if most is not None and most > 1:
            raise AneforgeError(
                f"{file}: --samples {most} needs arrays with one more axis in front than the inputs, "
                "or no --input, to draw as many"
            )
        return iter([arrays])
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) != 1:
        told = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise AneforgeError(f"{file}: the samples of all inputs have one number, not {told}")
    count = next(iter(counts.values()))
    each = ({name: array[place] for name, array in arrays.items()} for place in range(count))
    return islice(each, most)
