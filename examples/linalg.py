"""Linear algebra with a fixed number of steps: conjugate gradients, a dominant eigenpair, a Cholesky factor.

python examples/linalg.py
"""

from __future__ import annotations

import numpy as np

import aneforge as af

SIZE = 8


def conjugate_gradient(a: af.Tensor, b: af.Tensor, steps: int) -> af.Tensor:
    """x with a @ x = b, where a is symmetric and positive definite."""
    x, rest, way = None, b, b
    square = (rest * rest).sum(0)
    for _ in range(steps):
        moved = a @ way
        length = square / af.maximum((way * moved).sum(0), 2.0**-14)
        x = length * way if x is None else x + length * way
        rest = rest - length * moved
        before, square = square, (rest * rest).sum(0)
        way = rest + square / af.maximum(before, 2.0**-14) * way
    return x


def dominant(a: af.Tensor, start: np.ndarray, steps: int) -> tuple[af.Tensor, af.Tensor]:
    """The largest eigenvalue of a symmetric matrix, and its vector, by power iteration."""
    vector = af.const(start / np.linalg.norm(start))
    for _ in range(steps):
        moved = a @ vector
        vector = moved / (moved * moved).sum(0).sqrt()
    return (vector * (a @ vector)).sum(0), vector


def cholesky(a: af.Tensor) -> af.Tensor:
    """The lower factor, column by column."""
    size = a.shape[0]
    columns, rest = [], a
    for place in range(size):
        column = rest[:, place : place + 1] * np.tri(size)[:, place : place + 1]
        column = column / rest[place : place + 1, place : place + 1].sqrt()
        rest = rest - column @ column.transpose([1, 0])
        columns.append(column)
    return af.concat(columns, axis=1)


a, b = af.input((SIZE, SIZE), name="a"), af.input((SIZE, 1), name="b")
solution = conjugate_gradient(a, b, 8)
largest, vector = dominant(a, np.arange(1.0, SIZE + 1)[:, None], 20)
out = cholesky(a)

if __name__ == "__main__":
    draw = np.random.default_rng(1)
    root = draw.standard_normal((SIZE, SIZE))
    matrix, right = root @ root.T / SIZE + np.eye(SIZE), draw.standard_normal((SIZE, 1))
    found = af.compile_multi({"x": solution, "largest": largest, "factor": out}, target="m2")(matrix, right)
    print(f"solve: {np.abs(matrix @ found['x'] - right).max():.1e} left of {np.abs(right).max():.1f}")
    print(f"eigenvalue: {abs(found['largest'].item() / np.linalg.eigvalsh(matrix)[-1] - 1):.1e} off")
    print(f"cholesky: {np.abs(found['factor'] @ found['factor'].T - matrix).max():.1e} of {matrix.max():.1f} off")
