"""The dashboard as the hub serves it, with a small made-up export."""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest

from computepool.hub.app import create_app
from computepool.hub.settings import Settings
from computepool.testing.hub import ORIGIN, HubDouble, running_hub
from tests.hub.identity.test_signing_in import SAME, code_for

HTML = {"Accept": "text/html,application/xhtml+xml"}
PAGE = (
    '<!doctype html><html><head><link href="/__pool__/_next/static/a.css" rel="stylesheet"><style>b{}</style>'
    '<script src="/__pool__/_next/static/a.js" async=""></script></head><body>%s'
    "<script>(self.x=[]).push('/__pool__')</script><script id=\"_R_\">1</script></body></html>"
)
FILES = {
    "index.html": PAGE % "first",
    "index.txt": '0:["/__pool__/jobs/"]',
    "__next._tree.txt": "tree",
    "jobs/index.html": PAGE % "jobs",
    "jobs/index.txt": "jobs",
    "signin/index.html": PAGE % "sign in",
    "404.html": PAGE % "nothing here",
    "_next/static/a.js": 'const base="/__pool__";' + "// long\n" * 500,
    "_next/static/a.css": "b{background:url(/__pool__/x.png)}",
    "icon.png": "/__pool__ stays in what is no text",
    "secret.pem": "no kind of file that is served",
}


@pytest.fixture
def export(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    for name, text in FILES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (tmp_path / "beside.txt").write_text("outside")
    return folder


@pytest.fixture
async def served(tmp_path: Path, export: Path) -> AsyncIterator[HubDouble]:
    async with running_hub(tmp_path / "hub", dashboard_dir=str(export)) as hub:
        yield hub


async def get(hub: HubDouble, path: str, **headers: str) -> httpx2.Response:
    return await hub.client().get(f"{ORIGIN}{path}", headers=headers)


async def test_pages_and_files_have_their_media_types(served: HubDouble) -> None:
    for path, kind, inside in (
        ("/", "text/html; charset=utf-8", "first"),
        ("/?x=1", "text/html; charset=utf-8", "first"),
        ("/jobs/?id=job_1", "text/html; charset=utf-8", "jobs"),
        ("/jobs/index.txt?_rsc=abc", "text/plain; charset=utf-8", "jobs"),
        ("/index.txt", "text/plain; charset=utf-8", '0:["/jobs/"]'),
        ("/__next._tree.txt", "text/plain; charset=utf-8", "tree"),
        ("/_next/static/a.js", "text/javascript; charset=utf-8", 'const base="";'),
        ("/_next/static/a.css", "text/css; charset=utf-8", "url(/x.png)"),
        ("/icon.png", "image/png", "/__pool__ stays"),
    ):
        answer = await get(served, path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, kind), path
        assert inside in answer.text, path
        assert answer.headers["x-content-type-options"] == "nosniff"
        head = await served.client().head(f"{ORIGIN}{path}")
        assert (head.status_code, head.headers["etag"]) == (200, answer.headers["etag"])


async def test_a_page_may_run_only_its_own_scripts(served: HubDouble) -> None:
    page = await get(served, "/jobs/")
    policy = dict(part.split(" ", 1) for part in page.headers["content-security-policy"].split("; "))
    inline = re.findall(r"<script(?: id=\"_R_\")?>(.*?)</script>", page.text)
    assert len(inline) == 2
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" for text in inline}
    assert set(policy["script-src"].split()) == {"'self'", *hashes}
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["connect-src"] == policy["font-src"] == policy["form-action"] == "'self'"
    assert re.fullmatch(r"'self' 'sha256-[\w+/=]+'", policy["style-src"])
    assert "unsafe" not in page.headers["content-security-policy"]
    assert page.headers["cross-origin-opener-policy"] == "same-origin"


async def test_hashed_files_are_cached_and_pages_revalidated(served: HubDouble) -> None:
    assert "immutable" in (await get(served, "/_next/static/a.js")).headers["cache-control"]
    page = await get(served, "/")
    assert page.headers["cache-control"] == "no-cache"
    tag = page.headers["etag"]
    for asked in (tag, f'"x", W/{tag}', "*"):
        same = await get(served, "/", **{"If-None-Match": asked})
        assert (same.status_code, same.content, same.headers["etag"]) == (304, b"", tag), asked
        assert "script-src" in same.headers["content-security-policy"], "a browser takes the new one"
    assert (await get(served, "/jobs/", **{"If-None-Match": tag})).status_code == 200


async def test_files_are_compressed_for_clients_that_accept_it(served: HubDouble) -> None:
    plain = await get(served, "/_next/static/a.js", **{"Accept-Encoding": "identity"})
    refused = await get(served, "/_next/static/a.js", **{"Accept-Encoding": "gzip;q=0, br"})
    packed = await get(served, "/_next/static/a.js", **{"Accept-Encoding": "br, gzip"})
    assert "content-encoding" not in plain.headers
    assert "content-encoding" not in refused.headers
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.text == plain.text
    assert int(packed.headers["content-length"]) < len(plain.content) / 5
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"


async def test_a_folder_without_a_slash_redirects_only_to_itself(served: HubDouble) -> None:
    answer = await get(served, "/jobs?id=a%2Fb&state=queued")
    assert (answer.status_code, answer.headers["location"]) == (308, "/jobs/?id=a%2Fb&state=queued")
    for path in ("//evil.test/jobs", "//jobs", "/jobs//"):
        answer = await get(served, path)
        assert answer.status_code == 404, path


@pytest.mark.parametrize(
    "path",
    ["/../beside.txt", "/..%2fbeside.txt", "/%2e%2e/beside.txt", "/jobs/../../beside.txt", "/jobs/%00", "/secret.pem",
     "/..\\beside.txt", "//etc/passwd", "/%2fetc%2fpasswd"],
)  # fmt: skip
async def test_no_path_leaves_the_export(served: HubDouble, path: str) -> None:
    """Sent as raw bytes, because a client would normalise the path."""
    from urllib.parse import unquote

    sent = []
    scope = {
        "type": "http", "method": "GET", "path": unquote(path), "raw_path": path.encode(), "query_string": b"",
        "headers": [(b"host", b"hub.test")], "scheme": "http", "server": ("hub.test", 80), "http_version": "1.1",
    }  # fmt: skip

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b""}

    async def send(message: dict[str, object]) -> None:
        sent.append(message)

    await served.app(scope, receive, send)  # type: ignore[arg-type]
    assert sent[0]["status"] == 404
    assert b"outside" not in sent[1]["body"]  # type: ignore[operator]


