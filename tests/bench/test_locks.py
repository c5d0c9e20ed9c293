"""What the peers of the benchmark need. That their locks install the same bytes everywhere: tests/tidy/test_locks.py."""

from __future__ import annotations

from bench.peers.catalogue import PEERS
from bench.peers.environment import REQUIREMENTS


def test_every_peer_has_its_lock_and_its_module() -> None:
    assert {f"{peer.requirements}.txt" for peer in PEERS} == {lock.name for lock in REQUIREMENTS.iterdir()}
    assert all((REQUIREMENTS.parent / f"{peer.module}.py").exists() for peer in PEERS)
