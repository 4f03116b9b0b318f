from __future__ import annotations

import ipaddress
from pathlib import Path

import pytest
import yaml

from tailscope import cli
from tailscope.address import Address
from tailscope.address import parse as parse_address
from tailscope.catalogue.engines import engines
from tailscope.errors import UsageError
from tailscope.exporter.access import Access
from tailscope.exporter.config import Config, RequestFile, duration, parse, size
from tailscope.exporter.listeners import bind
from tailscope.exporter.targets import Target
from tailscope.records.tenancy import of_attributes

FLAGS: dict[str, str | list[str]] = {
    "engine": ["vllm=http://10.0.0.1:8000", "https://b.example/m"],
    "listen": "127.0.0.1:9000",
    "otlp-grpc": "off",
    "otlp-http": "[::1]:4318",
    "requests": ["a.jsonl", "b.jsonl"],
    "data": "store",
    "interval": "500ms",
    "retention": "off",
    "max-bytes": "2GiB",
    "tenants": "7",
    "tenant-attribute": ["customer", "tenant.id"],
    "log-level": "debug",
}
EXPECTED = Config(
    targets=(
        Target("http://10.0.0.1:8000", engines()["vllm"]),
        Target("https://b.example/m", None),
    ),
    listen=Address("127.0.0.1", 9000),
    otlp_grpc=None,
    otlp_http=Address("::1", 4318),
    requests=(RequestFile(Path("a.jsonl")), RequestFile(Path("b.jsonl"))),
    data=Path("store"),
    interval=0.5,
    retention=None,
    max_bytes=2 << 30,
    tenants=7,
    tenant_rules=of_attributes(("customer", "tenant.id")),
    log_level="debug",
)


@pytest.fixture(autouse=True)
def no_settings_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for flag in FLAGS:
        monkeypatch.delenv(variable(flag), raising=False)


def variable(flag: str) -> str:
    return "TAILSCOPE_" + flag.upper().replace("-", "_")


