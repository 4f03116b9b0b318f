from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tailscope import cli
from tailscope.app.timespan import duration, instant
from tailscope.records.schema import request_batch
from tailscope.records.store import Store
from tailscope.triage.words import iso
from tests import gpusamples, process, recorded
from tests.gpusamples import BUSY, Board, of, rising

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run ``tailscope diagnose``; return its status and what it wrote."""
    for name in ("TAILSCOPE_DATA", "TAILSCOPE_REQUESTS"):
        monkeypatch.delenv(name, raising=False)

    def diagnose(*arguments: object) -> tuple[int, str, str]:
        status = cli.main(["diagnose", *map(str, arguments)])
        out, err = capsys.readouterr()
        return status, out, err

    return diagnose


def write_lines(path: Path, *extra: str) -> Path:
    rows = [json.dumps(dataclasses.asdict(row)) for row in recorded.records()]
    path.write_text("\n".join([*extra, *rows]) + "\n")
    return path


def test_the_command_runs_as_a_program() -> None:
    done = process.run("diagnose", "--requests", str(recorded.FILE))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].startswith("p50 1.72 s, p99 4.68 s over 278 requests since ")
    assert "83 % of the slow seconds are in the queue." in lines
    assert any("is owed to tenant initech" in line and "Grade A." in line for line in lines)
    assert "What would have helped, by replay:" in lines
    assert any(line.startswith("Give tenant initech an instance of its own.") for line in lines)
    assert any(line.startswith("p99 at multiples of this load, by replay: ") for line in lines)
    assert any(line.startswith("initech  tenant  ") for line in lines)
    table = {line.split("  ")[0]: line for line in lines}
    assert "0.822 s" in table["time to first token"]
    assert "3.45 s" in table["queue"]
    assert "140" in table["acme"]
    assert any(line.startswith("tail-0250-acme") for line in lines)


def test_json_holds_the_figures_of_the_recording(run: Run) -> None:
    status, out, err = run("--requests", recorded.FILE, "--json")
    assert (status, err) == (0, "")
    shape = json.loads(out)
    assert shape["window"]["requests"] == 278
    ttft = shape["latency"]["ttft"]
    assert [round(ttft[name], 2) for name in ("p50", "p95", "p99")] == [0.82, 3.47, 3.74]
    assert shape["data_quality"]["without_tenant"] == 0
    assert shape["data_quality"]["joined"] == {"parent": 278}
    assert shape["suspects"][0]["name"] == "initech"


def test_a_file_and_a_store_give_the_same(run: Run, tmp_path: Path) -> None:
    store = recorded.store(tmp_path / "store", recorded.records())
    _, from_file, _ = run("--requests", recorded.FILE, "--json")
    status, from_store, _ = run("--data", store, "--json")
    assert status == 0
    assert json.loads(from_store) == json.loads(from_file)


def test_a_gpu_in_trouble_is_named(run: Run, tmp_path: Path) -> None:
    rows = recorded.records()
    store = recorded.store(tmp_path / "store", rows)
    hot = {**BUSY, of("throttled_seconds_total", reason="sw_thermal"): rising(40, 81)}
    gone = Board(1, BUSY, lost=range(70, 200))
    gpusamples.add(store, gpusamples.beside(rows, Board(0, hot), gone, Board(2, BUSY)))

    status, out, err = run("--data", store)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    (heat,) = [line for line in lines if line.startswith("GPU 0 was held down by heat for 41.0 s")]
    assert "slow requests ran meanwhile" in heat
    assert heat.endswith("(association, not proof).")
    assert any(line.startswith("GPU 1 is lost: it could not be read from") for line in lines)
    table = {line.split("  ")[0]: line.split() for line in lines[lines.index("") :]}
    assert table["GPU 0"][2:6] == ["90", "%", "90", "%"]
    assert table["GPU 2"][-3:] == ["-", "0", "s"]

    shape = json.loads(run("--data", store, "--json")[1])
    assert [gpu["name"] for gpu in shape["gpus"]] == ["GPU 0", "GPU 1", "GPU 2"]
    assert shape["gpus"][0]["throttled"][0]["reasons"] == {"sw_thermal": pytest.approx(41.0)}
    assert shape["gpus"][1]["lost"]["at_end"] is True
    suspects = {one["name"]: one for one in shape["suspects"] if one["kind"] == "gpu"}
    assert set(suspects) == {"GPU 0", "GPU 1"}
    assert suspects["GPU 0"]["evidence"][0]["slow_requests"] >= 1
    # The requests alone say nothing of GPUs.
    for arguments in (("--requests", recorded.FILE), ("--requests", recorded.FILE, "--json")):
        assert "gpu" not in run(*arguments)[1].lower()


def test_gpus_that_do_well_are_no_suspects(run: Run, tmp_path: Path) -> None:
    rows = recorded.records()
    store = recorded.store(tmp_path / "store", rows)
    gpusamples.add(store, gpusamples.beside(rows, Board(0, BUSY), Board(1, BUSY)))
    _, out, _ = run("--data", store)
    assert "No loss, no XID event and no long hold of the clocks was seen on the 2 GPUs." in out
    shape = json.loads(run("--data", store, "--json")[1])
    assert {one["kind"] for one in shape["suspects"]} == {"tenant"}
    before = json.loads(run("--data", store, "--to", iso(rows[0].arrived_ns - 10**9), "--json")[1])
    assert "gpus" not in before  # nothing came, so there is no time to look at


def test_each_kind_of_file_gives_the_same(run: Run, tmp_path: Path) -> None:
    plain = write_lines(tmp_path / "requests.jsonl")
    packed = tmp_path / "requests.jsonl.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    table = tmp_path / "requests.parquet"
    pq.write_table(pa.Table.from_batches([request_batch(recorded.records())]), table)
    shapes = [json.loads(run("--requests", path, "--json")[1]) for path in (plain, packed, table)]
    assert shapes[0] == shapes[1] == shapes[2]
    assert shapes[0]["window"]["requests"] == 278


def test_bad_lines_are_counted_named_and_not_fatal(run: Run, tmp_path: Path) -> None:
    path = write_lines(
        tmp_path / "requests.jsonl",
        "no json",
        '{"arrived_ns": "soon"}',
        "",
        '{"tenant": "acme"}',
        "[1]",
        '{"arrived_ns": 1e400}',
        '{"arrived_ns": 1, "model": "' + "x" * 2_000_000 + '"}',
    )
    status, out, err = run("--requests", path, "--json")
    assert status == 0
    shape = json.loads(out)
    assert shape["window"]["requests"] == 278
    assert sum(shape["data_quality"]["rejected"].values()) == 6
    assert "6 lines were left out" in shape["data_quality"]["notes"][0]
    assert "left out: line 1: the line is no JSON" in err
    assert "left out: line 4: arrived_ns is missing" in err
    assert "left out: 1 more" in err
    assert "xxx" not in err


def test_the_text_says_what_is_missing(run: Run, tmp_path: Path) -> None:
    rows = [row for row in recorded.records() if row.role == "engine"]
    path = tmp_path / "engine.jsonl"
    path.write_text("\n".join(json.dumps(dataclasses.asdict(row)) for row in rows))
    status, out, _ = run("--requests", path)
    assert status == 0
    assert "Note: 278 of 278 requests have no tenant: they are counted as unknown." in out
    assert "unknown" in out
    assert "yes" not in [line.split()[-1] for line in out.splitlines() if line]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give one of --data DIR and --requests FILE"),
        (["--data", "a", "--requests", "b"], "give one of"),
        (["--requests", "{tmp}/none.jsonl"], "there is no such file"),
        (["--requests", "{tmp}"], "cannot be read"),
        (["--requests", "{tmp}/empty.jsonl"], "the file is empty"),
        (["--requests", "{tmp}/text.jsonl"], "line 1: the line is no JSON"),
        (["--requests", "{tmp}/text.parquet"], "is no Parquet file"),
        (["--requests", "{tmp}/text.jsonl.gz"], "cannot be read"),
        (["--data", "{tmp}/none"], "no exporter has written there"),
        (["--requests", "x", "--slow", "quick"], "--slow: 'quick' is neither"),
        (["--requests", "x", "--objective", "p95"], "give a time, such as 10s"),
        (["--requests", "x", "--changed", "noon"], "--changed: 'noon' is neither a time"),
        (["--requests", "x", "--since", "soon"], "--since: 'soon' is no duration"),
        (["--requests", "x", "--from", "noon"], "--from: 'noon' is neither a time"),
        (["--requests", "x", "--since", "1h", "--to", "1796000000"], "--since does not go with"),
        (
            ["--requests", "x", "--from", "2026-01-02", "--to", "2026-01-01"],
            "--to 2026-01-01 is not after --from 2026-01-02",
        ),
    ],
)
def test_unusable_input_is_refused_with_a_reason(
    run: Run, tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "empty.jsonl").touch()
    for name in ("text.jsonl", "text.parquet", "text.jsonl.gz"):
        (tmp_path / name).write_text("no record\n")
    status, out, err = run(*(text.format(tmp=tmp_path) for text in arguments))
    assert status == 2
    assert out == ""
    assert said in err
    assert err.startswith("tailscope diagnose: ")


def test_a_window_without_requests_says_where_there_are_some(run: Run, tmp_path: Path) -> None:
    store = recorded.store(tmp_path / "store", recorded.records())
    for source in (("--requests", recorded.FILE), ("--data", store)):
        status, out, _ = run(*source, "--to", "2020-01-01")
        assert status == 0
        assert out.splitlines()[0] == "There is no request in this window."
        assert "There are requests from 2026-11-30 00:37:32 UTC to 2026-11-30" in out
    status, out, _ = run("--data", store, "--tenant", "nobody")
    assert "none of nobody" in out


def test_an_empty_store_says_so(run: Run, tmp_path: Path) -> None:
    Store(tmp_path).close()
    status, out, _ = run("--data", tmp_path)
    assert status == 0
    assert "no request record came in" in out


def test_window_and_filters_choose(run: Run) -> None:
    frame = recorded.frame()
    middle = int(frame["arrived_ns"].iloc[100])
    first = json.loads(run("--requests", recorded.FILE, "--to", iso(middle), "--json")[1])
    second = json.loads(run("--requests", recorded.FILE, "--from", iso(middle), "--json")[1])
    assert first["window"]["requests"] + second["window"]["requests"] == 278
    assert second["window"]["from"] == iso(middle)
    acme = json.loads(run("--requests", recorded.FILE, "--tenant", "acme", "--json")[1])
    assert acme["window"]["requests"] == 140
    assert acme["suspects"][0]["name"] == "initech"
    slow = json.loads(run("--requests", recorded.FILE, "--slow", "4s", "--json")[1])
    assert slow["slow"]["threshold_seconds"] == 4.0
    assert slow["slow"]["requests"] == (frame["total_seconds"] >= 4.0).sum()


def test_offline_work_objective_and_a_change_are_answered(run: Run) -> None:
    frame = recorded.frame()
    middle = iso(int(frame["arrived_ns"].iloc[139]))
    asked = ("--offline", "initech", "--objective", "10s", "--changed", middle, "--force")
    shape = json.loads(run("--requests", recorded.FILE, *asked, "--json")[1])
    assert all(one["tenant"] != "initech" for one in shape["slow"]["slowest"])
    assert shape["offline"]["removal_share"]["initech"] > 0.5
    assert shape["comparison"]["outcome"] in ("no clear difference", "not comparable")
    assert [shift["level"] for shift in shape["comparison"]["shifts"]] == [0.5, 0.95, 0.99]
    # Each side of the change has a cost of its own.
    assert len(shape["engines"]) == 2
    assert 1.0 <= shape["capacity"]["headroom"] <= 3.0
    _, out, _ = run("--requests", recorded.FILE, *asked)
    assert "Moving offline tenant initech away saves the others" in out
    assert "Before and after the change: " in out
    assert "The objective holds up to " in out


def test_a_timeout_of_the_client_does_not_pass_for_the_tail(run: Run, tmp_path: Path) -> None:
    rows = recorded.records()
    for row in rows:
        if row.total_seconds is not None and row.total_seconds > 4.0:
            row.total_seconds, row.outcome, row.decode_seconds = 4.0, "aborted", None
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(json.dumps(dataclasses.asdict(row)) for row in rows))
    _, out, _ = run("--requests", path)
    assert "p99 over 4.00 s" in out
    assert " is cut at 4.00 s: " in out
    shape = json.loads(run("--requests", path, "--json")[1])
    assert shape["latency"]["cut"]["seconds"] == 4.0
    assert "p99" in shape["latency"]["total"]["at_least"]


def test_since_counts_back_from_now(run: Run, tmp_path: Path) -> None:
    store = recorded.store(tmp_path / "a", recorded.shifted(recorded.records(), ago=600))
    hour = json.loads(run("--data", store, "--since", "1h", "--json")[1])
    assert hour["window"]["requests"] == 278
    assert json.loads(run("--data", store, "--since", "5m", "--json")[1])["window"]["requests"] == 0


def test_names_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    rows = recorded.records()
    for row in rows:
        row.tenant = "\x1b[31mred\x07" if row.tenant == "initech" else row.tenant
    path = tmp_path / "requests.jsonl"
    path.write_text("\n".join(json.dumps(dataclasses.asdict(row)) for row in rows))
    _, out, _ = run("--requests", path)
    assert "\x1b" not in out
    assert "?[31mred?" in out


def test_durations_and_times_are_read_as_people_write_them() -> None:
    assert duration("90s") == 90
    assert duration("15 m") == 900
    assert duration("1.5h") == 5400
    assert duration("2d") == 172_800
    for text in ("", "0s", "5", "-1s", "1w", "s"):
        with pytest.raises(ValueError, match="no duration"):
            duration(text)
    assert instant("2026-11-30T02:10:00Z") == 1_796_004_600 * 10**9
    assert instant("2026-11-30T03:10:00+01:00") == instant("2026-11-30 02:10")
    assert instant("1796004600.5") == 1_796_004_600_500_000_000
    with pytest.raises(ValueError, match="neither a time"):
        instant("yesterday")
