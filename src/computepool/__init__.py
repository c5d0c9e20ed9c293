"""ComputePool: `from computepool import connect`.

Names are loaded on first use, so importing the agent or the core never loads the SDK.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from computepool.sdk import *  # noqa: F403


def __getattr__(name: str) -> Any:
    sdk = importlib.import_module("computepool.sdk")
    if name != "__all__" and name not in sdk.__all__:
        raise AttributeError(f"module 'computepool' has no attribute {name!r}")
    value = globals()[name] = getattr(sdk, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *importlib.import_module("computepool.sdk").__all__})


# ------------------------------------------------------------ the joblib backend named "computepool"
def _joblib_backend(**options: Any) -> Any:
    return importlib.import_module("computepool.sdk.jobs.joblib_backend").ComputePoolBackend(**options)


class _JoblibHook:
    """Registers our backend when joblib is first imported, then removes itself. Loads nothing by itself."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "joblib.parallel":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            load(module)
            module.register_parallel_backend("computepool", _joblib_backend)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


if "joblib.parallel" in sys.modules:
    sys.modules["joblib.parallel"].register_parallel_backend("computepool", _joblib_backend)
elif not any(type(finder).__name__ == "_JoblibHook" for finder in sys.meta_path):
    sys.meta_path.insert(0, _JoblibHook())
