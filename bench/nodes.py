"""What nodes cost the hub: those that enrol, those that wait with a parked poll, and all of them after a restart of the hub.

Rates are of this machine, which runs the simulated nodes, too; CPU is of the hub alone.
"""

from __future__ import annotations

import http.client
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from urllib.request import Request, urlopen

from bench.processes import RunningHub, cpu_s, hub_process, rss_bytes
from bench.simulated_nodes import Counts, SimulatedNodes
from bench.table import Figure

#: How many there are at once, one after the other; the last are as many as the hub's files and a minute allow.
SIZES = (1_000, 5_000, 15_000)
MEASURE_S = 10.0
INTERVAL_S = 10.0  #: of a node's polls, as hubs have it
#: The lists that people look at are asked for at this size.
LISTED = 5_000
LISTINGS = 11
_SETTLE_S = 2.0
_LIMIT_S = 150.0
_ANY = 1_000_000


def _allow_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _code(hub: RunningHub) -> str:
    """One that all nodes enrol with."""
    headers = {"Authorization": f"Bearer {hub.first.admin_key}", "Content-Type": "application/json"}
    asked = Request(f"{hub.url}/api/v1/nodes/codes", data=b'{"hosts": null}', headers=headers)
    with urlopen(asked, timeout=30) as answer:
        return str(json.load(answer)["code"])


def _wait(nodes: SimulatedNodes, enough: Callable[[Counts], bool]) -> float:
    """How long it took."""
    began = time.perf_counter()
    while not enough(nodes.counts()):
        if time.perf_counter() - began > _LIMIT_S:
            raise TimeoutError(f"the nodes did not come within {_LIMIT_S:.0f} s: {nodes.counts()}")
        time.sleep(0.1)
    return time.perf_counter() - began


def _enrol(hub: RunningHub, nodes: SimulatedNodes, code: str, *, here: int, wanted: int) -> Figure:
    before = cpu_s(hub.pid)
    nodes.grow(wanted - here, code)
    took_s = _wait(nodes, lambda counts: counts.arrivals >= wanted)
    each_us = (cpu_s(hub.pid) - before) / (wanted - here) * 1e6
    return Figure(
        f"nodes that enrol, to {wanted:,}",
        (wanted - here) / took_s,
        "/s",
        target=500,
        note=f"CPU of the hub {each_us:,.0f} µs each",
    )


def _parked(hub: RunningHub, nodes: SimulatedNodes, here: int) -> list[Figure]:
    time.sleep(_SETTLE_S)
    cpu, seen, began = cpu_s(hub.pid), nodes.counts(), time.perf_counter()
    time.sleep(MEASURE_S)
    spent_s, found, took_s = cpu_s(hub.pid) - cpu, nodes.counts() - seen, time.perf_counter() - began
    note = f"{found.polls / took_s:,.0f} polls a second, {found.failures} failed"
    return [
        Figure(
            f"hub CPU per parked poll, {here:,} nodes",
            spent_s / max(1, found.polls) * 1e6,
            "µs",
            target=60,
            lower_is_better=True,
            note=note,
        ),
        Figure(
            f"{here:,} parked nodes, of a core",
            100 * spent_s / took_s,
            "%",
            target=50,
            lower_is_better=True,
        ),
    ]


def _lists(hub: RunningHub) -> list[Figure]:
    """As a program asks, on a connection of its own."""
    link = http.client.HTTPConnection("127.0.0.1", hub.port, timeout=30)
    figures = []
    for path in ("/queue", "/mesh/nodes"):
        times = []
        for _ in range(LISTINGS):
            began = time.perf_counter()
            link.request("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {hub.first.admin_key}"})
            answer = link.getresponse()
            answer.read()
            assert answer.status == 200
            times.append((time.perf_counter() - began) * 1e3)
        name = f"{path} with {LISTED:,} nodes, p50"
        figures.append(Figure(name, statistics.median(times), "ms", target=50, lower_is_better=True))
    link.close()
    return figures


def _back(hub: RunningHub, nodes: SimulatedNodes, here: int) -> Figure:
    hub.kill()
    before = nodes.counts().arrivals
    hub.start()
    took_s = _wait(nodes, lambda counts: counts.arrivals - before >= here)
    each_us = cpu_s(hub.pid) / here * 1e6
    return Figure(
        f"{here:,} nodes that come back after a restart",
        here / took_s,
        "/s",
        target=500,
        note=f"CPU of the hub {each_us:,.0f} µs each, its start included",
    )


def run() -> list[Figure]:
    _allow_connections()
    figures: list[Figure] = []
    with (
        hub_process(
            registrations_per_s=_ANY, join_code_hosts=_ANY, interval_min_s=INTERVAL_S, log_level="warning"
        ) as hub,
        SimulatedNodes(hub.port) as nodes,
    ):
        code, here, empty = _code(hub), 0, rss_bytes(hub.pid)
        for wanted in SIZES:
            figures.append(_enrol(hub, nodes, code, here=here, wanted=wanted))
            here = wanted
            figures += _parked(hub, nodes, here)
            if here == LISTED:
                figures += _lists(hub)
        grown = (rss_bytes(hub.pid) - empty) / here / 1024
        figures.append(Figure("hub memory per parked node", grown, "KB", target=25, lower_is_better=True))
        figures.append(_back(hub, nodes, here))
    return figures


if __name__ == "__main__":
    for figure in run():
        print(figure)
    sys.exit(0)
