"""Runs one of our own measurements in its own process: `python -m bench.ours throughput quick`."""

from __future__ import annotations

import importlib
import json
import sys
from dataclasses import asdict
from typing import Any

from bench.table import Figure

MODULES = ("allocation", "nodes", "hub_cost", "throughput", "commands", "groups", "artifacts", "money", "sandboxes")
#: These take minutes, and are only measured on request.
LONG_MODULES = ("growth",)

#: Constants of the modules at each size. As many functions as the peers' calls, because a longer run would hide more of
#: the cost of starting and finishing.
SIZES: dict[str, dict[str, dict[str, Any]]] = {
    "full": {"throughput": {"FUNCTIONS": 5_000}},
    "quick": {
        "allocation": {"SIZES": (500, 5_000)},
        "hub_cost": {"JOBS": 2_000, "ROUNDS": 1},
        "nodes": {"SIZES": (100, 300), "LISTED": 300, "LISTINGS": 3, "MEASURE_S": 3.0, "INTERVAL_S": 1.0},
        "growth": {"FINISHED": (500, 5_000), "QUEUED": 2_000, "FUNCTIONS": 500},
        "throughput": {"FUNCTIONS": 500, "COMMANDS": 100, "BOXED_COMMANDS": 50, "SINGLES": 20},
        "commands": {"TIMES": 3},
        "groups": {"ITEMS": 2_000, "SINGLES": 500, "ROUNDS": 1},
        "artifacts": {"MEGABYTES": 256, "ROUNDS": 1},
        "money": {"FUNCTIONS": 500, "SETTLEMENTS": 2_000, "ROUNDS": 1},
        "sandboxes": {"STARTS": 8, "COMPUTATIONS": 3},
    },
    # For the tests, which run everything but need no numbers.
    "tiny": {
        "allocation": {"SIZES": (50,)},
        "hub_cost": {"JOBS": 40, "WARM": 20, "ROUNDS": 1},
        "nodes": {"SIZES": (4, 8), "LISTED": 8, "LISTINGS": 1, "MEASURE_S": 0.5, "INTERVAL_S": 0.2},
        "growth": {"FINISHED": (20, 60), "QUEUED": 10, "FUNCTIONS": 20},
        "throughput": {"FUNCTIONS": 20, "COMMANDS": 5, "BOXED_COMMANDS": 2, "SINGLES": 2},
        "commands": {"TIMES": 1},
        "groups": {"ITEMS": 200, "SINGLES": 20, "ROUNDS": 1},
        "artifacts": {"MEGABYTES": 8, "ROUNDS": 1},
        "money": {"FUNCTIONS": 20, "SETTLEMENTS": 50, "ROUNDS": 1},
        "sandboxes": {"STARTS": 1, "COMPUTATIONS": 1, "ROUNDS": 1_000},
    },
}


def measure(name: str, size: str) -> list[Figure]:
    module = importlib.import_module(f"bench.{name}")
    for constant, value in SIZES[size].get(name, {}).items():
        if not hasattr(module, constant):
            raise AttributeError(f"bench.{name} has no {constant}")
        setattr(module, constant, value)
    figures: list[Figure] = module.run()
    return figures


if __name__ == "__main__":
    print(json.dumps({"figures": [asdict(figure) for figure in measure(sys.argv[1], sys.argv[2])]}))
