"""The served page: a model in, a report out, one line for everything that is wrong, and no file left behind."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
import zipfile

import pytest
import sweep_kit

from aneforge.errors import AneforgeError, LoadError
from aneforge.formats.arguments import graph_of
from aneforge.reports import report
from aneforge.reports.serve import Server
from aneforge.reports.serve import server as server_module
from aneforge.reports.serve.jobs import MOST_WAITING, BusyError, Jobs, UploadSettings, remove_abandoned, unpack
from aneforge.reports.serve.server import RefusedError, is_from_here, is_known_host, safe_name, settings_of
from aneforge.reports.workers import WorkerLimits

EXAMPLES = sweep_kit.ROOT / "examples"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - that it is warned of is tested
DETECTOR = (EXAMPLES / "detector.onnx").read_bytes()


class Client:
    """A server in this process, and requests to it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.thread = threading.Thread(target=server.serve_forever)
        self.thread.start()

    def ask(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def json(self, method, path, body=None, **headers):
        status, _, content = self.ask(method, path, body, **headers)
        return status, json.loads(content)

    def upload(self, name, content):
        """The job of an upload when it has ended, and what its progress was on the way."""
        status, job = self.json("PUT", f"/models/{name}", content)
        assert status == 201, job
        return self.wait(job["job"])

    def wait(self, token):
        seen = []
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            status, job = self.json("GET", f"/jobs/{token}")
            assert status == 200, job
            if not seen or seen[-1] != (job["progress"], job["done"], job["total"]):
                seen.append((job["progress"], job["done"], job["total"]))
            if job["state"] in ("done", "failed", "asks"):
                return job, seen
            time.sleep(0.01)
        raise AssertionError("the job does not end")

    def close(self):
        self.server.stop()
        self.thread.join()
        self.server.close()


@pytest.fixture
def started():
    clients = []

    def start(**options):
        options.setdefault("limits", WorkerLimits(120, 4 << 30))
        clients.append(Client(Server(port=0, target="m1,m5", **options)))
        return clients[-1]

    yield start
    for client in clients:
        client.close()
        assert not client.server.jobs.folder.place.exists()


def zipped(entries):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return stream.getvalue()


# A model in, a report out.


def test_an_upload_becomes_a_report_and_its_files_go(started):
    client = started()
    job, seen = client.upload("detector.onnx", DETECTOR)
    assert job["state"] == "done", job
    counted = [done / total for _, done, total in seen if total]
    assert counted == sorted(counted)
    assert len(counted) > 1
    status, headers, page = client.ask("GET", f"/jobs/{job['job']}/report")
    assert status == 200
    assert b"detector.onnx on the Apple Neural Engine" in page
    assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
    assert client.server.jobs.folder.uploads() == []
    told = report(EXAMPLES / "detector.onnx", "m1,m5")
    assert all(chip.label.encode() in page for chip in told.chips)


def test_a_package_comes_as_a_zip(started):
    client = started()
    names = ("convnet.plist", "convnet.weights.bin")
    content = zipped({f"net/{name}": (EXAMPLES / name).read_bytes() for name in names} | {"__MACOSX/x.onnx": b"x"})
    job, _ = client.upload("convnet.zip", content)
    assert job["state"] == "done", job
    assert b"convnet.plist" in client.ask("GET", f"/jobs/{job['job']}/report")[2]


def test_sizes_that_a_model_leaves_open_are_asked_for(started):
    client = started()
    encoder = (EXAMPLES / "tiny_encoder.onnx").read_bytes()
    job, _ = client.upload("tiny_encoder.onnx", encoder)
    assert job["state"] == "asks"
    assert job["sizes"] == [{"name": "batch", "least": 1, "most": None}]
    assert client.server.jobs.folder.uploads() == []
    job, _ = client.upload("tiny_encoder.onnx?dim=batch%3D1", encoder)
    assert job["state"] == "done", job
    assert b"tiny_encoder.onnx" in client.ask("GET", f"/jobs/{job['job']}/report")[2]


def test_chips_and_the_range_are_chosen_with_the_upload(started):
    client = started()
    job, _ = client.upload("detector.onnx?target=m3&max_abs=1", DETECTOR)
    assert job["state"] == "done", job
    page = client.ask("GET", f"/jobs/{job['job']}/report")[2]
    assert b'id="chip-m3"' in page
    assert b'id="chip-m1"' not in page


def test_the_example_is_a_model_that_is_read(started):
    client = started()
    status, _, model = client.ask("GET", "/example.aneforge")
    assert status == 200
    job, _ = client.upload("example.aneforge", model)
    assert job["state"] == "done", job


def test_the_head_of_a_report_says_that_it_is_there(started):
    client = started()
    job, _ = client.upload("detector.onnx?target=m5", DETECTOR)
    status, headers, body = client.ask("HEAD", f"/jobs/{job['job']}/report")
    assert (status, body) == (200, b"")
    assert int(headers["Content-Length"]) > 1000
    assert client.ask("HEAD", "/jobs/unknown/report")[0] == 404


@pytest.mark.parametrize(
    "query",
    [
        "target=m77",
        "max_abs=-1",
        "max_abs=nan",
        "dim=batch",
        "dim=batch=0",
        "dim=batch=1e9",
        "os=1",
        "&&",
        "target=m1" * 99,
    ],
)
def test_settings_that_are_none_are_refused_before_the_body_is_sent(started, query):
    client = started()
    status, answer = client.json("PUT", f"/models/net.onnx?{query}", DETECTOR)
    assert status == 400
    assert answer["error"]
    assert client.server.jobs.folder.uploads() == []


def test_settings_are_held_to_their_types():
    asked = settings_of("target=m1,m5&max_abs=2.5&dim=batch=4&dim=seq%20len=128", "macs")
    assert asked == UploadSettings("m1,m5", 2.5, {"batch": 4, "seq len": 128})
    assert settings_of("", "macs") == UploadSettings("macs")
    with pytest.raises(AneforgeError):
        settings_of("&".join(f"dim=d{number}=1" for number in range(99)), "m1")


def test_the_page_names_its_limit_and_loads_nothing_else(started):
    client = started(max_upload=3 << 20)
    status, headers, page = client.ask("GET", "/")
    assert status == 200
    assert b"up to 3.0 MB" in page
    assert b'data-limit="3145728"' in page
    assert b"@" not in page
    policy = headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers
    for name in ("page.css", "page.js", "zip.js"):
        assert f"/{name}".encode() in page
        assert client.ask("GET", f"/{name}")[0] == 200
        assert b"http" not in client.ask("GET", f"/{name}")[2].replace(b"XMLHttpRequest", b"")


# What is refused.


@pytest.mark.parametrize(
    ("name", "content"),
    [("bad.onnx", b"hello"), ("notes.txt", b"hello"), ("net.pt2", b"PK\x03\x04"), ("net.mlmodel", b"\xff\xff")],
)
def test_what_is_not_a_model_gets_the_line_of_the_command_line(started, tmp_path, name, content):
    job, _ = started().upload(name, content)
    (tmp_path / name).write_bytes(content)
    with pytest.raises(AneforgeError) as told:
        graph_of(tmp_path / name)
    assert (job["state"], job["error"]) == ("failed", str(told.value))


def test_python_is_never_run(started, tmp_path):
    content = f"open({str(tmp_path / 'was_here')!r}, 'w'); out = 1".encode()
    client = started()
    for name in ("net.py", "net.PY", "net.py%3Aout", "a%2F..%2Fnet.py"):
        job, _ = client.upload(name, content)
        assert job["state"] == "failed", name
    job, _ = client.upload("net.zip", zipped({"net.py": content}))
    assert "expected one model in the archive, found 0" in job["error"]
    assert not (tmp_path / "was_here").exists()


def test_a_file_that_is_too_large_is_refused_before_it_is_sent(started):
    client = started(max_upload=1000)
    status, answer = client.json("PUT", "/models/net.onnx", b"x" * 1001)
    assert status == 413
    assert answer["error"] == "upload: 1001 B is over the limit of 1000 B. Use aneforge report."
    with socket.create_connection(("127.0.0.1", client.server.port), timeout=30) as raw:
        head = f"PUT /models/a.onnx HTTP/1.1\r\nHost: 127.0.0.1:{client.server.port}\r\n"
        raw.sendall(f"{head}Content-Length: 9999\r\nExpect: 100-continue\r\n\r\n".encode())
        assert raw.recv(200).startswith(b"HTTP/1.1 413")
    assert client.server.jobs.folder.uploads() == []


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content_Length": "many"}, 411),
        ({"Content_Length": "0"}, 400),
        ({"Transfer_Encoding": "chunked"}, 411),
        ({"Host": "evil.example:{port}"}, 421),
        ({"Host": "127.0.0.1:1"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec_Fetch_Site": "cross-site"}, 403),
    ],
)
def test_requests_that_are_not_of_our_page_are_refused(started, headers, status):
    client = started()
    filled = {name: value.format(port=client.server.port) for name, value in headers.items()}
    found, answer = client.json("PUT", "/models/net.onnx", None if "Content_Length" in headers else b"x", **filled)
    assert found == status, answer
    assert answer["error"]


@pytest.mark.parametrize("path", ["/nothing", "/jobs/guess", "/jobs/guess/report", "/../etc/passwd", "/page.py"])
def test_what_is_not_there_is_said(started, path):
    assert started().json("GET", path)[0] == 404


def test_another_host_reads_nothing(started):
    client = started()
    assert client.json("GET", "/", Host="evil.example")[0] == 421
    assert client.ask("GET", "/", Host=f"localhost:{client.server.port}")[0] == 200
    assert client.json("DELETE", "/jobs/guess", Origin="http://evil.example")[0] == 403


def test_a_slow_upload_ends(started, monkeypatch):
    monkeypatch.setattr(server_module._Handler, "timeout", 0.5)
    client = started()
    with socket.create_connection(("127.0.0.1", client.server.port), timeout=30) as raw:
        head = f"PUT /models/a.onnx HTTP/1.1\r\nHost: 127.0.0.1:{client.server.port}\r\nContent-Length: 100\r\n\r\n"
        raw.sendall(head.encode() + b"some bytes")
        answer = raw.recv(4000)
    assert answer.startswith(b"HTTP/1.1 408")
    assert client.server.jobs.folder.uploads() == []


def test_an_upload_below_the_least_rate_ends(started, monkeypatch):
    monkeypatch.setattr(server_module, "_WINDOW", 0.2)
    client = started()
    with socket.create_connection(("127.0.0.1", client.server.port), timeout=30) as raw:
        head = f"PUT /models/a.onnx HTTP/1.1\r\nHost: 127.0.0.1:{client.server.port}\r\nContent-Length: 100\r\n\r\n"
        raw.sendall(head.encode())
        raw.settimeout(0.05)
        answer = b""
        for _ in range(99):
            try:
                raw.sendall(b"x")
                answer += raw.recv(4000)
            except TimeoutError:
                continue
            if b"}" in answer:  # head and body may come apart
                break
    assert b"below the least rate" in answer
    assert client.server.jobs.folder.uploads() == []


def test_connections_that_send_no_request_do_not_shut_others_out(started, monkeypatch):
    monkeypatch.setattr(server_module, "_HEAD_PATIENCE", 0.3)
    client = started()
    silent = [socket.create_connection(("127.0.0.1", client.server.port), timeout=30) for _ in range(80)]
    try:
        silent[0].sendall(b"GET / HT")
        deadline = time.monotonic() + 20
        answered = False
        while time.monotonic() < deadline and not answered:
            try:
                answered = client.ask("GET", "/", Host=f"localhost:{client.server.port}")[0] == 200
            except OSError:
                time.sleep(0.1)
        assert answered
    finally:
        for connection in silent:
            connection.close()


def test_an_upload_that_comes_in_counts(started):
    client = started()
    jobs = client.server.jobs
    with contextlib.ExitStack() as arriving:
        for _ in range(jobs._most_open):
            arriving.enter_context(jobs.arrival())
        assert client.json("PUT", "/models/net.onnx", b"x")[0] == 503
    assert client.json("PUT", "/models/net.onnx", b"x")[0] == 201


def test_messages_do_not_say_where_uploads_lie(started):
    client = started()
    job, _ = client.upload("net.onnx", b"not a model")
    assert job["state"] == "failed"
    assert str(client.server.jobs.folder.place) not in job["error"]
    assert "net.onnx" in job["error"]
    job, _ = client.upload("net.zip", zipped({"a/net.onnx": b"no model"}))
    assert str(client.server.jobs.folder.place) not in job["error"]


def test_an_archive_of_very_many_files_is_refused(tmp_path):
    (tmp_path / "many.zip").write_bytes(zipped({f"{number}.txt": b"" for number in range(10_001)}))
    with pytest.raises(LoadError, match="over the budget unpacked_files"):
        unpack(tmp_path / "many.zip", tmp_path / "unpacked")
    assert not (tmp_path / "unpacked").exists()


def test_an_upload_that_breaks_off_leaves_nothing(started):
    client = started()
    with socket.create_connection(("127.0.0.1", client.server.port), timeout=30) as raw:
        head = f"PUT /models/a.onnx HTTP/1.1\r\nHost: 127.0.0.1:{client.server.port}\r\nContent-Length: 100\r\n\r\n"
        raw.sendall(head.encode() + b"some bytes")
        raw.shutdown(socket.SHUT_WR)
        assert b"ended 90 bytes early" in raw.recv(4000) + raw.recv(4000)
    assert client.server.jobs.folder.uploads() == []


# Jobs that go wrong.


def slow_job(monkeypatch, function):
    monkeypatch.setattr("aneforge.reports.serve.jobs.FUNCTION", f"serve_kit:{function}")


def test_a_job_that_takes_too_long_is_ended(started, monkeypatch):
    slow_job(monkeypatch, "sleep")
    client = started(limits=WorkerLimits(1.0))
    job, _ = client.upload("net.onnx", DETECTOR)
    assert (job["state"], job["error"]) == ("failed", "net.onnx: took more than 1 seconds, the limit of time")
    assert client.server.jobs.folder.uploads() == []


def test_a_job_that_dies_says_so_and_the_next_one_runs(started, monkeypatch):
    slow_job(monkeypatch, "die")
    client = started()
    job, _ = client.upload("net.onnx", DETECTOR)
    assert (job["state"], job["error"]) == (
        "failed",
        "net.onnx: its process ended by signal 9 (Killed) before it was done",
    )
    monkeypatch.undo()
    assert client.upload("net.onnx", DETECTOR)[0]["state"] == "done"


def test_a_job_that_needs_too_much_memory_is_ended(started, monkeypatch):
    slow_job(monkeypatch, "grow")
    job, _ = started(limits=WorkerLimits(60, 1 << 30)).upload("net.onnx", DETECTOR)
    assert job["error"] == "net.onnx: needs more than 1.00 GB, the limit of memory"


def test_a_job_can_be_cancelled(started, monkeypatch):
    slow_job(monkeypatch, "sleep")
    client = started()
    _, job = client.json("PUT", "/models/net.onnx", DETECTOR)
    assert client.json("GET", f"/jobs/{job['job']}/report")[0] == 404
    assert client.json("DELETE", f"/jobs/{job['job']}")[0] == 200
    ended, _ = client.wait(job["job"])
    assert (ended["state"], ended["error"]) == ("failed", "cancelled")


def test_too_many_jobs_are_refused_and_all_end_with_the_server(started, monkeypatch):
    slow_job(monkeypatch, "sleep")
    client = started()
    for _ in range(min(2, os.cpu_count() or 1) + MOST_WAITING):
        assert client.json("PUT", "/models/net.onnx", b"x")[0] == 201
    status, headers, _ = client.ask("PUT", "/models/net.onnx", b"x")
    assert status == 503
    assert headers["Retry-After"]


def test_jobs_that_have_ended_are_forgotten_in_time(monkeypatch):
    monkeypatch.setattr("aneforge.reports.serve.jobs.FUNCTION", "serve_kit:refuse")
    monkeypatch.setattr("aneforge.reports.serve.jobs.MOST_KEPT", 1)
    jobs = Jobs(WorkerLimits(60), 1)
    try:
        added = []
        for _ in range(4):
            added.append(jobs.add("net.onnx", jobs.folder.new_upload(), UploadSettings("m1")))
            while not added[-1].ended:
                time.sleep(0.01)
        assert jobs.get(added[0].id) is None
        assert jobs.get(added[-1].id) is added[-1]
        assert added[-1].error == "net.onnx: refused; give another"
    finally:
        jobs.close()


def test_room_is_asked_for(monkeypatch):
    jobs = Jobs(WorkerLimits(60), 1)
    monkeypatch.setattr(jobs, "_most_open", 0)
    try:
        with pytest.raises(BusyError, match="at most that many may wait"):
            jobs.require_room()
    finally:
        jobs.close()


# Folders of servers that were killed.


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_killed_servers_folder_is_removed_by_the_next(temporary):
    environment = {**sweep_kit.environment(), "TMPDIR": str(temporary)}
    words = sweep_kit.command("serve", "--port", "0", "--target", "m1", "--json")
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=environment) as running:
        running.stdout.readline()
        (folder,) = temporary.glob("aneforge-serve-*")
        (folder / "uploads" / "model.onnx").write_bytes(b"a stranger's")
        with Server(port=0, target="m1") as server:
            assert folder.exists()  # its server runs
        running.kill()
        running.wait()
    assert folder.exists()
    with Server(port=0, target="m1") as server:
        assert list(temporary.iterdir()) == [server.jobs.folder.place]
    assert list(temporary.iterdir()) == []


