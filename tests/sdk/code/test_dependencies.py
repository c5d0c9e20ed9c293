"""Imports of code: local modules are sent, installed packages are required, and unknown names never are."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from computepool import Pool
from computepool.core.errors import BadRequest
from computepool.core.jobs.lifecycle import JobState, Reason
from computepool.protocol.jobs.jobs import JobSpec
from computepool.protocol.jobs.views import JobResult
from computepool.sdk.code import dependencies
from computepool.sdk.code.functions import pickle_function
from computepool.sdk.errors import job_error
from tests.sdk.fake_hub import FakeHub

NUMPY = f"numpy=={np.__version__}"
REQUIRED = f"pytest=={metadata.version('pytest')}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A project with modules, a package with a data file, and files that must not be sent."""
    files = {
        "own_helper.py": "import own_deeper\ndef double(x):\n    return 2 * x + own_deeper.ZERO\n",
        "own_deeper.py": "ZERO = 0\n",
        "own_package/__init__.py": "",
        "own_package/part.py": "import pytest\nfrom . import other\n",
        "own_package/other.py": "",
        "own_package/table.json": "[]",
        "own_package/__pycache__/part.cpython-311.pyc": "",
        "own_package/.hidden": "",
        "own_package/venv/pyvenv.cfg": "",
        "own_package/venv/lib.py": "",
        "private.py": "KEY = 1",
        "own_space/inner.py": "",
        "unused.py": "import numpy\n",
        "script.py": "import sys, own_helper, numpy.linalg\nfrom own_package import part\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "own_package" / "link.py").symlink_to(tmp_path / "private.py")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("own_")]:
        del sys.modules[name]


SENT = ["own_deeper.py", "own_helper.py", "own_package/__init__.py", "own_package/other.py", "own_package/part.py"]


def last_spec(hub: FakeHub) -> JobSpec:
    spec: JobSpec = list(hub.jobs.values())[-1]["request"].spec
    return spec


def test_a_script_is_sent_with_its_imports(hub: FakeHub, pool: Pool, folder: Path) -> None:
    hub.hold = True
    pool.run(folder / "script.py", wait=False).job_id  # noqa: B018 - waits until it is sent
    spec = last_spec(hub)
    assert [file.name for file in spec.inputs] == SENT
    assert spec.dependencies == [NUMPY, REQUIRED]
    found = pool.options().dependencies(folder / "script.py")
    assert found.sentence == (
        "Sends own_deeper.py, own_helper.py, own_package/__init__.py, own_package/other.py, own_package/part.py "
        f"(111 bytes). Installs {NUMPY}, {REQUIRED}."
    )


def test_explicit_options_take_precedence_over_detection(hub: FakeHub, pool: Pool, folder: Path) -> None:
    hub.hold = True
    other = folder / "another.py"
    other.write_text("ZERO = 1\n")
    pool.run(folder / "script.py", wait=False, dependencies=["six"], inputs={"own_helper.py": other}).job_id  # noqa: B018
    spec = last_spec(hub)
    assert spec.dependencies == ["six"]
    (helper,) = [file for file in spec.inputs if file.name == "own_helper.py"]
    assert hub.blobs[helper.digest] == other.read_bytes()
    pool.run(folder / "script.py", wait=False, autodetect=False).job_id  # noqa: B018
    assert not last_spec(hub).inputs
    assert not last_spec(hub).dependencies


def test_a_script_that_lists_its_packages_requires_no_others(folder: Path, pool: Pool) -> None:
    script = folder / "script.py"
    script.write_text('# /// script\n# dependencies = ["six"]\n# ///\n' + script.read_text())
    found = pool.options().dependencies(script)
    assert [file.name for file in found.files] == SENT
    assert not found.packages


@pytest.mark.soak
def test_a_quote_uploads_nothing(hub: FakeHub, pool: Pool, folder: Path) -> None:
    pool.quote(folder / "script.py")
    assert not hub.blobs


@pytest.mark.soak
def test_a_function_is_sent_with_the_imports_of_its_body(hub: FakeHub, pool: Pool, folder: Path) -> None:
    hub.hold = True

    def work(number: int) -> Any:
        import own_helper  # type: ignore[import-not-found]
        from own_package import part  # type: ignore[import-not-found]

        return own_helper.double(number), part

    for send in (pool.submit(work, 1), pool.executor().submit(work, 1)):
        assert send.job_id  # type: ignore[attr-defined]
        spec = last_spec(hub)
        assert [file.name for file in spec.inputs] == SENT
        assert spec.dependencies == [REQUIRED]
    (folder / "own_deeper.py").write_text("ZERO = 0.0\n")  # a changed file is noticed
    assert pool.submit(work, 1).job_id
    assert last_spec(hub).inputs != spec.inputs


def test_packages_are_detected_in_code_globals_and_arguments(hub: FakeHub, pool: Pool) -> None:
    hub.hold = True

    def inside() -> Any:
        import numpy.linalg

        return numpy.linalg

    def outside() -> Any:
        return np.ones(3)

    for fn, argument in ((inside, ()), (outside, ()), (len, (np.ones(3),)), (len, ([np.float64(1)],))):
        assert pool.submit(fn, *argument).job_id
        assert last_spec(hub).dependencies == [NUMPY]
    run = pool.map(len, [np.ones(3)] * 2, progress=False)
    pool.flush()
    assert last_spec(hub).dependencies == [NUMPY]
    run.close()
    assert pool.submit(divmod, 7, 2).job_id
    assert not last_spec(hub).dependencies


@pytest.mark.soak
def test_a_package_installed_from_a_folder_is_not_required(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path, "from_a_folder", "1.0", **{"direct_url.json": '{"url": "file:///x", "dir_info": {}}'})
    install(tmp_path, "from_an_index", "1.0+cu121")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = dependencies.of_code(["from_a_folder", "from_an_index", "nowhere_at_all"])
    assert found == dependencies.Dependencies((), ("from-an-index==1.0",))


def test_an_installed_package_is_not_a_local_module_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as with `--target`, even in the folder of the local modules."""
    install(tmp_path, "in_target", "1.0")
    (tmp_path / "beside_it.py").write_text("def own(): return 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = [importlib.import_module(name) for name in ("in_target", "beside_it")]
    try:
        installed, own = (pickle_function(module.own) for module in modules)
    finally:
        for module in modules:
            del sys.modules[module.__name__]
    assert b"in_target" in installed
    assert len(installed) < 100 < len(own)


def install(folder: Path, name: str, version: str, **more: str) -> None:
    """Create the files of an installed package."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("def own(): return 1\n")
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n{info.name}/METADATA,,\n{info.name}/RECORD,,\n")
    for file, text in more.items():
        (info / file).write_text(text)


@pytest.mark.soak
@pytest.mark.process
def test_the_sdk_works_from_a_folder_on_the_path(tmp_path: Path) -> None:
    """All packages are in one folder, and the interpreter has no others."""
    for path in {Path(entry) for entry in sys.path if entry.endswith("-packages")}:
        for item in path.iterdir():
            if item.suffix != ".pth" and "editable" not in item.name and not item.name.startswith("computepool"):
                (tmp_path / item.name).symlink_to(item)
    package = Path(dependencies.__file__).parents[2]
    (tmp_path / "computepool").symlink_to(package)
    program = (
        "import computepool\nfrom pydantic import BaseModel\nfrom computepool.sdk.code.functions import pickle_function\n"
        "class Model(BaseModel):\n    number: int\n"
        "def work(n):\n    return Model(number=n).number\n"
        "print(len(pickle_function(work)))\n"
    )
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
    done = subprocess.run(
        [base, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 10_000


@pytest.mark.parametrize("limit", ["COMPUTEPOOL_MODULES_MAX_FILES", "COMPUTEPOOL_MODULES_MAX_BYTES"])
def test_too_many_modules_are_refused_with_a_remedy(
    folder: Path, pool: Pool, hub: FakeHub, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setenv(limit, "3")
    with pytest.raises(BadRequest, match="autodetect=False"):
        pool.run(folder / "script.py", wait=False)
    assert not hub.blobs
    assert not hub.jobs


def test_the_hint_never_suggests_a_package_for_a_local_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for name in ("own_helper", "own_package", "own_space"):
        text = hint(name)
        assert "was not sent with the job" in text
        assert "dependencies=" not in text
    assert f"dependencies=['{NUMPY}']" in hint("numpy")
    assert "dependencies=['nowhere_at_all']" in hint("nowhere_at_all")


def hint(name: str) -> str:
    result = JobResult(
        job_id="job_1", seq=1, item=0, state=JobState.FAILED, reason=Reason.EXCEPTION,
        error=f"Traceback\nModuleNotFoundError: No module named '{name}'",
    )  # fmt: skip
    return str(job_error(result)).splitlines()[-1]


Maker = Callable[[], Callable[[], Any]]


def of_a_file() -> Callable[[], Any]:
    def broken() -> float:
        nothing = 0
        return 1 / nothing  # this very line

    return broken


def of_a_cell() -> Callable[[], Any]:
    import linecache

    source = "def broken():\n    return 1 / 0  # this very line\n"
    name = "<ipython-input-7-0123>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = types.ModuleType("__main__")
    exec(compile(source, name, "exec"), module.__dict__)
    found: Callable[[], Any] = module.broken
    return found


def of_a_method() -> Callable[[], Any]:
    class Thing:
        def broken(self) -> float:
            return 1 / 0  # this very line

    return Thing().broken


@pytest.mark.parametrize("make", [of_a_file, of_a_cell, of_a_method, lambda: lambda: 1 / 0 or "this very line"])
def test_a_traceback_shows_source_lines_without_the_file(make: Maker) -> None:
    program = (
        "import pickle, sys, traceback\nfunction = pickle.loads(sys.stdin.buffer.read())\n"
        "import builtins\nbuiltins.open = None\n"  # there are no files at all
        "try:\n    function()\nexcept ZeroDivisionError:\n    traceback.print_exc()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=pickle_function(make()), capture_output=True, check=True, cwd="/"
    )
    assert b"this very line" in done.stderr, done.stderr.decode()


def test_the_source_lines_sent_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("computepool.sdk.code.source_lines.SOURCE_CHARS_MAX", 10)
    assert b"this very line" not in pickle_function(of_a_file())
