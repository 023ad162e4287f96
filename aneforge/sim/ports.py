"""What goes into a program and comes out of it: values checked against their port, and arrays that are bound to it."""

from __future__ import annotations

from typing import Any

import numpy as np

from aneforge.compiler.lower import Port
from aneforge.errors import AneforgeError

_BYTES = ("uint8", "ui8")
_WHOLE = ("b", "i", "u")


def check_bytes(name: str, value: Any) -> None:
    """Refuse what a uint8 port cannot hold: floats, and values below 0 or above 255."""
    array = np.asarray(value)
    rule = "a uint8 port takes whole numbers from 0 to 255"
    if array.dtype.kind not in _WHOLE:
        raise AneforgeError(
            f"input {name!r}: {array.dtype} array given; {rule}. Scale and round it, then .astype(np.uint8)"
        )
    if array.size and array.dtype != np.uint8 and (array.min() < 0 or array.max() > 255):
        raise AneforgeError(
            f"input {name!r}: values from {array.min()} to {array.max()} given; {rule}. Clip them to that range"
        )


def port_numbers(port: Port, value: Any) -> np.ndarray:
    """A value that was given for an input, as the program takes it; what the port cannot hold is refused."""
    try:
        array = np.asarray(value)
        if port.dtype in _BYTES:
            check_bytes(port.name, array)
        numbers = array if array.dtype.kind == "f" else array.astype(np.float64)
    except (TypeError, ValueError) as error:
        if isinstance(error, AneforgeError):
            raise
        raise AneforgeError(f"input {port.name!r}: it takes numbers: {error}") from None
    return port.to_ndchw(numbers)


class InputView(np.ndarray):
    """An array that is bound to a uint8 port: what the port cannot hold is refused when it is written.

    NumPy itself refuses floats in ``np.copyto`` and in the ``out=`` of its functions; plain assignment and ``fill``
    would wrap them around, so they are checked here.
    """

    port: str = ""

    def __array_finalize__(self, source: Any) -> None:
        self.port = getattr(source, "port", "")

    def __setitem__(self, place: Any, value: Any) -> None:
        check_bytes(self.port, value)
        super().__setitem__(place, value)

    def fill(self, value: Any) -> None:
        self[...] = value


def input_array(port: Port) -> np.ndarray:
    """An array for an input, in the user's shape and the port's own type: fp16, or bytes. A parameter holds its start
    value, anything else zeros."""
    if port.dtype in _BYTES:
        view = np.zeros(port.user_shape, np.uint8).view(InputView)
        view.port = port.name
        return view
    array = np.zeros(port.user_shape, np.float16)
    if port.initial is not None:
        array[...] = port.initial.array
    return array


def output_array(port: Port) -> np.ndarray:
    """An array for an output, in the user's shape and the port's own type: fp16, or truth values."""
    return np.zeros(port.user_shape, bool if port.dtype in ("bool", "i1") else np.float16)
