"""The `pool` command: puts the subcommands together and turns every error into a sentence and an exit code.

Start-up matters: only typer and these small modules are imported here; a command imports what it needs itself.
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from computepool.cli import output
from computepool.cli.account import (
    accounts,
    approvals,
    artifacts,
    market,
    payouts,
    prices,
    seal,
    sign_in,
    status,
    webhooks,
)
from computepool.cli.account import credits as credit_commands
from computepool.cli.account.events import events
from computepool.cli.job import groups, jobs, mesh, queue, quote, submit, verify
from computepool.cli.local import host, hub, up
from computepool.cli.node import cache, codes, evidence, leave, nodes, pardon, review, revoke, rules
from computepool.cli.options import close_pools

EXIT_FAILED = 1  #: a job failed, or something unexpected happened
EXIT_USAGE = 2  #: bad input
EXIT_UNREACHABLE = 3  #: no answer from the hub
EXIT_REFUSED = 4  #: not signed in, not allowed, or not enough credits
EXIT_INTERRUPTED = 130
DEBUG_ENV = "COMPUTEPOOL_DEBUG"

app = typer.Typer(
    name="pool",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("status")(status.status)
app.command("up")(up.up)
app.command("host")(host.host)
app.command("submit", cls=submit.SubmitCommand)(submit.submit)
app.command("quote", cls=submit.SubmitCommand)(quote.quote)
jobs.app.command("receipt")(verify.receipt)
jobs.app.command("groups")(groups.groups)
jobs.app.command("queue")(queue.queue)
jobs.app.command("hosts")(queue.hosts)
jobs.app.command("usage")(mesh.usage)
app.command("logs")(jobs.logs)
app.command("cancel")(jobs.cancel)
app.add_typer(jobs.app, name="jobs")
app.add_typer(groups.app, name="group")
app.add_typer(credit_commands.app, name="credits")
app.add_typer(prices.app, name="prices")
app.command("verify")(verify.verify)
app.command("nodes")(nodes.list_nodes)
nodes.app.command("code")(codes.code)
nodes.app.command("codes")(codes.codes)
nodes.app.command("earnings")(market.earnings)
nodes.app.command("rules")(rules.rules)
nodes.app.command("jobs")(rules.jobs)
nodes.app.command("pardon")(pardon.pardon)
nodes.app.command("review")(review.review)
nodes.app.command("revoke")(revoke.revoke)
nodes.app.command("evidence")(evidence.evidence)
nodes.app.command("leave")(leave.leave)
nodes.app.add_typer(cache.app, name="cache")
app.add_typer(nodes.app, name="node")
app.add_typer(market.app, name="market")
app.add_typer(artifacts.app, name="artifacts")
app.command("mesh")(mesh.mesh)
app.command("events")(events)
app.command("login")(sign_in.login)
app.command("logout")(sign_in.logout)
app.command("whoami")(sign_in.whoami)
app.add_typer(accounts.keys, name="keys")
app.add_typer(accounts.accounts, name="accounts")
app.add_typer(approvals.app, name="approvals")
app.add_typer(payouts.app, name="payouts")
app.add_typer(seal.app, name="seal")
app.add_typer(webhooks.app, name="webhooks")
app.add_typer(hub.app, name="hub")


@app.callback()
def pool(
    *,
    hub: Annotated[
        str | None, typer.Option(envvar="COMPUTEPOOL_HUB", metavar="URL", help="Hub address.")
    ] = None,
    version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version.")] = False,
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
    """The console script. Never a traceback, unless COMPUTEPOOL_DEBUG asks for it."""
    if "--version" in sys.argv[1:2]:
        from importlib.metadata import version

        output.say(version("computepool"))
        return
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
    """One sentence on stderr; returns the exit code."""
    from computepool.sdk import errors

    if isinstance(error, errors.HubUnreachable):
        output.note(
            f"{error} Is it running? Start one here with `pool up`, or sign in to another one with `pool login URL`."
        )
        return EXIT_UNREACHABLE
    if isinstance(error, errors.Unavailable | errors.RateLimited):
        output.note(str(error))
        return EXIT_UNREACHABLE
    if isinstance(error, errors.InsufficientCredits):
        output.note(f"{error} Check your balance: pool credits")
        return EXIT_REFUSED
    if isinstance(error, errors.Unauthenticated | errors.Forbidden):
        hint = (
            " Sign in with `pool login`."
            if "login" not in str(error) and isinstance(error, errors.Unauthenticated)
            else ""
        )
        output.note(f"{error}{hint}")
        return EXIT_REFUSED
    if isinstance(error, errors.JobError):
        output.note(str(error))
        return EXIT_FAILED
    if isinstance(error, errors.ComputePoolError):
        output.note(str(error))
        return EXIT_USAGE
    if isinstance(error, TimeoutError):
        output.note(f"Timed out: {error}.")
        return EXIT_FAILED
    output.note(f"Unexpected error: {type(error).__name__}: {error}. Set {DEBUG_ENV}=1 for a traceback.")
    return EXIT_FAILED
