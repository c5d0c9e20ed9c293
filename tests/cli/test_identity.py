"""`pool keys`, `pool accounts` and `pool approvals` with a real hub."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from computepool.sdk.client.config import Config, load_config, save_config
from tests.cli.conftest import Run, reply
from tests.hub.serving import ServedHub, serving

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serving(tmp_path_factory.mktemp("hub"), two_person="top-ups") as hub:
        yield hub


@pytest.fixture
def hub(served: ServedHub) -> ServedHub:
    save_config(Config(hub=f"http://127.0.0.1:{served.address[1]}", key=served.key))
    return served


def test_a_key_is_created_rotated_and_revoked(hub: ServedHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    made = reply(run("keys", "create", "ci", "--scope", "submit", "--expires", "30d", "--json"))
    assert made["scopes"] == ["read", "submit"]
    [row] = [line.split("\t") for line in run("keys", "list").out.splitlines() if made["id"] in line]
    assert row[1:4] == ["ci", "active", "read, submit"]
    new = reply(run("keys", "rotate", made["id"], "--overlap", "1h", "--json"))
    monkeypatch.setenv("COMPUTEPOOL_KEY", new["key"])
    assert run("whoami").code == 0
    refused = run("keys", "create", "more")
    assert (refused.code, "scope account" in refused.err) == (4, True)
    monkeypatch.delenv("COMPUTEPOOL_KEY")
    assert run("keys", "create", "x", "--scope", "root").code == 2
    assert run("keys", "revoke").code == 2
    ended = run("keys", "revoke", "--all")
    assert ended.out.startswith("Revoked 2 ")
    monkeypatch.setenv("COMPUTEPOOL_KEY", new["key"])
    assert run("whoami").code == 4


@pytest.mark.soak
def test_the_keys_of_the_hub_are_listed_and_rotated(hub: ServedHub, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPUTEPOOL_DATA_DIR", str(hub.process.settings.data_dir))
    assert [key["state"] for key in reply(run("hub", "keys", "list", "--json"))] == ["current", "next"]
    rotated = run("hub", "keys", "rotate")
    assert [line.split("\t")[1] for line in rotated.out.splitlines()] == ["accepted", "current", "next"]
    assert "private" not in rotated.out


@pytest.mark.soak
def test_top_ups_and_roles_need_a_second_administrator(
    hub: ServedHub, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = run("accounts", "create", "ann")
    assert "initial credits need approval by a second administrator" in made.err
    refused = run("accounts", "create", "eve", "--role", "admin")
    assert (refused.code, "needs two administrators here" in refused.err) == (4, True)
    requested = run("credits", "give", "ann", "100", "--note", "hello")
    assert "needs approval by a second administrator" in requested.out
    waiting = reply(run("approvals", "list", "--json"))
    kinds = [(one["kind"], one["can_approve"]) for one in waiting]
    assert sorted(kinds) == [("sign-up grant", False), ("top-up", False)]
    waiting.sort(key=lambda one: one["kind"], reverse=True)
    alone = run("approvals", "approve", waiting[0]["id"])
    assert (alone.code, "Another administrator" in alone.err) == (4, True)
    assert "rejected: 100.00 credits" in run("approvals", "reject", waiting[0]["id"], "--reason", "no").out
    assert "needs approval by a second administrator" in run("accounts", "roles", "ann", "--role", "provider").out
    assert made.out.startswith("acc_")


@pytest.mark.soak
def test_signing_out_everywhere_revokes_all_keys(hub: ServedHub, run: Run) -> None:
    ann = reply(run("accounts", "create", "bea", "--json"))["id"]
    assert run("keys", "create", "by-name", "--account", "bea").out.startswith("cp_")
    key = run("keys", "create", "k", "--account", ann).out.strip()
    save_config(Config(hub=load_config().hub, key=key))
    assert run("logout", "--everywhere").code == 0
    save_config(Config(hub=load_config().hub, key=key))
    assert run("whoami").code == 4


@pytest.mark.soak
def test_a_revoked_node_stays_revoked(hub: ServedHub, run: Run) -> None:
    code = reply(run("node", "code", "--json"))["code"]
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # jobs run as other users and must be able to enter it
        named = ("--code", code, "--name", "lost", "--data", folder)
        made = reply(run("node", "enroll", "--hub", load_config().hub, *named, "--json"))
    unsure = run("node", "revoke", "lost")
    assert (unsure.code, "pass --yes" in unsure.err) == (2, True)
    assert reply(run("node", "show", "lost", "--json"))["state"] == "active"
    gone = reply(run("node", "revoke", "lost", "--yes", "--json"))
    assert (gone["id"], gone["state"]) == (made["node_id"], "revoked")
    assert run("node", "revoke", "nobody", "--yes").code != 0
