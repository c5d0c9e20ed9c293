"""The page Jobs: the list, and a job with its output, files and cost."""

from __future__ import annotations

import io
import json
import re
import time
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest
from playwright.sync_api import Locator, Page, expect

from tests.web.browsing import axe, downloaded, settled
from tests.web.conftest import OpenPage, Web

LONG = 100_000
#: Prints colours, a progress bar that overwrites itself, markup, both streams; then a line every moment.
TALKS = r"""
import sys, time
print("\x1b[31mred\x1b[0m \x1b]0;title\x07words <img src=x onerror=alert(1)>", flush=True)
for share in (10, 50, 100):
    print(f"\rat {share} %  ", end="", flush=True)
print(flush=True)
print("careful now", file=sys.stderr, flush=True)
print("::progress 0.25", flush=True)
for tick in range(2000):
    print(f"tick {tick}", flush=True)
    time.sleep(0.4)
"""
LEAVES = r"""
import json, os, pathlib, struct, zlib
out = pathlib.Path("outputs"); out.mkdir(exist_ok=True); (out / "deep").mkdir()
def chunk(kind, data): return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
rows = b"".join(b"\0" + bytes(v for x in range(32) for v in (x * 8, y * 8, 90)) for y in range(32))
head = struct.pack(">IIBBBBB", 32, 32, 8, 2, 0, 0, 0)
data = chunk(b"IDAT", zlib.compress(rows))
(out / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + data + chunk(b"IEND", b""))
(out / "page.png").write_text("<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'><circle r='9'/></svg>")
(out / "table.csv").write_text('name,value\n"Ann, of course",41\n<b>bold</b>,42\n')
(out / "deep" / "blob.bin").write_bytes(bytes(range(256)) * 2000)
(out / "numbers.json").write_text(json.dumps({"answer": 42}))
"""


class Submitter:
    """Submits by the API. The jobs run one by one, because the only node is a newcomer."""

    def __init__(self, web: Web) -> None:
        self.api = httpx2.Client(
            base_url=f"{web.url}/api/v1", headers={"Authorization": f"Bearer {web.key_of['submitter']}"}, timeout=30
        )
        self.made: list[str] = []

    def run(self, source: str, name: str, *, done: bool = False, retries: int = 0, **more: Any) -> str:
        spec = {"kind": "script", "name": name, "source": source, "timeout_s": 120, **more}
        reply = self.api.post("/jobs", json={"spec": spec, "verify": "none", "retries": retries})
        assert reply.status_code == 201, reply.text
        job_id: str = reply.json()["job_ids"][0]
        self.made.append(job_id)
        if done:
            assert self.ended(job_id) == "succeeded"
        return job_id

    def ended(self, job_id: str) -> str:
        deadline = time.monotonic() + 60
        state = "queued"
        while state in ("queued", "leased", "running"):
            assert time.monotonic() < deadline, f"{job_id} is still {state}"
            asked = self.api.get(f"/jobs/{job_id}", params={"wait_ms": 5000, "seen": state})
            state = asked.json()["state"]
        return state

    def close(self) -> None:
        """A job that still runs would occupy the node."""
        with ExitStack() as ends:
            ends.callback(self.api.close)
            for job_id in self.made:
                ends.callback(self.api.post, f"/jobs/{job_id}/cancel")


@pytest.fixture
def submitter(web: Web) -> Iterator[Submitter]:
    made = Submitter(web)
    yield made
    made.close()


def _line(page: Page, text: str) -> Locator:
    return page.get_by_role("log").get_by_text(text, exact=True)


