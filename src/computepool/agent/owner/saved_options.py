"""The owner's options, saved in the node's folder, so that the next start needs none of them.

Only options that differ from the default are saved, and never a secret: the enrolment code works once.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import TypeAdapter

from computepool.agent.config import AgentConfig
from computepool.agent.hub_link.identity import write_private
from computepool.core.errors import BadRequest

FILE = "options.json"
#: The folder itself, the code, which works once, and fields that no option sets.
_NOT_KEPT = {"data_dir", "code", "uv", "limits", "kept"}
FIELDS = tuple(field.name for field in dataclasses.fields(AgentConfig) if field.name not in _NOT_KEPT)


def load(data_dir: Path) -> dict[str, Any]:
    """The options of the last start. A damaged file is an error."""
    path = data_dir / FILE
    try:
        kept = TypeAdapter(dict[str, Any]).validate_json(path.read_bytes())
        hints = get_type_hints(AgentConfig)
        return {name: TypeAdapter(hints[name]).validate_python(kept[name]) for name in FIELDS if name in kept}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError) as error:
        reason = str(error).splitlines()[0]
        raise BadRequest(f"{path} is damaged ({reason}). Remove it and give the options again.") from error


def save(config: AgentConfig) -> None:
    """Save the options that the owner chose. Defaults are left out, so that a later version may change them."""
    plain = AgentConfig(hub_url=config.hub_url, data_dir=config.data_dir)
    values = {name: getattr(config, name) for name in FIELDS}
    chosen = {
        name: dict(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name == "hub_url" or value != getattr(plain, name)
    }
    write_private(config.data_dir / FILE, json.dumps(chosen, indent=2).encode() + b"\n")
