"""Scripts' own words, and requirements from strangers."""

from __future__ import annotations

import pytest

from computepool.agent.endings import BadJob
from computepool.agent.specs import Script, check_requirements


@pytest.mark.parametrize(
    ("first", "command"),
    [
        ("", ["python3"]),
        ("print(1)", ["python3"]),
        ("#!/usr/bin/env python3", ["python3"]),
        ("#!/usr/bin/python3.12 -u", ["python3", "-u"]),
        ("#!/usr/bin/env -S python3 -X dev", ["python3", "-X", "dev"]),
        ("#!/usr/bin/env -S uv run --script", ["python3"]),
        ("#!/usr/bin/env bash", ["bash"]),
        ("#!/bin/sh -e", ["/bin/sh", "-e"]),
        ("#! /usr/bin/perl", ["/usr/bin/perl"]),
        ("#!", ["python3"]),
    ],
)
def test_interpreter_line(first: str, command: list[str]) -> None:
    assert Script(f"{first}\nrest").interpreter == command


def test_dependencies_of_the_block() -> None:
    block = '# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "six>=1",\n# ]\n# ///\n'
    source = f"#!/usr/bin/env python3\n{block}import six"
    assert Script(source).dependencies == ("six>=1",)
    assert Script(source.replace("\n", "\r\n")).dependencies == ("six>=1",)
    assert Script("#!/bin/sh\n" + source.partition("\n")[2]).dependencies == ()
    assert Script("print('# /// script')").dependencies == ()


@pytest.mark.parametrize(
    "block",
    [
        "# /// script\n# dependencies = [\n# ///\n",
        '# /// script\n# dependencies = "six"\n# ///\n',
        "# /// script\n# dependencies = [1]\n# ///\n",
        "# /// script\n# x = 1\n# ///\nx\n# /// script\n# x = 1\n# ///\n",
    ],
)
def test_a_broken_block_is_the_jobs_fault(block: str) -> None:
    with pytest.raises(BadJob):
        _ = Script(block).dependencies


@pytest.mark.parametrize(
    "text",
    [
        "six", "six==1.16", "requests[socks]>=2,<3", "numpy ~= 2.0", "zope.interface (>=5)",
        "tomli>=2; python_version < '3.11'", "a-b_c.d[x,y]!=1.0",
    ],
)  # fmt: skip
def test_plain_requirements(text: str) -> None:
    assert check_requirements((text, f" {text} ")) == (text,)


@pytest.mark.parametrize(
    "text",
    [
        "", "-r /etc/passwd", "--index-url http://evil.example", "-e .", ".", "./x", "/etc/passwd",
        "six @ file:///etc/passwd", "six@http://evil.example/six.whl", "http://evil.example/x.whl",
        "git+https://evil.example/x", "six\n--index-url http://evil.example", "six==${HOME}",
        "six; python_version < '${HOME}'", "six # comment", "six==1 \\\n-r x", "$HOME", "six --hash=sha256:0",
    ],
)  # fmt: skip
def test_anything_else_is_refused(text: str) -> None:
    """uv runs outside the sandbox, so a requirement must not be able to point it anywhere."""
    with pytest.raises(BadJob):
        check_requirements((text,))