def test_folders_that_are_not_an_ended_servers_stay(temporary, monkeypatch):
    (temporary / "aneforge-serve-starting").mkdir()  # no lock yet
    (temporary / "aneforge-serve-file").write_text("x")
    (temporary / "elsewhere").mkdir()
    (temporary / "elsewhere" / "owner.lock").touch()
    (temporary / "aneforge-serve-link").symlink_to(temporary / "elsewhere")
    (temporary / "aneforge-serve-linked-lock").mkdir()
    (temporary / "aneforge-serve-linked-lock" / "owner.lock").symlink_to(temporary / "elsewhere" / "owner.lock")
    before = sorted(temporary.rglob("*"))
    assert remove_abandoned() == []
    assert sorted(temporary.rglob("*")) == before
    (temporary / "aneforge-serve-mine").mkdir()
    (temporary / "aneforge-serve-mine" / "owner.lock").touch()
    monkeypatch.setattr("os.getuid", lambda: 12345)
    assert remove_abandoned() == []  # somebody else's
    monkeypatch.undo()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    assert remove_abandoned() == [temporary / "aneforge-serve-mine"]


def test_no_room_for_uploads_is_one_line(tmp_path):
    """Root may write anywhere, so the folder is one that nobody can make: below a file."""
    (tmp_path / "file").touch()
    code = (
        "import tempfile; tempfile.tempdir = {!r}; "
        "from aneforge.reports.serve import Server; Server(port=0, target='m1')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code.format(str(tmp_path / "file" / "below"))],
        check=False,
        capture_output=True,
        text=True,
        env=sweep_kit.environment(),
    )
    assert "AneforgeError: uploads cannot be stored (Not a directory); set TMPDIR" in done.stderr


