"""The API's document is complete: every route with its policy, requests, answers and errors."""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from computepool import protocol
from computepool.hub import openapi
from computepool.hub.app import create_api, create_app
from computepool.hub.http.openapi import examples
from computepool.hub.http.openapi.document import Api
from computepool.hub.http.policy import policies
from computepool.hub.identity.access import Action
from computepool.hub.settings import Settings
from computepool.protocol.jobs import jobs
from computepool.testing.hub import HubDouble
from tests.hub.cast import Cast, assemble, upload

ROOT = Path(__file__).parents[3]
PROBLEM = "application/problem+json"
MODELS: dict[str, type[BaseModel]] = {
    name: model
    for module in pkgutil.walk_packages(protocol.__path__, "computepool.protocol.")
    for name, model in vars(importlib.import_module(module.name)).items()
    if isinstance(model, type) and issubclass(model, BaseModel)
}


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return create_api().openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield method.upper(), path, operation


def test_the_file_in_docs_is_current() -> None:
    written = (ROOT / "docs" / "openapi.json").read_text()
    assert written == openapi.text(), "run: .venv/bin/python -m computepool.hub.openapi > docs/openapi.json"


async def test_the_hub_serves_the_same_document(hub: HubDouble) -> None:
    assert (await hub.client().get("/openapi.json")).json() == create_api().openapi()


def test_no_route_is_undocumented(document: dict[str, Any]) -> None:
    found = {(method, path) for method, path, _ in operations(document)}
    served = {(route.method, route.path) for route in policies(create_api().routes)}
    assert served - found == {("GET", "/openapi.json")}
    assert found <= served


def test_the_manual_names_every_route_and_no_other(tmp_path: Path) -> None:
    manual = (ROOT / "docs" / "api.md").read_text()
    served = policies(create_app(Settings(data_dir=tmp_path)).routes)
    every = {(route.method, route.path.removeprefix("/api/v1")) for route in served}
    assert set(re.findall(r"`(GET|POST|PUT|HEAD|DELETE) (/[^`\s?]*)", manual)) == every


def test_every_operation_is_described(document: dict[str, Any]) -> None:
    tags = {tag["name"] for tag in document["tags"]}
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    for method, path, operation in operations(document):
        assert operation["summary"], (method, path)
        assert operation["tags"], (method, path)
        assert set(operation["tags"]) <= tags, (method, path)


