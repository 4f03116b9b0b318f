"""Boards pushed into a small fake of Grafana's API, and the folder that Grafana mounts."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from tailscope.cli import main
from tailscope.dashboards.boards import boards
from tests.tools import ROOT

TOKEN = "glsa_secret"
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
BASIC = "Basic " + base64.b64encode(b"admin:s:cret").decode()


class FakeGrafana:
    """Folders and boards over HTTP, with the answers of the real one's API."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.folders: dict[str, str] = {}
        self.boards: dict[str, dict[str, Any]] = {}
        self.place: dict[str, str | None] = {}
        self.changes = 0
        self.asked: list[str] = []

    def answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        path = path.removeprefix("/grafana")
        if path.startswith("/api/dashboards/uid/"):
            board = self.boards.get(path.rpartition("/")[2])
            if board is None:
                return 404, {"message": "Dashboard not found"}
            folder = self.place[board["uid"]] or ""
            return 200, {"dashboard": board, "meta": {"slug": "x", "folderUid": folder}}
        if method == "GET" and path.startswith("/api/folders"):
            return 200, [{"uid": uid, "title": title} for title, uid in self.folders.items()]
        self.changes += 1
        if path == "/api/folders":
            uid = f"folder{len(self.folders)}"
            self.folders[body["title"]] = uid
            return 200, {"uid": uid, "title": body["title"]}
        return self._save(body)

    def _save(self, body: dict[str, Any]) -> tuple[int, Any]:
        board = body["dashboard"]
        if board["uid"] in self.boards and not body["overwrite"]:
            return 412, {"message": "The dashboard has been changed by someone else"}
        if body.get("folderUid") not in (None, *self.folders.values()):
            return 400, {"message": "folder not found"}
        version = self.boards.get(board["uid"], {}).get("version", 0) + 1
        self.boards[board["uid"]] = {**board, "id": len(self.boards) + 1, "version": version}
        self.place[board["uid"]] = body.get("folderUid")
        return 200, {"status": "success", "uid": board["uid"], "version": version}


