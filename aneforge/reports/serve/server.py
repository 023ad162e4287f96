"""The server: a page, uploads, and the state and report of each job. Standard library only, loopback by default."""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import re
import shutil
import socket
import threading
import time
from collections.abc import Mapping
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO
from urllib.parse import parse_qsl, unquote

from aneforge.chips.names import DEFAULT
from aneforge.errors import AneforgeError
from aneforge.formats.arguments import chips_of
from aneforge.reports.pages import colours
from aneforge.reports.serve.example import example_model
from aneforge.reports.serve.jobs import BusyError, Job, Jobs, UploadSettings
from aneforge.reports.workers import WorkerLimits
from aneforge.text import human_bytes
from aneforge.version import __version__

# What a request may be: a known host, a name for a file that is only a name, and a body of bounded size and time.


_MOST_SETTINGS, _LONGEST = 40, 400
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


def settings_of(query: str, target: str) -> UploadSettings:
    """What an upload asks for behind its name (``target=m1,m5&max_abs=255&dim=batch=1``), held to its types."""
    dims: dict[str, int] = {}
    max_abs = None
    try:
        parts = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=_MOST_SETTINGS)
    except ValueError:
        raise RefusedError(400, "request: its settings cannot be read; use the page of this server") from None
    for name, value in parts:
        if name == "target" and len(value) <= _LONGEST:
            target = value
        elif name == "max_abs" and re.fullmatch(r"\d{1,12}(\.\d{1,12})?", value) and float(value) > 0:
            max_abs = float(value)
        elif name == "dim" and (size := re.fullmatch(r"([^\s=][^=]{0,119})=([1-9]\d{0,8})", value)):
            dims[size[1]] = int(size[2])
        else:
            raise RefusedError(400, f"request: {name[:40]}={value[:80]} is not a setting; use the page of this server")
    chips_of(target)
    return UploadSettings(target, max_abs, dims)


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
    """Store exactly ``length`` bytes of a body in a file, within a time and at a least rate."""
    deadline = time.monotonic() + seconds
    left, window, came = length, time.monotonic() + _WINDOW, 0
    try:
        with file.open("xb") as copy:
            while left:
                if time.monotonic() > deadline:
                    raise RefusedError(408, f"upload: took more than {seconds:g} seconds, the limit of time")
                part = stream.read1(min(left, _AT_ONCE))  # type: ignore[attr-defined]
                if not part:
                    raise RefusedError(400, f"upload: ended {left:,} bytes early; send the whole file")
                copy.write(part)
                left, came = left - len(part), came + len(part)
                if time.monotonic() > window:
                    if came < _LEAST_IN_WINDOW:
                        raise RefusedError(
                            408, f"upload: {came:,} bytes in {_WINDOW:g} seconds are below the least rate"
                        )
                    window, came = time.monotonic() + _WINDOW, 0
    except TimeoutError:
        raise RefusedError(408, "upload: nothing came for a while, which is the limit of time") from None
    except OSError as error:
        raise RefusedError(507, f"upload: cannot be stored ({error.strerror}); it needs more room") from None


DEFAULT_UPLOAD = 2 << 30
_PATIENCE = 30.0
"""Seconds that a connection may be silent while it sends a body."""
_HEAD_PATIENCE = 10.0
"""Seconds until a connection has sent the head of a request, however it sends it."""
_WINDOW, _LEAST_IN_WINDOW = 10.0, 64 << 10
"""In so many seconds an upload must bring so many bytes."""
_MOST_CONNECTIONS = 64
_PAGES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/zip.js": ("zip.js", "text/javascript; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_EXAMPLE = "/example.aneforge"
_OWN_PAGE = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-src 'self'; img-src data:; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
# A report holds names of a stranger's model. In a sandbox its script has no rights on this server.
_REPORT_PAGE = (
    "sandbox allow-scripts allow-downloads allow-popups; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'"
)


