"""Command groups whose commands are imported when they are called, so that a command and `--help` start quickly.

Typer converts every value with pydantic, which takes longer to import than most commands take to run. So values that
already have the right type, such as text and defaults, are not converted.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, ClassVar, get_args

import typer
from typer._coercion import RuntimeParam, build_runtime_param
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command_from_info, get_group_from_info
from typer.models import CommandInfo, TyperInfo

from computepool.cli.options import takes_json

_SENTENCE_END = re.compile(r"(?<=\.)\s|\n\n")
#: Before a paragraph whose lines after the first are indented.
_EXAMPLES = re.compile(r"\n\n(?=\S.*\n )")


def lazy_group(table: str) -> type[TyperGroup]:
    """`table`: a line for each command with its name, location (`module:name` below `computepool.cli`), and help line."""
    rows = [line.split(maxsplit=2) for line in table.strip().splitlines()]
    elsewhere = {name: (place, line) for name, place, line in rows}
    return type("LazyCommands", (LazyGroup,), {"elsewhere": elsewhere})


class LazyGroup(TyperGroup):
    elsewhere: ClassVar[Mapping[str, tuple[str, str]]]

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.commands.update(
            {name: TyperCommand(name, help=line, short_help=line) for name, (_, line) in self.elsewhere.items()}
        )

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        _convert_late(self, ctx)
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, rest = super().resolve_command(ctx, args)
        if name is not None and name in self.elsewhere:
            command = self.load(name)
        _convert_late(command, ctx)
        return name, command, rest

    def load(self, name: str) -> Any:
        """Import the command. Its location holds a group, a command, or the function of a command."""
        location, line = self.elsewhere[name]
        module, _, attribute = location.partition(":")
        found = getattr(import_module(f"computepool.cli.{module}"), attribute)
        settings: Any = {"pretty_exceptions_short": True, "rich_markup_mode": None}
        if isinstance(found, typer.Typer):
            _prepare_group(found)
            info = TyperInfo(found, name=name)
            if found.registered_callback is None:
                info.help = line
            return get_group_from_info(info, suggest_commands=True, **settings)
        command = found if isinstance(found, CommandInfo) else CommandInfo(name, callback=found)
        _prepare(command)
        return get_command_from_info(command, **settings)


def _prepare_group(group: typer.Typer) -> None:
    """Prepare each command of a group, and the group itself if it can be called without a command."""
    for info in (*group.registered_commands, group.registered_callback):
        if info is not None:
            _prepare(info)
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            _prepare_group(inner.typer_instance)


def _prepare(info: CommandInfo | TyperInfo) -> None:
    """Add --json, keep the lines of examples in the help (the control character tells click not to wrap them), and list the
    command by its whole first sentence, which click would cut."""
    if info.callback is not None:
        text = inspect.getdoc(info.callback) or ""
        info.help = _EXAMPLES.sub("\n\n\b\n", text)
        info.short_help = _SENTENCE_END.split(text, maxsplit=1)[0].replace("\n", " ")
        info.callback = takes_json(info.callback)


def _convert_late(command: Any, ctx: Any) -> None:
    for parameter in command.get_params(ctx):
        known = parameter.type_descriptor
        parameter._runtime_param = _LateParam(known.parameter_info, known.annotation)


@dataclass(frozen=True)
class _LateParam(RuntimeParam):
    def _coerce_value(self, value: Any, param: Any, ctx: Any) -> Any:
        inner = get_args(self.annotation)
        converted = all(_is(item, inner[0]) for item in value) if inner else _is(value, self.annotation)
        if converted and self.parameter_info.parser is None:
            return value
        return build_runtime_param(param.type_descriptor)._coerce_value(value, param=param, ctx=ctx)


def _is(value: Any, kind: Any) -> bool:
    return type(value) is kind and (kind is not str or value.isascii())
