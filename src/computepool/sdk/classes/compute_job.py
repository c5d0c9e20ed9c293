"""Job classes: a state that is sent to a node, hooks that run there, and exactly one report.

Placed into every sandbox (agent/execution/job_runtime.py), so it imports only the standard library and the other modules
there. The class is sent as a pickle, and the state as an encoded value, which can be stored, moved and shown without
pickle.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import os
import shutil
import tempfile
import threading
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, Generic, Literal, NoReturn, Self, TypeVar

from computepool.protocol.values import values
from computepool.sdk.client.sizes import words
from computepool.sdk.runtime import checkpointing
from computepool.sdk.runtime.job_context import outputs


@dataclass(kw_only=True)
class ComputeJobState:
    """The data of a job, and where it may run. Subclass it with fields of your own."""

    job_key: str = ""  #: its name in the group; assigned if empty
    required_host_tags: tuple[str, ...] = ()
    excluded_host_tags: tuple[str, ...] = ()
    preferred_host_tags: tuple[str, ...] = ()
    excluded_host_names: tuple[str, ...] = ()
    excluded_host_urls: tuple[str, ...] = ()
    allow_home_compute: bool = False  #: whether the home host may run the job, too
    home_host_name: str = ""  #: where the results go when the group is complete


def placement(state: ComputeJobState) -> dict[str, list[str]]:
    """The job options that the state's tags and exclusions stand for."""
    urls = [url.rstrip("/") for url in words(state.excluded_host_urls)]
    return {
        "tags": words(state.required_host_tags),
        "exclude_tags": words(state.excluded_host_tags),
        "prefer_tags": words(state.preferred_host_tags),
        "exclude_hosts": [*words(state.excluded_host_names), *urls],
    }


StateT = TypeVar("StateT", bound=ComputeJobState)


@dataclass(frozen=True)
class _RegisteredFile:
    path: Path
    moves: bool


