"""The hub never unpickles users' bytes. This is checked in its source, when it is loaded, and while it works."""

from __future__ import annotations

import ast
import base64
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest

from computepool.testing.hub import HubDouble, running_hub
from tests.attacks import unpickling

SOURCE = Path(__file__).parents[2] / "src" / "computepool"
PACKAGES = ("hub", "core", "protocol")
#: How jobs and clients read each other's values; not the hub, which never loads it (see below).
NOT_THE_HUBS = ("protocol/values/values.py", "protocol/values/values_arrow.py", "protocol/values/values_tables.py")
MODULES = {
    "pickle",
    "_pickle",
    "cPickle",
    "cloudpickle",
    "dill",
    "joblib",
    "marshal",
    "shelve",
    "copyreg",
    "pickletools",
}
#: Functions that run what they read, whatever they are called with.
CALLS = {
    ("torch", "load"), ("yaml", "load"), ("yaml", "unsafe_load"), ("yaml", "full_load"), ("pandas", "read_pickle"),
    ("importlib", "import_module"),
}  # fmt: skip
NAMES = {"eval", "exec", "compile", "__import__"}


def faults(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            if (node.module or "").split(".")[0] in MODULES:
                yield str(node.module)
            yield from (name.name for name in node.names if (node.module, name.name) in CALLS)
        elif isinstance(node, ast.Call):
            yield from _called(node)


def _called(node: ast.Call) -> Iterator[str]:
    function = node.func
    if isinstance(function, ast.Name) and function.id in NAMES:
        yield function.id
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        if (function.value.id, function.attr) in CALLS and not _of_ours(node):
            yield f"{function.value.id}.{function.attr}"
        if function.attr == "load" and any(word.arg == "allow_pickle" for word in node.keywords):
            yield "numpy.load(allow_pickle)"


def _of_ours(node: ast.Call) -> bool:
    """A module of this package, named in the source."""
    return all(isinstance(word, ast.Constant) and str(word.value).startswith("computepool.") for word in node.args)


def test_no_module_names_what_runs_strangers_bytes() -> None:
    modules = {str(path.relative_to(SOURCE)): path for package in PACKAGES for path in (SOURCE / package).rglob("*.py")}
    found = {name: list(faults(path.read_text())) for name, path in modules.items() if name not in NOT_THE_HUBS}
    assert len(found) > 200
    assert {name: words for name, words in found.items() if words} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "def f():\n  import cloudpickle",
        "import dill.session",
        "from marshal import loads",
        "import yaml\nyaml.load(x)",
        "from yaml import unsafe_load",
        "torch.load(x)",
        "np.load(x, allow_pickle=True)",
        "eval(x)",
        "exec(x)",
        "__import__('pickle')",
        "importlib.import_module('pickle')",
        "importlib.import_module(name)",
        "from importlib import import_module",
    ],
)
def test_the_check_bites(text: str) -> None:
    assert list(faults(text))


def test_loading_the_hub_brings_no_pickler_along() -> None:
    """Libraries load the standard pickler; those made for arbitrary code are not loaded at all."""
    script = (
        "import sys; import computepool.hub.main; "
        "ours = [m for n, m in sys.modules.items() if n.startswith('computepool')]; "
        "picklers = {id(sys.modules[n]) for n in ('pickle', '_pickle', 'marshal') if n in sys.modules}; "
        "assert not [m for m in ours if {id(v) for v in vars(m).values()} & picklers]; "
        "unwanted = {'cloudpickle', 'dill', 'joblib', 'torch', 'yaml', 'pandas', 'pyarrow'}; "
        "print(*sorted(n for n in sys.modules if n in unwanted or n.startswith('computepool.protocol.values.values')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == []
    for name in NOT_THE_HUBS:
        assert list(faults((SOURCE / name).read_text())), "the exception is not needed any more"


def planted() -> None:
    raise AssertionError("it was run")


@pytest.mark.soak
async def test_a_pickled_result_passes_through_the_hub_as_it_is(tmp_path: Path) -> None:
    """A function's code, arguments and results are only bytes to the hub, also hostile ones."""

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[()]]:
            return planted, ()

    bomb = cloudpickle.dumps(Evil())
    async with running_hub(tmp_path) as hub:
        with unpickling.forbidden():
            await _carry(hub, bomb)
        with pytest.raises(AssertionError, match="it was run"):
            cloudpickle.loads(bomb)  # the control: it does bite where somebody unpickles


async def _carry(hub: HubDouble, bomb: bytes) -> None:
    text = base64.b64encode(bomb).decode()
    node = await hub.node()
    spec = {"kind": "function", "name": "f", "function": text, "allow_pickle": True}
    answer = await hub.admin.post("/jobs", json={"spec": spec, "items": [{"payload": text}]})
    [job_id] = answer.json()["job_ids"]
    [grant] = await node.take()
    await node.report(grant.attempt_id, result=text)
    answer = await hub.admin.get(f"/jobs/{job_id}/result")
    assert text in answer.text
    for path in (f"/jobs/{job_id}", f"/jobs/{job_id}/why", "/jobs", "/events", f"/jobs/{job_id}/cost"):
        assert (await hub.admin.get(path)).status_code == 200


def test_the_guard_bites() -> None:
    import pickle

    with unpickling.forbidden(), pytest.raises(RuntimeError, match="unpickled"):
        pickle.loads(pickle.dumps(planted))
    assert pickle.loads(pickle.dumps(planted)) is planted
