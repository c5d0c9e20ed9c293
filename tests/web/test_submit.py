"""The page Submit: templates, equivalent commands, drafts and uploads; nothing is lost or submitted twice."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from computepool.core.jobs.lifecycle import TERMINAL, JobState
from computepool.protocol.jobs.views import JobDetail
from computepool.sdk.pool import Pool
from computepool.testing.waiting import wait_until
from tests.web.browsing import ROOT, axe, settled
from tests.web.conftest import COOKIE, Allow, OpenPage, Web

RUNNING = ("Hello", "Monte Carlo π", "Parameter sweep", "Picture", "Long job")
SCRIPT = 'import sys\nprint("checkpoint of", sys.argv[1:])\n'


def to_submit(web: Web, page: Page, query: str = "") -> None:
    page.goto(f"{web.url}/submit/{query}")
    settled(page)


def fill(page: Page, section: str, **fields: str) -> None:
    """Fills in fields of a section by their labels, with _ for spaces."""
    summary = page.locator("summary", has_text=section)
    if summary.locator("xpath=..").get_attribute("open") is None:
        summary.click()
    for label, value in fields.items():
        page.get_by_label(label.replace("_", " "), exact=True).fill(value)


def submit(page: Page) -> str:
    """Returns the ID of the job or group that opens."""
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"[?&]id="))
    return page.url.partition("id=")[2]


def template(page: Page, title: str) -> None:
    page.get_by_role("region", name="Templates").get_by_role("button", name=title).click()


def ended(pool: Pool, job_id: str, timeout_s: float = 90) -> JobDetail:
    """The finished job; fails with the reason why it waits."""
    try:
        return wait_until(lambda: job if (job := pool.jobs.get(job_id)).state in TERMINAL else None, timeout_s)
    except TimeoutError:
        pytest.fail(f"{pool.jobs.get(job_id).status} {pool.jobs.why(job_id).sentence}")


@pytest.mark.soak
def test_every_template_runs_or_says_what_it_waits_for(web: Web, submitter_page: Page) -> None:
    pool, made = web.submitter, {}
    for title in (*RUNNING, "GPU check"):
        to_submit(web, submitter_page)
        template(submitter_page, title)
        made[title] = submit(submitter_page)
    group = pool.groups.collector(made.pop("Parameter sweep")).drain(timeout=60)
    assert (group.total, group.succeeded) == (6, 6)
    gpu = pool.jobs.why(made.pop("GPU check"))
    assert gpu.unsatisfiable
    assert "GPU" in gpu.sentence
    jobs = {title: ended(pool, job_id) for title, job_id in made.items()}
    assert {title: (job.state, job.error) for title, job in jobs.items()} == dict.fromkeys(
        made, (JobState.SUCCEEDED, None)
    )
    assert [file.name for file in jobs["Picture"].outputs] == ["mandelbrot.png"]
    assert pool.artifacts.get_bytes(jobs["Picture"].outputs[0].digest).startswith(b"\x89PNG")
    assert jobs["Long job"].spec.checkpoints
    assert "the sum of 30 squares is 8555" in pool.jobs.log_text(made["Long job"])


def known(pool: Pool) -> set[str]:
    return {job.id for job in pool.jobs.list(limit=20)}


def asked(pool: Pool, before: set[str], count: int) -> list[dict[str, Any]]:
    """What a submission specified for its jobs, which are cancelled."""
    wait_until(lambda: len(known(pool) - before) == count, 60, f"{count} new jobs")
    found = []
    for job_id in sorted(known(pool) - before):
        same = {"spec", "priority", "retries", "max_price", "hold", "verify", "after", "item"}
        found.append(pool.jobs.get(job_id).model_dump(include=same))
        pool.jobs.cancel(job_id)
    return found


def fill_script(page: Page, folder: Path, after: str) -> None:
    """Every option of the form, with characters that a shell and Python treat specially."""
    template(page, "Hello")
    page.get_by_label("File name").fill("it's mine.py")
    page.get_by_role("textbox", name="Script").fill(SCRIPT)
    page.get_by_label("Arguments").fill("""--name 'two words' "a\\"b" $HOME 'it'\\''s' ü""")
    fill(page, "Machine", Cores="0.5", RAM="0.5", Disk="300MB", GPUs="1", VRAM_per_GPU="1.5GiB", Tier="rtx-4090, cpu")
    fill(page, "Time and retries", Time_limit="90m", Retries="2", Priority="-5")
    fill(page, "Name, runs", Name="odd 'name' \"x\"", Run_after_these_jobs=after)
    fill(page, "Packages", Environment="A=1 2\nB=$HOME 'x'", Python_packages="numpy>=2,<3\nrich")
    fill(page, "Packages", Hosts_it_may_reach="files.example.org:443, *.example.com:8443")
    fill(page, "Where", Regions="eu, in", Required_tags="fast", Labels_of_the_job="ml", Properties="rack=7")
    fill(
        page, "Where", Preferred_tags="ssd", Excluded_tags="slow", Excluded_nodes="workshop", This_node_only="workshop"
    )
    page.get_by_label("Isolation").select_option("namespace")
    fill(page, "Price", Maximum_price_per_hour_and_run="40.25", Budget_for_all_runs="90")
    fill(page, "Verification", Method="none")
    (folder / "a=b c.csv").write_text("1,2\n")
    page.get_by_label("Files to send with the job").set_input_files(folder / "a=b c.csv")
    expect(page.get_by_role("button", name="Remove a=b c.csv")).to_be_visible()


