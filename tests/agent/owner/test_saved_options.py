"""The saved options of a node: each start keeps them for the next one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from computepool.agent.config import AgentConfig
from computepool.agent.owner import saved_options
from computepool.core.errors import BadRequest

CHOSEN = {
    "hub_url": "http://a:1,http://b:2",
    "name": "laptop",
    "tags": ("old", "slow"),
    "properties": {"site": "attic"},
    "region": "in",
    "place": "52.5,13.4",
    "mesh_version": "v1",
    "url": "http://laptop",
    "cores": 1.5,
    "elastic": False,
    "ram_mb": 2_000,
    "disk_mb": 9_000,
    "gpus": False,
    "sandbox": "namespace",
    "runtime_add": ("git",),
    "trusted": ("acc_1",),
    "network": True,
    "lan": True,
    "registries": ("images.example",),
    "net_private": ("192.168.7.0/24",),
    "package_index": "https://index.example/simple",
    "package_index_hosts": ("files.example:443",),
    "fetch_python": True,
    "python_mirror": "https://mirror.example/pythons",
}


def test_every_option_is_saved_and_loaded(tmp_path: Path) -> None:
    assert set(CHOSEN) == set(saved_options.FIELDS), "a new option needs its value here, and is kept"
    config = AgentConfig(data_dir=tmp_path, code="never-kept", **CHOSEN)  # type: ignore[arg-type]
    plain = AgentConfig(hub_url="http://h", data_dir=tmp_path)
    assert not [name for name in CHOSEN if getattr(config, name) == getattr(plain, name)]
    saved_options.save(config)
    assert saved_options.load(tmp_path) == CHOSEN
    path = tmp_path / saved_options.FILE
    assert "never-kept" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert AgentConfig(data_dir=tmp_path, **saved_options.load(tmp_path)) == dataclasses.replace(config, code=None)


def test_a_default_is_not_saved_and_the_first_start_finds_nothing(tmp_path: Path) -> None:
    assert saved_options.load(tmp_path) == {}
    saved_options.save(AgentConfig(hub_url="http://h", data_dir=tmp_path))
    assert saved_options.load(tmp_path) == {"hub_url": "http://h"}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cores": "two"}', '{"tags": 5}', "null"])
def test_a_damaged_file_is_an_error_and_stays(tmp_path: Path, text: str) -> None:
    (tmp_path / saved_options.FILE).write_text(text)
    with pytest.raises(BadRequest, match="is damaged"):
        saved_options.load(tmp_path)
    assert (tmp_path / saved_options.FILE).read_text() == text
