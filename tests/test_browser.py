"""The triage app as a user meets it: the real command, a real browser."""

from __future__ import annotations

import itertools
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import urllib3
from PIL import Image
from playwright.sync_api import Browser, Page, expect

from tailscope.app.palette import COLOURS
from tailscope.records.record import RequestRecord
from tailscope.records.store import Store
from tailscope.triage.diagnosis import Diagnosis
from tailscope.triage.words import seconds
from tests import chromium, gpusamples, process, recorded
from tests.chromium import PATIENCE, SOON, done, follow, offered
from tests.gpusamples import BUSY, Board


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium.browser() as started:
        yield started


@contextmanager
def running(
    data: Path, log: Path, *flags: str, port: int | None = None
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Run ``tailscope app`` and wait until it answers; yield its address."""
    port = port or process.free().port
    command = [*process.TAILSCOPE, "app", "--data", str(data), "--port", str(port), *flags]
    with log.open("wb") as out:
        app = subprocess.Popen(
            command,
            env=process.environment(),
            cwd=log.parent,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    url = f"http://127.0.0.1:{port}"
    pool = urllib3.PoolManager(retries=False, timeout=5.0)

    def answers() -> bool:
        assert app.poll() is None, log.read_text()
        try:
            return pool.request("GET", f"{url}/_stcore/health").status == 200
        except urllib3.exceptions.HTTPError:
            return False

    try:
        process.until(answers, "the app answers", seconds=PATIENCE / 1000)
        yield url, app
    finally:
        app.terminate()
        app.wait(process.PATIENCE)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The app on a store with the recording, which ended a minute ago."""
    folder = tmp_path_factory.mktemp("app")
    store = recorded.store(folder / "store", recorded.shifted(recorded.records(), ago=60))
    with running(store, folder / "log", "--notice", "This is a recording.") as (address, _):
        yield address


@contextmanager
def opened(browser: Browser, url: str, *, dark: bool = False) -> Iterator[Page]:
    """A page of 1,280 pixels; at its end nothing may have gone wrong in it."""
    context = browser.new_context(
        viewport={"width": 1280, "height": 900}, color_scheme="dark" if dark else "light"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE)
    complaints = chromium.Complaints(page)
    try:
        page.goto(url)
        yield page
        assert complaints.errors == []
        assert complaints.foreign == []
    finally:
        context.close()


def settled(page: Page, drawings: int = 5) -> None:
    """Wait until the page has its charts and nothing runs any more."""
    expect(page.locator("[data-testid=stVegaLiteChart] svg.marks")).to_have_count(
        drawings, timeout=PATIENCE
    )
    expect(page.locator("[data-stale=true]")).to_have_count(0, timeout=PATIENCE)


def says(page: Page, *texts: str) -> None:
    """Wait until the page says all of this."""
    for text in texts:
        expect(page.locator("[data-testid=stMain]")).to_contain_text(text, use_inner_text=True)


def at(page: Page, *parts: str) -> None:
    """Wait until the address has all of these parts."""
    for part in parts:
        expect(page).to_have_url(re.compile(re.escape(part)))


def test_the_page_tells_tenants_stage_and_sentence(browser: Browser, url: str) -> None:
    with opened(browser, url) as page:
        settled(page)
        says(page, "This is a recording.", "p50 1.72 s, p99 4.68 s over 278 requests since")
        says(page, "83 % of the slow seconds are in the queue.", "is owed to tenant initech")
        for tenant in ("acme", "globex", "initech", "umbrella"):
            expect(page.get_by_text(tenant, exact=True)).not_to_have_count(0)
        charts = page.locator("[data-testid=stVegaLiteChart]")
        for stage in ("frontend", "queue", "prefill", "decode"):
            expect(charts.get_by_text(stage)).not_to_have_count(0)
        says(page, "1.72 s", "4.38 s", "4.68 s", "0.822 s", "3.47 s", "3.74 s")


def test_a_click_on_a_slow_request_shows_its_timeline(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/?window=all&live=false") as page:
        settled(page)
        first = page.get_by_role("heading", name=re.compile("^Request tail-"))
        worst = Diagnosis(recorded.frame()).finding.slow.slowest
        expect(first).to_have_text(f"Request {worst[0].name}")
        table = page.locator("[data-testid=stDataFrame]").nth(3)
        table.scroll_into_view_if_needed()
        # The table is drawn on a canvas: the head is one row high, the third row is wanted.
        done(
            lambda: table.click(position={"x": 20, "y": 35 * 3 + 17}),
            lambda: expect(first).to_have_text(f"Request {worst[2].name}", timeout=SOON),
        )
        at(page, "request=")
        settled(page)
        says(page, f"It took {seconds(worst[2].total_seconds or 0)}: ")

        again = page.url
        page.goto("about:blank")
        page.goto(again)
        expect(first).to_have_text(f"Request {worst[2].name}")

        box = page.get_by_role("textbox", name="Request")
        follow(page.get_by_role("link", name="Open this request on its own page"), box)
        expect(box).to_have_value(re.compile(r"^\d+-[0-9a-f]{16}$"))
        expect(first).to_have_text(f"Request {worst[2].name}")
        settled(page, drawings=2)


def test_a_link_leads_to_the_request_and_its_neighbours(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/?window=all&request=tail-0216-umbrella") as page:
        settled(page)
        says(page, "Request tail-0216-umbrella", "tenant initech held 6.5 places on average")
        says(page, "24 requests of the 24 that overlapped it")
        gantt = page.locator("[data-testid=stVegaLiteChart]").nth(3)
        expect(gantt.get_by_text("this request")).to_have_count(1)
        # 24 neighbours and itself, each with several stages.
        assert gantt.locator(".mark-rect path").count() > 60


def test_activity_lies_under_the_request_on_the_same_axis(browser: Browser, tmp_path: Path) -> None:
    rows = recorded.shifted(recorded.records(), ago=60)
    store = recorded.store(tmp_path / "store", rows)
    gpusamples.add(store, gpusamples.beside(rows, Board(0, BUSY), Board(1, BUSY)))
    with (
        running(store, tmp_path / "log") as (url, _),
        opened(browser, f"{url}/?live=false&window=all&request=tail-0216-umbrella") as page,
    ):
        settled(page, drawings=6)
        charts = page.locator("[data-testid=stVegaLiteChart]")
        strip = charts.nth(4)
        expect(strip.get_by_text("GPU activity (% of cycles)")).to_have_count(1)
        expect(strip.get_by_text("DRAM", exact=True)).to_have_count(1)
        # SM and DRAM of two GPUs.
        expect(strip.locator(".mark-line path")).to_have_count(4)

        # Arrival and end of the request are dashes, in both charts in the same places.
        def places(number: int) -> list[float]:
            rules = charts.nth(number).locator(".mark-rule line").all()[-2:]
            return [box["x"] for rule in rules if (box := rule.bounding_box())]

        def agree() -> bool:
            upper, lower = places(3), places(4)
            return len(upper) == 2 and lower == pytest.approx(upper, abs=1.5)

        process.until(agree, "the dashes are in the same places")
        says(page, "GPU 0, GPU 1: share of cycles")


@pytest.mark.parametrize("dark", [False, True])
def test_the_picture_is_not_blank(browser: Browser, url: str, tmp_path: Path, dark: bool) -> None:
    with opened(browser, f"{url}/?window=all&live=false", dark=dark) as page:
        settled(page)
        picture = tmp_path / f"{'dark' if dark else 'light'}.png"

        def colours() -> list[tuple[int, Any]]:
            with Image.open(picture) as image:
                return image.convert("RGB").getcolors(1 << 24) or []

        def drawn() -> bool:
            """Whether the whole page is in the picture, with the colours of the charts."""
            box = page.locator("[data-testid=stMainBlockContainer]").bounding_box()
            assert box is not None
            page.set_viewport_size({"width": 1280, "height": int(box["height"]) + 100})
            settled(page)
            page.screenshot(path=picture)
            there = {colour for _, colour in colours()}
            # As many tenants as the recording has.
            wanted = {tuple(bytes.fromhex(tenant[1:])) for tenant in COLOURS[:4]}
            return box["height"] > 2000 and wanted <= there

        process.until(drawn, "the page is drawn")
        # Nothing sticks out to the right.
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    count, ground = max(colours())
    with Image.open(picture) as image:
        assert image.size[0] == 1280
        assert count > 0.4 * image.size[0] * image.size[1]
    assert (sum(ground) < 200) is dark


def test_a_box_in_the_heatmap_becomes_the_cohort(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/?window=all&live=false") as page:
        settled(page)
        heat = page.locator("[data-testid=stVegaLiteChart]").first
        heat.scroll_into_view_if_needed()
        plot = heat.locator("svg.marks").bounding_box()
        assert plot is not None
        left, top = plot["x"] + 0.2 * plot["width"], plot["y"] + 0.35 * plot["height"]

        def draw() -> None:
            page.mouse.move(left, top)
            page.mouse.down()
            page.mouse.move(left + 250, top + 80, steps=5)
            page.mouse.up()

        link = page.get_by_role("link", name="Compare the boxed requests with the rest")
        done(draw, lambda: expect(link).to_be_visible(timeout=SOON))
        at(page, "box=")
        follow(link, page.get_by_text("are boxed: arrived"))
        at(page, "/slow?", "box=")
        # The window and the selection stay in the address from page to page.
        follow(page.get_by_role("link", name="Tenants"), page.get_by_text("Load over time"))
        at(page, "/tenants?", "box=", "window=all")
        window = page.get_by_role("combobox", name="Time window")
        expect(window).to_have_value("all that is stored", timeout=PATIENCE)


@pytest.mark.parametrize("page_name", ["slow", "tenants", "fixes", "capacity", "health"])
def test_every_page_opens_by_its_address_in_chinese(
    browser: Browser, url: str, page_name: str
) -> None:
    with opened(browser, f"{url}/{page_name}?window=all&live=false&lang=zh-CN", dark=True) as page:
        expect(page.get_by_text("时间窗口").first).to_be_visible(timeout=PATIENCE)
        expect(page.locator("[data-testid=stSpinner]")).to_have_count(0, timeout=PATIENCE)
        expect(page.locator("[data-stale=true]")).to_have_count(0, timeout=PATIENCE)
        assert page.locator("[data-testid=stException]").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
        at(page, "lang=zh-CN")


def test_a_cell_of_the_matrix_leads_to_its_requests(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/tenants?window=all&live=false") as page:
        matrix = page.get_by_label("Seconds of excess by victim and by whose work held the engine")
        cell = matrix.last.locator("svg .mark-rect path").nth(1)
        expect(cell).to_be_visible(timeout=PATIENCE)
        settled(page, drawings=3)
        # Others are offered until a cell is chosen.
        links = page.get_by_role("link", name=re.compile("^Slow requests of"))
        done(
            lambda: cell.click(force=True),
            lambda: expect(links).to_have_count(1, timeout=SOON),
        )
        follow(links, page.get_by_text("of their excess to the work of"))
        at(page, "/slow?", "victim=", "worker=", "window=all", "live=false")


def test_a_chart_is_saved_as_png_by_the_keyboard(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/overview?window=all&live=false") as page:
        settled(page)
        assert page.get_by_text("Page not found").count() == 0
        levels = page.evaluate(
            "[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))"
        )
        assert levels[0] == 1 and levels.count(1) == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
        save = page.get_by_role("button", name=re.compile("^Download as PNG: Number of requests"))
        save.focus()
        with page.expect_download(timeout=PATIENCE) as waiting:
            page.keyboard.press("Enter")
        with Image.open(waiting.value.path()) as picture:
            assert picture.format == "PNG"
            assert picture.width > 400


def test_the_language_is_chosen_in_the_page(browser: Browser, url: str) -> None:
    with opened(browser, f"{url}/?window=all&live=false") as page:
        settled(page)
        chinese = page.get_by_role("option", name="简体中文")
        languages = page.get_by_role("combobox", name=re.compile("Language|语言"))

        def choose() -> None:
            if not chinese.count():
                follow(languages, chinese)
            chinese.click(timeout=SOON)

        done(choose, lambda: expect(page.get_by_text("278 个请求")).to_be_visible(timeout=SOON))
        at(page, "lang=zh-CN", "window=all")


def test_the_empty_page_fills_when_an_exporter_writes(browser: Browser, tmp_path: Path) -> None:
    data = tmp_path / "store"
    with running(data, tmp_path / "log") as (url, _), opened(browser, url) as page:
        expect(page.get_by_text("No requests yet")).to_be_visible(timeout=PATIENCE)
        hint = page.get_by_text("--otlp-traces-endpoint http://127.0.0.1:4317")
        expect(hint).to_be_visible(timeout=PATIENCE)
        rows = recorded.shifted(recorded.records(), ago=5)
        writer = Store(data)
        try:
            writer.submit(rows).result(process.PATIENCE)
            expect(page.get_by_text("over 278 requests")).to_be_visible(timeout=PATIENCE)
            # More come in, of a new tenant, while the page is open.
            late = max(row.arrived_ns for row in rows) + 10**9
            new = RequestRecord(
                "test", "gateway", late, tenant="newcomer", total_seconds=0.5, outcome="ok"
            )
            writer.submit([new]).result(process.PATIENCE)
            expect(page.get_by_text("over 279 requests")).to_be_visible(timeout=PATIENCE)
        finally:
            writer.close()
        process.until(
            lambda: "newcomer" in offered(page, "Tenant"), "it is offered", PATIENCE / 1000
        )


def test_the_app_ends_when_told_and_serves_no_other_name(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with running(tmp_path / "none", log) as (url, app):
        pool = urllib3.PoolManager(retries=False, timeout=process.PATIENCE)
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        }
        stream = f"{url}/_stcore/stream"
        foreign = {**upgrade, "Host": "evil.example", "Origin": "http://evil.example"}
        assert pool.request("GET", stream, headers=foreign).status == 403
        own = {**upgrade, "Origin": url}
        assert pool.request("GET", stream, headers=own, preload_content=False).status == 101
        app.send_signal(signal.SIGTERM)
        assert app.wait(process.PATIENCE) in (0, -signal.SIGTERM, 143)
    assert "Traceback" not in log.read_text()