def fill_command(page: Page, folder: Path, after: str) -> None:
    page.get_by_role("button", name="Command", exact=True).click()
    page.get_by_label("Command", exact=True).fill("""/bin/sh -c 'echo "$0" -- --wait' done""")
    fill(page, "Machine", Cores="1")
    fill(page, "Name, runs", Runs="2")
    fill(page, "Price", Maximum_price_per_hour_and_run="40")  # or it follows the market, which moves


@pytest.mark.soak
@pytest.mark.parametrize("fill_in", [fill_script, fill_command])
def test_the_equivalent_commands_submit_what_the_form_does(
    web: Web, submitter_page: Page, tmp_path: Path, fill_in: Any
) -> None:
    pool, page = web.submitter, submitter_page
    first = pool.jobs.list(limit=1)
    waits_for = first[0].id if first else pool.command(["true"], wait=False).job_id
    to_submit(web, page)
    fill_in(page, tmp_path, waits_for)
    if fill_in is fill_script:
        with page.expect_download() as saved:
            page.get_by_role("button", name="Save the script").click()
        saved.value.save_as(tmp_path / "it's mine.py")
    line = page.get_by_role("region", name="Command line").inner_text()
    page.get_by_role("group", name="Language").get_by_role("button", name="Python").click()
    python = page.get_by_role("region", name="Python").inner_text()
    count, before = (2 if fill_in is fill_command else 1), known(pool)
    submit(page)
    by_form = asked(pool, before, count)

    environment = {
        **os.environ,
        "PATH": f"{ROOT / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "COMPUTEPOOL_HUB": web.url,
        "COMPUTEPOOL_KEY": web.key_of["submitter"],
    }
    before = known(pool)
    subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment, check=True, timeout=120)
    assert asked(pool, before, count) == by_form
    before = known(pool)
    program = subprocess.Popen([sys.executable, "-c", python], cwd=tmp_path, env=environment)
    try:
        assert asked(pool, before, count) == by_form
        program.wait(90)  # its jobs are cancelled
    finally:
        program.kill()


@pytest.mark.soak
def test_a_draft_survives_a_reload_and_errors_are_shown_at_their_fields(web: Web, page: Page, allow: Allow) -> None:
    allow(page, "status of 422")
    to_submit(web, page)
    script = page.get_by_role("textbox", name="Script")
    script.fill("")
    script.press_sequentially("for n in range(3):\nprint(n)")
    expect(script).to_have_value("for n in range(3):\n    print(n)")
    script.press("Shift+Tab")
    expect(script).to_have_value("for n in range(3):\nprint(n)")
    script.press("Tab")
    expect(script).to_be_focused()
    script.press("Control+z")
    script.press("Escape")
    script.press("Tab")
    expect(script).not_to_be_focused()
    fill(page, "Machine", Cores="0")
    # An error from the hub is shown at its field.
    cores = page.get_by_label("Cores", exact=True)
    expect(cores).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_text("greater than or equal to 0.001").first).to_be_visible()
    page.reload()
    settled(page)
    expect(cores).to_have_value("0")
    cores.fill("2")
    expect(cores).not_to_have_attribute("aria-invalid", "true")
    expect(page.get_by_text("Price per hour", exact=True)).to_be_visible()
    cores.fill("two")
    expect(page.get_by_text("Write a number.")).to_be_visible()
    expect(page.get_by_text("Fix the marked fields to get a quote.")).to_be_visible()
    expect(page.get_by_text("Price per hour", exact=True)).to_have_count(0)
    cores.fill("2")
    expect(page.get_by_text("Price per hour", exact=True)).to_be_visible()
    fill(page, "Machine", RAM="lots")
    expect(page.get_by_text("Write 16, 16GB or 512MB.")).to_be_visible()
    for part in ("Where", "Price", "Verification", "Time", "Files", "Packages", "Name"):
        fill(page, part)
    axe(page)