@dataclass
class _Run:
    """The state of one run of a job, in an object of its own because subclasses of ComputeJob may use any name."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    report: dict[str, Any] | None = None
    reported_file: Path | None = None
    work_dir: Path | None = None
    files: dict[str, _RegisteredFile] = field(default_factory=dict)
    arrived: bool = False

    def check_unreported(self) -> None:
        if self.report is not None:
            raise ReportError("the job has already reported; a job makes one report")

    def snapshot(self, state: ComputeJobState, *, arrived: bool) -> str:
        moves = {name: file.moves for name, file in self.files.items()}
        return json.dumps({"state": encode_state(state), "arrived": arrived, "moves": moves})

    def paths(self) -> dict[str, Path]:
        for name, file in self.files.items():
            if not file.path.is_file():
                raise FileNotFoundError(f"the registered file {name!r} no longer exists: {file.path}")
        return {name: file.path for name, file in self.files.items()}

    def restore(self, snapshot: Mapping[str, Any], files: Mapping[str, Path]) -> None:
        moves = snapshot["moves"]
        self.arrived = bool(snapshot["arrived"])
        self.files = {name: _RegisteredFile(path=path, moves=bool(moves.get(name))) for name, path in files.items()}

    def final_report(self) -> dict[str, Any]:
        if self.report is None:
            raise ReportError(
                "the job ended without a report: after_compute_success() must call"
                " report_compute_success() or report_compute_artifact()"
            )
        if self.reported_file is not None and not self.reported_file.is_file():
            raise ReportError(f"the reported file {self.reported_file.name!r} no longer existed when the job ended")
        return self.report


class ReportError(RuntimeError):
    """A report is missing or invalid, or there is more than one."""


class ComputeJob(Generic[StateT]):
    """Subclass as `class MyJob(ComputeJob[MyState])`, and define `run_compute_job` and `build_result_payload`.

    >>> class Count(ComputeJob[CountState]):
    ...     def run_compute_job(self):
    ...         self.state.words = len(self.state.text.split())
    ...     def build_result_payload(self):
    ...         return {"words": self.state.words}
    """

    State: ClassVar[type[ComputeJobState] | None] = None  #: default: the class in `ComputeJob[MyState]`

    _computepool: _Run

    def __new__(cls, *_: Any, **__: Any) -> Self:
        job = super().__new__(cls)
        job._computepool = _Run()
        return job

    def __init__(self, state: StateT) -> None:
        self.state: StateT = state

    # ------------------------------------------------------------ hooks
    def run_compute_job(self) -> None:
        """The work: change `self.state`, write files, and optionally report."""
        raise NotImplementedError(f"{type(self).__name__} has no run_compute_job()")

    def build_result_payload(self) -> dict[str, Any]:
        """The report, if `run_compute_job` made none."""
        raise ReportError(
            f"{type(self).__name__} made no report: define build_result_payload(), or call"
            " report_compute_success() or report_compute_artifact()"
        )

    def after_compute_success(self) -> None:
        """Called after `run_compute_job`. Reports `build_result_payload()`, unless there is a report already."""
        if not self.reported:
            self.report_compute_success()

    def on_arrival(self) -> None:
        """Replaces `run_compute_job` on the host that `dispatch_to` named; registered files are in `work_dir()`."""
        raise NotImplementedError(f"{type(self).__name__} has no on_arrival()")

    # ------------------------------------------------------------ helpers
    @property
    def reported(self) -> bool:
        return self._computepool.report is not None

    def report_compute_success(self, result: Mapping[str, Any] | None = None) -> None:
        """Report the result; by default `build_result_payload()`. It counts only if the job then succeeds."""
        payload = self.build_result_payload() if result is None else result
        with self._computepool.lock:
            self._computepool.check_unreported()
            name = "build_result_payload()" if result is None else "result"
            self._computepool.report = _check_payload(payload, name=name)

    def report_compute_artifact(
        self,
        path: str | os.PathLike[str],
        *,
        result: Mapping[str, Any] | None = None,
        move: bool = False,
        name: str | None = None,
    ) -> None:
        """Report a file, with a small `result` beside it. `move`: the file may be moved instead of copied."""
        source = _existing_file(path, "report")
        target = _path_below(outputs(), source.name if name is None else name)
        run = self._computepool
        with run.lock:
            run.check_unreported()
            payload = _check_payload({} if result is None else result, name="result")
            _copy_or_move(source, target, move=move)
            run.report, run.reported_file = payload, target

    def work_dir(self) -> Path:
        """A private folder of this job. It is removed when the job ends."""
        run = self._computepool
        if run.work_dir is None:
            home = outputs().absolute().parent
            run.work_dir = Path(tempfile.mkdtemp(prefix=".work-", dir=home))
        return run.work_dir

    def register_file(
        self, path: str | os.PathLike[str], *, name: str | None = None, mode: Literal["move", "copy"] = "copy"
    ) -> None:
        """Include this file in checkpoints and dispatches; it is restored to `work_dir()` under its name.

        `move`: a dispatch need not leave a copy here. The file is removed only once the hub has stored it.
        """
        if mode not in ("move", "copy"):
            raise ValueError(f"mode must be 'move' or 'copy', not {mode!r}")
        source = _existing_file(path, "register")
        name = source.name if name is None else name
        _path_below(Path(), name)
        self._computepool.files[name] = _RegisteredFile(path=source.absolute(), moves=mode == "move")

    def checkpoint(self, progress: float | None = None) -> bool:
        """Save the state and the registered files: if this node is lost, `run_compute_job` resumes with them elsewhere.

        Call it as often as you like: it returns False if the last checkpoint is very recent, or if not on a node.
        """
        run = self._computepool
        return checkpointing.save(run.snapshot(self.state, arrived=run.arrived), run.paths(), progress)

    def dispatch_to(self, host: str) -> NoReturn:
        """Continue on another host (name or ID): sends the state and the registered files, and runs `on_arrival` there."""
        if type(self).on_arrival is ComputeJob.on_arrival:
            raise TypeError(f"{type(self).__name__} has no on_arrival(), which says what to do at {host}")
        if self.reported:
            raise ReportError(f"{type(self).__name__} has already reported; a move would lose its report")
        run = self._computepool
        moving = [name for name, file in run.files.items() if file.moves]
        checkpointing.move(host, run.snapshot(self.state, arrived=True), run.paths(), moving=moving)

    # ------------------------------------------------------------ dry run
    @classmethod
    def run_locally(cls, state: StateT, *, folder: str | os.PathLike[str] | None = None) -> LocalReport:
        """Run the job in this process, without sandbox and limits, encoding the state and the report as for a node.

        `folder`: for the outputs; by default a new temporary folder, which is not removed.
        """
        place = Path(tempfile.mkdtemp(prefix="computepool-") if folder is None else folder).absolute()
        place.mkdir(parents=True, exist_ok=True)
        before = os.environ.get("COMPUTEPOOL_OUTPUTS")
        os.environ["COMPUTEPOOL_OUTPUTS"] = str(place)
        classes = [*values.classes_in(state)]
        try:
            report = run_job(cls, classes, encode_state(state))
        finally:
            if before is None:
                del os.environ["COMPUTEPOOL_OUTPUTS"]
            else:
                os.environ["COMPUTEPOOL_OUTPUTS"] = before
        files = sorted(path for path in place.rglob("*") if path.is_file())
        return LocalReport(values.decode(values.encode(report), classes=values.classes_in(report)), files)

    # ------------------------------------------------------------ internal
    @classmethod
    def state_class(cls) -> type[ComputeJobState]:
        """The dataclass of `self.state`."""
        found = cls.State or _argument(cls)
        if not (isinstance(found, type) and issubclass(found, ComputeJobState) and _is_dataclass(found)):
            raise TypeError(
                f"{cls.__name__} does not declare its state: write `class {cls.__name__}(ComputeJob[MyState])`,"
                " where MyState is a dataclass derived from ComputeJobState"
            )
        return found


def run_job(job_class: type[ComputeJob[Any]], classes: Sequence[type], state_text: str) -> dict[str, Any]:
    """Called on the node: runs one job and returns its report. `classes`: the classes of objects in the state."""
    state_class = job_class.state_class()
    job = job_class(decode_state(state_class, state_text, classes=classes))
    run = job._computepool
    try:
        saved = None if checkpointing.restored() is None else checkpointing.restore_into(job.work_dir())
        if saved is not None:
            snapshot = json.loads(saved[0])
            job.state = decode_state(state_class, snapshot["state"], classes=classes)
            run.restore(snapshot, saved[1])
        if run.arrived:
            job.on_arrival()
        else:
            job.run_compute_job()
        job.after_compute_success()
        return run.final_report()
    finally:
        if run.work_dir is not None:
            shutil.rmtree(run.work_dir, ignore_errors=True)


@dataclass(frozen=True)
class LocalReport:
    """The report of a local run, and its output files."""

    payload: dict[str, Any]
    outputs: list[Path]


def encode_state(state: ComputeJobState) -> str:
    """The state as text. Raises ValueError with the name of a field that cannot be sent."""
    parts = []
    for one in dataclasses.fields(state):
        try:
            text = values.encode(getattr(state, one.name))
        except ValueError as error:
            path, _, problem = str(error).partition(": ")
            where = f"{type(state).__name__}.{one.name}{path.removeprefix('result')}"
            raise ValueError(f"{where}: {problem.partition('; ')[0]}; a state is sent without pickle") from None
        parts.append(f"{json.dumps(one.name)}:{text}")
    return "{" + ",".join(parts) + "}"


def decode_state(state_class: type[ComputeJobState], text: str, *, classes: Sequence[type] = ()) -> Any:
    """The state from its text. As in unpickling, no constructor runs."""
    state = object.__new__(state_class)
    for name, value in values.decode(text, classes=classes).items():
        object.__setattr__(state, name, value)
    return state


def _argument(cls: type) -> Any:
    """`MyState` of the first `ComputeJob[MyState]` among the base classes."""
    for base in cls.__mro__:
        for generic in getattr(base, "__orig_bases__", ()):
            origin = typing.get_origin(generic)
            if isinstance(origin, type) and issubclass(origin, ComputeJob):
                found = typing.get_args(generic)[0]
                return ComputeJobState if isinstance(found, TypeVar) else found
    return ComputeJobState


def _is_dataclass(cls: type) -> bool:
    """Whether the class is decorated itself, or has no annotations that would need it."""
    return "__dataclass_fields__" in cls.__dict__ or not inspect.get_annotations(cls)


def _existing_file(path: str | os.PathLike[str], verb: str) -> Path:
    file, reason = Path(path), "there is no such file"
    if file.is_dir():
        reason = "it is a folder; pack it into one file (shutil.make_archive), or put its files into outputs()"
    if not file.is_file():
        raise FileNotFoundError(f"cannot {verb} {os.fspath(path)!r}: {reason}")
    return file


def _check_payload(payload: Any, *, name: str) -> dict[str, Any]:
    if not isinstance(payload, Mapping):
        raise ReportError(f"{name} is {type(payload).__name__}; a report is a dict")
    return dict(payload)


def _path_below(folder: Path, name: str) -> Path:
    parts = PurePosixPath(name).parts
    if not parts or name.startswith("/") or ".." in parts:
        raise ValueError(f"{name!r} is not a plain file name")
    return folder.joinpath(*parts)


def _copy_or_move(source: Path, target: Path, *, move: bool) -> None:
    if target.exists():
        if source.samefile(target):
            return
        raise FileExistsError(f"an output named {target.name!r} already exists")
    target.parent.mkdir(parents=True, exist_ok=True)
    if move and not source.is_symlink():
        shutil.move(source, target)
        return
    shutil.copyfile(source, target)  # follows symbolic links
    if move:
        source.unlink()
