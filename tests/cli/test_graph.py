"""`pool jobs graph` and the conditions of `pool submit`, with a real hub."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from computepool.cli.job.graph import _dot, _tree
from computepool.core.jobs.lifecycle import JobState, Reason, When
from computepool.protocol.jobs.views import GraphEdge, GraphJob, GraphView
from computepool.sdk.client.config import Config, save_config
from tests.cli.conftest import Run, reply
from tests.hub.serving import ServedHub, serving


def job(id_: str, when: When = When.SUCCESS, *, name: str = "step", state: JobState = JobState.QUEUED) -> GraphJob:
    return GraphJob(id=id_, name=name, state=state, reason=Reason.WAITING_FOR_JOBS, when=when)


def graph(jobs: list[GraphJob], *edges: str) -> GraphView:
    """Each edge as two letters: the job before, and the other."""
    return GraphView(jobs=jobs, edges=[GraphEdge(after_id=edge[0], job_id=edge[1]) for edge in edges])


def test_each_job_is_below_the_last_one_before_it() -> None:
    found = graph(
        [job("a", state=JobState.SUCCEEDED), job("b"), job("c"), job("d"), job("e", When.ALWAYS), job("f")],
        *("ab", "ac", "bd", "cd", "de", "ae"),
    )
    assert list(_tree(found)) == [
        "step  succeeded  a",
        "├─ step  queued  b",
        "└─ step  queued  c",
        "   └─ step  queued  d  also after 1 other job",
        "      └─ step  queued  e  always  also after 1 other job",
        "step  queued  f",
    ]


def test_a_long_chain_and_names_of_others_do_no_harm() -> None:
    names = [f"j{number}" for number in range(1_500)]
    edges = [GraphEdge(after_id=a, job_id=b) for a, b in pairwise(names)]
    assert len(list(_tree(GraphView(jobs=[job(name) for name in names], edges=edges)))) == 1_500
    hostile = 'x" ] ; evil [label="\\'
    lines = list(_dot(graph([job("a", name=hostile), job("b", When.FAILURE)], "ab")))
    assert lines[2] == r'  "a" [label="x\" ] ; evil [label=\"\\\nqueued", fillcolor=white];'
    assert '  "a" -> "b" [style=dashed, label="on failure"];' in lines


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedHub]:
    with serving(tmp_path_factory.mktemp("hub"), verify="none") as hub:
        yield hub


@pytest.mark.process
def test_conditions_and_graphs_on_the_command_line(served: ServedHub, run: Run) -> None:
    host, port = served.address
    save_config(Config(hub=f"http://{host}:{port}", key=served.key))
    first = reply(run("submit", "--name", "prepare", "--group", "pipeline", "--json", "--", "true"))["job_ids"][0]
    after = run("submit", "--name", "alarm", "--after", first, "--when", "failure", "--json", "--", "true")
    last = reply(after)["job_ids"][0]
    lines = run("jobs", "graph", last).out.splitlines()
    assert lines == [f"prepare  queued  {first}", f"└─ alarm  queued  {last}  on failure"]
    assert run("jobs", "graph", "--group", "pipeline").out.splitlines() == lines
    assert [each["id"] for each in reply(run("jobs", "graph", first, "--json"))["jobs"]] == [first, last]
    assert f'  "{first}" -> "{last}" [style=dashed, label="on failure"];' in run("jobs", "graph", first, "--dot").out
    assert run("jobs", "cancel", first).code == 0
    assert "skipped" not in run("jobs", "graph", last).out
    for wrong in (["jobs", "graph"], ["jobs", "graph", first, "--group", "pipeline"]):
        assert run(*wrong).code == 2
    refused = run("submit", "--when", "failure", "--", "true")
    assert (refused.code != 0, "failure needs jobs in `after`" in refused.err) == (True, True), refused.err
    unknown = run("submit", "--after", last, "--when", "sometimes", "--", "true")
    assert (unknown.code != 0, "success" in unknown.err) == (True, True), unknown.err
