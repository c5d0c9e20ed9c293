"""Options that several commands share, and the one that gives a command all requirements of a job."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_type_hints

import typer

from computepool.cli import output
from computepool.core.plaintext import printable

if TYPE_CHECKING:
    from computepool.sdk import JobOptions, Pool

#: A person waits for the answer; a script that must survive a restart uses --wait or the SDK.
RETRY_FOR_S = 3.0
#: Where a command finds what stood after `--`.
REST = "computepool.rest"

_Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Skip the confirmation prompt.")]
#: Of what runs until it is stopped.
LogJson = Annotated[bool, typer.Option("--json", help="Print the log as JSON, one document per line.")]
Limit = Annotated[
    int, typer.Option("--limit", "-n", metavar="N", min=1, max=100_000, help="Maximum number of results.")
]
Saves = Annotated[
    bool | None,
    typer.Option(
        "--checkpoints/--no-checkpoints",
        help="The job saves checkpoints, and another node can resume it. Detected for scripts that use"
        " computepool.checkpoint or print ::checkpoint.",
    ),
]
Autodetect = Annotated[
    bool | None,
    typer.Option(
        "--autodetect/--no-autodetect",
        help="Send local modules that the script imports, and install its packages in the versions installed here.",
    ),
]
Moves = Annotated[
    bool | None,
    typer.Option("--moves/--no-moves", help="The job moves to hosts that it names (dispatch_to, ::move)."),
]
Seals = Annotated[
    bool | None,
    typer.Option(
        "--seal/--no-seal", help="Encrypt results to your key (pool seal). Sealed results cannot be verified."
    ),
]
Children = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="How many jobs it may submit while it runs (computepool.connect()). Default: none.",
    ),
]
ChildrenBudget = Annotated[
    str | None,
    typer.Option(metavar="CREDITS", help="Maximum total cost of these jobs. Default: its own hold times N."),
]

_open: list[Pool] = []


def open_pool(*, retry_for: float = RETRY_FOR_S) -> Pool:
    """Closed by close_pools() when the command is over, however it ended."""
    from computepool.sdk import connect
    from computepool.sdk.files import sealing

    sealing.ask_passphrase[:] = [ask_passphrase]
    pool = connect(retry_for=retry_for)
    _open.append(pool)
    return pool


def confirm(question: str) -> None:
    """Before what cannot be undone. A script must say --yes: it cannot have read what was shown."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("There is no terminal to confirm on; pass --yes.")
    typer.confirm(printable(question), abort=True, err=True)


def find_id(kind: str, word: str) -> str:
    """The id of the job, node, group or account that is meant by an id, the beginning of one, a name, or `last`."""
    from computepool.protocol.references import ReferenceKind
    from computepool.sdk.client import references

    return references.find_id(open_pool().transport, ReferenceKind(kind), word)


def find_after(word: str) -> str:
    return find_id("job", word)


def find_host(word: str) -> str:
    """The hub reads names of hosts in its own way; only the beginning of an id is made whole."""
    return find_id("node", word) if word.startswith("node_") else word


def ask_passphrase() -> str:
    """From the person at the terminal; nobody is asked where there is none."""
    if not sys.stdin.isatty():
        return ""
    return str(typer.prompt("Passphrase of your sealing key", hide_input=True, err=True))


def close_pools() -> None:
    while _open:
        _open.pop().close()


_After = Annotated[
    list[str] | None,
    typer.Option(
        metavar="JOB",
        help="Start only after this job (ID, name, or `last`) has succeeded.",
        parser=find_after,
    ),
]
_NotHosts = Annotated[
    list[str] | None,
    typer.Option(metavar="NODE", help="Exclude this node (ID, name or URL); repeatable.", parser=find_host),
]
_Host = Annotated[
    str | None,
    typer.Option(
        metavar="NODE",
        help="Run only on this node: ID or name; your own nodes take precedence.",
        parser=find_host,
    ),
]
_Net = Annotated[
    list[str] | None,
    typer.Option(
        metavar="HOST:PORT,…",
        help="Hosts the job may connect to: files.example.org:443, *.example.com:443. Default: none.",
    ),
]
_Type = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Label with default requirements: ml (a GPU, 8 GB VRAM, 8 GB RAM),"
        " gaming (a GPU; no display or streaming), other (none).",
    ),
]


