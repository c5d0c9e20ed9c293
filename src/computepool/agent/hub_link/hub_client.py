"""The agent's HTTP client for the hub. Knows addresses, tokens and errors; decides nothing.

Every failure becomes a ComputePoolError: a refusal keeps its class, and an unreachable hub is Unavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
import email.utils
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar
from urllib.parse import quote
from urllib.request import getproxies

import httpx2
from pydantic import BaseModel, ValidationError

from computepool.agent.clock import AgentClock
from computepool.agent.config import AgentLimits
from computepool.agent.hub_link import compat
from computepool.agent.hub_link.identity import Identity
from computepool.agent.hub_link.wire import Wire, WireError
from computepool.agent.network.speed import DOWN, UP, SpeedMeter
from computepool.core.backoff import double
from computepool.core.errors import (
    ERRORS_BY_CODE,
    BadRequest,
    ComputePoolError,
    OutOfSpace,
    RateLimited,
    Unauthenticated,
    Unavailable,
)
from computepool.protocol.accounts import Problem
from computepool.protocol.artifacts import UploadState
from computepool.protocol.gangs import BarrierReply, BarrierRequest
from computepool.protocol.hub_keys import HubKeys
from computepool.protocol.jobs.checkpoints import CheckpointReply, CheckpointReport
from computepool.protocol.jobs.groups import ArrivalReply, ArrivalRequest, DeliveryProblem, ItemPage, ResultDeliveryView
from computepool.protocol.money.market import OwnNodeView
from computepool.protocol.nodes.arguments import ArgumentPage
from computepool.protocol.nodes.hardware import HardwareReport, HardwareView
from computepool.protocol.nodes.nodes import (
    CompleteReply,
    LogsRequest,
    NextReply,
    NextRequest,
    RegisterReply,
    RegisterRequest,
    RekeyReply,
    RekeyRequest,
)
from computepool.protocol.secrets import AttemptSecretsReply, AttemptSecretsRequest
from computepool.protocol.tokens import ISSUER, NODE_TOKEN_LIFE_S, sign_node_token
from computepool.protocol.volumes.volumes import OpenedVolumes

_log = logging.getLogger(__name__)

API = "/api/v1"
#: A token is replaced when less than this is left of it, so that it cannot expire on the way.
_TOKEN_SPARE_S = 180
_JSON = {"content-type": "application/json"}
_BINARY = {"content-type": "application/octet-stream"}
_PROBE_S = 5.0

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
#: Statuses that mean the same from a proxy as from the hub.
_STATUS_CODES = {413: "too_large", 429: "rate_limited"}

CONNECTIONS_MAX = 32
#: Local addresses that select one version of the internet protocol.
IPV4_ONLY, IPV6_ONLY = "0.0.0.0", "::"
#: Errors that say nothing about the request itself: it can be tried again.
TRANSIENT = (Unavailable, RateLimited, Unauthenticated)
#: The same for requests that the hub has to store.
TRANSIENT_OR_FULL = (*TRANSIENT, OutOfSpace)


class HubClient:
    def __init__(
        self,
        urls: tuple[str, ...],
        *,
        clock: AgentClock,
        limits: AgentLimits,
        identity: Identity | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._urls = urls
        self._current = 0
        self._clock = clock
        self._limits = limits
        self._identity = identity
        self.speed = SpeedMeter(clock.steady)
        self.offset_ms = 0  #: the hub's clock minus this machine's, as of the last reply
        self._token = ""
        self._token_ends_s = 0
        timeout = httpx2.Timeout(limits.request_timeout_s, connect=limits.connect_timeout_s)
        # An idle node polls every few seconds, so its connections stay open.
        pool = httpx2.Limits(max_connections=CONNECTIONS_MAX, max_keepalive_connections=8, keepalive_expiry=60)
        self._http = httpx2.AsyncClient(timeout=timeout, limits=pool, transport=transport)
        direct = transport is None and not getproxies()
        self._wire = Wire(limits.connect_timeout_s) if direct else None

    @property
    def url(self) -> str:
        return self._urls[self._current]

    def identify(self, identity: Identity) -> None:
        self._identity = identity
        self._token_ends_s = 0

    def hub_now_s(self) -> int:
        return (self._clock.now_ms() + self.offset_ms) // 1000

    def set_hub_time(self, hub_time_ms: int) -> None:
        self.offset_ms = hub_time_ms - self._clock.now_ms()

    def backoff(self) -> Backoff:
        return Backoff(self._clock, self._limits)

    async def close(self) -> None:
        if self._wire is not None:
            await self._wire.close()
        await self._http.aclose()

    # ------------------------------------------------------------ calls
    async def register(self, request: RegisterRequest) -> RegisterReply:
        return await self._post(RegisterReply, "/nodes/register", _json_bytes(request), signed=False)

    async def next(self, request: NextRequest) -> NextReply:
        timeout_s = request.wait_ms / 1000 + self._limits.poll_slack_s
        return await self._poll("/next", request, timeout_s)

    async def heartbeat(self, request: NextRequest) -> NextReply:
        return await self._poll("/heartbeat", request, self._limits.poll_slack_s)

    @contextlib.asynccontextmanager
    async def over(self, local_address: str) -> AsyncIterator[HubClient]:
        """A client for the same hub that connects from this local address."""
        client = HubClient(
            (self.url,),
            clock=self._clock,
            limits=self._limits,
            identity=self._identity,
            transport=httpx2.AsyncHTTPTransport(local_address=local_address),
        )
        client.offset_ms = self.offset_ms
        try:
            yield client
        finally:
            await client.close()

    async def complete(self, body: bytes) -> CompleteReply:
        """`body` is a CompleteRequest as the outbox keeps it."""
        return await self._post(CompleteReply, "/complete", body)

    async def logs(self, request: LogsRequest) -> None:
        await self._post_bytes("/logs", _json_bytes(request))

    async def checkpoint(self, report: CheckpointReport) -> CheckpointReply:
        return await self._post(CheckpointReply, "/checkpoint", _json_bytes(report))

    async def open_volumes(self, attempt_id: str) -> OpenedVolumes:
        return await self._post(OpenedVolumes, f"/attempts/{quote(attempt_id, safe='')}/volumes", b"")

    async def relay(self, method: str, path: str, *, body: bytes | None, timeout_s: float) -> Any:
        """Relay a job's request; returns the reply as it is."""
        reply = await self._send(method, path, content=body, timeout_s=timeout_s)
        try:
            return json.loads(reply)
        except ValueError as error:
            raise Unavailable("The hub's reply is not JSON.") from error

    async def gang_barrier(self, attempt_id: str, request: BarrierRequest) -> BarrierReply:
        wait_s = self._limits.gang_poll_s
        path = f"/attempts/{attempt_id}/gang?wait_ms={round(wait_s * 1000)}"
        timeout_s = wait_s + self._limits.poll_slack_s
        return _parse(BarrierReply, await self._send("POST", path, content=_json_bytes(request), timeout_s=timeout_s))

    async def send_packets(self, attempt_id: str, data: bytes) -> bytes:
        """To other members of the attempt's gang; at most BATCH_MAX bytes."""
        return await self._send("POST", _packets_path(attempt_id), content=data, headers=_BINARY)

    async def receive_packets(self, attempt_id: str) -> bytes:
        """Packets for the attempt; empty if there were none for a while."""
        wait_s = self._limits.gang_poll_s
        path = f"{_packets_path(attempt_id)}?wait_ms={round(wait_s * 1000)}"
        return await self._send(
            "POST", path, content=b"", headers=_BINARY, timeout_s=wait_s + self._limits.poll_slack_s
        )

    async def secrets(self, attempt_id: str, request: AttemptSecretsRequest) -> AttemptSecretsReply:
        path = f"/attempts/{quote(attempt_id, safe='')}/secrets"
        return await self._post(AttemptSecretsReply, path, _json_bytes(request))

    async def arguments(self, attempt_id: str, *, after: int) -> ArgumentPage:
        """Results of other jobs that are arguments of this attempt's."""
        return await self._get(ArgumentPage, f"/attempts/{quote(attempt_id, safe='')}/arguments?after={after}")

    async def hardware(self, report: HardwareReport) -> HardwareView:
        return await self._post(HardwareView, "/hardware", _json_bytes(report))

    async def probe(self) -> tuple[float, int, float]:
        """The shortest round-trip time in seconds; then the size of a larger reply and the shortest time it took."""
        trip_s, _ = await self._time_request("/hub/keys", tries=3)
        fetch_s, size = await self._time_request("/openapi.json", tries=2)  # The hub may have to generate the first.
        return trip_s, size, fetch_s

    async def _time_request(self, path: str, *, tries: int) -> tuple[float, int]:
        times, size = [], 0
        for _ in range(tries):
            begin = self._clock.steady()
            size = len(await self._send("GET", path, signed=False, timeout_s=_PROBE_S))
            times.append(self._clock.steady() - begin)
        return min(times), size

    async def test_speed(self) -> None:
        """Send some bytes to the hub and receive them again, for a first measurement. Without one the speed is unknown."""
        size, within_s = self._limits.speed_test_bytes, self._limits.speed_test_s
        if not size:
            return
        sent, headers = self._clock.entropy(size // 2).hex().encode(), self._authorization()
        timeout = httpx2.Timeout(within_s)
        with contextlib.suppress(httpx2.HTTPError, httpx2.InvalidURL, TimeoutError):
            async with asyncio.timeout(within_s):
                since, url = self._clock.steady(), f"{self.url}{API}/nodes/self/speed"
                async with self._http.stream("POST", url, content=sent, headers=headers, timeout=timeout) as reply:
                    if reply.status_code != 200:  # an older hub
                        return
                    self.speed.observe(UP, len(sent), since=since)
                    async for _ in self._measure(reply.aiter_bytes(self._limits.transfer_chunk)):
                        pass

    async def _measure(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        since, size = self._clock.steady(), 0
        async for chunk in chunks:
            size += len(chunk)
            yield chunk
        self.speed.observe(DOWN, size, since=since)

    async def result_delivery(self, group_id: str) -> ResultDeliveryView:
        return await self._get(ResultDeliveryView, _delivery_path(group_id))

    async def result_delivery_items(self, group_id: str, *, after: str | None) -> ItemPage:
        query = "" if after is None else f"?after={quote(after, safe='')}"
        return await self._get(ItemPage, f"{_delivery_path(group_id)}/items{query}")

    async def delivery_problem(self, group_id: str, problem: DeliveryProblem) -> None:
        await self._post_bytes(f"{_delivery_path(group_id)}/problem", _json_bytes(problem))

    async def report_arrival(self, group_id: str, arrival: ArrivalRequest) -> ArrivalReply:
        return await self._post(ArrivalReply, f"{_delivery_path(group_id)}/arrival", _json_bytes(arrival))

    async def hub_keys(self) -> HubKeys:
        """The keys that the hub publishes. Trust only those that follow from pinned ones."""
        return await self._get(HubKeys, "/hub/keys", signed=False)

    async def rekey(self, request: RekeyRequest) -> RekeyReply:
        return await self._post(RekeyReply, "/nodes/rekey", _json_bytes(request))

    async def own_node(self) -> OwnNodeView:
        """The owner of this node, and its earnings."""
        return await self._get(OwnNodeView, "/nodes/self", timeout_s=_PROBE_S)

    async def leave(self) -> OwnNodeView:
        """Leave the pool; the hub then refuses this node's key."""
        return _parse(OwnNodeView, await self._send("POST", "/nodes/leave"))

    async def hub_time_ms(self) -> int:
        """For the doctor: the hub's time, fetched without a token."""
        reply = await self._exchange("GET", "/hub/keys", headers=_JSON)
        return _date_ms(reply) or self._clock.now_ms()

    async def upload_state(self, digest: str) -> UploadState:
        return await self._get(UploadState, f"/artifacts/{digest}/upload")

    async def upload(
        self, digest: str, content: AsyncIterator[bytes], *, offset: int, size: int, name: str
    ) -> UploadState:
        query = f"offset={offset}&size={size}&name={quote(name, safe='')}"
        headers = {"content-type": "application/octet-stream", "content-length": str(size - offset)}
        path, since = f"/artifacts/{digest}?{query}", self._clock.steady()
        reply = await self._send("PUT", path, content=content, headers=headers)
        self.speed.observe(UP, size - offset, since=since)
        return _parse(UploadState, reply)

    @contextlib.asynccontextmanager
    async def download(self, digest: str, *, offset: int) -> AsyncIterator[tuple[int, AsyncIterator[bytes]]]:
        """The offset at which the bytes start (the hub may ignore the range), and the bytes."""
        headers = {**self._authorization(), **({"range": f"bytes={offset}-"} if offset else {})}
        try:
            async with self._http.stream("GET", f"{self.url}{API}/artifacts/{digest}", headers=headers) as reply:
                if reply.status_code not in (200, 206):
                    await reply.aread()
                    raise _problem(reply)
                start = offset if reply.status_code == 206 else 0
                yield start, self._measure(reply.aiter_bytes(self._limits.transfer_chunk))
        except httpx2.HTTPError as error:
            raise self._unreachable(error) from error

    # ------------------------------------------------------------ plumbing
    async def _poll(self, path: str, request: NextRequest, timeout_s: float) -> NextReply:
        reply = await self._post(NextReply, path, _json_bytes(request), timeout_s=timeout_s)
        self.set_hub_time(reply.hub_time_ms)
        return reply

    async def _get(
        self, model: type[Model], path: str, *, signed: bool = True, timeout_s: float | None = None
    ) -> Model:
        return _parse(model, await self._send("GET", path, signed=signed, timeout_s=timeout_s))

    async def _post(
        self, model: type[Model], path: str, body: bytes, *, signed: bool = True, timeout_s: float | None = None
    ) -> Model:
        return _parse(model, await self._post_bytes(path, body, signed=signed, timeout_s=timeout_s))

    async def _post_bytes(
        self, path: str, body: bytes, *, signed: bool = True, timeout_s: float | None = None
    ) -> bytes:
        """Send a request; if an older hub refuses new fields, send it again without them.

        All fields are sent first each time: hubs may be upgraded at any moment, and one address may serve several.
        """
        try:
            return await self._send("POST", path, content=body, signed=signed, timeout_s=timeout_s)
        except BadRequest as error:
            if not compat.is_unknown(error):
                raise
            _log.info("the hub is older than this agent: %s", error.detail)
        return await self._send("POST", path, content=compat.plain(body), signed=signed, timeout_s=timeout_s)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | AsyncIterator[bytes] | None = None,
        headers: dict[str, str] | None = None,
        signed: bool = True,
        timeout_s: float | None = None,
    ) -> bytes:
        """The body of the reply. Small signed POST requests, which are frequent, use the thin client (wire.py)."""
        sent = {**(headers or _JSON), **(self._authorization() if signed else {})}
        if self._wire is None or method != "POST" or not signed or not isinstance(content, bytes):
            reply = await self._exchange(method, path, content=content, headers=sent, timeout_s=timeout_s)
            return reply.content
        within_s = self._limits.request_timeout_s if timeout_s is None else timeout_s
        try:
            answer = await self._wire.post(self.url, f"{API}{path}", body=content, headers=sent, timeout_s=within_s)
            if 200 <= answer.status < 300 and b"content-encoding" not in answer.headers:
                return answer.body
            reply = httpx2.Response(answer.status, headers=[*answer.headers.items()], content=answer.body)
        except (httpx2.HTTPError, WireError) as error:  # Also a reply that cannot be decoded.
            raise self._unreachable(error) from error
        if reply.is_success:
            return reply.content
        raise self._refusal(reply)

    async def _exchange(
        self,
        method: str,
        path: str,
        *,
        content: bytes | AsyncIterator[bytes] | None = None,
        headers: dict[str, str],
        timeout_s: float | None = None,
    ) -> httpx2.Response:
        connect_s = self._limits.connect_timeout_s
        timeout = httpx2.USE_CLIENT_DEFAULT if timeout_s is None else httpx2.Timeout(timeout_s, connect=connect_s)
        try:
            reply = await self._http.request(
                method, f"{self.url}{API}{path}", content=content, headers=headers, timeout=timeout
            )
        except httpx2.HTTPError as error:  # Also a reply that cannot be decoded.
            raise self._unreachable(error) from error
        except httpx2.InvalidURL as error:
            raise BadRequest(f"{self.url} is not an address: {error}.", field="hub_url") from error
        if reply.is_success:
            return reply
        raise self._refusal(reply)

    def _unreachable(self, error: Exception) -> Unavailable:
        failed = self.url
        self._use_next_url()
        return Unavailable(f"The hub at {failed} cannot be reached ({str(error) or type(error).__name__}).")

    def _use_next_url(self) -> None:
        self._current = (self._current + 1) % len(self._urls)

    def _refusal(self, reply: httpx2.Response) -> ComputePoolError:
        problem = _problem(reply)
        if isinstance(problem, Unauthenticated):
            # A wrong clock looks like a wrong key; the next token is made with the hub's time.
            self._token_ends_s = 0
            date_ms = _date_ms(reply)
            if date_ms is not None:
                self.set_hub_time(date_ms)
        elif isinstance(problem, Unavailable):
            self._use_next_url()
        return problem

    def _authorization(self) -> dict[str, str]:
        if self._identity is None:
            raise Unauthenticated("This node is not enrolled yet.")
        now_s = self.hub_now_s()
        if not now_s + _TOKEN_SPARE_S < self._token_ends_s <= now_s + NODE_TOKEN_LIFE_S:
            identity = self._identity
            self._token = sign_node_token(identity.node_id, key=identity.key, hub=ISSUER, now_s=now_s)
            self._token_ends_s = now_s + NODE_TOKEN_LIFE_S
        return {"authorization": f"Bearer {self._token}"}


class Backoff:
    """Exponential back-off with full jitter, so that the nodes that lost a hub do not return at once."""

    def __init__(self, clock: AgentClock, limits: AgentLimits) -> None:
        self._clock = clock
        self._limits = limits
        self._failures = 0

    def reset(self) -> None:
        self._failures = 0

    def delay_s(self, error: ComputePoolError | None = None) -> float:
        ceiling = double(self._limits.retry_base_s, self._failures, most=self._limits.retry_max_s)
        self._failures += 1
        requested = 0.0 if error is None else error.retry_after_s or 0.0
        # Negative numbers and NaN count as nothing requested.
        requested = min(requested, self._limits.retry_max_s) if requested > 0 else 0.0
        return requested + self._clock.fraction() * ceiling


async def retry(
    call: Callable[[], Awaitable[Result]], backoff: Backoff, *, on: tuple[type[ComputePoolError], ...] = TRANSIENT
) -> Result:
    """Call until it succeeds or fails for good."""
    while True:
        try:
            return await call()
        except on as error:
            await asyncio.sleep(backoff.delay_s(error))


def _delivery_path(group_id: str) -> str:
    return f"/result-deliveries/{quote(group_id, safe='')}"


def _json_bytes(request: BaseModel) -> bytes:
    return request.model_dump_json(exclude_defaults=True).encode()


def _parse(model: type[Model], reply: bytes) -> Model:
    try:
        return model.model_validate_json(reply)
    except ValidationError as error:
        raise Unavailable(f"The hub's reply cannot be parsed: {error}.") from error


def _packets_path(attempt_id: str) -> str:
    return f"/attempts/{attempt_id}/gang/packets"


def _problem(reply: httpx2.Response) -> ComputePoolError:
    """Hubs report errors as a Problem. Anything else comes from a proxy or portal: the hub was not reached."""
    try:
        problem = Problem.model_validate_json(reply.content)
    except ValidationError:
        kind = ERRORS_BY_CODE[_STATUS_CODES.get(reply.status_code, "unavailable")]
        detail = (
            f"The address does not answer like a hub, or the hub is failing: {reply.status_code} {reply.reason_phrase}."
        )
        return kind(detail, retry_after_s=_retry_after_s(reply))
    kind = ERRORS_BY_CODE.get(problem.code, Unavailable if problem.status >= 500 else BadRequest)
    return kind(problem.detail, field=problem.field, retry_after_s=problem.retry_after_s or _retry_after_s(reply))


def _retry_after_s(reply: httpx2.Response) -> float | None:
    text = reply.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def _date_ms(reply: httpx2.Response) -> int | None:
    try:
        return int(email.utils.parsedate_to_datetime(reply.headers["date"]).timestamp() * 1000)
    except (KeyError, ValueError, OverflowError):
        return None