# Names, hosts, archives.


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("net.onnx", "net.onnx"),
        ("my%20net.onnx", "my_net.onnx"),
        ("..%2F..%2Fetc%2Fnet.onnx", "net.onnx"),
        ("C%3A%5Cmodels%5Cnet.onnx", "net.onnx"),
        ("net.py%3Aout", "net.py_out"),
        ("-rf.onnx", "rf.onnx"),
        (".hidden.onnx", "hidden.onnx"),
        ("%00net.onnx", "_net.onnx"),
        ("n" * 400 + ".onnx", "n" * 115 + ".onnx"),
        ("n%C3%A9t.onnx", "n_t.onnx"),
    ],
)
def test_a_name_is_only_a_name(given, name):
    assert safe_name(given) == name


@pytest.mark.parametrize("given", ["", "..", "%2F", "...", "a/"])
def test_a_name_that_is_none_is_refused(given):
    with pytest.raises(RefusedError, match="not a name for a model"):
        safe_name(given)


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("127.0.0.1:8017", True),
        ("localhost:8017", True),
        ("[::1]:8017", True),
        ("192.168.0.7:8017", True),
        ("LOCALHOST:8017", True),
        ("localhost", False),
        ("localhost:80", False),
        ("evil.example:8017", False),
        ("localhost.evil.example:8017", False),
        ("127.0.0.1.evil.example:8017", False),
        ("127.0.0.1:8017@evil", False),
        ("", False),
        (None, False),
    ],
)
def test_hosts(header, known):
    assert is_known_host(header, 8017, "127.0.0.1") == known


