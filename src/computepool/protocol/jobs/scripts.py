"""The metadata of a script: its interpreter line, and the dependencies and Python versions in its PEP 723 block.

Used by the hub at submission and by the agent before the start. Each line is examined once, so that no script takes
disproportionately long. A ValueError says what is wrong with the script.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

#: Linux itself reads 256 bytes of an interpreter line.
INTERPRETER_CHARS_MAX: Final = 1_024
#: Enough for a hundred dependencies. tomllib takes quadratic time for a dotted key, which is on one line.
BLOCK_CHARS_MAX: Final = 8 * 1024
BLOCK_LINE_CHARS_MAX: Final = 1_024
PYTHON: Final = "python3"
_OPEN, _CLOSE = "# /// script", "# ///"


class Script:
    def __init__(self, source: str) -> None:
        self._source = source

    @cached_property
    def interpreter(self) -> list[str]:
        """The command that runs the script; Python if the script names none."""
        first = self._source.partition("\n")[0]
        if not first.startswith("#!"):
            return [PYTHON]
        if len(first) > INTERPRETER_CHARS_MAX:
            raise ValueError(f"the script's first line is longer than {INTERPRETER_CHARS_MAX} characters")
        words = first[2:].split()
        if words and words[0].rpartition("/")[2] == "env":
            words = words[2:] if words[1:2] == ["-S"] else words[1:]
        name = words[0].rpartition("/")[2] if words else PYTHON
        if name in ("uv", "uvx") or _is_python(name):
            # `uv run --script` means Python with the dependencies of the block, which are installed already.
            flags = [] if name.startswith("uv") else words[1:]
            return [PYTHON, *flags]
        return words

    @property
    def is_python(self) -> bool:
        return self.interpreter[0] == PYTHON

    @cached_property
    def _block(self) -> dict[str, object]:
        blocks = list(_blocks(self._source)) if self.is_python else []
        if len(blocks) > 1:
            raise ValueError("the script has more than one `# /// script` block")
        return _metadata(blocks[0]) if blocks else {}

    @property
    def requires_python(self) -> str | None:
        found = self._block.get("requires-python")
        if found is not None and not isinstance(found, str):
            raise ValueError("`requires-python` in the script's `# /// script` block is not a string")
        return found or None

    @property
    def dependencies(self) -> tuple[str, ...]:
        found = self._block.get("dependencies", [])
        if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
            raise ValueError("`dependencies` in the script's `# /// script` block is not a list of strings")
        return tuple(found)


def _blocks(source: str) -> Iterator[str]:
    """The text of each PEP 723 block: comment lines from `# /// script` to the last `# ///` before any other line."""
    opened: list[str] | None = None
    closed = 0  #: number of lines of the open block before its last closing line
    for line in (*source.replace("\r\n", "\n").split("\n"), ""):
        if opened is None:
            if line.rstrip() == _OPEN:
                opened, closed = [], 0
        elif line == "#" or line.startswith("# "):
            if line.rstrip() == _CLOSE:
                closed = len(opened)
            opened.append(line[2:])
        else:
            if closed:
                yield "\n".join(opened[:closed])
            opened = None


def _metadata(block: str) -> dict[str, object]:
    if len(block) > BLOCK_CHARS_MAX or any(len(line) > BLOCK_LINE_CHARS_MAX for line in block.split("\n")):
        raise ValueError(
            f"the script's `# /// script` block is longer than {BLOCK_CHARS_MAX} characters, or a line of it than "
            f"{BLOCK_LINE_CHARS_MAX}"
        )
    import tomllib

    try:
        return tomllib.loads(block)
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise ValueError(f"the script's `# /// script` block is not valid TOML: {why}") from error


def _is_python(name: str) -> bool:
    return name.startswith("python") and not name.removeprefix("python").strip("0123456789.")