class Server:
    """A server that is bound and takes requests while ``serve_forever`` runs; ``close`` leaves nothing behind."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8017,
        target: str = DEFAULT,
        limits: WorkerLimits | None = None,
        max_upload: int = DEFAULT_UPLOAD,
    ) -> None:
        chips_of(target)  # a wrong name is told now
        self.host, self.target = host, target
        self.limits, self.max_upload = limits or WorkerLimits(), max_upload
        try:
            self._http = _Http((host, port), self)
        except (OSError, OverflowError) as error:
            why = getattr(error, "strerror", None) or error
            raise AneforgeError(f"{host}:{port}: cannot be bound ({why}); choose another --host or --port") from None
        self.port: int = self._http.server_address[1]
        try:
            self.jobs = Jobs(self.limits, min(2, os.cpu_count() or 1))
        except AneforgeError:
            self._http.server_close()
            raise

    @property
    def url(self) -> str:
        return f"http://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}/"

    @property
    def is_local(self) -> bool:
        """Whether only this machine can reach it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def serve_forever(self) -> None:
        self._http.serve_forever(poll_interval=0.2)

    def stop(self) -> None:
        """End ``serve_forever`` from another thread."""
        self._http.shutdown()

    def close(self) -> None:
        self._http.server_close()
        self.jobs.close()

    def __enter__(self) -> Server:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, address: tuple[str, int], server: Server) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.owner = server
        self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self.waiting: dict[Any, float] = {}
        """Connections that have not sent the head of a request yet, and until when they may."""
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._room.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def service_actions(self) -> None:
        """Between requests: end the connections that keep others waiting."""
        now = time.monotonic()
        for connection, deadline in list(self.waiting.items()):
            if now > deadline and self.waiting.pop(connection, None) is not None:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that has gone is not worth a line."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = f"aneforge/{__version__}"
    sys_version = ""
    timeout = _PATIENCE
    server: _Http  # type: ignore[assignment]

    @property
    def _owner(self) -> Server:
        return self.server.owner

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Quiet: the page says what happens."""

    def handle_expect_100(self) -> bool:
        """Refuse a body before it is sent."""
        try:
            if self.command == "PUT":
                self._require_upload()
        except AneforgeError as error:
            self._refuse(error)
            return False
        return super().handle_expect_100()

    def handle_one_request(self) -> None:
        self.server.waiting[self.connection] = time.monotonic() + _HEAD_PATIENCE
        try:
            super().handle_one_request()
        finally:
            self.server.waiting.pop(self.connection, None)

    def parse_request(self) -> bool:
        is_whole = super().parse_request()
        self.server.waiting.pop(self.connection, None)
        return is_whole

    def do_GET(self) -> None:
        self._answered(self._get)

    def do_HEAD(self) -> None:
        self._answered(self._get)

    def do_PUT(self) -> None:
        self._answered(self._put)

    def do_DELETE(self) -> None:
        self._answered(self._delete)

    def _answered(self, answer: Any) -> None:
        try:
            self._require_host()
            answer()
        except AneforgeError as error:
            self._refuse(error)

    def _require_host(self) -> None:
        if not is_known_host(self.headers.get("Host"), self._owner.port, self._owner.host):
            raise RefusedError(
                421, "request: it names another host than this server. Use the address that it printed."
            )

    def _get(self) -> None:
        if self.path == _EXAMPLE:
            self._send(200, example_model(), "application/octet-stream", _OWN_PAGE)
            return
        if self.path in _PAGES:
            name, kind = _PAGES[self.path]
            self._send(200, self._page(name), kind, _OWN_PAGE)
            return
        job, rest = self._job()
        if rest == "":
            self._send_json(200, job.to_json())
        elif rest == "report" and job.report is not None:
            self._send(200, job.report, "text/html; charset=utf-8", _REPORT_PAGE)
        else:
            raise RefusedError(404, "job: it has no report; see its state")

    def _put(self) -> None:
        length = self._require_upload()
        with self._owner.jobs.arrival() as add:
            folder = self._owner.jobs.folder.new_upload()
            try:
                name, settings = self._asked()
                receive(self.rfile, length, folder / name, self._owner.limits.seconds)  # type: ignore[arg-type]
                job = add(name, folder, settings)
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        self._send_json(201, job.to_json())

    def _delete(self) -> None:
        if not is_from_here(self.headers):  # type: ignore[arg-type]
            raise RefusedError(403, "request: it comes from another page. Use the page of this server.")
        job, _ = self._job()
        self._owner.jobs.cancel(job)
        self._send_json(200, job.to_json())

    def _require_upload(self) -> int:
        """The length of an upload that may come."""
        self._require_host()
        if not is_from_here(self.headers):  # type: ignore[arg-type]
            raise RefusedError(403, "request: it comes from another page. Use the page of this server.")
        if not self.path.startswith("/models/"):
            raise RefusedError(404, "request: uploads go to /models/NAME; check the address")
        self._asked()
        length = stated_length(self.headers, self._owner.max_upload)  # type: ignore[arg-type]
        self._owner.jobs.require_room()
        return length

    def _asked(self) -> tuple[str, UploadSettings]:
        """The name of an upload, and what its report is to be about."""
        name, _, query = self.path.removeprefix("/models/").partition("?")
        return safe_name(name), settings_of(query, self._owner.target)

    def _job(self) -> tuple[Job, str]:
        parts = self.path.split("/")
        job = self._owner.jobs.get(parts[2]) if len(parts) in (3, 4) and parts[1] == "jobs" else None
        if job is None:
            raise RefusedError(404, "request: the page or job is not there. Reload the first page.")
        return job, parts[3] if len(parts) == 4 else ""

    def _page(self, name: str) -> bytes:
        text = (files("aneforge.reports.serve") / "page" / name).read_text(encoding="utf-8")
        if name == "page.css":
            text = f"{colours()}\n{text}"
        limit = self._owner.max_upload
        fields = {"LIMIT_BYTES": limit, "LIMIT": human_bytes(limit), "VERSION": __version__}
        fields["TARGET"] = escape(self._owner.target)
        for field, value in fields.items():
            text = text.replace(f"@{field}@", str(value))
        return text.encode()

    def _refuse(self, error: AneforgeError) -> None:
        """Say why; a body that was not read makes the connection useless, so it ends."""
        status = error.status if isinstance(error, RefusedError) else 503 if isinstance(error, BusyError) else 400
        self.close_connection = True
        with contextlib.suppress(OSError):
            self._send_json(status, {"error": str(error)})
            if self.command == "PUT":
                self._drain()

    def _drain(self) -> None:
        """Read a little of what the client still sends: it would not see the answer on a connection that is reset."""
        self.connection.settimeout(0.5)
        left = 8 << 20
        with contextlib.suppress(OSError):
            while left > 0 and (part := self.rfile.read1(1 << 16)):  # type: ignore[attr-defined]
                left -= len(part)

    def _send_json(self, status: int, value: Any) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", _OWN_PAGE)

    def _send(self, status: int, content: bytes, kind: str, policy: str) -> None:
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        if status == 503:
            headers["Retry-After"] = "10"
        if self.close_connection:
            headers["Connection"] = "close"
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
