"""Job classes in real sandboxes: every kind of report has one outcome. The table is in docs/jobs.md."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import computepool
from computepool import ComputeJob, ComputeJobState, JobFailed, Pool
from computepool.core.jobs.lifecycle import JobKind
from computepool.sdk.classes.compute_job import ReportError
from computepool.testing.processes import RealPool
from tests.sdk.conftest import NODE

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def pool(class_pool: RealPool) -> Pool:
    return class_pool.client()


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int


@dataclass
class State(ComputeJobState):
    text: str
    do: str = ""
    words: int = 0
    day: date = date(2026, 11, 15)
    points: list[Point] = field(default_factory=list)
    colours: dict[str, Colour] = field(default_factory=dict)
    made_by: str = field(init=False, default="")

    def __post_init__(self) -> None:
        self.made_by += "once"


def counted(text: str) -> int:
    return len(text.split())


class Count(ComputeJob[State]):
    def run_compute_job(self) -> None:
        self.state.words = counted(self.state.text)

    def build_result_payload(self) -> dict[str, Any]:
        state = self.state
        return {
            "words": state.words,
            "day": state.day,
            "made_by": state.made_by,
            "sum": sum(point.x * point.y for point in state.points),
            "red": [name for name, colour in state.colours.items() if colour is Colour.RED],
            "installed": importlib.util.find_spec("pydantic") is not None,
        }


def test_the_state_the_class_and_its_helpers_are_sent_to_the_node(pool: Pool) -> None:
    state = State(
        text="three short words", points=[Point(2, 3), Point(1, 1)], colours={"a": Colour.RED, "b": Colour.BLUE}
    )
    future = pool.submit_job(Count, state, tags="linux")
    report = future.result(60)
    assert report.payload == {
        "words": 3,
        "day": date(2026, 11, 15),
        "made_by": "once",
        "sum": 7,
        "red": ["a"],
        "installed": False,
    }
    assert report["words"] == 3
    assert pool.jobs.get(future.job_id).kind is JobKind.CLASS
    assert pool.future(future.job_id).result(60).payload == report.payload
    assert state.words == 0, "the caller's state is unchanged"
    assert pool.submit(Count, state).result(60)["words"] == 3, "submit() accepts a job class, too"


class Reports(ComputeJob[State]):
    """Calls the method `state.do`. Contains no `assert`, because pytest's would need pytest on the node."""

    def run_compute_job(self) -> None:
        getattr(self, self.state.do)()

    def nothing(self) -> None:
        pass

    def twice(self) -> None:
        self.report_compute_success({"n": 1})
        self.report_compute_success({"n": 2})

    def twice_caught(self) -> None:
        self.report_compute_success({"n": 1})
        for again in (lambda: self.report_compute_success({"n": 2}), lambda: self.file("late")):
            try:
                again()
            except ReportError:
                print("refused")

    def raises_after(self) -> None:
        self.report_compute_success({"n": 1})
        raise ValueError("broken on purpose")

    def leaves_after(self) -> None:
        self.report_compute_success({"n": 1})
        sys.exit(0)

    def dies_after(self) -> None:
        self.report_compute_success({"n": 1})
        os.kill(os.getpid(), 9)

    def no_dict(self) -> None:
        self.report_compute_success([1, 2])  # type: ignore[arg-type]

    def unsendable(self) -> None:
        self.report_compute_success({"lock": threading.Lock()})

    def missing_file(self) -> None:
        self.report_compute_artifact(self.work_dir() / "never-made.db")

    def folder(self) -> None:
        self.report_compute_artifact(self.work_dir())

    def registered_folder(self) -> None:
        self.register_file(self.work_dir())

    def vanished_file(self) -> None:
        self.file("gone.db")
        (computepool.outputs() / "gone.db").unlink()

    def escaping_name(self) -> None:
        path = self.work_dir() / "a"
        path.touch()
        self.report_compute_artifact(path, name="../../a")

    def file(self, name: str = "result.db") -> None:
        path = self.work_dir() / name
        path.write_bytes(b"rows")
        self.report_compute_artifact(path, result={"bundle": self.state.text}, move=True)
        print("moved" if not path.exists() else "still here")

    def linked_copy(self) -> None:
        path = self.work_dir() / "real.txt"
        path.write_text("what it leads to")
        link = self.work_dir() / "link.txt"
        link.symlink_to(path)
        self.report_compute_artifact(link, name="folder/named.txt")
        print("moved" if not path.exists() else "still here")


class ReturnsNone(Count):
    def build_result_payload(self) -> dict[str, Any]:
        return None  # type: ignore[return-value]


class NoHook(ComputeJob[State]):
    def run_compute_job(self) -> None:
        pass

    def after_compute_success(self) -> None:
        """Forgot to report."""