@contextmanager
def serving(
    status: int | None = None, text: str = "", headers: Mapping[str, str] = NO_HEADERS
) -> Iterator[FakeGrafana]:
    """Run the fake until the block ends; ``status`` and ``text`` in place of all answers."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def _answer(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers.get("Content-Length", 0))) or "{}")
            fake.asked.append(self.path)
            allowed = self.headers.get("Authorization") in (f"Bearer {TOKEN}", BASIC)
            code, found = 401, {"message": "Unauthorized"}
            if allowed:
                code, found = fake.answer(self.command, self.path, body)
            data = text.encode() if status else json.dumps(found).encode()
            self.send_response(status or code)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fake = FakeGrafana(f"http://127.0.0.1:{server.server_address[1]}")
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield fake
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    with serving() as fake:
        yield fake


def push(fake: FakeGrafana, *flags: str) -> int:
    return main(["dashboards", "push", "--grafana-url", fake.url, *flags])


LOGIN = ("--grafana-token", TOKEN)


def test_all_boards_come_into_their_folder(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(grafana, *LOGIN) == 0
    assert list(grafana.folders) == ["Tailscope"]
    assert set(grafana.place.values()) == {grafana.folders["Tailscope"]}
    for board in boards():
        saved = grafana.boards[board.uid]
        assert {k: v for k, v in saved.items() if k not in ("id", "version")} == board.json()
    said = capsys.readouterr()
    assert said.out.count(": saved") == len(boards())
    assert TOKEN not in said.out + said.err


def test_a_second_push_changes_nothing(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]
) -> None:
    push(grafana, *LOGIN)
    changes = grafana.changes
    assert push(grafana, *LOGIN) == 0
    assert grafana.changes == changes
    assert capsys.readouterr().out.count("as it should be") == len(boards())


def test_another_content_is_replaced_only_when_asked(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("--board", "tailscope-triage")
    push(grafana, *LOGIN, *one)
    grafana.boards["tailscope-triage"]["title"] = "Ours"
    assert push(grafana, *LOGIN, *one) == 2
    assert "give --overwrite" in capsys.readouterr().err
    assert grafana.boards["tailscope-triage"]["title"] == "Ours"
    assert push(grafana, *LOGIN, *one, "--overwrite") == 0
    assert grafana.boards["tailscope-triage"]["title"] == "Tailscope / 1 Triage"
    assert grafana.boards["tailscope-triage"]["version"] == 2


def test_a_dry_run_says_what_would_be_done_and_does_nothing(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(grafana, *LOGIN, "--dry-run") == 0
    assert capsys.readouterr().out.count("new, would be saved") == len(boards())
    assert (grafana.changes, grafana.folders) == (0, {})
    push(grafana, *LOGIN)
    grafana.boards["tailscope-gpu"]["title"] = "Ours"
    capsys.readouterr()
    push(grafana, *LOGIN, "--dry-run")
    assert "tailscope-gpu: differs, would be refused" in capsys.readouterr().out
    push(grafana, *LOGIN, "--dry-run", "--overwrite")
    assert "tailscope-gpu: differs, would be replaced" in capsys.readouterr().out
    assert grafana.boards["tailscope-gpu"]["title"] == "Ours"


def test_a_user_and_a_password_will_do(grafana: FakeGrafana) -> None:
    user = ("--grafana-user", "admin", "--grafana-password", "s:cret")
    assert push(grafana, *user, "--folder", "Teams", "--board", "tailscope-queue") == 0
    assert list(grafana.folders) == ["Teams"]
    assert push(grafana, *user, "--folder", "", "--board", "tailscope-gpu") == 0
    assert grafana.place["tailscope-gpu"] is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--grafana-token", "wrong"), "--grafana-token: Grafana refuses it (401)"),
        ((*LOGIN, "--board", "nothing"), "--board nothing: there is none; there are tailscope-"),
    ],
)
def test_what_is_wrong_is_named(
    grafana: FakeGrafana, flags: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(grafana, *flags) == 2
    assert said in capsys.readouterr().err


NO_ONE_OF_GRAFANA = "the answer is not one of Grafana's; give its address, with its sub-path"


@pytest.mark.parametrize(
    ("status", "text", "said"),
    [
        (200, "<html>", NO_ONE_OF_GRAFANA),
        (200, "{}", NO_ONE_OF_GRAFANA),
        (200, "[1]", NO_ONE_OF_GRAFANA),
        (200, "null", NO_ONE_OF_GRAFANA),
        (403, '{"message": "needs folders:read"}', "refuses it (403): needs folders:read"),
        (409, '{"message": "a folder of that name exists"}', "answers 409: a folder of that name"),
        (412, '{"status": "version-mismatch"}', "another content; give --overwrite"),
        (412, '{"status": "name-exists"}', "of the same title in this folder; rename or delete it"),
        (500, '{"message": "database is locked"}', "answers 500: database is locked"),
        (502, "<b>\nbad gateway", "answers 502: <b> bad gateway"),
    ],
)
def test_something_else_in_the_place_of_grafana_is_named(
    status: int, text: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(status, text) as fake:
        assert push(fake, *LOGIN) == 2
    assert said in capsys.readouterr().err


def test_a_grafana_that_is_elsewhere_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(302, headers={"Location": "https://grafana.example/login"}) as fake:
        assert push(fake, *LOGIN) == 2
    assert "answers 302, and points to https://grafana.example/login" in capsys.readouterr().err


ONE = ("--board", "tailscope-queue")


@pytest.mark.parametrize("path", ["/grafana", "/grafana/", "/grafana/?orgId=1"])
def test_an_address_may_have_a_path_below_which_grafana_is(path: str, grafana: FakeGrafana) -> None:
    flags = ("--grafana-url", grafana.url + path, *LOGIN, *ONE)
    assert main(["dashboards", "push", *flags]) == 0
    assert list(grafana.boards) == ["tailscope-queue"]
    assert all(path.startswith("/grafana/api/") for path in grafana.asked)


def test_an_address_may_have_the_login_which_no_message_shows(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]
) -> None:
    place = grafana.url.removeprefix("http://")
    assert (
        main(["dashboards", "push", "--grafana-url", f"http://admin:s%3Acret@{place}", *ONE]) == 0
    )
    with serving(500) as fake:
        place = fake.url.removeprefix("http://")
        url = f"http://admin:hunter2@{place}"
        assert main(["dashboards", "push", "--grafana-url", url, *ONE]) == 2
    assert main(["dashboards", "push", "--grafana-url", "ftp://admin:hunter2@there", *ONE]) == 2
    said = capsys.readouterr().err
    assert "--grafana-url there: give an address such as" in said
    assert "hunter2" not in said


def test_a_token_is_taken_without_the_end_of_its_line(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]
) -> None:
    assert push(grafana, "--grafana-token", f"{TOKEN}\n", *ONE) == 0
    assert push(grafana, "--grafana-token", "glsa_\u2026", *ONE) == 2
    assert "--grafana-token: it has a character that no token has" in capsys.readouterr().err
    assert push(grafana, *ONE) == 2
    assert "--grafana-token: it is missing, and Grafana asks for it" in capsys.readouterr().err


def test_a_board_in_another_folder_stays_there_until_it_is_to_be_overwritten(
    grafana: FakeGrafana, capsys: pytest.CaptureFixture[str]
) -> None:
    push(grafana, *LOGIN, *ONE, "--folder", "Ours")
    assert push(grafana, *LOGIN, *ONE) == 0
    assert grafana.place["tailscope-queue"] == grafana.folders["Ours"]
    assert push(grafana, *LOGIN, *ONE, "--dry-run", "--overwrite") == 0
    assert push(grafana, *LOGIN, *ONE, "--overwrite") == 0
    assert grafana.place["tailscope-queue"] == grafana.folders["Tailscope"]
    said = capsys.readouterr().out
    assert "tailscope-queue: as it should be, but in another folder\n" in said
    assert "in another folder, would be moved\n" in said
    assert "tailscope-queue: moved\n" in said


def test_the_proxy_of_the_environment_is_taken_but_not_for_this_machine(
    grafana: FakeGrafana, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The fake stands for the proxy: what it is asked for is the whole address."""
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("http_proxy", grafana.url)
    there = ("--grafana-url", "http://grafana.example:3000", *LOGIN, *ONE)
    assert main(["dashboards", "push", *there]) == 2
    assert grafana.asked == ["http://grafana.example:3000/api/folders?limit=1000"]
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:9")
    assert push(grafana, *LOGIN, *ONE) == 0
    assert main(["dashboards", "push", *there]) == 2
    assert "the proxy of the environment is none: Proxy URL had" in capsys.readouterr().err


def test_a_grafana_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as fake:
        pass
    assert push(fake, *LOGIN) == 2
    assert f"--grafana-url {fake.url}" in capsys.readouterr().err
    assert main(["dashboards", "push"]) == 2
    assert "--grafana-url is missing" in capsys.readouterr().err


def test_the_folder_that_grafana_mounts_leads_to_the_boards() -> None:
    folder = ROOT / "dashboards" / "provisioning"
    (provider,) = yaml.safe_load((folder / "dashboards/tailscope.yaml").read_text())["providers"]
    assert (provider["type"], provider["allowUiUpdates"]) == ("file", False)
    readme = (ROOT / "dashboards" / "README.md").read_text(encoding="utf-8")
    assert f"dashboards/json:{provider['options']['path']}" in readme
    assert "dashboards/provisioning:/etc/grafana/provisioning" in readme
    (source,) = yaml.safe_load((folder / "datasources/tailscope.yaml").read_text())["datasources"]
    assert source["type"] == "prometheus"
    assert f"TAILSCOPE_PROMETHEUS_UID={source['uid']}" in readme
