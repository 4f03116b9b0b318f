"""Who sees what, with a real OpenID Connect provider, as docs/app.md says to set it up."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import urllib3
from playwright.sync_api import Page, expect

from tests import chromium, process, recorded
from tests.chromium import PATIENCE, follow, offered
from tests.test_browser import running

DOC = Path(__file__).parents[1] / "docs" / "app.md"

USERS = (
    {"sub": "ann", "email": "ann@example.com", "email_verified": True},
    {"sub": "bob", "email": "Bob@example.com"},
)


@contextmanager
def provider(log: Path) -> Iterator[str]:
    """Run an OpenID Connect provider that knows these users; yield its address."""
    port = process.free().port
    users = [flag for user in USERS for flag in ("--user-claims", json.dumps(user))]
    command = [sys.executable, "-m", "oidc_provider_mock", "--port", str(port), *users]
    with log.open("wb") as out:
        # Without TLS, which the provider's library has to be told.
        more = {"AUTHLIB_INSECURE_TRANSPORT": "1", "PYTHONWARNINGS": "ignore"}
        running_ = subprocess.Popen(
            command, env=process.environment(**more), stdout=out, stderr=subprocess.STDOUT
        )
    url = f"http://127.0.0.1:{port}"
    pool = urllib3.PoolManager(retries=False, timeout=5.0)

    def answers() -> bool:
        assert running_.poll() is None, log.read_text()
        try:
            found = pool.request("GET", f"{url}/.well-known/openid-configuration")
        except urllib3.exceptions.HTTPError:
            return False
        return found.status == 200

    try:
        process.until(answers, "the provider answers", seconds=PATIENCE / 1000)
        yield url
    finally:
        running_.terminate()
        running_.wait(process.PATIENCE)


def documented(name: str) -> str:
    """A file as the docs show it."""
    found = re.search(rf"```toml\n# {name}[^\n]*\n(.*?)```", DOC.read_text(encoding="utf-8"), re.S)
    assert found is not None, name
    return found[1]


@contextmanager
def app(folder: Path) -> Iterator[str]:
    """Run the app with a login, on the files of the docs; yield its address."""
    rows = [row for row in recorded.records() if (row.request_id or "") < "tail-0050"]
    store = recorded.store(folder / "store", recorded.shifted(rows, ago=60))
    with provider(folder / "provider") as there:
        port = process.free().port
        here = f"http://127.0.0.1:{port}"
        secrets = documented("secrets.toml").replace("https://triage.example.com", here)
        secrets = secrets.replace("https://login.example.com", there)
        assert here in secrets and there in secrets
        (folder / "secrets.toml").write_text(secrets)
        (folder / "roles.toml").write_text(documented("roles.toml"))
        flags = ("--secrets", f"{folder}/secrets.toml", "--roles", f"{folder}/roles.toml")
        with running(store, folder / "log", *flags, port=port) as (url, _):
            yield url


def log_in(page: Page, who: str) -> None:
    name = page.locator("input[name=sub]")
    follow(page.get_by_role("button", name="Log in"), name)
    name.fill(who)
    page.get_by_role("button", name="Authorize", exact=True).click()


def log_out(page: Page) -> None:
    ended = page.get_by_role("button", name="End session")  # the provider's
    follow(page.get_by_role("button", name="Log out"), ended)
    ended.click()
    expect(page.get_by_text("Please log in")).to_be_visible()


def test_a_login_shows_what_its_role_may_see(tmp_path: Path) -> None:
    with app(tmp_path) as url, chromium.browser() as browser:
        page = browser.new_page(locale="en-US")
        page.set_default_timeout(PATIENCE)
        page.goto(f"{url}/health?window=all")
        body = page.locator("body")
        expect(page.get_by_text("Please log in")).to_be_visible()
        assert "initech" not in body.inner_text()

        log_in(page, "ann")
        expect(page.get_by_text("Logged in as ann@example.com")).to_be_visible()
        assert {"acme", "initech"} <= set(offered(page, "Tenant"))

        log_out(page)
        log_in(page, "bob")
        expect(page.get_by_text("You see tenant acme")).to_be_visible()
        assert {"acme", "other tenants"} == {
            one for one in offered(page, "Tenant") if "elect" not in one
        }
        # Who loses the role loses the page, too, though it stays open.
        (tmp_path / "roles.toml").write_text('operators = ["ann@example.com"]\n')
        expect(page.get_by_text("names no role")).to_be_visible()
        expect(body).not_to_contain_text("acme")
    assert "Traceback" not in (tmp_path / "log").read_text()
