"""`pool login`, `logout` and `whoami`."""

from __future__ import annotations

import platform
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

from typer import Argument, BadParameter, Option, prompt

from computepool.cli import output
from computepool.cli.options import RETRY_FOR_S, open_pool
from computepool.sdk.client.config import Config, hub_url, load_config, save_config

if TYPE_CHECKING:
    from computepool.protocol.accounts import AccountView


def login(
    url: Annotated[str | None, Argument(help="Hub address, or a sign-in link.")] = None,
    *,
    code: Annotated[str | None, Option(help="One-time code from a sign-in link.")] = None,
    key: Annotated[str | None, Option(help="API key; - reads it from standard input.")] = None,
) -> None:
    """Sign in to a hub. Its address and your key are stored in the config file.

    Examples:
      pool login 'http://pool.example:8000/signin?code=…'
      pool login pool.example:8000 --code …
      pool login pool.example:8000 --key - < key.txt
    """
    address, linked = (load_config().hub, None) if url is None else _split(url)
    address = hub_url(address)
    code = code or linked
    if code is None and key is None:
        key = _ask()
    if key == "-":
        key = sys.stdin.readline().strip()
    account, config = _sign_in(address, code=code, key=key)
    path = save_config(config)
    output.show(
        {"hub": address, "account": account.model_dump(mode="json"), "config": str(path)},
        f"Signed in to {address} as {account.name}.",
    )


def logout(
    *,
    everywhere: Annotated[bool, Option("--everywhere", help="Also revoke all your keys and browser sessions.")] = False,
) -> None:
    """Remove the stored key. It stays valid until you revoke it (`pool keys revoke`, or --everywhere).

    Examples:
      pool logout
      pool logout --everywhere
    """
    hub = load_config().hub
    if everywhere:
        open_pool().keys.revoke_all(keep_this=False)
    save_config(Config(hub=hub, key=None))
    output.show({"hub": hub, "signed_in": False}, f"Signed out of {hub}.")


def whoami() -> None:
    """Show the current hub and account.

    Examples:
      pool whoami
    """
    pool = open_pool()
    account = pool.whoami()
    output.show(
        {"hub": pool.transport.url, **account.model_dump(mode="json")},
        f"{account.name} ({', '.join(account.roles)}) at {pool.transport.url}",
    )


def _split(link: str) -> tuple[str, str | None]:
    """The hub address and the code of a sign-in link."""
    from urllib.parse import parse_qs, urlsplit

    parts = urlsplit(link)
    path = parts.path.rstrip("/")  # links of the dashboard end in a slash
    if not path.endswith("/signin"):
        return link, None
    codes = parse_qs(parts.query).get("code")
    return f"{parts.scheme}://{parts.netloc}{path.removesuffix('/signin')}", codes[0] if codes else None


def _ask() -> str:
    if not sys.stdin.isatty():
        raise BadParameter("pass --code or --key; there is no terminal to prompt on.", param_hint="--key")
    answer: str = prompt("API key", hide_input=True)
    return answer.strip()


def _sign_in(address: str, *, code: str | None, key: str | None) -> tuple[AccountView, Config]:
    """The account, and what to store: a new key for the code, or the given key, which is tried out."""
    from computepool.sdk import ComputePoolError, connect

    with connect(address, "" if code else key, retry_for=RETRY_FOR_S) as pool:
        if code:
            reply = pool.accounts.sign_in(code, name=f"pool login on {platform.node() or 'a machine'}")
            account, key = reply.account, reply.key
        else:
            account = pool.whoami()
        hub_keys: dict[str, str] = {}
        with suppress(ComputePoolError):  # they are for receipts; signing in does not depend on them
            hub_keys = pool.accounts.hub_keys()
    return account, Config(hub=address, key=key, hub_keys=hub_keys)
