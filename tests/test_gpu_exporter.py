"""The exporter as a process, reading GPUs: with no library, with hanging calls, beside DCGM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tailscope.cli import main
from tests.dcgmpages import page as capture
from tests.fakenvml.fixtures import fake
from tests.fakenvml.page import Page
from tests.fakenvml.rig import UUID, environment
from tests.fakenvml.state import State
from tests.pageserver import PageServer
from tests.process import Exporter, until

__all__ = ["fake"]

Begin = Callable[..., Exporter]

# No engine is there, and no spans are taken.
ALONE = ("--engine", "http://127.0.0.1:1", "--otlp-grpc", "off", "--otlp-http", "off")


def shown(exporter: Exporter) -> Page:
    """What its page of metrics says now."""
    return Page(exporter.get())


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Start an exporter."""
    running: list[Exporter] = []

    def start(library: Path, state: State, *flags: str) -> Exporter:
        log = tmp_path / f"log{len(running)}"
        env = environment(library, state.path)
        running.append(Exporter(log, *ALONE, *flags, env=env))
        running[-1].wait_ready()
        return running[-1]

    yield start
    for process in running:
        process.kill()
        assert "Traceback" not in process.log, process.log


@pytest.fixture
def dcgm() -> Iterator[str]:
    """URL of a server that shows a recorded page of three H100."""
    with PageServer(capture("h100_k8s_4.8")) as server:
        yield server.url


def test_no_gpu_that_nobody_asked_for_is_no_fault(begin: Begin, tmp_path: Path) -> None:
    exporter = begin(tmp_path, State(tmp_path / "state"), "--gpu", "auto", "--interval", "200ms")
    state = {"source": "nvml", "reason": "library_not_found"}
    page = until(lambda: p if (p := shown(exporter)).get("source_state", **state) else None)
    assert page.get("source_up", source="nvml") is None
    assert page.get("source_errors_total", source="nvml") in (None, 0)
    assert exporter.stop() == 0


def test_no_library_then_one(begin: Begin, fake: Path, tmp_path: Path) -> None:
    folder = tmp_path / "lib"
    folder.mkdir()
    exporter = begin(folder, State(tmp_path / "state"), "--gpu", "nvml", "--interval", "200ms")
    page = until(
        lambda: p if (p := shown(exporter)).get("source_errors_total", source="nvml") else None
    )
    assert page.get("source_up", source="nvml") == 0
    assert page.get("source_state", source="nvml", reason="library_not_found") == 1
    assert not page.all("gpu_up")
    assert "libnvidia-ml.so.1 is not found" in exporter.get("/")
    (folder / "libnvidia-ml.so.1").symlink_to(fake / "libnvidia-ml.so.1")
    until(lambda: shown(exporter).get("gpu_up", uuid=UUID.format(0)))
    until(lambda: shown(exporter).get("source_up", source="nvml") == 1)
    assert "1 of 1 GPUs answer, driver 580.95.05; SM and DRAM activity by GPM on 1" in exporter.log
    assert exporter.stop() == 0


def test_a_call_that_hangs(begin: Begin, fake: Path, tmp_path: Path) -> None:
    state = State(tmp_path / "state", {"count": 2})
    exporter = begin(fake, state, "--gpu", "nvml", "--interval", "200ms")
    until(lambda: shown(exporter).get("gpu_sm_active_ratio", gpu="1"))
    state.set({"gpu1.nvmlDeviceGetPowerUsage.hang": 1, "gpu0.power": 111_000})
    until(lambda: shown(exporter).get("gpu_up", gpu="1") == 0)
    assert shown(exporter).names(gpu="1") == {"gpu_up", "gpu_xid_errors_total"}
    until(lambda: shown(exporter).get("gpu_up", gpu="0") == 1)
    until(lambda: shown(exporter).get("source_up", source="nvml") == 1)
    state.set({"gpu0.power": 222_000})
    until(lambda: shown(exporter).get("gpu_power_watts", gpu="0") == 222)
    until(lambda: "cannot be read: hanging" in exporter.log)
    assert exporter.stop() == 0  # with a thread that is still in the call


def test_every_call_hangs(begin: Begin, fake: Path, tmp_path: Path) -> None:
    state = State(tmp_path / "state")
    exporter = begin(fake, state, "--gpu", "nvml", "--interval", "100ms")
    until(lambda: shown(exporter).get("gpu_up"))
    state.set({"nvmlDeviceGetUtilizationRates.hang": 1})
    until(lambda: shown(exporter).get("source_state", source="nvml", reason="hanging"))
    until(lambda: shown(exporter).get("gpu_up") == 0)
    assert exporter.stop() == 0