def test_every_answer_has_a_schema(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        good = {status: answer for status, answer in operation["responses"].items() if status < "300"}
        assert good, (method, path)
        if method == "HEAD" or "204" in good:
            continue
        for answer in good.values():
            [described] = answer["content"].values()
            assert described.get("schema") or described.get("itemSchema"), (method, path)


def test_every_refusal_is_a_problem(document: dict[str, Any]) -> None:
    for method, path, operation in operations(document):
        refusals = {status: answer for status, answer in operation["responses"].items() if status >= "400"}
        assert "503" in refusals
        if method == "HEAD":
            continue
        for status, answer in refusals.items():
            assert list(answer["content"]) == [PROBLEM], (method, path, status)
            assert answer["content"][PROBLEM]["schema"] == {"$ref": "#/components/schemas/Problem"}


def test_documented_errors_follow_from_the_kind_of_route(document: dict[str, Any]) -> None:
    declared = {(route.method, route.path): route.action for route in policies(create_api().routes)}
    for method, path, operation in operations(document):
        action, statuses = declared[method, path], set(operation["responses"])
        if action is not Action.ANYONE:
            assert "401" in statuses, (method, path)
        if action in (Action.ADMIN, Action.PROVIDE, Action.SUBMIT):
            assert "403" in statuses, (method, path)
        if "{" in path and not path.endswith("/upload") and method != "PUT":
            assert "404" in statuses, (method, path)
        if "requestBody" in operation:
            assert {"413", "422"} <= statuses, (method, path)
        if any(p["name"].lower() == "idempotency-key" for p in operation.get("parameters", [])):
            assert "409" in statuses, (method, path)


def test_security_is_declared_by_policy(document: dict[str, Any]) -> None:
    assert set(document["components"]["securitySchemes"]) == {"key", "cookie", "node"}
    declared = {(route.method, route.path): route.action for route in policies(create_api().routes)}
    for method, path, operation in operations(document):
        schemes = {name for requirement in operation["security"] for name in requirement}
        assert ({} in operation["security"]) == (declared[method, path] is Action.ANYONE), (method, path)
        assert ("node" in schemes) == (declared[method, path] in (Action.NODE, Action.SIGNED_IN_OR_NODE))


def test_every_reference_leads_somewhere(document: dict[str, Any]) -> None:
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', json.dumps(document))):
        found: Any = document
        for part in reference.split("/"):
            found = found[part]


def bodies(document: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(operation, model, media type object) of every JSON body."""
    for _, _, operation in operations(document):
        described = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if described is not None:
            yield operation["operationId"], described["schema"]["$ref"].rpartition("/")[2], described


def test_every_body_has_examples_and_they_are_valid(document: dict[str, Any]) -> None:
    for name, model, described in bodies(document):
        assert described["examples"], name
        for example in described["examples"].values():
            assert example["summary"], name
            MODELS[model].model_validate(example["value"])


def test_every_kind_of_submission_has_an_example() -> None:
    shown = examples.REQUESTS["SubmitRequest"].values()
    assert {example["value"]["spec"]["kind"] for example in shown} == set(jobs.JobKind) - {"class", "session"}


@pytest.mark.parametrize("name", list(examples.REPLIES))
def test_examples_of_replies_are_valid(name: str) -> None:
    model = MODELS[name]
    assert set(examples.REPLIES[name]) <= set(model.model_fields)
    model.model_validate(examples.REPLIES[name])


@pytest.mark.soak
async def test_the_hub_accepts_its_own_examples(hub: HubDouble, document: dict[str, Any]) -> None:
    """Each is sent by a caller with permission. Only those that depend on a secret or an object are refused."""
    cast = await assemble(hub)
    answers: dict[tuple[str, str], tuple[int, str]] = {}
    for method, path, operation in operations(document):
        described = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        for name, example in described.get("examples", {}).items():
            client = cast.callers["node"] if operation["tags"] == ["agent"] else hub.admin
            answer = await client.request(method, await _address(cast, path), json=example["value"])
            code = answer.json().get("code", "") if answer.status_code >= 400 else ""
            answers[operation["operationId"], name] = (answer.status_code, code)
    refused = {key: answer for key, answer in answers.items() if answer[0] >= 400}
    assert refused == {
        ("complete", "example"): (403, "forbidden"),  # the signature
        ("complete", "failed"): (403, "forbidden"),
        ("register", "example"): (403, "forbidden"),  # the proof
        ("rekey", "example"): (403, "forbidden"),  # the signatures
        ("receive_hardware", "example"): (403, "forbidden"),  # the signature
        ("receive_checkpoint", "example"): (403, "forbidden"),
        ("submit_children", "example"): (404, "not_found"),  # the attempt
        ("create_child_group", "example"): (404, "not_found"),
        ("receive_message", "example"): (404, "not_found"),
        ("attempt_secrets", "example"): (403, "forbidden"),  # the signature
        ("report_delivery_problem", "example"): (404, "not_found"),  # the home
        ("report_arrival", "example"): (404, "not_found"),
        ("sign_in", "example"): (422, "bad_request"),  # the code
        ("resubmit_job", "example"): (409, "conflict"),  # the job is another account's
        ("resubmit_job", "at_todays_prices"): (409, "conflict"),
        ("review_node", "example"): (409, "conflict"),  # it is not banned
    }
    assert len(answers) >= 17


async def _address(cast: Cast, path: str) -> str:
    if "{group_id}" in path:
        path = path.replace("{group_id}", await cast.new_group())
    if "{digest}" in path:
        path = path.replace("{digest}", await upload(cast.hub.admin, b"what is kept"))
    if "{payout_id}" in path:
        path = path.replace("{payout_id}", await cast.new_payout(listed="reject" not in path))
    if "{approval_id}" in path:
        path = path.replace("{approval_id}", await cast.new_approval())
    if "{key_id}" in path:
        path = path.replace("{key_id}", (await cast.new_key())[0])
    if "{account_id}" in path:
        path = path.replace("{account_id}", await cast.new_account())
    path = path.replace("{attempt_id}", "job_none-1").replace("{name}", "TOKEN")
    return path.replace("{node_id}", cast.pias_node).replace("{job_id}", cast.done_job)


def test_a_forgotten_policy_cannot_be_documented() -> None:
    api = Api(title="x", version="1")

    @api.get("/open")
    async def planted() -> dict[str, str]:
        return {}

    with pytest.raises((AssertionError, KeyError)):
        api.openapi()


@pytest.mark.soak
async def test_making_the_document_blocks_no_other_request(hub: HubDouble, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes request it to measure their network, and others poll meanwhile."""
    made = threading.Event()
    slow = Api.openapi

    def openapi_later(api: Api) -> dict[str, Any]:
        assert made.wait(60)
        return slow(api)

    monkeypatch.setattr(Api, "openapi", openapi_later)
    asked = asyncio.create_task(hub.admin.get("/openapi.json"))
    assert (await hub.admin.get("/hub")).status_code == 200
    assert not asked.done()
    made.set()
    assert (await asked).json()["info"]["title"]
