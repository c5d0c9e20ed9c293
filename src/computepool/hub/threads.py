"""Calls that wait for a disk or another service, on threads of their own: they must not hold up the store's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import ParamSpec, TypeVar

from computepool.hub.context import Hub

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(hub: Hub, function: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    return await asyncio.get_running_loop().run_in_executor(
        hub.blob_threads, partial(function, *args, **options)
    )
