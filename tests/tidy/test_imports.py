"""Who may import whom.

`make imports` holds the code against the contracts. Here: that the contracts bite, and what they cannot say.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.tidy.tree import ROOT, SRC, name, sources, tree

#: What agent, sdk and protocol may know of the core: values, how long to wait after a failure, and the owner's rules,
#: which the agent holds too. Prices, placement and trust are the hub's.
SHARED_CORE = {
    "backoff", "environment", "errors", "expressions", "fleet.node_status", "fleet.versions", "ids", "isolation",
    "jobs.gang_network", "jobs.leases", "jobs.lifecycle", "money.money", "network", "places", "placement.rules",
    "plaintext", "pythons", "resources", "trust.tiers", "words",
}  # fmt: skip

#: Modules that may not exist yet, which a contract could not name, and what they must not import themselves.
LEAVES = {
    "hub/clock": ("computepool.hub",),
    "hub/fleet/registry": ("fastapi", "sqlalchemy", "starlette"),
    "hub/settings": ("computepool.hub",),
}

LINT_IMPORTS = Path(sys.executable).with_name("lint-imports")

#: One planted line per contract, in the module that must not have it.
VIOLATIONS = [
    ("packages", "core/ids.py", "import computepool.protocol"),
    ("packages", "sdk/__init__.py", "import computepool.hub"),
    ("packages", "hub/db/__init__.py", "import computepool.testing"),
    ("hub", "hub/jobs/quotas.py", "import computepool.hub.jobs.routes"),
    ("hub", "hub/jobs/quotas.py", "import computepool.hub.settlement.settle"),
    ("hub", "hub/jobs/quotas.py", "def f() -> None:\n    import fastapi"),
    ("hub", "hub/jobs/quotas.py", "import sqlalchemy"),
    ("hub", "hub/jobs/routes.py", "import computepool.hub.jobs.rows"),
    ("hub", "hub/jobs/rows.py", "import computepool.hub.jobs.quotas"),
    ("hub", "hub/db/session.py", "import computepool.hub.fleet.registry"),
    ("hub", "hub/db/session.py", "import computepool.hub.money.booking"),
    ("hub", "hub/http/policy.py", "import computepool.hub.jobs.quotas"),
    ("hub", "hub/fleet/registry.py", "import computepool.hub.nodes.hosts"),
    ("hub", "hub/jobs/specs.py", "import computepool.hub.context"),
    ("core-is-pure", "core/ids.py", "import time"),
    ("core-is-pure", "core/ids.py", "import pydantic"),
    ("servers", "agent/__init__.py", "import fastapi"),
    ("light", "agent/__init__.py", "import numpy"),
    ("no-pickle", "hub/artifacts/storage/__init__.py", "import cloudpickle"),
]

#: Imports every module of the packages in argv[2:] while those in argv[1] cannot be found.
IMPORT_ALL = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"{name} is not part of the light install", name=name)

blocked = set(sys.argv[1].split(","))
sys.meta_path.insert(0, Blocked())
for package in map(importlib.import_module, sys.argv[2:]):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
            print(module.name)
"""
HUB_ONLY = ("alembic", "fastapi", "numpy", "prometheus_client", "psycopg", "pydantic_settings", "sqlalchemy")
HUB_SERVERS = ("starlette", "uvicorn", "uvloop")


def imported(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.lineno, node.module
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def test_agent_sdk_and_protocol_hold_no_business_rules() -> None:
    core = SRC / "core"
    modules = (path.relative_to(core).with_suffix("") for path in core.rglob("*.py") if path.name != "__init__.py")
    rules = {".".join(module.parts) for module in modules} - SHARED_CORE
    forbidden = {f"computepool.core.{rule}" for rule in rules}
    found = [
        f"{name(path)}:{line} imports {module}"
        for path in sources()
        if path.relative_to(SRC).parts[0] in {"agent", "sdk", "protocol"}
        for line, module in imported(path)
        if module in forbidden
    ]
    assert not found


def test_leaves_stay_leaves() -> None:
    found = [
        f"{name(path)}:{line} imports {module}"
        for path in sources()
        for leaf, forbidden in LEAVES.items()
        if path.relative_to(SRC).with_suffix("").as_posix().startswith(leaf)
        for line, module in imported(path)
        if any(f"{module}.".startswith(f"{word}.") for word in forbidden)
    ]
    assert not found


def test_every_contract_has_a_violation() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    assert {contract["id"] for contract in settings["contracts"]} == {contract for contract, _, _ in VIOLATIONS}


#: One of each contract in `make test`: copying and reading all sources takes seconds.
_FIRST = {contract: (file, line) for contract, file, line in reversed(VIOLATIONS)}


@pytest.mark.parametrize(
    ("contract", "file", "line"),
    [pytest.param(*each, marks=() if each[1:] == _FIRST[each[0]] else pytest.mark.soak) for each in VIOLATIONS],
)
def test_each_contract_bites(tmp_path: Path, contract: str, file: str, line: str) -> None:
    shutil.copytree(SRC, tmp_path / "computepool", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "computepool" / file).open("a") as module:
        module.write(f"\n{line}\n")
    checked = subprocess.run(
        [LINT_IMPORTS, "--no-logo", "--no-cache", "--config", ROOT / "pyproject.toml", "--contract", contract],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 1, checked.stdout
    assert "0 kept, 1 broken" in checked.stdout


def test_the_light_install_needs_nothing_of_the_hub() -> None:
    packages = ["computepool.protocol", "computepool.agent", "computepool.sdk", "computepool.cli"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", IMPORT_ALL, ",".join(HUB_ONLY + HUB_SERVERS), *packages],
        cwd="/",
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    expected = {
        ".".join(("computepool", *path.relative_to(SRC).with_suffix("").parts))
        for path in sources()
        if path.relative_to(SRC).parts[0] in {"protocol", "agent", "sdk", "cli"}
        and path.name not in {"__init__.py", "__main__.py"}
    }
    assert expected <= set(done.stdout.split())


def test_the_block_of_the_light_install_bites() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, "json", "json"], check=False, capture_output=True, text=True
    )
    assert "is not part of the light install" in done.stderr
