"""Interpreters and requirements of scripts, which come from strangers."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import pytest
from packaging.requirements import Requirement

from computepool.agent.execution.attempt_result import BadJob
from computepool.agent.execution.specs import check_requirements, read_script
from computepool.protocol.jobs.jobs import SOURCE_MAX
from computepool.protocol.jobs.requirements import minor_versions


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
def test_the_first_line_names_the_interpreter(first: str, command: list[str]) -> None:
    assert read_script(f"{first}\nrest")[0] == command


def test_the_block_of_a_python_script_names_its_dependencies() -> None:
    block = '# /// script\n# requires-python = ">=3.11"\n# dependencies = [\n#   "six>=1",\n# ]\n# ///\n'
    source = f"#!/usr/bin/env python3\n{block}import six"
    assert read_script(source)[1] == ("six>=1",)
    assert read_script(source.replace("\n", "\r\n"))[1] == ("six>=1",)
    assert read_script("#!/bin/sh\n" + source.partition("\n")[2])[1] == ()
    assert read_script("print('# /// script')")[1] == ()


@pytest.mark.parametrize(
    ("text", "allowed"),
    [
        ("3.12", ["3.12"]),
        ("3.99", ["3.99"]),
        ("==3.11.*", ["3.11"]),
        ("==3.11.7", ["3.11"]),
        (">=3.11,<3.14", ["3.11", "3.12", "3.13"]),
        (">=3.12.4, <3.13", ["3.12"]),
        ("<3.12.4,>3.10.99", ["3.10", "3.11", "3.12"]),
        ("~=3.12", [f"3.{number}" for number in range(12, 32)]),
        (">=3", []),
        ("", []),
    ],
)
def test_python_versions_are_compared_by_minor_version(text: str, allowed: list[str]) -> None:
    assert minor_versions(text) == frozenset(allowed)


@pytest.mark.parametrize(
    "text", [">=4", "<3", "python3", "3", ">=3.11; x", "===3.12", f">={'9' * 30}", ">=3," * 60, ">=3.12\n"]
)
def test_an_invalid_python_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Python"):
        minor_versions(text)


def test_the_longest_python_specifier_is_parsed_quickly() -> None:
    text = ",".join(f"!=3.{number}" for number in range(33))[:200]
    assert cpu_s(lambda: minor_versions(text)) < 0.5


@pytest.mark.parametrize(
    "block",
    [
        "# /// script\n# dependencies = [\n# ///\n",
        '# /// script\n# dependencies = "six"\n# ///\n',
        "# /// script\n# dependencies = [1]\n# ///\n",
        "# /// script\n# x = 1\n# ///\nx\n# /// script\n# x = 1\n# ///\n",
        f"# /// script\n# x = {'[' * 900}\n# ///\n",
        f"# /// script\n# x = {'{a=' * 330}\n# ///\n",
        f"# /// script\n# x = '{'a' * 40_000}'\n# ///\n",
        f"# /// script\n# {'a.' * 600}a = 1\n# ///\n",
        f"# /// script\n# x = {'9' * 900}\n# y = {'[' * 1_000}\n# ///\n",
        f"#!/bin/{'x' * 2_000}",
    ],
)
def test_a_broken_script_is_the_jobs_fault(block: str) -> None:
    with pytest.raises(BadJob):
        read_script(block)


@pytest.mark.parametrize(
    "text",
    [
        "six", "six==1.16", "requests[socks]>=2,<3", "numpy ~= 2.0", "zope.interface (>=5)",
        "tomli>=2; python_version < '3.11'", "a-b_c.d[x,y]!=1.0",
    ],
)  # fmt: skip
def test_plain_requirements_are_accepted_in_a_normal_form(text: str) -> None:
    assert check_requirements((text, f" {text} ")) == (str(Requirement(text)),)


def test_the_order_of_requirements_does_not_matter() -> None:
    assert check_requirements(("b >= 1,<2", "a")) == check_requirements(("a", "b<2, >=1", "a"))


def test_a_block_ends_at_the_last_closing_line_of_its_comment() -> None:
    block = "# /// script\n# dependencies = ['six']\n# ///\n# more words\n#\nimport six"
    assert read_script(block) == (["python3"], ("six",))
    assert read_script(block.replace("# ///\n# more", "# more")) == (["python3"], ()), "it is not closed"


@pytest.mark.parametrize(
    "text",
    [
        "", "-r /etc/passwd", "--index-url http://evil.example", "-e .", ".", "./x", "/etc/passwd",
        "six @ file:///etc/passwd", "six@http://evil.example/six.whl", "http://evil.example/x.whl",
        "git+https://evil.example/x", "six\n--index-url http://evil.example", "six==${HOME}",
        "six; python_version < '${HOME}'", "six # comment", "six==1 \\\n-r x", "$HOME", "six --hash=sha256:0",
        "numpy<=>1", "six===whatever", "six\x1b]0;title\x07", "six\u202e", "six\u2066==1", f"six{'=' * 300}", "a" * 201,
        "six;" + "(" * 190, f"six=={'9' * 30}", f"six==1.dev{'9' * 19}", f"six>=1.{'1' * 20},<2",
    ],
)  # fmt: skip
def test_a_requirement_that_names_a_file_an_option_or_an_address_is_refused(text: str) -> None:
    with pytest.raises(BadJob):
        check_requirements((text,))


def test_the_number_of_requirements_is_limited() -> None:
    with pytest.raises(BadJob, match="at most 100"):
        check_requirements(tuple(f"a{number}" for number in range(101)))


#: Each made an earlier parser take seconds, or would make a careless one.
SLOW = [
    lambda n: "a" + "[" * n,
    lambda n: "a" + "a " * n + "!",
    lambda n: "a" + " " * n + "\x00",
    lambda n: "a[" + "-," * n + "@",
    lambda n: "a>" + "(" * n + ")" * n + "@",
    lambda n: "a;" + "(" * n,
]
SLOW_SCRIPTS = [
    lambda n: "# /// script\n" * n,
    lambda n: "# /// script\n" + "# x\n" * n,
    lambda n: ("# /// script\n#\n# //\n" * n) + "x",
    lambda n: "# /// script" + " " * n,
    lambda n: "#!/usr/bin/env " + "-S " * n,
    lambda n: "# /// script\n# a = [" + "[],\n# " * n + "\n# ///",
    lambda _: "# /// script\n# " + "a." * 16_000 + "a = 1\n# ///",
    lambda _: "# /// script\n" + "".join(f"# {'a.' * 500}a{n} = 1\n" for n in range(32)) + "# ///",
    lambda _: "# /// script\n# a = [" + "[],\n# " * 5_000 + "]\n# ///",
]


@pytest.mark.parametrize("make", SLOW)
def test_hostile_requirements_are_refused_quickly(make: Callable[[int], str]) -> None:
    assert cpu_s(lambda: refused(lambda: check_requirements((make(300_000),)))) < 0.5
    assert cpu_s(lambda: refused(lambda: check_requirements((make(60),) * 100))) < 0.5


@pytest.mark.parametrize("make", SLOW_SCRIPTS)
def test_hostile_scripts_of_the_greatest_length_are_read_quickly(make: Callable[[int], str]) -> None:
    assert cpu_s(lambda: refused(lambda: read_script(make(SOURCE_MAX)[:SOURCE_MAX]))) < 1


def refused(call: Callable[[], object]) -> None:
    with contextlib.suppress(BadJob):
        call()


def cpu_s(call: Callable[[], object]) -> float:
    """Of this process: others may keep the machine busy."""
    began = time.process_time()
    call()
    return time.process_time() - began
