"""`pool.secrets`: values that jobs get as variables, and that nothing shows again."""

from __future__ import annotations

from typing import TypeAlias

from computepool.core.errors import BadRequest
from computepool.protocol import secrets as wire
from computepool.sdk.client.resource import Resource

Secrets: TypeAlias = list[wire.SecretView]


class SecretApi(Resource):
    def set(self, name: str, value: str) -> wire.SecretView:
        """Store a secret, or replace its value. Jobs that start later get the new one."""
        return self._put(f"/secrets/{_check_name(name)}", wire.SecretView, wire.SecretRequest, value=value)

    def list(self) -> Secrets:
        """Your secrets, without their values."""
        return self._transport.get("/secrets", wire.SecretList).secrets

    def remove(self, name: str) -> None:
        self._transport.call("DELETE", f"/secrets/{_check_name(name)}")


def _check_name(name: str) -> str:
    if not (name.isascii() and name.isidentifier()):
        raise BadRequest(f"{name!r} is no name of a secret: use letters, digits and _, and begin with no digit.")
    return name
