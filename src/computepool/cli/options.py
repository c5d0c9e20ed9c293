"""Options that several commands share, and tables of options that are added to commands as a whole."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_type_hints

import typer
from typer import Argument, Option

from computepool.cli import output
from computepool.core.plaintext import printable

if TYPE_CHECKING:
    from computepool.sdk import JobOptions, Pool

T = TypeVar("T")
#: Short, because a user waits for the reply; a script that must survive a restart uses --wait or the SDK.
RETRY_FOR_S = 3.0
#: Commands that follow or wait survive a restart of the hub.
WATCH_RETRY_FOR_S = 300.0
#: Key in the context's `meta` for the arguments after `--`.
REST = "computepool.rest"

_Json = Annotated[bool, Option("--json", help="Print JSON.")]
Yes = Annotated[bool, Option("--yes", "-y", help="Skip the confirmation prompt.")]
Data = Annotated[Path | None, Option(metavar="DIR", help="Base folder for data.")]
#: For commands that run until they are stopped.
LogJson = Annotated[bool, Option("--json", help="Print the log as JSON, one document per line.")]
Limit = Annotated[int, Option("--limit", "-n", metavar="N", min=1, max=100_000, help="Maximum number of results.")]

_open: list[Pool] = []


def open_pool(*, retry_for: float = RETRY_FOR_S) -> Pool:
    """Connect to the hub; main() closes the connection when the command ends."""
    from computepool.sdk import connect
    from computepool.sdk.files import sealing

    sealing.ask_passphrase[:] = [ask_passphrase]
    pool = connect(retry_for=retry_for)
    _open.append(pool)
    return pool


@contextmanager
def note_if_interrupted(text: str) -> Iterator[None]:
    """Print `text`, which says how to continue, if Ctrl-C or an unreachable hub ends the wait inside the block."""
    from computepool.sdk.errors import HubUnreachable

    try:
        yield
    except (KeyboardInterrupt, HubUnreachable) as error:
        output.note(text if isinstance(error, HubUnreachable) else f"\n{text}")
        raise


def confirm(question: str) -> None:
    """Ask before an action that cannot be undone. Without a terminal, --yes is required."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("There is no terminal to confirm on; pass --yes.")
    typer.confirm(printable(question), abort=True, err=True)


def _finder(kind: str) -> Callable[[str], str]:
    """A parser for typer that asks the hub for the ID of a job, node, group or account.

    It takes an ID, an ID prefix, a name, or `last`.
    """

    def find(word: str) -> str:
        from computepool.protocol.references import ReferenceKind
        from computepool.sdk.client.resource import find_id

        return find_id(open_pool().transport, ReferenceKind(kind), word)

    find.__name__ = kind
    return find


def find_host(word: str) -> str:
    """Complete an ID prefix. Names stay, because the hub resolves names of hosts by its own rules."""
    return _finder("node")(word) if word.startswith("node_") else word


find_job = _finder("job")


def ask_passphrase() -> str:
    """Prompt on the terminal; empty if there is none."""
    if not sys.stdin.isatty():
        return ""
    return str(typer.prompt("Passphrase of your sealing key", hide_input=True, err=True))


def close_pools() -> None:
    while _open:
        _open.pop().close()


def _option(name: str, help_: str) -> typer.models.OptionInfo:
    found: typer.models.OptionInfo = Option(f"--{name}", metavar=name.upper(), help=help_, parser=_finder(name))
    return found


_JOB = "ID, unique ID prefix, name, or `last`."
# Commands receive the complete ID.
JobId = Annotated[str, Argument(metavar="JOB", help=f"Job: {_JOB}", parser=_finder("job"))]
JobIds = Annotated[
    list[str], Argument(metavar="JOB…", help="Jobs: IDs, unique ID prefixes, names, or `last`.", parser=_finder("job"))
]
NodeName = Annotated[str, Argument(metavar="NODE", help="Node name or ID.")]
AccountName = Annotated[str, Argument(metavar="NAME", help="Account name or ID.")]
OfJob = Annotated[str | None, _option("job", f"Filter by job: {_JOB}")]
OfNode = Annotated[str | None, _option("node", "Filter by node: name, ID, or unique ID prefix.")]
OfGroup = Annotated[str | None, _option("group", "Filter by group: name, ID, unique ID prefix, or `last`.")]
OfAccount = Annotated[str | None, _option("account", "Account, by name or ID (admin only).")]
Since = Annotated[str | None, Option("--since", metavar="TIME", help="How far back: 30m, 2h, 7d.")]


