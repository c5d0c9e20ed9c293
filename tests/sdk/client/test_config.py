"""Sizes, durations, the config file, and errors of a hub that is missing or is not a hub."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import pytest

import computepool
import computepool.sdk
from computepool import HubUnreachable, connect
from computepool.sdk import BadRequest, ComputePoolError
from computepool.sdk.client.config import Config, hub_url, load_config, save_config, write_private
from computepool.sdk.client.sizes import megabytes, seconds
from computepool.testing.processes import free_port
from tests.sdk.http_server import serving


@pytest.mark.parametrize(
    ("written", "mb"),
    [(16, 16_000), (0.5, 500), ("16", 16_000), ("16GB", 16_000), ("16 gb", 16_000), ("512MB", 512), ("1.5g", 1500),
     ("16GiB", 16_384), ("1TB", 1_000_000), ("1B", 1), ("0", 0), ("1500kb", 2), ("999983MB", 999_983)],
)  # fmt: skip
def test_sizes_are_read_as_whole_megabytes(written: float | str, mb: int) -> None:
    assert megabytes(written) == mb


@pytest.mark.parametrize("written", ["", "lots", "-1", "16XB", "1e3", "GB", "nan", "inf", float("nan"), "1 2", None])
def test_an_invalid_size_is_refused_with_examples(written: str) -> None:
    with pytest.raises(BadRequest, match="use 16, 16GB or 512MB"):
        megabytes(written, what="ram")


@pytest.mark.parametrize(
    ("written", "s"), [(90, 90), ("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("1d", 86400)]
)
def test_durations_are_read_as_seconds(written: float | str, s: float) -> None:
    assert seconds(written) == s


def test_the_config_file_is_private_json_and_replaced_as_a_whole() -> None:
    assert load_config() == Config()
    path = save_config(Config(hub="http://pool.example:8000", key="cp_secret"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert json.loads(path.read_text()) == {"hub": "http://pool.example:8000", "key": "cp_secret"}
    assert load_config() == Config(hub="http://pool.example:8000", key="cp_secret")
    save_config(Config(hub="http://other:1", key=None))
    assert load_config() == Config(hub="http://other:1", key=None)
    assert list(path.parent.iterdir()) == [path]


def test_the_environment_overrides_the_config_file(monkeypatch: pytest.MonkeyPatch) -> None:
    save_config(Config(hub="http://a:1", key="cp_a"))
    monkeypatch.setenv("COMPUTEPOOL_KEY", "cp_b")
    assert load_config() == Config(hub="http://a:1", key="cp_b")
    monkeypatch.setenv("COMPUTEPOOL_HUB", "b:2/")
    assert load_config() == Config(hub="http://b:2", key="cp_b")


def test_a_stored_key_is_not_sent_to_another_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    save_config(Config(hub="http://a:1", key="cp_a"))
    monkeypatch.setenv("COMPUTEPOOL_HUB", "http://evil:2")
    assert load_config().key is None


@pytest.mark.parametrize("content", ["{", "[]", '"x"'])
def test_a_broken_config_file_is_refused_with_a_remedy(content: str) -> None:
    Path(os.environ["COMPUTEPOOL_CONFIG"]).write_text(content)
    with pytest.raises(BadRequest, match="pool login"):
        load_config()


@pytest.mark.parametrize("text", ["ftp://x", "http://", "", "javascript:alert(1)"])
def test_an_invalid_hub_address_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        hub_url(text)


def test_an_absent_hub_is_reported_after_the_retry_time() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    start = time.monotonic()
    with connect(url, "cp_x", retry_for=0.5) as pool, pytest.raises(HubUnreachable, match=url):
        pool.whoami()
    assert time.monotonic() - start < 30


def test_a_server_that_is_not_a_hub_is_reported_with_its_status() -> None:
    not_found = pytest.raises(ComputePoolError, match="The hub answered 404")
    with serving(SimpleHTTPRequestHandler) as url, connect(url, retry_for=1) as pool, not_found:
        pool.whoami()


def test_public_names_are_listed_and_loaded_lazily() -> None:
    assert sorted(computepool.__all__) == computepool.__all__
    assert set(computepool.__all__) <= set(computepool.sdk.__all__)
    assert set(computepool.__all__) <= set(dir(computepool))
    with pytest.raises(AttributeError):
        _ = computepool.nothing
    code = "import sys, computepool, computepool.core.jobs.lifecycle; print([m for m in sys.modules if m.startswith('httpx')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_private_file_replaces_files_and_nothing_else(tmp_path: Path) -> None:
    """Root could replace /dev/null, too; and /dev/stdout is a link to the file that it leads to."""
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_private(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadRequest, match="is not a file"):
        write_private(tmp_path / "pipe", "x")
    assert (tmp_path / "pipe").is_fifo()