def test_an_xid_event_and_a_reload(begin: Begin, fake: Path, tmp_path: Path) -> None:
    state = State(tmp_path / "state", {"count": 2})
    exporter = begin(fake, state, "--gpu", "auto", "--interval", "200ms")
    until(lambda: shown(exporter).all("gpu_xid_errors_total", gpu="1") or None)
    state.set({"xids": 1, "xid.1": "1:79"})
    until(lambda: shown(exporter).get("gpu_xid_errors_total", gpu="1", xid="79"))
    state.set({"epoch": 1, "epoch.ret": 9, "gpu0.power": 333_000})
    until(lambda: shown(exporter).get("gpu_power_watts", gpu="0") == 333)
    until(lambda: shown(exporter).get("gpu_xid_errors_total", gpu="1", xid="79") == 1)
    assert exporter.stop() == 0


def test_dcgm_gives_what_nvml_lacks(begin: Begin, fake: Path, tmp_path: Path, dcgm: str) -> None:
    """GPU 0 of NVML has no GPM, GPU 1 has; a third one only DCGM sees."""
    uuids = sorted(
        {
            line.partition('UUID="')[2].partition('"')[0]
            for line in capture("h100_k8s_4.8").splitlines()
            if 'UUID="' in line
        }
    )
    values: dict[str, int | str] = {
        "count": 2,
        "gpu0.uuid": uuids[0],
        "gpu1.uuid": uuids[1],
        "gpu0.gpm": 0,
    }
    state = State(tmp_path / "state", values)
    exporter = begin(fake, state, "--gpu", "auto", "--dcgm-url", dcgm, "--interval", "200ms")
    wanted = {
        (uuids[0], "health"): "nvml",
        (uuids[0], "activity"): "dcgm",
        (uuids[1], "health"): "nvml",
        (uuids[1], "activity"): "nvml_gpm",
    }

    def whole() -> Page | None:
        """A page with what each gives; a source that was read late shows nothing for a while."""
        page = shown(exporter)
        told = {
            (s.labels["uuid"], s.labels["readings"]): s.labels["source"]
            for s in page.all("gpu_source_info")
        }
        active = all(page.get("gpu_sm_active_ratio", uuid=uuid) for uuid in uuids[:2])
        return page if active and told == wanted else None

    page = until(whole)
    assert page.get("gpu_power_watts", uuid=uuids[0]) == 632  # NVML's
    assert page.get("gpu_sm_active_ratio", uuid=uuids[1]) == pytest.approx(0.8825)  # GPM's
    assert page.get("gpu_sm_active_seconds_total", uuid=uuids[0]) is not None
    assert not page.all("gpu_power_watts", uuid=uuids[2])
    assert "needed for activity" in exporter.log


def test_dcgm_is_left_alone_where_gpm_works(
    begin: Begin, fake: Path, tmp_path: Path, dcgm: str
) -> None:
    exporter = begin(
        fake, State(tmp_path / "state"), "--gpu", "auto", "--dcgm-url", dcgm, "--interval", "200ms"
    )
    page = until(lambda: p if (p := shown(exporter)).get("gpu_sm_active_ratio") else None)
    assert {sample.labels["source"] for sample in page.all("gpu_source_info")} == {
        "nvml", "nvml_gpm",
    }  # fmt: skip
    assert "needed for" not in exporter.log
    assert len(page.all("source_up")) == 3  # the engine, which is not there, NVML and DCGM


def test_nothing_is_said_of_a_dcgm_that_nobody_named(
    begin: Begin, fake: Path, tmp_path: Path
) -> None:
    exporter = begin(fake, State(tmp_path / "state"), "--gpu", "auto", "--interval", "200ms")
    until(lambda: shown(exporter).get("gpu_sm_active_ratio"))
    sources = {sample.labels["source"] for sample in shown(exporter).all("source_up")}
    assert sources == {"engine:127.0.0.1:1", "nvml"}
    assert "dcgm" not in exporter.get("/")


def test_dcgm_alone(begin: Begin, tmp_path: Path, dcgm: str) -> None:
    exporter = begin(
        tmp_path, State(tmp_path / "state"), "--gpu", "dcgm", "--dcgm-url", dcgm,
        "--interval", "200ms",
    )  # fmt: skip
    page = until(lambda: p if (p := shown(exporter)).all("gpu_up") else None)
    assert len(page.all("gpu_up")) == 3
    assert {(s.labels["gpu"], s.labels["source"]) for s in page.all("gpu_source_info")} == {
        ("0", "dcgm"), ("1", "dcgm"), ("2", "dcgm"),
    }  # fmt: skip
    assert page.all("gpu_power_watts") and page.all("gpu_dram_active_ratio")


def test_gpus_are_off(begin: Begin, fake: Path, tmp_path: Path) -> None:
    exporter = begin(fake, State(tmp_path / "state"), "--gpu", "off")
    assert not any("gpu" in name for name in shown(exporter).names())


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--gpu", "nvml", "--dcgm-url", "http://x:9400"], "--dcgm-url names one"),
        (["--dcgm-url", "ftp://x"], "--dcgm-url ftp://x: give a URL"),
        (["--dcgm-url", "http://me:secret@x"], "a URL must hold no user"),
    ],
)
def test_flags_that_contradict(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(["exporter", *flags]))
    assert ended.value.code not in (0, None)
    error = capsys.readouterr().err
    assert message in error
    assert "secret" not in error