def test_output_arrives_live_until_the_job_is_cancelled(web: Web, page: Page, submitter: Submitter) -> None:
    job_id = submitter.run(TALKS, "talks <script>alert(1)</script>")
    page.goto(f"{web.url}/jobs/?id={job_id}")
    expect(page.get_by_role("heading", level=1)).to_have_text("talks <script>alert(1)</script>")
    expect(_line(page, "tick 3").first).to_be_visible()
    expect(_line(page, "tick 12").first).to_be_visible()  # without a reload
    expect(page.get_by_role("progressbar", name="Progress")).to_have_attribute("value", "0.25")
    expect(page.get_by_text("if it succeeds now")).to_be_visible()

    find = page.get_by_label("Find in the output")
    find.fill("CAREFUL")
    expect(page.get_by_text(re.compile(r"^1/\d$"))).to_be_visible()
    # A search stops following.
    expect(page.get_by_role("button", name="Follow", exact=True)).to_be_visible()
    find.press("Enter")
    stderr = page.get_by_role("log").locator("[data-index]", has_text="careful now").first
    expect(stderr.get_by_text("err", exact=True)).to_be_visible()
    find.fill("")
    expect(_line(page, "red words <img src=x onerror=alert(1)>").first).to_be_visible()
    expect(page.get_by_role("log").locator("[data-index]", has_text="at 100 %").first).to_be_visible()
    expect(page.get_by_role("log").locator("[data-index]", has_text="at 50 %")).to_have_count(0)
    page.get_by_role("button", name="Errors").click()
    expect(_line(page, "careful now").first).to_be_visible()
    expect(page.get_by_role("log").locator("[data-index]", has_text="tick")).to_have_count(0)
    axe(page)

    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(page.locator("h1 + *").get_by_text("cancelled", exact=True).first).to_be_visible()
    expect(page.get_by_role("button", name="Cancel", exact=True)).to_have_count(0)
    page.get_by_role("tab", name="Timeline").click()
    steps = page.get_by_role("tabpanel").get_by_role("listitem")
    expect(steps.first).to_contain_text("submitted")
    expect(steps.last).to_contain_text("cancelled by user")
    expect(steps.last).to_contain_text(re.compile(r"\+\d"))
    assert "tab=timeline" in page.url


@pytest.mark.soak
def test_outputs_are_previewed_and_downloaded_unchanged(web: Web, page: Page, submitter: Submitter) -> None:
    job_id = submitter.run(LEAVES, "leaves files", done=True)
    page.goto(f"{web.url}/jobs/?id={job_id}&tab=files")
    picture = page.get_by_role("img", name="picture.png")
    expect(picture).to_be_visible()
    assert picture.evaluate("img => img.decode().then(() => [img.naturalWidth, new URL(img.src).protocol])") == [
        32,
        "blob:",
    ]
    # Its name is that of a picture, but it is text.
    expect(page.get_by_label("Content of page.png")).to_contain_text("onload='alert(1)'")
    page.get_by_role("button", name="table.csv").click()
    expect(page.get_by_role("cell", name="Ann, of course")).to_be_visible()
    expect(page.get_by_role("cell", name="<b>bold</b>")).to_be_visible()
    page.get_by_role("button", name="numbers.json").click()
    expect(page.get_by_label("Content of numbers.json")).to_contain_text('"answer": 42')
    axe(page)

    wanted = bytes(range(256)) * 2000
    with page.expect_download() as one:
        page.get_by_role("link", name="Download deep/blob.bin").click()
    assert one.value.suggested_filename == "blob.bin"
    assert Path(one.value.path()).read_bytes() == wanted
    archive = zipfile.ZipFile(io.BytesIO(downloaded(page, page.get_by_role("button", name="Download all"))))
    assert archive.testzip() is None
    assert sorted(archive.namelist()) == ["deep/blob.bin", "numbers.json", "page.png", "picture.png", "table.csv"]
    assert archive.read("deep/blob.bin") == wanted

    page.get_by_role("tab", name="Cost").click()
    expect(page.get_by_text("This job cost")).to_be_visible()
    receipt = json.loads(downloaded(page, page.get_by_role("link", name="Download")))
    assert receipt["receipt"]["job_id"] == job_id
    expect(page.get_by_text(f"pool verify receipt-{job_id}.json")).to_be_visible()


@pytest.mark.soak
def test_only_the_visible_part_of_a_long_log_is_drawn(web: Web, page: Page, submitter: Submitter) -> None:
    source = f"print('\\n'.join(f'line {{n}}' for n in range({LONG})))"
    job_id = submitter.run(source, "long", done=True)
    page.goto(f"{web.url}/jobs/?id={job_id}")
    expect(_line(page, f"line {LONG - 1}")).to_be_visible()
    assert page.get_by_role("log").locator("[data-index]").count() < 200
    page.get_by_label("Find in the output").fill("line 54321")
    expect(page.get_by_role("log").get_by_text("line 54321")).to_be_in_viewport()
    assert downloaded(page, page.get_by_role("button", name="Download the output")).count(b"\n") == LONG