def test_our_own_page_may_upload():
    assert is_from_here({"Host": "localhost:8017", "Origin": "http://localhost:8017", "Sec-Fetch-Site": "same-origin"})
    assert is_from_here({"Host": "localhost:8017"})
    assert not is_from_here({"Host": "localhost:8017", "Origin": "http://localhost:9999"})


@pytest.mark.parametrize("name", ["../out.onnx", "/etc/out.onnx", "a/../../out.onnx", "C:\\out.onnx"])
def test_an_archive_writes_nothing_outside(tmp_path, name):
    (tmp_path / "a.zip").write_bytes(zipped({name: "x"}))
    with pytest.raises(LoadError, match="leads out of the archive"):
        unpack(tmp_path / "a.zip", tmp_path / "deep" / "unpacked")
    assert not list(tmp_path.rglob("*.onnx"))


def test_links_and_bombs_in_an_archive_are_refused(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "link.zip", "w") as archive:
        link = zipfile.ZipInfo("net.onnx")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    with pytest.raises(LoadError, match="must have no links"):
        unpack(tmp_path / "link.zip", tmp_path / "unpacked")
    (tmp_path / "bomb.zip").write_bytes(zipped({"net.onnx": bytes(64 << 20)}))
    with pytest.raises(LoadError, match="over the budget archive_ratio"):
        unpack(tmp_path / "bomb.zip", tmp_path / "unpacked")
    monkeypatch.setenv("ANEFORGE_MAX_UNPACKED_BYTES", "10")
    (tmp_path / "large.zip").write_bytes(zipped({"net.onnx": b"12345678901"}))
    with pytest.raises(LoadError, match="over the budget unpacked_bytes"):
        unpack(tmp_path / "large.zip", tmp_path / "unpacked")