async def test_an_unknown_path_is_a_page_for_people_and_a_problem_for_programs(served: HubDouble) -> None:
    person = await get(served, "/nowhere/", **HTML)
    assert (person.status_code, "nothing here" in person.text) == (404, True)
    assert "script-src 'self'" in person.headers["content-security-policy"]
    for path, headers in (("/nowhere", {}), ("/api/v1/nowhere", HTML), ("/api/nothing", HTML)):
        program = await get(served, path, **headers)
        assert program.status_code == 404
        assert program.headers["content-type"] == "application/problem+json", path
    assert (await get(served, "/healthz", **HTML)).json() == {"status": "ok"}
    assert (await get(served, "/api/v1/hub", **HTML)).status_code == 200
    assert (await served.client().post(f"{ORIGIN}/jobs/")).status_code in (404, 405)


async def test_the_plain_form_still_signs_in(served: HubDouble) -> None:
    assert "sign in" in (await get(served, "/signin/?code=x")).text
    code = await code_for(served, served.admin)
    answer = await served.client().post(f"{ORIGIN}/signin", data={"code": code}, headers=SAME)
    assert (answer.status_code, answer.headers["location"]) == (303, "/")


async def test_without_an_export_the_plain_page_says_how_to_build_it(tmp_path: Path) -> None:
    async with running_hub(tmp_path / "hub", dashboard_dir=str(tmp_path / "missing")) as hub:
        page = await get(hub, "/", **HTML)
        assert "<code>make up</code>" in page.text
        assert (await get(hub, "/nowhere", **HTML)).headers["content-type"] == "application/problem+json"


async def test_a_new_build_does_not_disturb_a_running_hub(tmp_path: Path, export: Path) -> None:
    async with running_hub(tmp_path / "hub", dashboard_dir=str(export)) as hub:
        first = (await get(hub, "/_next/static/a.js")).text
        (export / "_next/static/a.js").unlink()
        (export / "index.html").write_text("new build")
        assert (await get(hub, "/_next/static/a.js")).text == first
        assert "first" in (await get(hub, "/")).text
    async with running_hub(tmp_path / "next", dashboard_dir=str(export)) as hub:
        assert (await get(hub, "/")).text == "new build"


# under a prefix


@pytest.mark.parametrize("asked", ["", "/pool/eu"])
async def test_the_prefix_is_in_all_links_and_optional_in_requests(tmp_path: Path, export: Path, asked: str) -> None:
    address = "https://site.test/pool/eu/"
    async with running_hub(tmp_path / "hub", dashboard_dir=str(export), public_url=address) as hub:
        page = await get(hub, f"{asked}/jobs/")
        assert 'src="/pool/eu/_next/static/a.js"' in page.text
        assert "__pool__" not in page.text
        assert 'const base="/pool/eu";' in (await get(hub, f"{asked}/_next/static/a.js")).text
        text = re.findall(r"<script>(.*?)</script>", page.text)[0]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert digest in page.headers["content-security-policy"], "the hash is of what is sent"
        moved = await get(hub, f"{asked}/jobs?id=1")
        assert moved.headers["location"] == "/pool/eu/jobs/?id=1"
        assert "nothing here" in (await get(hub, f"{asked}/nowhere", **HTML)).text
        assert (await get(hub, f"{asked}/api/v1/hub")).status_code == 200
        assert (await get(hub, f"{asked}/healthz")).status_code == 200
        wrong = await hub.client().put(f"{ORIGIN}{asked}/api/v1/hub")
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "GET")
        hot = await hub.client().post(f"{ORIGIN}{asked}/api/v1/next", json={})
        assert hot.status_code == 401
        assert (await get(hub, "/pool/europe/jobs/")).status_code == 404