def test_a_lost_answer_and_a_double_click_make_one_job(web: Web, page: Page, allow: Allow) -> None:
    pool = web.submitter
    allow(page, "ERR_FAILED|Failed to fetch")
    to_submit(web, page)
    page.get_by_role("textbox", name="Script").fill("print('once')")
    page.get_by_label("File name").fill("only-once.py")
    sent: list[str] = []

    def lose(route: Route) -> None:
        sent.append(route.request.headers["idempotency-key"])
        if len(sent) > 1:
            route.continue_()
            return
        route.fetch()
        route.abort()

    page.route(re.compile(r"/api/v1/jobs$"), lose)
    page.keyboard.press("Control+Enter")
    expect(page.get_by_text("The hub does not answer")).to_be_visible()
    page.get_by_role("button", name="Submit", exact=True).dblclick()
    page.wait_for_url(re.compile(r"[?&]id="))
    assert len(sent) == 2
    assert len(set(sent)) == 1
    assert len([job for job in pool.jobs.list(limit=50) if job.name == "only-once.py"]) == 1


@pytest.mark.soak
def test_files_go_up_in_parts_and_an_earlier_job_fills_the_form(
    web: Web, open_page: OpenPage, allow: Allow, tmp_path: Path
) -> None:
    page, pool = open_page("submitter", width=390), web.submitter
    allow(page, "ERR_FAILED|Failed to fetch")
    data = os.urandom(33_000_000)  # too large for the browser's own SHA-256
    (tmp_path / "large.bin").write_bytes(data)
    breaks: list[str] = []

    def cut(route: Route) -> None:
        if "offset=8388608" in route.request.url and not breaks:
            breaks.append(route.request.url)
            route.abort()
        else:
            route.continue_()

    page.route(re.compile(r"/api/v1/artifacts/[0-9a-f]{64}\?"), cut)
    to_submit(web, page)
    page.get_by_role("textbox", name="Script").fill(
        "import hashlib\nprint(hashlib.sha256(open('large.bin', 'rb').read()).hexdigest())"
    )
    page.get_by_label("File name").fill("digest.py")
    page.get_by_label("Files to send with the job").set_input_files(tmp_path / "large.bin")
    expect(page.get_by_role("button", name="Remove large.bin")).to_be_visible(timeout=90_000)
    assert breaks
    job_id = submit(page)
    assert ended(pool, job_id).state is JobState.SUCCEEDED
    assert hashlib.sha256(data).hexdigest() in pool.jobs.log_text(job_id)

    to_submit(web, page, f"?again={job_id}")
    expect(page.get_by_text("Filled in from")).to_be_visible()
    expect(page.get_by_label("File name")).to_have_value("digest.py")
    expect(page.get_by_role("region", name="Command line")).to_contain_text("pool artifacts get")
    page.get_by_label("Arguments").fill("--changed")
    again = pool.jobs.get(submit(page)).spec
    assert again.argv == ["--changed"]
    assert [file.name for file in again.inputs] == ["large.bin"]


@pytest.mark.soak
def test_a_draft_is_not_replaced_silently_and_not_shown_to_others(web: Web, open_page: OpenPage) -> None:
    page = open_page("submitter")
    to_submit(web, page)
    page.get_by_role("button", name="Command", exact=True).click()
    page.get_by_label("Command", exact=True).fill("make everything --secret=1")
    template(page, "Picture")
    question = page.get_by_role("dialog", name="Replace your input?")
    question.get_by_role("button", name="Keep mine").click()
    expect(page.get_by_label("Command", exact=True)).to_have_value("make everything --secret=1")

    # Somebody else signs in in the same tab. (An open page would notice that, and reload.)
    page.goto("about:blank")
    page.context.add_cookies([{"name": COOKIE, "value": web.key_of["admin"], "url": web.url}])
    to_submit(web, page)
    expect(page.get_by_role("textbox", name="Script")).to_be_visible()
    assert "secret" not in page.content()


@pytest.mark.soak
def test_a_template_replaces_an_earlier_job(web: Web, page: Page) -> None:
    job = web.submitter.command(["echo", "once more"], name="filled from", wait=False)
    to_submit(web, page, f"?again={job.job_id}")
    expect(page.get_by_text("Filled in from filled from.")).to_be_visible()
    template(page, "Picture")
    page.get_by_role("dialog").get_by_role("button", name="Replace").click()
    expect(page.get_by_role("textbox", name="Script")).to_have_value(re.compile("outputs"))
    expect(page.get_by_text("Filled in from")).to_have_count(0)


@pytest.mark.soak
def test_too_many_runs_create_no_group(web: Web, page: Page) -> None:
    before = len(web.submitter.groups.list(limit=100))
    to_submit(web, page)
    fill(page, "Name", Runs="5000")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_text("From 1 to 1,000.")).to_be_visible()
    fill(page, "Name", Runs="100000000")
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(page.get_by_text("From 1 to 1,000.")).to_be_visible()
    assert len(web.submitter.groups.list(limit=100)) == before
