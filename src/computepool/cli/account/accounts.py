"""`pool keys …` and `pool accounts …`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, BadParameter, Option, Typer

from computepool.cli import output
from computepool.cli.options import AccountName, Limit, OfAccount, accepts, collects, open_pool, option
from computepool.core.money.money import format_credits, parse_credits
from computepool.protocol.local_address import is_loopback
from computepool.sdk.client.sizes import byte_count, seconds
from computepool.sdk.clock import now_ms

if TYPE_CHECKING:
    from computepool.protocol.accounts import AccountView, KeyView

keys = Typer(no_args_is_help=True)
accounts = Typer(no_args_is_help=True)


@keys.command("list")
def list_keys(
    *,
    account: OfAccount = None,
    everybody: Annotated[bool, Option("--all", help="Include all accounts (admin only).")] = False,
    sessions: Annotated[bool, Option("--sessions", help="Include browser sessions.")] = False,
    limit: Limit = 100,
) -> None:
    """List your keys. The secrets are shown only once, at creation.

    Examples:
      pool keys list
      pool keys list --account ann --sessions
    """
    pool = open_pool()
    found = pool.keys.list(limit=limit, account_id=account, everybody=everybody, sessions=sessions)
    rows = [
        (
            key.id,
            key.name,
            _state(key),
            "everything" if key.scopes is None else ", ".join(key.scopes),
            output.ago(key.created_at_ms),
            output.ago(key.last_used_ms),
            "never" if key.expires_at_ms is None else output.moment(key.expires_at_ms),
        )
        for key in found
    ]
    columns = ("ID", "NAME", "STATE", "FOR", "CREATED", "USED", "EXPIRES")
    output.show_table(found, columns, rows, empty="No keys.")


def _state(key: KeyView) -> str:
    if key.revoked_at_ms:
        return "revoked"
    return "expired" if key.expires_at_ms is not None and key.expires_at_ms <= now_ms() else "active"


@keys.command("create")
def create_key(
    name: Annotated[str, Argument(help="A name that says what it is for.")],
    *,
    expires: Annotated[str | None, Option(help="Validity, such as 1h or 30d. Default: no expiry.")] = None,
    scope: Annotated[
        list[str] | None,
        Option(help="read, submit, provide, account or admin; repeatable. Default: the scopes of your current key."),
    ] = None,
    account: OfAccount = None,
) -> None:
    """Create a key. It is printed once, so store it. Grant only the scopes it needs.

    Scopes, each of which includes `read`:
      read      view jobs, nodes and credits; request quotes
      submit    submit and cancel jobs, upload files
      provide   enrol and manage nodes
      account   manage keys, sessions and payouts
      admin     administer the hub

    Examples:
      pool keys create ci --scope submit --expires 30d
      COMPUTEPOOL_KEY=$(pool keys create nightly) python nightly.py
    """
    expires_in_s = None if expires is None else seconds(expires, what="expires")
    pool = open_pool()
    made = pool.keys.create(name, expires_in=expires_in_s, account_id=account, scopes=scope or None)
    output.show(made, made.key, hint="Store this key: it is not shown again.")


@keys.command("rotate")
def rotate_key(
    key_id: Annotated[str, Argument(metavar="ID", help="ID of the key to replace; see `pool keys list`.")],
    *,
    overlap: Annotated[str, Option(help="How long the old key keeps working.")] = "24h",
    expires: Annotated[str | None, Option(help="Validity, such as 90d. Default: that of the old key.")] = None,
) -> None:
    """Replace a key with a new one of the same scopes. The new key is printed once, so store it.

    Examples:
      pool keys rotate 5f2c9a7e11d04b7a
      pool keys rotate 5f2c9a7e11d04b7a --overlap 1h --expires 90d
    """
    overlap_s = seconds(overlap, what="overlap")
    expires_in_s = None if expires is None else seconds(expires, what="expires")
    made = open_pool().keys.rotate(key_id, overlap=overlap_s, expires_in=expires_in_s)
    output.show(made, made.key, hint=f"Store this key: it is not shown again. {key_id} works for another {overlap}.")


@keys.command("revoke")
def revoke_key(
    key_ids: Annotated[list[str] | None, Argument(metavar="ID…", help="IDs of keys; see `pool keys list`.")] = None,
    *,
    everything: Annotated[
        bool, Option("--all", help="Revoke all your keys and browser sessions except the current key.")
    ] = False,
    account: OfAccount = None,
) -> None:
    """Revoke keys. They stop working immediately, on every hub of the pool.

    Examples:
      pool keys revoke 5f2c9a7e11d04b7a
      pool keys revoke --all                 sign out everywhere else
    """
    if everything == bool(key_ids) or (account is not None and not everything):
        raise BadParameter("name the keys, or pass --all.")
    pool = open_pool()
    if everything:
        ended = pool.keys.revoke_all(account_id=account)
        output.show({"revoked": ended}, f"Revoked {ended} keys and sessions.")
        return
    key_ids = key_ids or []
    for key_id in key_ids:
        pool.keys.revoke(key_id)
    output.show({"revoked": key_ids}, "\n".join(f"revoked {key_id}" for key_id in key_ids))


@accounts.command("list")
def list_accounts(*, limit: Limit = 100) -> None:
    """List accounts with their submitter score: 0 to 1, and 0.71 for accounts without a history.

    Examples:
      pool accounts list
    """
    found = open_pool().accounts.list(limit=limit)
    rows = [(a.id, a.name, ", ".join(a.roles), _submitter_reputation(a), output.ago(a.created_at_ms)) for a in found]
    output.show_table(found, ("ID", "NAME", "ROLES", "SUBMITTER SCORE", "CREATED"), rows, empty="No accounts.")


def _submitter_reputation(account: AccountView) -> str:
    known = account.submitter_reputation
    if known is None or known.changed_at_ms is None:
        return ""
    return f"{known.score:.2f} ({known.completed} done, {known.harmful} stopped at a limit)"


@accounts.command("roles")
def set_roles(
    account: AccountName, *, role: Annotated[list[str], Option(help="admin, submitter or provider; repeatable.")]
) -> None:
    """Replace an account's roles. May require a second administrator (see `pool approvals`).

    Examples:
      pool accounts roles ann --role submitter --role provider
      pool accounts roles bob --role admin
    """
    pool = open_pool()
    found = pool.accounts.set_roles(pool.accounts.find(account).id, role)
    done = f"{found.name}: {', '.join(found.roles)}"
    output.show(found, output.needs_approval(found.approval_id) if found.approval_id else done)


@accounts.command("link")
def make_link(account: AccountName) -> None:
    """Create a one-time sign-in link for an account. Anyone who opens it is signed in, so share it privately.

    Examples:
      pool accounts link ann
    """
    pool = open_pool()
    made = pool.accounts.link(pool.accounts.find(account).id)
    if output.print_json(made):
        return
    output.write_line(made.link)
    output.note(f"It works once and expires at {output.moment(made.expires_at_ms)}.")
    if is_loopback(made.link):
        output.note(
            "Warning: this link works only on the hub's own machine. To sign in from others, start the hub with "
            "--host 0.0.0.0 or --public-url."
        )


@collects(
    {
        "jobs_open_max": option(int, None, "Maximum number of unfinished jobs.", "--jobs"),
        "spend_per_day_max": option(str, "CREDITS", "Maximum spending per day.", "--spend"),
        "artifact_bytes_max": option(str, "SIZE", "Maximum storage at the hub, such as 500MB or 2TiB.", "--files"),
        "artifact_keep_s": option(str, "TIME", "How long files are kept after their job ends, such as 30d.", "--keep"),
    }
)
def quotas(given: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Callable[[str], int]] = {
        "spend_per_day_max": lambda text: parse_credits(text, field="--spend"),
        "artifact_bytes_max": lambda text: byte_count(text, what="--files"),
        "artifact_keep_s": lambda text: round(seconds(text, what="--keep")),
    }
    return {name: read[name](value) if name in read else value for name, value in given.items()}


@accounts.command("quota")
@accepts(named=quotas)
def set_quota(
    account: AccountName,
    *,
    named: dict[str, Any],
    clear: Annotated[
        bool, Option("--clear", help="Reset all limits that are not given to the hub's defaults.")
    ] = False,
) -> None:
    """Show or set the limits of an account. Limits that are not given stay unchanged.

    Examples:
      pool accounts quota ann --jobs 100 --spend 250
      pool accounts quota ann --files 50GB --keep 30d
      pool accounts quota ann --clear
    """
    pool = open_pool()
    found = pool.accounts.find(account)
    if clear or named:
        kept = {} if clear else {name: getattr(found, name) for name in _QUOTAS}
        quota = {**kept, **named}
        keep_s = quota.pop("artifact_keep_s", None)
        found = pool.accounts.set_quotas(found.id, artifact_keep=keep_s, **quota)
    output.show(found, _quotas(found))


_QUOTAS = ("jobs_open_max", "spend_per_day_max", "artifact_bytes_max", "artifact_keep_s")


def _quotas(account: AccountView) -> str:
    jobs, spend, files, keep_s = (getattr(account, name) for name in _QUOTAS)
    most = "hub default" if jobs is None else f"{jobs:,}"
    cost = "hub default" if spend is None else format_credits(spend)
    size = "hub default" if files is None else output.size(files)
    time = "hub default" if keep_s is None else output.span(keep_s * 1000)
    return f"{account.name}: unfinished jobs: {most}; credits per day: {cost}; storage: {size}; files kept for: {time}"


@accounts.command("create")
def create_account(
    name: Annotated[str, Argument(help="Account name.")],
    *,
    role: Annotated[list[str] | None, Option(help="admin, submitter or provider; repeatable.")] = None,
) -> None:
    """Create an account. Then give its owner a sign-in link: `pool accounts link NAME`.

    Examples:
      pool accounts create ann
      pool accounts create lab-7 --role provider
    """
    made = open_pool().accounts.create(name, roles=role or None)
    next_step = f"Created {made.name} ({', '.join(made.roles)}). Next: pool accounts link {made.name}"
    output.show(made, made.id, hint=next_step)
    if made.approval_id and not output.as_json():
        output.note(
            f"Its initial credits need approval by a second administrator ({made.approval_id}): pool approvals list"
        )
