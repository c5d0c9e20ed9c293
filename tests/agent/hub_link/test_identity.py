"""Enrolment, identity and configuration of a node."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from computepool.agent import main
from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentConfig
from computepool.agent.hardware import probe
from computepool.agent.hub_link import identity as identities
from computepool.agent.hub_link.hub_client import HubClient
from computepool.core.errors import BadRequest, Conflict, Unavailable
from computepool.core.isolation import Level
from computepool.protocol.nodes.profile import Profile, StatedPlace
from tests.agent.conftest import QUICK
from tests.agent.fake_hub import CODE, KID, OWNER, FakeHub


@pytest.fixture
def profile(tmp_path: Path) -> Profile:
    return profile_of(AgentConfig(hub_url="http://h", data_dir=tmp_path))


def profile_of(config: AgentConfig) -> Profile:
    hardware = probe.Hardware(cores=1, ram_mb=1, disk_mb=1, cards=())
    return probe.profile(config, hardware, level=Level.PROCESS, python="3.11", version="")


async def enrol(config: AgentConfig, profile: Profile) -> identities.Identity:
    client = HubClient(config.hub_urls, clock=AgentClock(), limits=config.limits)
    try:
        return await main.enrol(config, profile, client, clock=AgentClock())
    finally:
        await client.close()


async def test_an_enrolled_identity_is_saved(hub: FakeHub, tmp_path: Path, profile: Profile) -> None:
    config = AgentConfig(hub_url=hub.url, data_dir=tmp_path, code=CODE, limits=QUICK)
    identity = await enrol(config, profile)
    assert (identity.node_id, identity.owner, list(identity.hub_keys)) == ("node_0", OWNER, [KID])
    assert config.identity_path.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["identity.json"]
    loaded = identities.load(config.identity_path)
    assert loaded is not None
    assert loaded.sign(b"x") == identity.sign(b"x")


async def test_a_code_works_once(hub: FakeHub, tmp_path: Path, profile: Profile) -> None:
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    await enrol(AgentConfig(hub_url=hub.url, data_dir=tmp_path / "a", code=CODE, limits=QUICK), profile)
    with pytest.raises(BadRequest, match="could not be enrolled: The enrolment code is wrong, used or expired"):
        await enrol(AgentConfig(hub_url=hub.url, data_dir=tmp_path / "b", code=CODE, limits=QUICK), profile)


def test_the_key_is_saved_before_the_enrolment(tmp_path: Path) -> None:
    path = tmp_path / "node.key"
    assert identities.load_key(path).private_bytes_raw() == identities.load_key(path).private_bytes_raw()
    assert path.stat().st_mode & 0o777 == 0o600


async def test_enrolment_fails_without_a_hub(tmp_path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "ENROL_WAIT_S", 0.2)
    config = AgentConfig(hub_url="http://127.0.0.1:9", data_dir=tmp_path, code=CODE, limits=QUICK)
    with pytest.raises(Unavailable, match="cannot be reached"):
        await enrol(config, profile)


def test_the_first_start_needs_a_code(tmp_path: Path) -> None:
    with pytest.raises(BadRequest, match="pool node code"):
        main.run(AgentConfig(hub_url="http://127.0.0.1:9", data_dir=tmp_path))


def test_a_second_agent_on_one_folder_does_not_start(tmp_path: Path) -> None:
    with main.only_agent(tmp_path), pytest.raises(Conflict, match="Another agent"), main.only_agent(tmp_path):
        pass
    with main.only_agent(tmp_path):
        pass


@pytest.mark.parametrize("text", ["", "{}", "[]", "not json", json.dumps({"private_key": "x"})])
def test_a_damaged_identity_is_not_replaced(tmp_path: Path, text: str) -> None:
    path = tmp_path / "identity.json"
    path.write_text(text)
    with pytest.raises(BadRequest, match="damaged"):
        identities.load(path)
    assert path.read_text() == text


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"hub_url": " , "}, "hub_url"),
        ({"sandbox": "iron"}, "sandbox"),
        ({"cores": 0}, "cores"),
        ({"ram_mb": -1}, "ram_mb"),
        ({"place": "Berlin"}, "place"),
    ],
)
def test_an_invalid_option_is_refused_by_name(tmp_path: Path, fields: dict[str, object], field: str) -> None:
    with pytest.raises(BadRequest) as caught:
        AgentConfig(**{"hub_url": "http://h", "data_dir": tmp_path, **fields})  # type: ignore[arg-type]
    assert caught.value.field == field


def test_the_profile_names_a_place_only_if_the_owner_states_one_and_rounds_it(tmp_path: Path, profile: Profile) -> None:
    assert profile.place is None
    stated = profile_of(AgentConfig(hub_url="http://h", data_dir=tmp_path, place="52.5163,13.3777")).place
    assert stated == StatedPlace(lat=52.5, lon=13.4)
