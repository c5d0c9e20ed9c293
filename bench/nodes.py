"""The cost of nodes to the hub: enrolment, parked polls, and the return of all nodes after a restart of the hub.

Rates are those of this machine, which also runs the simulated nodes. CPU time is that of the whole hub; the time of a poll is
without what the hub spends while it has no node, which is measured first. The notes give the time on the machine of
`REFERENCE_S` (hub_cost.py), by a fixed piece of work that is measured meanwhile.

The last size is limited by the open files of one process: a connection is a file on both sides, and there are two processes
of nodes.
"""

from __future__ import annotations

import http.client
import json
import resource
import statistics
import time
from collections.abc import Callable
from urllib.request import Request, urlopen

from bench.hub_cost import REFERENCE_S, reference_work
from bench.processes import cpu_s, hub_process, rss_bytes
from bench.simulated_nodes import Counts, SimulatedNodes
from bench.table import Figure
from computepool.testing.processes import HubProcess

#: Numbers of nodes, one after the other. The last one is smaller if the hub may not open enough files.
SIZES = (1_000, 5_000, 20_000)
_SPARE_FILES = 300  #: files that a hub needs besides its connections
MEASURE_S = 20.0
INTERVAL_S = 10.0  #: of a node's polls, as in a real hub
#: Lists are requested at this number of nodes.
LISTED = 5_000
LISTINGS = 11
_SETTLE_S = 2.0
_REFERENCE_EVERY_S = 0.05
_LIMIT_S = 150.0
_ANY = 1_000_000


def _allow_connections() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _sizes() -> list[int]:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = (most - _SPARE_FILES) // 100 * 100 if most != resource.RLIM_INFINITY else SIZES[-1]
    return sorted({min(wanted, allowed) for wanted in SIZES})


def _slowness(seconds: float) -> float:
    """The slowness of the machine during this time."""
    took, ends = [], time.perf_counter() + seconds
    while time.perf_counter() < ends:
        began = time.thread_time()
        reference_work()
        took.append(time.thread_time() - began)
        time.sleep(_REFERENCE_EVERY_S)
    return statistics.median(took) / REFERENCE_S


def _code(hub: HubProcess) -> str:
    """A code with which all nodes enrol."""
    headers = {"Authorization": f"Bearer {hub.first.admin_key}", "Content-Type": "application/json"}
    request = Request(f"{hub.url}/api/v1/nodes/codes", data=b'{"hosts": null}', headers=headers)
    with urlopen(request, timeout=30) as answer:
        return str(json.load(answer)["code"])


def _wait(nodes: SimulatedNodes, enough: Callable[[Counts], bool]) -> float:
    """Returns the seconds that it took."""
    began = time.perf_counter()
    while not enough(nodes.counts()):
        if time.perf_counter() - began > _LIMIT_S:
            raise TimeoutError(f"the nodes did not arrive within {_LIMIT_S:.0f} s: {nodes.counts()}")
        time.sleep(0.1)
    return time.perf_counter() - began


def _enrol(hub: HubProcess, nodes: SimulatedNodes, code: str, *, here: int, wanted: int) -> Figure:
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


def _idle(hub: HubProcess) -> float:
    """CPU seconds per second of a hub without nodes."""
    time.sleep(_SETTLE_S)
    cpu, began = cpu_s(hub.pid), time.perf_counter()
    time.sleep(MEASURE_S)
    return (cpu_s(hub.pid) - cpu) / (time.perf_counter() - began)


def _parked(hub: HubProcess, nodes: SimulatedNodes, here: int, *, idle: float) -> list[Figure]:
    time.sleep(_SETTLE_S + INTERVAL_S)  # until all have polled once on the connection that they keep
    cpu, seen, began = cpu_s(hub.pid), nodes.counts(), time.perf_counter()
    slowness = _slowness(MEASURE_S)
    spent_s, found, took_s = cpu_s(hub.pid) - cpu, nodes.counts() - seen, time.perf_counter() - began
    each_us = (spent_s - idle * took_s) / max(1, found.polls) * 1e6
    polls = f"{found.polls / took_s:,.0f} polls a second, {found.failures} failed"
    note = f"{each_us / slowness:.0f} µs at the speed of reference; {polls}"
    return [
        Figure(f"hub CPU per parked poll, {here:,} nodes", each_us, "µs", target=60, lower_is_better=True, note=note),
        Figure(f"{here:,} parked nodes, of a core", 100 * spent_s / took_s, "%", target=50, lower_is_better=True),
    ]


def _lists(hub: HubProcess) -> list[Figure]:
    """As requested by a program, on its own connection."""
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


def _back(hub: HubProcess, nodes: SimulatedNodes, here: int) -> Figure:
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
        note=f"CPU of the hub {each_us:,.0f} µs each, including its start",
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
        code, here, empty, idle = _code(hub), 0, rss_bytes(hub.pid), _idle(hub)
        figures.append(Figure("hub CPU without nodes, of a core", 100 * idle, "%", lower_is_better=True))
        for wanted in _sizes():
            figures.append(_enrol(hub, nodes, code, here=here, wanted=wanted))
            here = wanted
            figures += _parked(hub, nodes, here, idle=idle)
            if here == LISTED:
                figures += _lists(hub)
        grown = (rss_bytes(hub.pid) - empty) / here / 1024
        figures.append(Figure("hub memory per parked node", grown, "KB", target=25, lower_is_better=True))
        figures.append(_back(hub, nodes, here))
    return figures