def requirements(
    *,
    cores: Annotated[
        float | None, typer.Option(metavar="N", help="CPU cores; fractions such as 0.5 are allowed.")
    ] = None,
    ram: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Memory: 4, 4GB, 512MB. Default: the cores' share of the node's memory, at least 512MB.",
        ),
    ] = None,
    disk: Annotated[str | None, typer.Option(metavar="SIZE", help="Disk space: 10, 10GB.")] = None,
    gpus: Annotated[int | None, typer.Option(metavar="N", help="Number of GPUs.")] = None,
    vram: Annotated[str | None, typer.Option(metavar="SIZE", help="Memory per GPU: 16, 16GB.")] = None,
    tier: Annotated[
        list[str] | None, typer.Option(metavar="TIER", help="GPU tier, such as rtx-4090; repeatable.")
    ] = None,
    region: Annotated[
        list[str] | None, typer.Option(metavar="REGION", help="in, eu, us, …; repeatable.")
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Require nodes with this tag; repeatable.")
    ] = None,
    prefer_tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Prefer nodes with this tag; repeatable.")
    ] = None,
    exclude_tag: Annotated[
        list[str] | None, typer.Option(metavar="TAG", help="Exclude nodes with this tag; repeatable.")
    ] = None,
    exclude_host: _NotHosts = None,
    host: _Host = None,
    property_: Annotated[
        list[str] | None,
        typer.Option(
            "--property", metavar="NAME=VALUE", help="Require nodes with this property; repeatable."
        ),
    ] = None,
    mesh_version: Annotated[
        str | None, typer.Option(metavar="VERSION", help="Require nodes of this mesh version.")
    ] = None,
    isolation: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="Minimum isolation: process, namespace, gvisor …")
    ] = None,
    net: _Net = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="Label that describes the job; repeatable.")
    ] = None,
) -> JobOptions:
    given: dict[str, Any] = {
        "cores": cores, "ram": ram, "disk": disk, "gpus": gpus, "vram": vram, "tier": tier, "region": region,
        "tags": tag, "prefer_tags": prefer_tag, "exclude_tags": exclude_tag, "exclude_hosts": exclude_host,
        "host": host, "properties": pairs(property_, what="--property"), "mesh_version": mesh_version,
        "isolation": isolation, "net": split_list(net), "labels": label,
    }  # fmt: skip
    return only_given(given)


def terms(
    *,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Job name.")] = None,
    priority: Annotated[int | None, typer.Option(metavar="N", help="-100 to 100; higher runs first.")] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="TIME", help="Maximum run time: 90, 10m, 2h.")
    ] = None,
    ttl: Annotated[
        str | None, typer.Option(metavar="TIME", help="Maximum time in the queue: 1h, 7d.")
    ] = None,
    retries: Annotated[int | None, typer.Option(metavar="N", help="Retries if the job itself fails.")] = None,
    input_: Annotated[
        list[str] | None,
        typer.Option(
            "--input", "-i", metavar="PATH", help="File or folder to send, as PATH or NAME=PATH; repeatable."
        ),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(
            "--env",
            "-e",
            metavar="NAME=VALUE",
            help="Environment variable; NAME alone copies the local value.",
        ),
    ] = None,
    dep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PACKAGE", help="Python package to install; repeatable. Default: what the script imports."
        ),
    ] = None,
    autodetect: Autodetect = None,
    after: _After = None,
    type_: _Type = None,
    max_price: Annotated[
        str | None,
        typer.Option(metavar="CREDITS", help="Maximum price per hour; 0 runs it only on your own nodes."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(metavar="CREDITS", help="Maximum total cost; the job stops when it is reached."),
    ] = None,
    seal: Seals = None,
    checkpoints: Saves = None,
    moves: Moves = None,
    children: Children = None,
    children_budget: ChildrenBudget = None,
) -> JobOptions:
    given: dict[str, Any] = {
        "name": name, "priority": priority, "timeout": timeout, "ttl": ttl, "retries": retries,
        "inputs": inputs(input_), "env": environment(env), "dependencies": dep, "autodetect": autodetect, "after": after,
        "type": type_, "max_price": max_price, "budget": budget, "seal": seal,
        "checkpoints": checkpoints, "moves": moves, "children": children, "children_budget": children_budget,
    }  # fmt: skip
    return only_given(given)


