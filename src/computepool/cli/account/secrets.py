"""`pool secrets`: store values that jobs get as variables."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, BadParameter, Option, Typer

from computepool.cli import output
from computepool.cli.options import open_pool
from computepool.protocol.secrets import SECRET_BYTES_MAX

app = Typer(no_args_is_help=True)
_Name = Annotated[str, Argument(metavar="NAME", help="Name, such as DB_PASSWORD.")]


@app.command("set")
def set_secret(
    name: _Name,
    *,
    from_file: Annotated[Path | None, Option("--from-file", metavar="FILE", help="Read the value from a file.")] = None,
) -> None:
    """Store a secret, or replace its value. Nothing shows the value again.

    Asks for the value. Without a terminal, reads standard input, less a line break at its end. Jobs that start later get
    the new value.

    Examples:
      pool secrets set DB_PASSWORD
      pool secrets set DEPLOY_KEY --from-file id_ed25519
      vault read -field=token db | pool secrets set DB_TOKEN
    """
    made = open_pool().secrets.set(name, _value(name, from_file))
    output.show(made, f"{made.name}: stored, {made.size} bytes", hint=f"Use it: pool submit --secret {made.name} ...")


def _value(name: str, file: Path | None) -> str:
    if file is None and sys.stdin.isatty():
        typed: str = typer.prompt(f"Value of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return typed
    try:
        if file is None:
            data = sys.stdin.buffer.read(SECRET_BYTES_MAX + 2)
        else:
            with file.open("rb") as opened:
                data = opened.read(SECRET_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise BadParameter(f"{file}: {error.strerror}", param_hint="--from-file") from None
    except UnicodeDecodeError:
        raise BadParameter("the value is not text; encode it first, for example with base64.") from None
    if file is None:
        text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise BadParameter("the value is empty.")
    if len(text.encode()) > SECRET_BYTES_MAX:
        raise BadParameter(f"the value has more than {SECRET_BYTES_MAX} bytes.")
    return text


@app.command("list")
def list_secrets() -> None:
    """List your secrets, without their values.

    Examples:
      pool secrets list
    """
    found = open_pool().secrets.list()
    rows = [(one.name, f"{one.size} bytes", output.ago(one.changed_at_ms)) for one in found]
    output.show_table(found, ("NAME", "SIZE", "CHANGED"), rows, empty="You have no secrets: pool secrets set NAME")


@app.command("remove")
def remove(name: _Name) -> None:
    """Remove a secret. Jobs that name it and have not started yet will fail.

    Examples:
      pool secrets remove DB_PASSWORD
    """
    open_pool().secrets.remove(name)
    output.show({"name": name, "removed": True}, f"{name}: removed")