def filters(given: dict[str, Any]) -> dict[str, Any]:
    """Convert --since to the hub's parameter."""
    from computepool.sdk.client.sizes import seconds
    from computepool.sdk.clock import now_ms

    if "since_ms" in given:
        given["since_ms"] = now_ms() - round(seconds(given["since_ms"], what="--since") * 1000)
    return given


def option(kind: Any, metavar: str | None, help_: str, *flags: str, **more: Any) -> Any:
    """An optional option. Without `flags`, its name is its key in the table."""
    return Annotated[kind | None, Option(*flags, metavar=metavar, help=help_, **more)]


#: Requirements for the node, by the names of JobOptions.
_REQUIREMENTS = {
    "cores": option(float, "N", "CPU cores; fractions such as 0.5 are allowed."),
    "ram": option(
        str, "SIZE", "Memory: 4, 4GB, 512MB. Default: the cores' share of the node's memory, at least 512MB."
    ),
    "disk": option(str, "SIZE", "Disk space: 10, 10GB."),
    "gpus": option(int, "N", "Number of GPUs."),
    "vram": option(str, "SIZE", "Memory per GPU: 16, 16GB."),
    "compute_capability": option(str, "VERSION", "Lowest compute capability of the GPUs, such as 8.0."),
    "cuda": option(str, "VERSION", "CUDA that the node's driver runs, such as '>=12.4'."),
    "driver": option(str, "VERSION", "Version of the NVIDIA driver, such as '>=550'."),
    "tier": option(list[str], "TIER", "GPU tier, such as rtx-4090; repeatable."),
    "region": option(list[str], "REGION", "in, eu, us, …; repeatable."),
    "tags": option(list[str], "TAG", "Require nodes with this tag; repeatable.", "--tag"),
    "prefer_tags": option(list[str], "TAG", "Prefer nodes with this tag; repeatable.", "--prefer-tag"),
    "exclude_tags": option(list[str], "TAG", "Exclude nodes with this tag; repeatable.", "--exclude-tag"),
    "exclude_hosts": option(
        list[str], "NODE", "Exclude this node (ID, name or URL); repeatable.", "--exclude-host", parser=find_host
    ),
    "host": option(str, "NODE", "Run only on this node: ID or name; your own nodes take precedence.", parser=find_host),
    "properties": option(list[str], "NAME=VALUE", "Require nodes with this property; repeatable.", "--property"),
    "require": option(
        str, "EXPRESSION", "Require nodes that match: 'tag.ssd and (site == \"lab-3\" or not tag.laptop)'."
    ),
    "down": option(int, "N", "Require a measured download speed from the hub, in Mb/s.", min=1),
    "up": option(int, "N", "Require a measured upload speed to the hub, in Mb/s.", min=1),
    "prefer": option(str, "WHAT", "Prefer nodes that are cheapest or fastest. Default: balanced."),
    "mesh_version": option(str, "VERSION", "Require nodes of this mesh version."),
    "isolation": option(str, "LEVEL", "Minimum isolation: process, namespace, gvisor …"),
    "net": option(
        list[str],
        "HOST:PORT,…",
        "Hosts the job may connect to: files.example.org:443, *.example.com:443. Default: none.",
    ),
    "image": option(
        str,
        "NAME",
        "Container image to run in: python:3.12, ghcr.io/acme/tool@sha256:…, or a name from `pool images push`.",
    ),
    "labels": option(list[str], "LABEL", "Label that describes the job; repeatable.", "--label"),
    "dependencies": option(
        list[str], "PACKAGE", "Python package to install; repeatable. Default: what the script imports.", "--dep"
    ),
    "offered_only": option(
        bool,
        None,
        "Run only where the node's owner offers an environment with these packages; install nothing.",
        "--offered-only/--no-offered-only",
    ),
}
_TERMS = {
    "name": option(str, "NAME", "Job name."),
    "priority": option(int, "N", "-100 to 100; higher runs first."),
    "timeout": option(str, "TIME", "Maximum run time: 90, 10m, 2h."),
    "ttl": option(str, "TIME", "Maximum time in the queue: 1h, 7d."),
    "retries": option(int, "N", "Retries if the job itself fails."),
    "inputs": option(list[str], "PATH", "File or folder to send, as PATH or NAME=PATH; repeatable.", "--input", "-i"),
    "volumes": option(list[str], "NAME:/PATH[:ro]", "Mount this volume; repeatable (see `pool volume`).", "--volume"),
    "env": option(list[str], "NAME=VALUE", "Environment variable; NAME alone copies the local value.", "--env", "-e"),
    "secrets": option(
        list[str],
        "NAME[=VAR]",
        "One of your secrets (pool secrets), as this variable; repeatable. The job then runs only on your own nodes.",
        "--secret",
    ),
    "registry_secret": option(
        str, "NAME", "The secret with the login USER:PASSWORD for the registry of --image.", "--registry-secret"
    ),
    "secret_owners": option(
        list[str], "ACCOUNT", "Also nodes of this account may get its secrets; repeatable.", "--secret-owner"
    ),
    "secrets_anywhere": option(
        bool, None, "Any node may get its secrets, and so its owner.", "--secret-anywhere/--no-secret-anywhere"
    ),
    "autodetect": option(
        bool,
        None,
        "Send local modules that the script imports, and install its packages in the versions installed here.",
        "--autodetect/--no-autodetect",
    ),
    "after": option(
        list[str], "JOB", "Start after this job (ID, name, or `last`) has succeeded; repeatable.", parser=_finder("job")
    ),
    "when": option(
        str,
        "WHEN",
        "With --after: success (all succeed, the default), failure (one of them does not) or always (all have ended).",
    ),
    "type": option(
        str,
        "TYPE",
        "Label with default requirements: ml (a GPU, 8 GB VRAM, 8 GB RAM),"
        " gaming (a GPU; no display or streaming), other (none).",
    ),
    "max_price": option(str, "CREDITS", "Maximum price per hour; 0 runs it only on your own nodes."),
    "budget": option(str, "CREDITS", "Maximum total cost; the job stops when it is reached."),
    "seal": option(
        bool, None, "Encrypt results to your key (pool seal). Sealed results cannot be verified.", "--seal/--no-seal"
    ),
    "checkpoints": option(
        bool,
        None,
        "The job saves checkpoints, and another node can resume it. Detected for scripts that use"
        " computepool.checkpoint or print ::checkpoint.",
        "--checkpoints/--no-checkpoints",
    ),
    "moves": option(bool, None, "The job moves to hosts that it names (dispatch_to, ::move).", "--moves/--no-moves"),
    "children": option(
        int, "N", "How many jobs it may submit while it runs (computepool.connect()). Default: none.", min=0
    ),
    "nodes": option(
        int,
        "N",
        "Run it on N nodes of one owner (or of its mesh) at once, with a rank on each and a network between them.",
        min=1,
    ),
    "children_budget": option(str, "CREDITS", "Maximum total cost of these jobs. Default: its own hold times N."),
}
_CHECKS = {
    "verify": option(
        str, "HOW", "none; adaptive: recheck some results on other nodes; quorum:K: nodes of K owners must agree."
    ),
    "confidence": option(float, "P", "Instead of --verify: required confidence in the result, such as 0.999."),
    "compare": option(
        str,
        "HOW",
        "How results are compared: exact, tolerance:1e-9, or FILE.py:NAME, a function of two results "
        "(its runs of up to a minute each are paid in addition to --budget).",
    ),
}


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _with_options(function: Callable[..., T], parameters: Sequence[inspect.Parameter]) -> Callable[..., T]:
    """Set the signature that typer reads."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {p.name: p.annotation for p in parameters}
    return function


def collects(options: Mapping[str, Any]) -> Callable[[Callable[[dict[str, Any]], T]], Callable[..., T]]:
    """Turn a function into a collector for `accepts`: it receives those of the options that were given."""

    def decorate(collect: Callable[[dict[str, Any]], T]) -> Callable[..., T]:
        @functools.wraps(collect)
        def collector(**typed: Any) -> T:
            return collect({name: value for name, value in typed.items() if value not in (None, [])})

        return _with_options(collector, [_parameter(name, kind, None) for name, kind in options.items()])

    return decorate


def _job_options(given: dict[str, Any]) -> JobOptions:
    """The options in the form that the SDK takes."""
    read: dict[str, Callable[[Any], Any]] = {
        "properties": lambda texts: pairs(texts, what="--property"),
        "net": split_list,
        "inputs": inputs,
        "env": environment,
        "compare": comparison,
    }
    return cast("JobOptions", {name: read[name](value) if name in read else value for name, value in given.items()})


requirements = collects(_REQUIREMENTS)(_job_options)
job_options = collects({**_REQUIREMENTS, **_TERMS, **_CHECKS})(_job_options)


def accepts(**collectors: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Replace a command's parameter by all options of a collector; the command receives the collector's result.

    Typer reads options from a signature. This keeps each table of options in one place for all its commands.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            for name, collect in collectors.items():
                own = inspect.signature(collect).parameters
                given[name] = collect(**{option: given.pop(option) for option in own})
            command(**given)

        parameters: list[inspect.Parameter] = []
        for own in inspect.signature(command).parameters.values():
            collect = collectors.get(own.name)
            parameters += [own] if collect is None else inspect.signature(collect).parameters.values()
        hints: dict[str, Any] = {}
        for function in (command, *collectors.values()):
            hints |= get_type_hints(function, include_extras=True, localns=_ONLY_FOR_TYPES)
        return _with_options(wrapper, [_parameter(p.name, hints[p.name], p.default) for p in parameters])

    return decorate


def takes_json(command: Callable[..., None]) -> Callable[..., None]:
    """Add --json to a command, unless it has its own; output.py evaluates it."""
    signature = inspect.signature(command, eval_str=True)
    if "json" in signature.parameters:
        return command

    @functools.wraps(command)
    def wrapper(*, json: bool, **given: Any) -> None:
        output.use_json(json)
        command(**given)

    return _with_options(wrapper, [*signature.parameters.values(), _parameter("json", _Json, False)])


#: Names in annotations that are only imported for type checking.
_ONLY_FOR_TYPES = dict.fromkeys(("JobOptions", "Settings"), object)


def split_list(given: list[str]) -> list[str]:
    """The values of an option that may be repeated, comma-separated, or both."""
    return [part.strip() for text in given for part in text.split(",") if part.strip()]


def pairs(given: list[str] | None, *, what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE.", param_hint=what)
        found[name] = value
    return found


def environment(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator and name not in os.environ:
            raise typer.BadParameter(f"{name!r} is not set in this environment; use {name}=VALUE.", param_hint="--env")
        found[name] = value if separator else os.environ[name]
    return found


def comparison(given: str) -> str | Callable[..., Any]:
    """The value as given, or, for FILE.py:NAME, that function; this runs the file."""
    path, separator, name = given.rpartition(":")
    if not separator or not path.endswith(".py"):
        return given
    import runpy

    try:
        found = runpy.run_path(path, run_name="__compare__")
    except Exception as error:  # noqa: BLE001 - the user's file may raise anything
        raise typer.BadParameter(f"{path}: {type(error).__name__}: {error}", param_hint="--compare") from None
    function = found.get(name)
    if not callable(function):
        raise typer.BadParameter(f"there is no function {name!r} in {path}.", param_hint="--compare")
    return cast("Callable[..., Any]", function)


def inputs(given: list[str]) -> dict[str, str] | list[str]:
    """Inputs given as PATH or NAME=PATH. An existing path may contain a `=`."""
    found: dict[str, str] = {}
    plain: list[str] = []
    for text in given:
        name, separator, path = text.partition("=")
        if separator and name and not Path(text).exists():
            found[name] = path
        else:
            plain.append(text)
    if not found:
        return plain
    return found | {Path(path).resolve().name: path for path in plain}
