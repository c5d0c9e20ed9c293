"""`pool hub …`: run and check a hub on this machine."""

from __future__ import annotations

import json as jsonlib
import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option, Typer

from computepool.cli import output
from computepool.cli.local.children import watch_parent
from computepool.cli.options import LogJson, accepts
from computepool.core.errors import BadRequest
from computepool.protocol import plain_log
from computepool.sdk.client.config import hub_folder

if TYPE_CHECKING:
    from computepool.hub.settings import Settings

app = Typer(no_args_is_help=True)
keys = Typer(no_args_is_help=True, help="Manage the keys that the hub signs job tokens and receipts with.")
app.add_typer(keys, name="keys")


def hub_settings(
    *,
    host: Annotated[str | None, Option(help="The hub's address; 0.0.0.0 listens on all interfaces.")] = None,
    port: Annotated[int | None, Option(min=0, max=65535, help="The hub's port.")] = None,
    data: Annotated[Path | None, Option(help="Base folder for data.")] = None,
    public_url: Annotated[str | None, Option(help="URL at which others reach this hub.")] = None,
) -> Settings:
    """The hub's settings. Options take precedence over COMPUTEPOOL_… variables."""
    settings = _hub_module("settings")
    given: dict[str, Any] = {"host": host, "port": port, "public_url": public_url}
    if data is not None or "COMPUTEPOOL_DATA_DIR" not in os.environ:
        given["data_dir"] = hub_folder(data)
    try:
        made: Settings = settings.Settings(**{name: value for name, value in given.items() if value is not None})
    except ValueError as error:  # pydantic's ValidationError
        raise _wrong_setting(error, settings.Settings) from error
    return made


def _wrong_setting(error: Any, settings: Any) -> Exception:
    """A sentence with the variable's name. The message of a model validator begins with a field's name."""
    first = error.errors(include_url=False, include_context=False)[0]
    message = str(first["msg"]).removeprefix("Value error, ")
    field = str(first["loc"][0]) if first["loc"] else message.partition(" ")[0].rstrip(":")
    if field not in settings.model_fields:
        return BadRequest(f"{message}.")
    message = message.removeprefix(field).lstrip(": ")
    return BadRequest(f"COMPUTEPOOL_{field.upper()}: {message}.", field=field)


@app.command()
@accepts(settings=hub_settings)
def start(
    *, announce: Annotated[int | None, Option(hidden=True)] = None, json: LogJson = False, settings: Settings
) -> None:
    """Run a hub in the foreground. `pool up` starts a hub and a node together.

    Examples:
      pool hub start --host 0.0.0.0 --port 8000 --public-url http://pool.example:8000
      DATABASE_URL=postgresql://pool@db/pool pool hub start
      pool hub start --json | jq .message
    """
    if json:
        plain_log.configure_json(settings.log_level.upper())
    watch_parent()
    check_port(settings.host, settings.port)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    main = _hub_module("main")
    if announce is not None:
        made = main.bootstrap(settings)
        secrets = {"key": made.admin_key, "enrol_code": made.enrol_code, "signin_code": made.signin_code}
        with os.fdopen(announce, "w") as pipe:
            jsonlib.dump(secrets, pipe)
    main.serve(settings)


@app.command()
@accepts(settings=hub_settings)
def link(*, settings: Settings) -> None:
    """Create a one-time sign-in link for the administrator, whether or not the hub is running.

    Open it in a browser, or use it on the command line: pool login LINK

    Examples:
      pool hub link
    """
    address = _hub_module("main").signin_link(settings)
    output.show({"link": address}, address)


@app.command()
@accepts(settings=hub_settings)
def check(
    *,
    deep: Annotated[bool, Option("--deep", help="Also read every artifact and verify its SHA-256.")] = False,
    settings: Settings,
) -> None:
    """Check the consistency of the hub's database and files. Exits with 1 if a check fails.

    The hub can keep running during the check.

    Examples:
      pool hub check
      pool hub check --deep
      DATABASE_URL=postgresql://pool@db/pool pool hub check --json
    """
    broken: list[str] = _hub_module("main").check(settings, deep=deep)
    output.show(
        {"database": settings.url.partition("://")[0], "broken": broken}, "\n".join(broken) or "All checks passed."
    )
    if broken:
        raise Exit(1)


@keys.command("list")
@accepts(settings=hub_settings)
def list_hub_keys(*, settings: Settings) -> None:
    """List signing keys: current, next and previous ones.

    Examples:
      pool hub keys list
    """
    _show_keys(_hub_module("main").list_keys(settings))


@keys.command("rotate")
@accepts(settings=hub_settings)
def rotate_hub_key(*, settings: Settings) -> None:
    """Switch to the next signing key. Running hubs follow within seconds.

    Nodes already know the next key. The previous key is accepted for two more days (COMPUTEPOOL_KEY_OVERLAP_S); then
    its private key is deleted. Keys rotate automatically every 90 days (COMPUTEPOOL_KEY_ROTATION_DAYS).

    Examples:
      pool hub keys rotate
      DATABASE_URL=postgresql://pool@db/pool pool hub keys rotate
    """
    _show_keys(_hub_module("main").rotate_key(settings))


def _show_keys(found: list[dict[str, Any]]) -> None:
    rows = [
        (k["kid"], k["state"], output.moment(k["starts_at_ms"]), output.moment(k["ends_at_ms"]), k["public_key"])
        for k in found
    ]
    output.show_table(found, ("KEY", "STATE", "SIGNS SINCE", "ACCEPTED UNTIL", "PUBLIC KEY"), rows, empty="No keys.")


def check_port(host: str, port: int) -> None:
    """Raise BadRequest if the port is in use; the server would print a traceback."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            reason = error.strerror or str(error)
            raise BadRequest(f"Cannot listen on {host}:{port}: {reason}. Choose another port with --port.") from error


def _hub_module(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(f"computepool.hub.{name}")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.startswith("computepool"):
            raise
        raise BadRequest(
            f"The hub needs {error.name}, which is not installed. In the project's folder: pipx install --force '.[hub]'"
        ) from error
