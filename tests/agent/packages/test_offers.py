"""Environments that a node's owner offers: jobs run in them, at every level, and nothing is installed."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from computepool.agent.owner import environment_list
from computepool.agent.packages import offers
from computepool.agent.packages.locks import read_lock
from computepool.agent.sandbox.runtime.runtime import Runtime
from computepool.core.errors import BadRequest
from tests.agent.conftest import StartNode
from tests.agent.fake_hub import FakeHub, Outcome, Reason, function, payload, script, until
from tests.agent.packages.local_index import Index, wheel
from tests.agent.packages.venvs import install, make_venv

SCRIPT = """# /// script
# dependencies = ["greet>=0.5"]
# ///
import os, sys, greet, computepool
print(greet.WORD, sys.prefix == sys.base_prefix, os.environ["VIRTUAL_ENV"] == sys.prefix, greet.__file__)
try:
    open(greet.__file__, "a")
except OSError:
    print("read-only")
"""
NOWHERE = "http://127.0.0.1:9/simple"


@pytest.fixture
def venv(shared: Path, runtime: Runtime) -> Path:
    shared.chmod(0o755)
    return make_venv(shared / "venv", runtime, greet="WORD = 'hello'\n")


@pytest.mark.parametrize("level", ["process", "namespace", "container", "gvisor"])
async def test_scripts_commands_and_functions_run_in_an_offered_environment(
    hub: FakeHub, start_node: StartNode, data_dir: Path, venv: Path, level: str
) -> None:
    def word() -> str:
        import greet

        return str(greet.WORD)

    environment_list.add(data_dir, "greeting", venv)
    await start_node(level=level, package_index=NOWHERE)
    report = await hub.run(script(SCRIPT))
    assert report.outcome is Outcome.SUCCEEDED, (report, hub.log_texts[report.attempt_id])
    lines = hub.log_texts[report.attempt_id]["stdout"].splitlines()
    assert lines == [f"hello False True {venv}/lib/{_library(venv)}/site-packages/greet.py", "read-only"]
    report = await hub.run(function(word, dependencies=["greet"]), payload())
    assert report.result == '"hello"', report.error


async def test_environments_are_offered_and_withdrawn_while_the_node_runs(
    hub: FakeHub, start_node: StartNode, data_dir: Path, venv: Path
) -> None:
    node = await start_node(level="namespace", package_index=NOWHERE)
    only = {"dependencies": ["greet"], "needs": {"offered_only": True}}
    report = await hub.run(script("import greet", **only))
    assert (report.outcome, report.reason) == (Outcome.FAILED, Reason.STAGING_FAILED), report
    environment_list.add(data_dir, "greeting", venv)
    assert await node.agent.command("environments") == {"offered": ["greeting"], "problems": {}}
    report = await hub.run(script("import greet", **only))
    assert report.outcome is Outcome.SUCCEEDED, report.error
    environment_list.remove(data_dir, "greeting")
    assert (await node.agent.command("environments"))["offered"] == []
    assert node.agent.loop.profile.environments == []


async def test_an_environment_that_does_not_run_here_is_not_offered(
    hub: FakeHub, start_node: StartNode, data_dir: Path, venv: Path
) -> None:
    environment_list.add(data_dir, "greeting", venv)
    python = venv / "bin/python3"
    python.unlink()
    python.write_text("#!/bin/sh\necho broken >&2; exit 3\n")
    python.chmod(0o755)
    node = await start_node(level="namespace")
    assert "broken" in node.agent.status()["environments"]["greeting"]
    assert node.agent.loop.profile.environments == []


async def test_a_folder_of_packages_is_used_by_the_nodes_own_python(
    hub: FakeHub, start_node: StartNode, data_dir: Path, shared: Path
) -> None:
    shared.chmod(0o755)
    folder = shared / "packages"
    install(folder, wheel("greet", {"greet.py": "WORD = 'hi'\n"}))
    environment_list.add(data_dir, "greeting", folder)
    await start_node(level="namespace", package_index=NOWHERE)
    source = "import greet, computepool; print(greet.WORD, greet.__file__)"
    report = await hub.run(script(source, dependencies=["greet"]))
    assert hub.log_texts[report.attempt_id]["stdout"] == f"hi {folder}/greet.py\n", report.error


async def test_the_system_python_behind_an_environment_becomes_part_of_the_jobs_root(
    data_dir: Path, shared: Path
) -> None:
    """Its own names in /usr/bin lead to the agent's Python inside, so such an environment gets other links."""
    shared.chmod(0o755)
    system = max(Path("/usr/bin").glob("python3.[0-9]*[0-9]"), default=None)
    if system is None:
        assert offers.runtime_parts(data_dir) == []
        return
    venv = shared / "venv"
    (venv / "lib" / system.name / "site-packages").mkdir(parents=True)
    (venv / "bin").mkdir()
    (venv / "bin/python3").symlink_to("/usr/bin/python3")
    (venv / "bin/tool").write_text("#!/bin/sh\n")
    (venv / "pyvenv.cfg").write_text("home = /usr/bin\n")
    environment_list.add(data_dir, "system", venv)
    assert offers.runtime_parts(data_dir) == sorted([str(system), f"/usr/lib/{system.name}"])
    copied = shared / "copied"
    copied.mkdir()
    offers.copy_programs(venv / "bin", copied, python=str(system))
    assert (copied / "python3").readlink() == system
    assert (copied / "tool").read_text() == "#!/bin/sh\n"


async def test_a_lock_file_is_installed_once_and_offered(
    hub: FakeHub, start_node: StartNode, data_dir: Path, index: Index, tmp_path: Path
) -> None:
    index.wheels = {"greet": wheel("greet", {"greet.py": "WORD = 'locked'\n"})}
    digest = hashlib.sha256(index.wheels["greet"]).hexdigest()
    text = f"# exact\ngreet==1.0 ; python_version >= '3' \\\n    --hash=sha256:{digest}\n    # via x\n"
    (tmp_path / "requirements.txt").write_text(text)
    saved = environment_list.add_lock(data_dir, "locked", read_lock(tmp_path / "requirements.txt"))
    node = await start_node(level="namespace", package_index=index.url)
    await until(lambda: node.agent.loop.profile.environments)
    index.wheels = {}
    report = await hub.run(script("import greet; print(greet.__file__)", dependencies=["greet==1.0"]))
    assert hub.log_texts[report.attempt_id] == {"stdout": f"{saved.path}/greet.py\n", "stderr": ""}, report.error
    environment_list.remove(data_dir, "locked")
    environment_list.add_lock(data_dir, "absent", "absent==1.0\n")
    await node.agent.command("environments")
    await until(lambda: "cannot be installed" in node.agent.status()["environments"].get("absent", ""))


@pytest.mark.parametrize(
    "text",
    ["", "# nothing\n", "torch>=2\n", "-r other.txt\n", "--index-url https://example.org\n", "-e .\n",
     "x @ file:///etc/passwd # ==\n", "torch==1 --global-option=x\n", "x==1\x1b[2J\n", "a" * 1_100_000],
    ids=lambda text: ascii(text)[:20],
)  # fmt: skip
def test_lock_files_that_are_none_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "requirements.lock"
    path.write_text(text)
    with pytest.raises(BadRequest):
        read_lock(path)


def _library(venv: Path) -> str:
    [library] = (venv / "lib").glob("python3.*")
    return library.name