def checks(
    *,
    verify: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="none; adaptive: recheck some results on other nodes; quorum:K: nodes of K owners must agree.",
        ),
    ] = None,
    confidence: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Instead of --verify: required confidence in the result, such as 0.999."
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="How results are compared: exact, tolerance:1e-9, or FILE.py:NAME, a function of two results "
            "(its runs of up to a minute each are paid in addition to --budget).",
        ),
    ] = None,
) -> JobOptions:
    """How results are verified and compared."""
    return only_given({"verify": verify, "confidence": confidence, "compare": comparison(compare)})


def accepts(**collectors: Callable[..., Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the options of each collector; it receives what the collector made of them, by name.

    Typer reads options off a signature. This keeps each list of them in one place, however many commands have it.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def wrapper(**given: Any) -> None:
            for name, collect in collectors.items():
                own = inspect.signature(collect).parameters
                given[name] = collect(**{option: given.pop(option) for option in own})
            command(**given)

        kept = [p for p in inspect.signature(command).parameters.values() if p.name not in collectors]
        added = [p for c in collectors.values() for p in inspect.signature(c).parameters.values()]
        hints: dict[str, Any] = {}
        for function in (command, *collectors.values()):
            hints |= get_type_hints(function, include_extras=True, localns=_ONLY_FOR_TYPES)
        parameters = [
            p.replace(annotation=hints[p.name], kind=inspect.Parameter.KEYWORD_ONLY) for p in (*kept, *added)
        ]
        wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
        return wrapper

    return decorate


def takes_json(command: Callable[..., None]) -> Callable[..., None]:
    """Every command has --json, unless it has one of its own; output.py heeds it."""
    signature = inspect.signature(command, eval_str=True)
    if "json" in signature.parameters:
        return command

    @functools.wraps(command)
    def wrapper(*, json: bool, **given: Any) -> None:
        output.use_json(json)
        command(**given)

    option = inspect.Parameter("json", inspect.Parameter.KEYWORD_ONLY, default=False, annotation=_Json)
    parameters = [*signature.parameters.values(), option]
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


#: Names that annotations mention but nobody needs while the program starts.
_ONLY_FOR_TYPES = dict.fromkeys(("JobOptions", "AgentConfig", "Settings"), object)


def only_given(given: dict[str, Any]) -> JobOptions:
    options: JobOptions = {name: value for name, value in given.items() if value not in (None, [], {})}  # type: ignore[assignment]
    return options


def merge(*parts: JobOptions) -> JobOptions:
    whole: JobOptions = {}
    for part in parts:
        whole.update(part)
    return whole


def split_list(given: list[str] | None) -> list[str]:
    """Repeated, with commas between, or both."""
    return [part.strip() for text in given or () for part in text.split(",") if part.strip()]


def pairs(given: list[str] | None, *, what: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise typer.BadParameter(f"{text!r} is not of the form NAME=VALUE.", param_hint=what)
        found[name] = value
    return found


def environment(given: list[str] | None) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in given or ():
        name, separator, value = text.partition("=")
        if not separator and name not in os.environ:
            raise typer.BadParameter(
                f"{name!r} is not set in this environment; use {name}=VALUE.", param_hint="--env"
            )
        found[name] = value if separator else os.environ[name]
    return found


def comparison(given: str | None) -> str | Callable[..., Any] | None:
    """As it stands, or the function NAME of FILE.py, which is run for that, here."""
    path, separator, name = (given or "").rpartition(":")
    if given is None or not separator or not path.endswith(".py"):
        return given
    import runpy

    try:
        found = runpy.run_path(path, run_name="__compare__")
    except Exception as error:  # noqa: BLE001 - it is the person's own file, and may raise what it likes
        raise typer.BadParameter(f"{path}: {type(error).__name__}: {error}", param_hint="--compare") from None
    function = found.get(name)
    if not callable(function):
        raise typer.BadParameter(f"there is no function {name!r} in {path}.", param_hint="--compare")
    return cast("Callable[..., Any]", function)


def inputs(given: list[str] | None) -> dict[str, str] | list[str]:
    """PATH, or NAME=PATH; a path that exists is taken as it is, even with a = in it."""
    found: dict[str, str] = {}
    plain: list[str] = []
    for text in given or ():
        name, separator, path = text.partition("=")
        if separator and name and not Path(text).exists():
            found[name] = path
        else:
            plain.append(text)
    if not found:
        return plain
    return found | {Path(path).resolve().name: path for path in plain}