FAILURES: list[tuple[type[ComputeJob[State]], str, str]] = [
    (Reports, "nothing", "made no report: define build_result_payload"),
    (NoHook, "", "ended without a report"),
    (Reports, "twice", "has already reported; a job makes one report"),
    (Reports, "raises_after", "ValueError: broken on purpose"),
    (Reports, "leaves_after", "SystemExit: 0"),
    (Reports, "dies_after", "signal|killed"),
    (Reports, "no_dict", "result is list; a report is a dict"),
    (ReturnsNone, "", r"build_result_payload\(\) is NoneType; a report is a dict"),
    (Reports, "unsendable", r"result\.lock: _thread\.lock cannot be sent"),
    (Reports, "missing_file", "never-made.db': there is no such file"),
    (Reports, "folder", "cannot report .*: it is a folder; pack it into one file"),
    (Reports, "registered_folder", "cannot register .*: it is a folder; pack it into one file"),
    (Reports, "vanished_file", "reported file 'gone.db' no longer existed when the job ended"),
    (Reports, "escaping_name", "is not a plain file name"),
]


@pytest.mark.soak
@pytest.mark.parametrize(("job_class", "do", "words"), FAILURES, ids=lambda v: v if isinstance(v, str) else v.__name__)
def test_an_invalid_report_fails_the_job_with_a_clear_message(
    pool: Pool, job_class: type[ComputeJob[State]], do: str, words: str
) -> None:
    future = pool.submit_job(job_class, State(text="x", do=do))
    with pytest.raises(JobFailed, match=words):
        future.result(60)
    view = pool.jobs.get(future.job_id)
    assert (view.state, len(view.tries)) == ("failed", 1), "not retried, because the job itself is at fault"


class FailsLate(ComputeJob[State]):
    def run_compute_job(self) -> None:
        (computepool.outputs() / "so far.txt").write_text("half of it")
        raise ValueError("in the end")


@pytest.mark.soak
def test_the_output_files_of_a_failed_job_are_kept(pool: Pool) -> None:
    future = pool.submit_job(FailsLate, State(text="x"))
    with pytest.raises(JobFailed, match="in the end"):
        future.result(60)
    [file] = pool.jobs.get(future.job_id).outputs
    assert file.name == "so far.txt"
    assert pool.artifacts.get_bytes(file.digest) == b"half of it"


@pytest.mark.soak
def test_the_first_report_counts_if_the_second_is_refused(pool: Pool) -> None:
    report = pool.submit_job(Reports, State(text="x", do="twice_caught")).result(60)
    assert (report.payload, report.outputs) == ({"n": 1}, ())
    assert report.output == "refused\nrefused\n"


def test_a_file_is_reported_with_a_result_beside_it(pool: Pool, tmp_path: Path) -> None:
    report = pool.submit_job(Reports, State(text="bundle-a", do="file")).result(60)
    assert (report.payload, report.output) == ({"bundle": "bundle-a"}, "moved\n")
    assert {path.name: path.read_bytes() for path in report.download(tmp_path)} == {"result.db": b"rows"}
    copied = pool.submit_job(Reports, State(text="", do="linked_copy")).result(60)
    assert [path.read_text() for path in copied.download(tmp_path)] == ["what it leads to"]
    assert copied.outputs[0].name == "folder/named.txt"
    assert (copied.payload, copied.output) == ({}, "still here\n")


class Leftovers(ComputeJob[State]):
    def run_compute_job(self) -> None:
        (self.work_dir() / "scratch").write_text("x")
        left = [path.name for path in self.work_dir().parent.glob(".work-*")]
        self.report_compute_success({"folders": len(left), "cwd": os.listdir()})


@pytest.mark.soak
def test_a_work_folder_is_private_and_removed_with_its_job(pool: Pool) -> None:
    """The second job runs in the same warm worker."""
    seen = [pool.submit_job(Leftovers, State(text="")).result(60)["folders"] for _ in range(2)]
    assert seen == [1, 1]


