"""Puts the built dashboard into what is installed: the wheel has it as computepool/_dashboard, the sdist as web/out.

An editable install needs neither: there the hub reads web/out itself. Without a build and without npm the wheel has no
dashboard, and the hub serves its plain pages.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class DashboardHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        root = Path(self.root)
        out = root / "web" / "out"
        # `make wheel` has built it; whether it is in step with its sources is for make to say.
        if not (out / "index.html").exists() and not self._build(root):
            self.app.display_warning("Without web/out and npm the wheel has no dashboard: `make wheel` builds both.")
            return
        place = "web/out" if self.target_name == "sdist" else "computepool/_dashboard"
        build_data["force_include"][str(out)] = place

    @staticmethod
    def _build(root: Path) -> bool:
        web, script = root / "web", root / "scripts" / "build-dashboard.sh"
        if shutil.which("npm") is None or not (web / "package-lock.json").exists():
            return False
        subprocess.run(["npm", "ci", "--loglevel=error"], cwd=web, check=True)
        subprocess.run([str(script)], check=True)
        return True
