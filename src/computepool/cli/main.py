"""The `pool` command: assembles the subcommands, and turns every error into a sentence and an exit code.

For a short start-up time, this imports only typer. The module of a command is imported when the command is called.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from typer import Option

from computepool.cli import output
from computepool.cli.lazy import lazy_group
from computepool.cli.options import close_pools

EXIT_FAILED = 1  #: a job failed, or something unexpected happened
EXIT_USAGE = 2  #: bad input
EXIT_UNREACHABLE = 3  #: no answer from the hub
EXIT_REFUSED = 4  #: not signed in, not allowed, or not enough credits
EXIT_INTERRUPTED = 130
DEBUG_ENV = "COMPUTEPOOL_DEBUG"
_COMMANDS = """
    status     account.status:status      Show your account, hub, balance, nodes and unfinished jobs.
    up         local.up:up                Start a hub and one node on this machine.
    host       local.host:host            Run this machine as a host of a small trusted mesh.
    submit     job.submit:submit_command  Submit a script or a command to the pool.
    quote      job.submit:quote_command   Show what a job would cost and when it would finish.
    logs       job.jobs:logs              Print a job's output; with -f, follow it.
    cancel     job.jobs:cancel            Cancel jobs.
    verify     job.verify:verify          Verify a receipt offline.
    nodes      node.listing:list_nodes    List the nodes of the pool.
    mesh       job.mesh:mesh              Show key figures of the pool, its nodes, or its activity.
    events     account.events:events      Print state transitions: who, what, from, to, and why.
    login      account.sign_in:login      Sign in to a hub.
    logout     account.sign_in:logout     Remove the stored key.
    whoami     account.sign_in:whoami     Show the current hub and account.
    jobs       job.jobs:app               List, follow, explain and cancel jobs.
    group      job.groups:app             Manage groups of jobs and their results.
    schedule   job.schedules:app          Run jobs at the times of a cron expression.
    credits    account.credits:app        Show your balance and your transfers.
    prices     account.prices:app         Show the current price table.
    node       node.nodes:app             Run a node on this machine, and manage your nodes.
    market     account.market:app         Show spot prices, and set price floors for your nodes.
    artifacts  account.artifacts:app      Manage files at the hub: inputs, outputs and results.
    images     account.images:app         Upload container images for jobs, and manage them.
    volume     account.volumes:app        Manage volumes: named folders that outlive jobs.
    keys       account.accounts:keys      Manage API keys for programs and other machines.
    accounts   account.accounts:accounts  Manage accounts (admin only).
    approvals  account.approvals:app      Approve or reject requests of other admins (admin only).
    payouts    account.payouts:app        Request payouts of earned credits, and manage them.
    seal       account.seal:app           Encrypt job results to a key that only you hold.
    secrets    account.secrets:app        Store values that jobs get as variables, such as passwords.
    webhooks   account.webhooks:app       Send notifications to a URL when groups or jobs finish.
    hub        local.hub:app              Run a hub on this machine.
"""
app = typer.Typer(
    name="pool",
    cls=lazy_group(_COMMANDS),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


@app.callback()
def pool(
    *,
    hub: Annotated[str | None, Option(envvar="COMPUTEPOOL_HUB", metavar="URL", help="Hub address.")] = None,
    version: Annotated[bool, Option("--version", is_eager=True, help="Print the version.")] = False,
) -> None:
    """ComputePool: pool idle machines into one computer.

    \b
    Examples:
      pool up                                  start a hub and one node here
      pool submit examples/hello.py --wait     run a script on the pool
      pool status                              show your jobs, nodes and balance
      pool nodes                               list the machines of the pool
      pool node start --code CODE              add this machine
    """
    if hub is not None:
        os.environ["COMPUTEPOOL_HUB"] = hub


def main() -> None:
    """The console script. Prints tracebacks only if COMPUTEPOOL_DEBUG is set."""
    if "--version" in sys.argv[1:2]:
        from importlib.metadata import version

        output.write_line(version("computepool"))
        return
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # searching for plug-ins is slow
    try:
        app()
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except Exception as error:
        if os.environ.get(DEBUG_ENV):
            raise
        sys.exit(report(error))
    finally:
        close_pools()


def report(error: Exception) -> int:
    """Print one sentence to stderr; returns the exit code."""
    from computepool.core import errors
    from computepool.sdk.errors import HubUnreachable, JobError

    sign_in = "" if "login" in str(error) else " Sign in with `pool login`."
    start = " Is it running? Start one here with `pool up`, or sign in to another one with `pool login URL`."
    table: tuple[tuple[type[Exception], str, int], ...] = (  # the first match counts
        (HubUnreachable, start, EXIT_UNREACHABLE),
        (errors.Unavailable, "", EXIT_UNREACHABLE),
        (errors.RateLimited, "", EXIT_UNREACHABLE),
        (errors.InsufficientCredits, " Check your balance: pool credits", EXIT_REFUSED),
        (errors.Unauthenticated, sign_in, EXIT_REFUSED),
        (errors.Forbidden, "", EXIT_REFUSED),
        (JobError, "", EXIT_FAILED),
        (errors.ComputePoolError, "", EXIT_USAGE),
    )
    for kind, hint, code in table:
        if isinstance(error, kind):
            output.note(f"{error}{hint}")
            return code
    if isinstance(error, TimeoutError):
        output.note(f"Timed out: {error}.")
        return EXIT_FAILED
    output.note(f"Unexpected error: {type(error).__name__}: {error}. Set {DEBUG_ENV}=1 for a traceback.")
    return EXIT_FAILED
