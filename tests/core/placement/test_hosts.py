"""Names of hosts: what one may be, and which host is meant by one."""

from __future__ import annotations

import time
from random import Random

import pytest
from hypothesis import given, strategies as st

from computepool.core.ids import is_node_id, make_id
from computepool.core.placement.hosts import Host, candidates, closest, name_key, name_problem

ID = make_id("node", 1_800_000_000_000, bytes(10))

hosts = st.lists(
    st.builds(
        Host,
        id=st.integers(0, 5).map(lambda number: f"n{number}"),
        owner=st.sampled_from(["sam", "mal", "evil"]),
        live=st.booleans(),
    ),
    unique_by=lambda host: host.id,
    max_size=5,
)


def test_an_id_means_the_host_that_has_it_and_none_that_is_called_so() -> None:
    named = Host(id="node_2", owner="sam")
    assert candidates(ID, [named], account="sam") == []
    assert candidates(ID, [named, Host(id=ID, owner="olga")], account="sam") == [Host(id=ID, owner="olga")]
    assert candidates("node_of_olga", [named], account="mal") == [named], "that is a name"


@given(called=hosts)
def test_whoever_takes_a_name_takes_nothing_from_those_who_have_it(called: list[Host]) -> None:
    own = [host for host in called if host.owner == "sam"]
    meant = candidates("laptop", called, account="sam")
    if own:
        assert {host.owner for host in meant} == {"sam"}
        assert meant == candidates("laptop", own, account="sam"), "others' hosts change nothing"
    elif len({host.owner for host in called}) > 1:
        assert len(meant) > 1, "nobody's, so none of them"
    assert bool(meant) == bool(called)


def test_of_ones_own_hosts_of_a_name_those_that_are_there_count() -> None:
    new, old = Host(id="n2", owner="sam", live=False), Host(id="n1", owner="sam", live=False)
    assert candidates("laptop", [new, old], account="sam") == [new], "a machine that was set up again"
    back = Host(id="n1", owner="sam", live=True)
    assert candidates("laptop", [new, back], account="sam") == [back]
    both = [Host(id="n2", owner="sam"), back]
    assert candidates("laptop", both, account="sam") == both


@pytest.mark.parametrize(
    "name",
    [
        ID, ID.upper(), f" {ID}", "laptop ", "lap\u200btop", "lap\u202etop", "lap\x7ftop", "ｌａｐｔｏｐ", "ﬁle", "\u2066a\u2069",
        "a\ud800", "lap\u00adtop", "http://laptop:8765", "Last", "node_",
    ],
)  # fmt: skip
def test_names_that_pretend_are_refused(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize("name", ["laptop", "Studio 3", "büro-rechner", "ноутбук", "node_1", "http", "机器"])
def test_ordinary_names_are_fine(name: str) -> None:
    assert name_problem(name) == ""


@given(st.text(max_size=30))
def test_a_name_that_is_taken_reads_as_it_is_written(name: str) -> None:
    if not name_problem(name):
        assert not is_node_id(name)
        assert name_key(name) == name.casefold() or name_key(name) == name_key(name.casefold())


def test_names_are_compared_as_people_read_them() -> None:
    assert name_key("Laptop") == name_key("laptop") == name_key("ＬＡＰＴＯＰ")
    assert closest("latpop", ["laptop", "studio", "gpu-a"]) == ["laptop"]
    assert closest("xyz", ["laptop"]) == []


@pytest.mark.parametrize("length", [40, 190])
def test_looking_for_what_was_meant_takes_no_time_whatever_others_call_their_nodes(length: int) -> None:
    letters = Random(1)
    names = ["".join(letters.choices("ab", k=length)) for _ in range(1_000)]
    began = time.process_time()
    closest("ab" * (length // 2), names)
    assert time.process_time() - began < 1  # some ms; all of them would take many seconds