@pytest.mark.soak
def test_a_class_of_an_installed_package_is_sent_with_its_package(
    pool: Pool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_installed(tmp_path, monkeypatch)
    work = importlib.import_module("lab_tools.work")
    report = pool.submit_job(work.Triple, work.TripleState(number=14)).result(60)
    assert report.payload == {"triple": 42}


def make_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a helper module, in a folder that counts as one of installed packages."""
    from computepool.sdk.code import own_modules

    package = folder / "lab_tools"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "helper.py").write_text("def triple(n):\n    return 3 * n\n")
    (package / "work.py").write_text(
        "from dataclasses import dataclass\n"
        "from computepool import ComputeJob, ComputeJobState\n"
        "from lab_tools.helper import triple\n"
        "@dataclass\nclass TripleState(ComputeJobState):\n    number: int = 0\n"
        "class Triple(ComputeJob[TripleState]):\n"
        "    def run_compute_job(self):\n        self.state.number = triple(self.state.number)\n"
        "    def build_result_payload(self):\n        return {'triple': self.state.number}\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    installed = (*own_modules._installed_folders(), f"{folder}{os.sep}")
    monkeypatch.setattr(own_modules, "_installed_folders", lambda: installed)


SCRIPT = """
import enum
from dataclasses import dataclass, field
from computepool import ComputeJob, ComputeJobState, connect

class Kind(enum.Enum):
    GOOD = 1

@dataclass
class Inner:
    kind: Kind

@dataclass
class State(ComputeJobState):
    inner: list[Inner] = field(default_factory=list)

class Job(ComputeJob[State]):
    def __init__(self, state):  # attributes of its own, and no super().__init__
        self.state, self._run, self._report, self._files = state, "mine", "mine", "mine"
    def run_compute_job(self):
        self.good = [inner.kind is Kind.GOOD and type(inner) is Inner for inner in self.state.inner]
    def build_result_payload(self):
        return {"good": self.good, "mine": [self._run, self._report, self._files], "name": __name__}

if __name__ == "__main__":
    print(connect().submit_job(Job, State(inner=[Inner(Kind.GOOD)])).result(60).payload)
"""


@pytest.mark.soak
def test_everything_may_be_defined_in_the_main_script(class_pool: RealPool, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(SCRIPT)
    env = {**os.environ, "COMPUTEPOOL_HUB": class_pool.hubs[0].url, "COMPUTEPOOL_KEY": class_pool.admin_key}
    done = subprocess.run(
        [sys.executable, "main.py"], env=env, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "{'good': [True], 'mine': ['mine', 'mine', 'mine'], 'name': '__main__'}\n", done.stderr


class Undecorated(ComputeJobState):
    number: int = 0


class NotDecorated(Count):
    State = Undecorated


@dataclass
class MoreState(State):
    more: int = 0


@pytest.mark.soak
def test_a_job_runs_only_where_its_state_allows(pool: Pool) -> None:
    """There is only one node, so a job that excludes it waits."""
    excluded: list[dict[str, Any]] = [
        {"required_host_tags": ("gpu",)},
        {"excluded_host_tags": "linux"},
        {"excluded_host_names": (NODE,)},
        {"home_host_name": NODE},
    ]
    for fields in excluded:
        future = pool.submit_job(Count, State(text="a", **fields))
        why = future.why()
        assert (why.state, why.eligible_now) == ("queued", 0), fields
        assert future.cancel()
    home = State(text="a", home_host_name=NODE, allow_home_compute=True, preferred_host_tags=("gpu",))
    assert pool.submit_job(Count, home).result(60)["words"] == 1


INVALID: list[tuple[str, Callable[[], Any], str]] = [
    ("not a job class", lambda: (pow, State(text="")), "is not a subclass of ComputeJob"),
    ("another state", lambda: (Count, ComputeJobState()), "takes states of State, not ComputeJobState"),
    ("a field", lambda: (Count, State(text="", points=[threading.Lock()])), r"State\.points\[0\]: _thread"),  # type: ignore[list-item]
    ("a state of its own", lambda: (Count, MoreState(text="")), "takes states of State, not MoreState"),
    ("no dataclass", lambda: (NotDecorated, Undecorated()), "where MyState is a dataclass"),
    ("no work", lambda: (ComputeJob, State(text="")), "has no run_compute_job"),
]


@pytest.mark.parametrize(("make", "words"), [row[1:] for row in INVALID], ids=[row[0] for row in INVALID])
def test_an_invalid_class_or_state_is_refused_before_sending(pool: Pool, make: Callable[[], Any], words: str) -> None:
    with pytest.raises(computepool.ComputePoolError, match=words):
        pool.submit_job(*make())


def test_a_local_run_has_the_same_outcomes(tmp_path: Path) -> None:
    report = Reports.run_locally(State(text="b", do="file"), folder=tmp_path / "out")
    assert (report.payload, [path.name for path in report.outputs]) == ({"bundle": "b"}, ["result.db"])
    assert Count.run_locally(State(text="a b")).payload["words"] == 2
    for do, error in (("nothing", ReportError), ("unsendable", ValueError), ("raises_after", ValueError)):
        with pytest.raises(error):
            Reports.run_locally(State(text="", do=do))
    assert "COMPUTEPOOL_OUTPUTS" not in os.environ


def test_the_examples_in_the_docs_are_correct() -> None:
    page = (Path(__file__).parents[3] / "docs" / "jobs.md").read_text()
    [code] = re.findall(r"```python\n(from dataclasses.+?)pool = connect", page, re.S)
    names: dict[str, Any] = {"__name__": "page"}
    exec(compile(code, "jobs.md", "exec", dont_inherit=True), names)
    assert names["Count"].run_locally(names["CountState"](text="try it here")).payload == {"words": 3}
    assert "{'words': 3}" in code
    for hook in re.findall(r"^\| `(\w+)\(", page, re.M):
        assert hasattr(ComputeJob, hook), hook
    for name in re.findall(r"`(\w+)`", page.partition("## The state")[2].partition("Everything else")[0]):
        assert name in ComputeJobState.__dataclass_fields__ or name in ("False", "True", "submit_compute_job_group")
