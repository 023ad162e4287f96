"""What a request may be: a known host, a name for a file that is only a name, and a body of bounded size and time."""

from __future__ import annotations

import ipaddress
import re
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote

from aneforge.errors import AneforgeError
from aneforge.output.text import human_bytes

_ODD = re.compile(r"[^\w.+-]+", re.ASCII)
_AT_ONCE = 1 << 18


class RefusedError(AneforgeError):
    """A request that is not served, with the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def is_known_host(header: str | None, port: int, host: str) -> bool:
    """Whether a request names this server as people do: by an address, as localhost, or by the name of this machine.

    A page of the web that has its own name point here (DNS rebinding) sends that name.
    """
    parts = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]+)(?::(\d{1,5}))?", header or "")
    if parts is None or int(parts[2] or 80) != port:
        return False
    name = parts[1].strip("[]").casefold()
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return name in ("localhost", host.casefold(), socket.gethostname().casefold())
    return True


def is_from_here(headers: Mapping[str, str]) -> bool:
    """Whether a request that changes something comes from our own page, or from no page at all."""
    origin = headers.get("Origin")
    if origin is not None and origin != f"http://{headers.get('Host')}":
        return False
    return headers.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")


def safe_name(given: str) -> str:
    """The last part of a name, of letters that no file system and no reader takes for anything else."""
    last = re.split(r"[/\\]", unquote(given))[-1]
    name = _ODD.sub("_", last).strip(".")[-120:].lstrip("-.")
    if not name:
        raise RefusedError(400, f"{given[:80]!r}: not a name for a model; give one such as net.onnx")
    return name


def stated_length(headers: Mapping[str, str], most: int) -> int:
    """The length of a body, which must be stated and within the limit, before anything of it is read."""
    text = headers.get("Content-Length")
    if headers.get("Transfer-Encoding") is not None or text is None or not re.fullmatch(r"\d{1,18}", text):
        raise RefusedError(411, "upload: its length must be stated (Content-Length)")
    length = int(text)
    if length > most:
        message = f"upload: {human_bytes(length)} is over the limit of {human_bytes(most)}. Use aneforge report."
        raise RefusedError(413, message)
    if length == 0:
        raise RefusedError(400, "upload: the file is empty; choose another")
    return length


def receive(stream: BinaryIO, length: int, file: Path, seconds: float) -> None:
    """Store exactly ``length`` bytes of a body in a file, within a time."""
    deadline = time.monotonic() + seconds
    left = length
    try:
        with file.open("xb") as copy:
            while left:
                if time.monotonic() > deadline:
                    raise RefusedError(408, f"upload: took more than {seconds:g} seconds, the limit of time")
                part = stream.read1(min(left, _AT_ONCE))  # type: ignore[attr-defined]
                if not part:
                    raise RefusedError(400, f"upload: ended {left:,} bytes early; send the whole file")
                copy.write(part)
                left -= len(part)
    except TimeoutError:
        raise RefusedError(408, "upload: nothing came for a while, which is the limit of time") from None
    except OSError as error:
        raise RefusedError(507, f"upload: cannot be stored ({error.strerror}); it needs more room") from None