@pytest.mark.soak
def test_filters_survive_a_reload_and_states_are_live(web: Web, page: Page, submitter: Submitter) -> None:
    waits = submitter.run("print(1)", "filtered, waiting", needs={"gpus": 64})
    ran = submitter.run("print(1)", "filtered, done", done=True)
    page.goto(f"{web.url}/jobs/")
    page.get_by_role("button", name="queued", exact=True).click()
    page.get_by_role("button", name="cancelled", exact=True).click()
    page.get_by_label("Name, key or id of a job").fill("filtered, ")
    page.get_by_label("Kind").select_option("script")
    page.get_by_label("Submitted", exact=True).select_option("24h")
    page.wait_for_url(re.compile(r"q=filtered.*since=24h|since=24h.*q=filtered"))
    table = page.get_by_role("table", name="Jobs")
    expect(table.get_by_role("link", name="filtered, waiting")).to_be_visible()
    expect(table.get_by_role("link", name="filtered, done")).to_have_count(0)
    page.reload()
    expect(table.get_by_role("link", name="filtered, waiting")).to_be_visible()
    expect(page.get_by_role("button", name="queued", exact=True)).to_have_attribute("aria-pressed", "true")
    expect(page.get_by_label("Name, key or id of a job")).to_have_value("filtered,")
    expect(page.get_by_label("Submitted", exact=True)).to_have_value("24h")
    # The list says why the job waits, and shows its changes without a reload.
    row = table.get_by_role("row", name="filtered, waiting")
    expect(row).to_contain_text("No node can run this")
    axe(page)
    submitter.api.post(f"/jobs/{waits}/cancel").raise_for_status()
    expect(row.get_by_text("cancelled", exact=True).first).to_be_visible()
    row.get_by_role("link").click()
    page.wait_for_url(re.compile(f"id={waits}"))
    page.goto(f"{web.url}/jobs/?q={ran}")
    expect(table.get_by_role("link")).to_have_count(2)  # its name, and its node


@pytest.mark.soak
def test_a_waiting_job_says_why(web: Web, open_page: OpenPage, submitter: Submitter) -> None:
    job_id = submitter.run("print(1)", "needs too much", needs={"gpus": 64})
    page = open_page("submitter", width=390, height=844)
    page.goto(f"{web.url}/jobs/?id={job_id}")
    expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()
    expect(page.get_by_text("No node can run this").first).to_be_visible()
    page.get_by_text(re.compile("conditions? excludes? nodes")).wait_for()
    expect(page.get_by_role("region", name="Conditions")).to_contain_text("64 whole GPUs")
    settled(page)
    axe(page)


@pytest.mark.soak
def test_a_failed_job_shows_its_number_of_attempts(web: Web, page: Page, submitter: Submitter) -> None:
    job_id = submitter.run("raise SystemExit(3)", "fails", retries=1)
    assert submitter.ended(job_id) == "failed"
    page.goto(f"{web.url}/jobs/?id={job_id}")
    expect(page.get_by_text(re.compile(r" · 2 attempts$"))).to_be_visible()


@pytest.mark.soak
def test_several_jobs_are_cancelled_and_one_runs_again(web: Web, page: Page, submitter: Submitter) -> None:
    ids = [submitter.run("print(1)", f"in the way {n}", needs={"gpus": 64}) for n in range(3)]
    page.goto(f"{web.url}/jobs/?q=in+the+way")
    page.get_by_label("Select in the way 1").check()
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.get_by_role("button", name="Select 3 that can be cancelled").click()
    page.get_by_role("button", name="Cancel", exact=True).click()
    page.get_by_role("button", name="Cancel 3 jobs").click()
    table = page.get_by_role("table", name="Jobs")
    expect(table.get_by_text("cancelled", exact=True)).to_have_count(6)  # the state, and the sentence
    assert {submitter.ended(job_id) for job_id in ids} == {"cancelled"}

    table.get_by_role("link", name="in the way 2").click()
    page.get_by_role("button", name="Run again").click()
    page.get_by_role("dialog").get_by_role("button", name="Run again").click()
    page.wait_for_url(lambda url: "id=job_" in url and ids[2] not in url)
    submitter.made.append(page.url.split("id=")[1].split("&")[0])
    expect(page.get_by_role("heading", level=1)).to_have_text("in the way 2")
    expect(page.get_by_role("heading", name="Why it waits")).to_be_visible()


@pytest.mark.soak
def test_the_result_of_a_function_is_written_as_in_python(web: Web, page: Page) -> None:
    def answer() -> object:
        return {"big": 2**70, "pair": (1, "a'b"), "raw": b"\x00ok", "not a number": float("nan")}

    job = web.submitter.submit(answer, verify="none")
    job.result(timeout=60)
    page.goto(f"{web.url}/jobs/?id={job.job_id}&tab=files")
    value = page.get_by_label("Content of the result")
    expect(value).to_contain_text("'big': 1180591620717411303424")
    expect(value).to_contain_text("""'pair': (1, "a'b")""")
    expect(value).to_contain_text(r"'raw': b'\x00ok'")
    expect(value).to_contain_text("'not a number': nan")
