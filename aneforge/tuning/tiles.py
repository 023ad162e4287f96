"""The number of tiles that attention splits its queries into."""

from __future__ import annotations

from collections.abc import Sequence

from aneforge.compiler.compile import resolve_target
from aneforge.errors import AneforgeError
from aneforge.graph.graph import Graph
from aneforge.graph.ops.leaf import input as graph_input
from aneforge.rewrites.rewrite import applied, scene_of
from aneforge.study.study import Study
from aneforge.targets.assumed import compile_fact
from aneforge.targets.chip import Target
from aneforge.tuning.attention import query_tiles
from aneforge.tuning.pricing import timed_whole

__all__ = ["attention_tiles", "tune_attention"]

CANDIDATES = (1, 2, 3, 4, 5, 6, 8)
_WORKING_SET = "max_operand_bytes"  # bytes on the chip for a layer's tensors


def attention_tiles(
    S: int,  # noqa: N803 - the names that existing code passes
    n_heads: int,
    dh: int,
    T: int | None = None,  # noqa: N803
    tune: bool = False,
    candidates: Sequence[int] = CANDIDATES,
    target: str | int | Target | None = None,
) -> int:
    """In how many tiles to go over ``S`` queries of ``n_heads`` heads of ``dh`` features and ``T`` keys (as many as
    queries by default).

    The fewest tiles whose scores, before and after the softmax, fit the chip's working set together; where none does,
    the most. With ``tune`` the tiles of the best estimate (see :func:`tune_attention`). ``candidates`` are the numbers
    of tiles to choose from.
    """
    if tune:
        return tune_attention(S, n_heads, dh, T, candidates, target)
    keys, counts = _checked(S, n_heads, dh, T, candidates)
    room = compile_fact(resolve_target(target), _WORKING_SET).value
    fits = [tiles for tiles in counts if 2 * 2 * n_heads * -(-S // tiles) * keys <= room]
    return min(fits) if fits else max(counts)


def tune_attention(
    S: int,  # noqa: N803
    n_heads: int,
    dh: int,
    T: int | None = None,  # noqa: N803
    candidates: Sequence[int] = CANDIDATES,
    target: str | int | Target | None = None,
) -> int:
    """The number of query tiles with the best estimate; the fewest where several are equal.

    ``S`` is the number of queries, ``n_heads`` of heads, ``dh`` of features and ``T`` of keys, as for
    :func:`attention_tiles`; ``candidates`` are the numbers of tiles to choose from.
    """
    keys, counts = _checked(S, n_heads, dh, T, candidates)
    chip = resolve_target(target)
    return min(counts, key=lambda tiles: (_estimate(S, n_heads, dh, keys, tiles, chip), tiles))


def _estimate(queries: int, heads: int, features: int, keys: int, tiles: int, chip: Target) -> float:
    q = graph_input((1, heads, queries, features))
    k, v = (graph_input((1, heads, keys, features)) for _ in range(2))
    out = ((q @ k.mT) * features**-0.5).softmax(-1) @ v
    graph = Graph([out])
    if tiles > 1:
        site = query_tiles(tiles).find(out, scene_of(graph, chip))
        assert site is not None
        graph = applied(graph, [site])
    return timed_whole(Study(graph, chip))[1].us


def _checked(
    queries: int, heads: int, features: int, keys: int | None, candidates: Sequence[int]
) -> tuple[int, list[int]]:
    """The number of keys, and the counts of tiles that there are queries for."""
    key_count = queries if keys is None else keys
    for name, value in (("S", queries), ("n_heads", heads), ("dh", features), ("T", key_count)):
        if not _is_count(value):
            raise AneforgeError(f"{name}: {value!r} is not allowed; give a whole number of 1 or more.")
    if not candidates or not all(_is_count(count) for count in candidates):
        raise AneforgeError(f"candidates: {candidates!r} is not a list of numbers of tiles, 1 or more.")
    counts = sorted({int(count) for count in candidates if count <= queries})
    if not counts:
        raise AneforgeError(f"S: {queries} queries do not divide into {min(candidates)} tiles or more")
    return key_count, counts


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