async def test_two_hubs_on_one_host_have_a_cookie_each(tmp_path: Path, export: Path) -> None:
    async with running_hub(tmp_path / "hub", dashboard_dir=str(export), public_url="https://site.test/a") as hub:
        code = await code_for(hub, hub.admin)
        answer = await hub.client().post("/signin", json={"code": code, "kind": "cookie"})
        cookie = answer.headers["set-cookie"]
        assert cookie.startswith("__Secure-computepool_session=")
        assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/a"} <= set(cookie.split("; "))
        value = cookie.partition(";")[0]
        assert (await hub.client().get("/me", headers={"Cookie": value})).json()["name"] == "admin"
        out = await hub.client().post("/signout", headers={"Cookie": value, **SAME})
        assert "Path=/a" in out.headers["set-cookie"]


async def test_an_export_without_the_marker_is_not_served_under_a_prefix(tmp_path: Path, export: Path) -> None:
    for file in export.rglob("*.*"):
        file.write_text(file.read_text().replace("/__pool__", ""))
    async with running_hub(tmp_path / "hub", dashboard_dir=str(export), public_url="http://site.test/a") as hub:
        assert "make up" in (await get(hub, "/a/", **HTML)).text
    async with running_hub(tmp_path / "other", dashboard_dir=str(export)) as hub:
        assert "first" in (await get(hub, "/", **HTML)).text


@pytest.mark.parametrize("address", ["https://x.test/a b", "https://x.test/<script>", "https://x.test/a?b", "x.test"])
def test_a_public_url_that_cannot_be_written_into_pages_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="public_url"):
        Settings(public_url=address)


# other servers, and lists


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://hub.test", 201), ("https://dash.example", 201), ("https://pool.example", 201), ("https://evil.test", 403),
     ("https://dash.example.evil.test", 403), ("null", 403), ("http://dash.example", 403)],
)  # fmt: skip
async def test_only_trusted_origins_may_use_a_session(tmp_path: Path, origin: str, status: int) -> None:
    settings = {"trusted_origins": "https://dash.example, https://other.example/", "public_url": "https://pool.example"}
    async with running_hub(tmp_path, **settings) as hub:
        code = await code_for(hub, hub.admin)
        signed_in = await hub.client().post("/signin", json={"code": code, "kind": "cookie"})
        cookie = signed_in.headers["set-cookie"].partition(";")[0]
        headers = {"Cookie": cookie, "Origin": origin}
        answer = await hub.client().post("/keys", json={"name": "k"}, headers=headers)
        assert answer.status_code == status, answer.text


async def test_long_lists_are_compressed_and_secrets_are_not(hub: HubDouble) -> None:
    job = {"kind": "command", "name": "n" * 100, "argv": ["x"]}
    (await hub.admin.post("/jobs", json={"spec": job, "items": [{}] * 50})).raise_for_status()
    packed = await hub.admin.get("/jobs", headers={"Accept-Encoding": "gzip"})
    plain = await hub.admin.get("/jobs", headers={"Accept-Encoding": "identity"})
    assert (packed.headers["content-encoding"], packed.headers["vary"]) == ("gzip", "Accept-Encoding")
    assert packed.json() == plain.json()
    assert int(packed.headers["content-length"]) < len(plain.content) / 4
    assert packed.headers["cache-control"] == "no-store"
    short = await hub.admin.get("/nodes", headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in short.headers
    key = await hub.admin.post("/keys", json={"name": "k" * 100}, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in key.headers
    refused = await hub.client().get("/jobs", headers={"Accept-Encoding": "gzip"})
    assert (refused.status_code, refused.headers["content-type"]) == (401, "application/problem+json")


def test_gzip_is_the_same_bytes_every_time(export: Path) -> None:
    from computepool.hub.http.dashboard import load

    found = load(Settings(dashboard_dir=str(export)))
    assert found is not None
    file = found.files["/_next/static/a.js"]
    assert file.packed is not None
    assert gzip.decompress(file.packed) == file.body
    assert create_app(Settings(dashboard_dir=str(export))) is not None