def config(*arguments: str) -> Config:
    return parse(cli.parser_for("exporter").parse_args(list(arguments)))


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What is said of settings that are refused, by the parser or by the check."""
    with pytest.raises((UsageError, SystemExit)) as end:
        config(*arguments)
    said = capsys.readouterr()
    if isinstance(end.value, UsageError):
        return str(end.value)
    assert isinstance(end.value, SystemExit)
    assert end.value.code == 2
    return said.err


# Three ways to the same settings


def test_flags() -> None:
    arguments: list[str] = []
    for flag, text in FLAGS.items():
        for one in text if isinstance(text, list) else [text]:
            arguments += [f"--{flag}", one]
    assert config(*arguments) == EXPECTED


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for flag, text in FLAGS.items():
        one = f"[{', '.join(text)}]" if isinstance(text, list) else text
        monkeypatch.setenv(variable(flag), one)
    assert config() == EXPECTED


def test_one_engine_in_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILSCOPE_ENGINE", "http://a:1")
    assert config().targets == (Target("http://a:1", None),)


def test_yaml(tmp_path: Path) -> None:
    path = tmp_path / "tailscope.yaml"
    path.write_text(yaml.safe_dump(FLAGS))
    assert config("--config", str(path)) == EXPECTED


def test_yaml_reads_a_bare_off_as_false(tmp_path: Path) -> None:
    path = tmp_path / "tailscope.yaml"
    path.write_text("otlp-grpc: off\notlp-http: off\nretention: off\nmax-bytes: off\ndata: d\n")
    found = config("--config", str(path))
    assert (found.otlp_grpc, found.otlp_http) == (None, None)
    assert (found.retention, found.max_bytes) == (None, None)


def test_a_flag_beats_a_variable_and_that_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "tailscope.yaml"
    path.write_text("interval: 1m\ntenants: 3\nlog-level: error\n")
    monkeypatch.setenv("TAILSCOPE_INTERVAL", "2m")
    monkeypatch.setenv("TAILSCOPE_TENANTS", "4")
    found = config("--config", str(path), "--interval", "3m")
    assert (found.interval, found.tenants, found.log_level) == (180, 4, "error")


def test_nothing_listens_beyond_this_machine_unless_it_is_asked_to() -> None:
    found = config()
    for address in (found.listen, found.otlp_grpc, found.otlp_http):
        assert address is not None
        assert ipaddress.ip_address(address.host).is_loopback
    assert (found.data, found.requests) == (None, ())
    assert (found.targets, found.discover) == ((), True)
    assert (found.retention, found.max_bytes) == (7 * 86400, 10 * 10**9)
    assert config("--listen", "0.0.0.0:9836").listen == Address("0.0.0.0", 9836)


@pytest.mark.parametrize("text", ["off", "OFF", "false"])
def test_no_engine_and_no_search_for_one(text: str) -> None:
    found = config("--engine", text)
    assert (found.targets, found.discover) == ((), False)


def test_an_engine_with_what_it_wants(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("x")
    wanted = {
        "url": "https://a.example:8000",
        "engine": "vllm",
        "model": "llama",
        "token-file": "/run/secrets/token",
        "ca-file": str(tmp_path / "ca.pem"),
    }
    expected = (
        Target(
            "https://a.example:8000",
            engines()["vllm"],
            Access(Path("/run/secrets/token"), "", tmp_path / "ca.pem"),
            "llama",
        ),
        Target("http://b:1", None),
    )
    path = tmp_path / "tailscope.yaml"
    path.write_text(yaml.safe_dump({"engine": [wanted, "http://b:1"]}))
    assert config("--config", str(path)).targets == expected
    flow = yaml.safe_dump(wanted, default_flow_style=True, width=1000).strip()
    assert config("--engine", flow, "--engine", "http://b:1").targets == expected


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{url: http://a, token: hush}", ["no key 'token'", "token-env"]),
        ("{url: http://a, token-file: x, token-env: y}", ["not both"]),
        ("{url: https://a, ca-file: nowhere.pem}", ["ca-file nowhere.pem: there is no such file"]),
        ("{url: http://a, engine: sglung}", ["--engine sglung=", "engines are"]),
        ("{url: 'http://u:hush@a'}", ["no password"]),
        ("{url: [", ["a mapping is expected"]),
    ],
)
def test_a_mapping_that_is_refused(
    capsys: pytest.CaptureFixture[str], text: str, words: list[str]
) -> None:
    said = refusal(capsys, "--engine", text)
    for word in words:
        assert word in said
    assert "hush" not in said


# What is refused, and how


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--engine", "ftp://a"], ["--engine ftp://a", "for example http://"]),
        (["--engine", ""], ["--engine http://", "for example http://"]),
        (["--engine", "http://"], ["--engine http://", "for example http://"]),
        (["--engine", "http://a:99999"], ["--engine http://a:99999"]),
        (["--engine", "http://a:0"], ["--engine http://a:0"]),
        (["--engine", "http://a b:1"], ["--engine http://a b:1"]),
        (["--engine", "http://a:1/\u2028"], ["--engine"]),
        (["--engine", "http://[::1:8000"], ["--engine"]),
        (["--engine", "sglung=http://a"], ["--engine sglung=", "engines are ", "vllm"]),
        (["--engine", "=http://a"], ["--engine =", "engines are ", "vllm"]),
        (["--engine", "vllm"], ["--engine vllm", "vllm=http://127.0.0.1:8000"]),
        (["--engine", "off", "--engine", "http://a"], ["--engine off", "leave it out"]),
        (
            ["--engine", "http://a:1/x", "--engine", "A:1/y"],
            ["--engine http://A:1/y", "a:1 is given twice", "host and port"],
        ),
        (["--engine", "http://a", "--engine", "http://a:80"], ["a:80 is given twice"]),
        (["--listen", "9836"], ["--listen 9836", "host:port"]),
        (["--listen", ":9836"], ["--listen :9836", "host:port"]),
        (["--listen", "127.0.0.1:70000"], ["--listen 127.0.0.1:70000", "host:port"]),
        (["--listen", "127.0.0.1:²"], ["--listen 127.0.0.1:²", "host:port"]),
        (["--listen", "127.0.0.1:" + "9" * 5000], ["--listen 127.0.0.1:9", "host:port"]),
        (["--otlp-grpc", "here"], ["--otlp-grpc here", "host:port"]),
        (
            ["--listen", "127.0.0.1:4318"],
            ["--otlp-http 127.0.0.1:4318", "--listen has the same address", "each its own"],
        ),
        (["--interval", "5"], ["--interval 5", "for example 1s"]),
        (["--interval", "0s"], ["--interval 0s", "above 0"]),
        (["--interval", "-1s"], ["--interval"]),
        (["--interval", "10ms"], ["--interval 0.01s", "at least 0.1s"]),
        (["--tenants", "0"], ["--tenants 0", "from 1 to 1000"]),
        (["--tenants", "1001"], ["--tenants 1001", "from 1 to 1000"]),
        (["--tenants", "many"], ["--tenants", "many"]),
        (["--retention", "1d"], ["--retention 1d", "add --data DIR"]),
        (["--max-bytes", "1GB"], ["--max-bytes 1GB", "add --data DIR"]),
        (["--data", "d", "--retention", "1w"], ["--retention 1w", "for example 1s"]),
        (["--data", "d", "--max-bytes", "big"], ["--max-bytes big", "for example 500MB"]),
        (["--data", "d", "--max-bytes", "0"], ["--max-bytes 0", "above 0"]),
        (["--requests", "a/x", "--requests", "b/x"], ["--requests b/x", "called x", "rename one"]),
        (["--log-level", "loud"], ["--log-level", "loud", "warning"]),
        (["--nonsense", "1"], ["--nonsense"]),
        (["--eng", "http://a"], ["--eng"]),
    ],
)
def test_a_refusal_names_the_setting_its_value_and_the_mend(
    capsys: pytest.CaptureFixture[str], arguments: list[str], words: list[str]
) -> None:
    said = refusal(capsys, *arguments)
    for word in words:
        assert word in said


@pytest.mark.parametrize(
    "url",
    [
        "http://user:hush@a:1",
        "http://hush@a:1",
        "http://user:hu/sh@a:1",
        "http://user:hush@:80",
        "ftp://user:hush@a",
        "user:hush@a:1",
        "vllm=http://user:hush@a:1",
    ],
)
def test_a_password_in_a_url_is_refused_and_not_repeated(
    capsys: pytest.CaptureFixture[str], url: str
) -> None:
    said = refusal(capsys, "--engine", url)
    assert "no password" in said
    assert "hush" not in said
    assert "hu/sh" not in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lissten: 127.0.0.1:0\n", ["lissten"]),
        ("tenants: many\n", ["--tenants", "many"]),
        ("interval: 5\n", ["--interval 5"]),
        ("engine: {a: b}\n", ["--engine {...}", "no key 'a'", "token-file"]),
        ("engine: [{model: b}]\n", ["--engine {...}", "it has no url"]),
        ("[1, 2", ["line 1"]),
        ("- a\n", ["key: value"]),
    ],
)
def test_a_bad_file_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: str, words: list[str]
) -> None:
    path = tmp_path / "tailscope.yaml"
    path.write_text(text)
    said = refusal(capsys, "--config", str(path))
    for word in words:
        assert word in said


def test_a_missing_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nothing-here.yaml" in refusal(capsys, "--config", "nothing-here.yaml")


def test_a_bad_variable_is_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILSCOPE_INTERVAL", "soon")
    assert "--interval soon" in refusal(capsys)


# Values


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1.5s", 1.5), ("15m", 900), ("6h", 21600), ("7d", 604800)],
)
def test_durations(text: str, seconds: float) -> None:
    assert duration("--x", text) == seconds


@pytest.mark.parametrize(
    ("text", "amount"),
    [("5", 5), ("1KB", 1000), ("1.5MB", 1_500_000), ("10gb", 10**10), ("2 GiB", 2 << 30)],
)
def test_sizes(text: str, amount: int) -> None:
    assert size("--x", text) == amount


@pytest.mark.parametrize("text", ["127.0.0.1:0", "[::1]:9836", "localhost:65535", "0.0.0.0:1"])
def test_addresses_are_written_as_they_are_read(text: str) -> None:
    assert str(parse_address("--x", text)) == text


def test_an_address_that_cannot_be_had() -> None:
    with pytest.raises(UsageError, match=r"--x 192\.0\.2\.1:0: cannot listen \(.+\); choose"):
        bind("--x", Address("192.0.2.1", 0))
    with pytest.raises(UsageError, match=r"--x no-such-host\.invalid:1: cannot listen"):
        bind("--x", Address("no-such-host.invalid", 1))


# The command line as a whole


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_of_each_command_has_an_example(capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main([name, "--help"])
    assert end.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"usage: tailscope {name}" in said
    assert f"example: {cli.COMMANDS[name].example}" in said


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in ([], ["--help"], ["help"]):
        assert cli.main(arguments) == 0
        said = capsys.readouterr().out
        for name, command in cli.COMMANDS.items():
            assert name in said
            assert command.help in said


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["exprter"]) == 2
    assert "no command 'exprter'; there are exporter" in capsys.readouterr().err
