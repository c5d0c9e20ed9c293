"""Mesh versions do not mix: whom a hub takes, what its jobs are of, and which nodes may run them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, strategies as st

from computepool.core import mesh_version
from computepool.core.fleet.fleet import Fleet
from computepool.core.placement import gates
from computepool.core.resources import Capacity, NodeProfile, Requirements, Shape

versions = st.sampled_from(["", "analysis", "analysis-2", "Analysis", "x"])
NODE = NodeProfile(
    node_id="n", name="n", owner="o", capacity=Capacity(cpu_milli=4000, ram_mb=4096, disk_mb=4096, gpus=())
)


def eligible(fleet: Fleet, version: str | None) -> set[str]:
    """The mesh gate alone, by the rows it lets through."""
    shape = Shape(Requirements(cpu_milli=100, ram_mb=1, disk_mb=1, mesh_version=version or ""), "o")
    rows = np.arange(fleet.rows)
    [gate] = [gate for gate in gates.GATES if gate.name == "mesh_version"]
    passed = gate.passes(fleet, shape, rows)
    kept = rows if passed is None else rows[passed]
    return {fleet.node_at(int(row)).profile.node_id for row in kept}


@given(hub=versions, nodes=st.lists(versions, max_size=12), job=versions)
def test_versions_do_not_mix(hub: str, nodes: list[str], job: str) -> None:
    fleet, taken = Fleet(), {}
    for number, version in enumerate(nodes):
        if mesh_version.refusal(hub=hub, node=version) is None:
            name = f"n{number}"
            taken[name] = version
            fleet.upsert(replace(NODE, node_id=name, name=name, mesh_version=version))
    version = mesh_version.version_of_job(job or None, hub=hub)
    able = eligible(fleet, version)

    assert all(version == hub for version in taken.values()) or not hub
    # Whoever runs it is of the job's version, and all who could are of one version.
    assert able == {name for name, of in taken.items() if version in (None, of)}
    if version is not None:
        assert {taken[name] for name in able} <= {version}
    # Only a job that names none, on a hub that has none, may go to nodes of different versions.
    if len({taken[name] for name in able}) > 1:
        assert (hub, job) == ("", "")
    # A job that names another version than its hub's goes nowhere.
    if hub and job and job != hub:
        assert not able


@given(hub=versions, node=versions)
def test_a_refusal_names_both(hub: str, node: str) -> None:
    sentence = mesh_version.refusal(hub=hub, node=node)
    if sentence is None:
        assert not hub or hub == node
    else:
        assert f"mesh version {hub}" in sentence
        assert (f"mesh version {node}" if node else "no mesh version") in sentence


def test_a_host_is_left_out_by_every_name_it_goes_by() -> None:
    fleet = Fleet()
    fleet.upsert(replace(NODE, node_id="id", name="laptop", url="http://10.0.0.7:8765"))
    fleet.upsert(replace(NODE, node_id="other", name="other", url="http://10.0.0.8:8765"))
    for word in ("id", "laptop", "http://10.0.0.7:8765", "http://laptop:8765"):
        assert [fleet.node_at(row).profile.node_id for row in fleet.rows_called(word)] == ["id"]
    fleet.upsert(replace(NODE, node_id="id", name="desk", url="http://[fe80::7]:8765"))
    assert fleet.rows_called("http://laptop:8765") == []
    assert len(fleet.rows_called("http://desk:8765")) == 1
