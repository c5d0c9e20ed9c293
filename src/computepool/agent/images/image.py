"""An unpacked image, as jobs use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from computepool.agent.sandbox.base import ImageRoot
from computepool.agent.sandbox.safe_paths import View
from computepool.protocol.images.manifests import ImageConfig

ROOT = "root"  #: in the folder of an image: its files


@dataclass(frozen=True, slots=True)
class Image:
    digest: str  #: `sha256:…`
    folder: Path
    config: ImageConfig

    @property
    def command(self) -> list[str]:
        return self.config.run.command

    @property
    def workdir(self) -> str:
        """Where its own command starts; empty if it does not say."""
        path = self.config.run.workdir or ""
        return path if path.startswith("/") and "\0" not in path else ""

    def root(self, *, workdir: str = "") -> ImageRoot:
        """`workdir`: where the job starts, if not in its work folder."""
        return ImageRoot(self.folder / ROOT, env=self.config.run.variables, workdir=workdir)

    def has(self, program: str) -> bool:
        """Whether the image has a program of this name on its PATH."""
        root = self.root()
        view = View({"/": root.path}, {})
        found = (view.program(f"{folder}/{program}", cwd="/") for folder in root.search_path if folder.startswith("/"))
        return any(file is not None and file.executable for file in found)