@pytest.mark.parametrize(
    ("entries", "told"),
    [({}, "found 0"), ({"a.onnx": "x", "b/b.onnx": "x"}, r"found 2 \(a.onnx, b.onnx\)"), ({"a.txt": "x"}, "found 0")],
)
def test_an_archive_has_one_model(tmp_path, entries, told):
    (tmp_path / "a.zip").write_bytes(zipped(entries))
    with pytest.raises(LoadError, match=told):
        unpack(tmp_path / "a.zip", tmp_path / "unpacked")


def test_what_is_not_an_archive_is_one_line(tmp_path):
    (tmp_path / "a.zip").write_bytes(b"hello")
    with pytest.raises(LoadError, match=r"a.zip: not a zip archive that can be read"):
        unpack(tmp_path / "a.zip", tmp_path / "unpacked")


def test_a_package_is_found_as_a_folder(tmp_path):
    inner = "net.mlpackage/Data/com.apple.CoreML/model.mlmodel"
    (tmp_path / "a.zip").write_bytes(zipped({inner: "x", "net.mlpackage/Manifest.json": "{}"}))
    assert unpack(tmp_path / "a.zip", tmp_path / "unpacked").name == "net.mlpackage"


# The command.


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_until_it_is_stopped_and_leaves_nothing(tmp_path, number):
    words = sweep_kit.command("serve", "--port", "0", "--target", "m1", "--json")
    environment = {**sweep_kit.environment(), "TMPDIR": str(tmp_path)}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as running:
        url = json.loads(running.stdout.readline())["url"]
        port = int(url.rstrip("/").rpartition(":")[2])
        assert url == f"http://127.0.0.1:{port}/"
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        connection.request("PUT", "/models/detector.onnx", DETECTOR)
        assert connection.getresponse().status == 201
        connection.close()
        assert list(tmp_path.glob("aneforge-serve-*"))
        running.send_signal(number)
        running.communicate(timeout=60)
    assert running.returncode == 0
    assert not list(tmp_path.glob("aneforge-serve-*"))


def test_the_command_warns_when_others_can_reach_it(tmp_path):
    words = sweep_kit.command("serve", "--host", EVERYWHERE, "--port", "0", "--target", "m1")
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=sweep_kit.environment()
    ) as running:
        assert running.stdout.readline().startswith("serving on http://0.0.0.0:")
        running.send_signal(signal.SIGTERM)
        told = running.communicate(timeout=60)[1]
    assert "warning: 0.0.0.0 can be reached from other machines" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--target", "m77"), "m77"),
        (("--max-upload", "much"), "not a size"),
        (("--max-memory", "1K"), "at least 256M"),
        (("--port", "99999"), "cannot be bound"),
        (("--host", "203.0.113.1"), "cannot be bound"),
    ],
)
def test_bad_options_are_one_line(words, told):
    done = sweep_kit.run("serve", *words)
    assert done.returncode == 2
    assert told in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_local_server_knows_that_it_is(monkeypatch):
    for host, local in (("127.0.0.1", True), ("localhost", True), (EVERYWHERE, False)):
        with Server(host, 0, "m1") as server:
            assert server.is_local == local
            assert server.jobs.folder.place.is_dir()
        assert not server.jobs.folder.place.exists()
