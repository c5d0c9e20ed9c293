"""Which hosts a list admits, and which addresses nobody reaches."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given, strategies as st

from computepool.core.network import (
    TARGETS_MAX,
    Target,
    clean_host,
    is_admitted,
    parse_networks,
    parse_target,
    parse_targets,
    refusal,
)

#: One or more of every kind of address that leads to the owner's machine, home or provider, or nowhere.
CLOSED = """
0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 100.100.100.200 100.127.255.255 127.0.0.1 127.1.2.3
168.63.129.16 169.254.0.1 169.254.169.254 169.254.170.2 172.16.0.1 172.31.255.255 192.0.0.1 192.0.0.192 192.0.2.1
192.88.99.1 192.168.0.1 192.168.255.255 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.1.1.1
240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:169.254.169.254 ::ffff:0:10.0.0.1
64:ff9b::10.0.0.1 64:ff9b::7f00:1 64:ff9b:1::1 100::1 2001::1 2001:10::1 2001:db8::1 2002:7f00:1::1 2002:c0a8:1::
3fff::1 fc00::1 fd00:ec2::254 fd12:3456::1 fe80::1 fe80::1%eth0 febf::1 fec0::1 ff02::1 ff0e::1
""".split()  # noqa: SIM905 - a table is easier to read
OPEN = """
1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 172.15.255.255 172.32.0.0
192.167.255.255 192.169.0.0 223.255.255.255 168.63.129.17 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8 64:ff9b::8.8.8.8
""".split()  # noqa: SIM905

any_address = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))
label = st.from_regex(r"[a-z][a-z0-9-]{0,8}[a-z0-9]", fullmatch=True)
names = st.lists(label, min_size=2, max_size=5).map(".".join)
ports = st.integers(1, 65_535).filter(lambda port: port != 25)


@pytest.mark.parametrize("text", CLOSED)
def test_near_and_special_addresses_are_refused(text: str) -> None:
    assert refusal(ipaddress.ip_address(text))


@pytest.mark.parametrize("text", OPEN)
def test_public_addresses_are_not(text: str) -> None:
    assert refusal(ipaddress.ip_address(text)) == ""


@given(any_address)
def test_nothing_that_the_library_calls_special_passes(address: ipaddress.IPv4Address) -> None:
    special = (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_unspecified
        or not address.is_global
    )
    # Translated and mapped forms are judged by what they stand for; see the next test.
    if special and not refusal(address):
        assert address in ipaddress.ip_network("64:ff9b::/96") or address.ipv4_mapped  # type: ignore[attr-defined]


@given(st.ip_addresses(v=4))
def test_every_form_of_an_ipv4_address_is_judged_alike(address: ipaddress.IPv4Address) -> None:
    plain = bool(refusal(address))
    for prefix in ("::ffff:0.0.0.0", "64:ff9b::"):
        form = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) | int(address))
        assert bool(refusal(form)) == plain
    tunnel = ipaddress.IPv6Address((0x2002 << 112) | (int(address) << 80))
    assert refusal(tunnel)
    assert refusal(ipaddress.IPv6Address(int(address)))


@given(st.ip_addresses(v=4), st.integers(8, 32))
def test_the_owner_can_open_a_network_and_neighbours_are_closed(address: ipaddress.IPv4Address, bits: int) -> None:
    around = ipaddress.ip_network(f"{address}/{bits}", strict=False)
    assert refusal(address, admitted=[around]) == ""
    assert refusal(address, near=[around])
    mapped = ipaddress.IPv6Address(f"::ffff:{address}")
    assert refusal(mapped, admitted=[around]) == ""
    assert refusal(mapped, near=[around])


@given(names, ports)
def test_a_list_admits_what_it_says_and_nothing_else(name: str, port: int) -> None:
    plain, wide = parse_target(f"{name}:{port}"), parse_target(f"*.{name}:{port}")
    assert (str(plain), str(wide)) == (f"{name}:{port}", f"*.{name}:{port}")
    assert is_admitted([plain], name, port)
    assert not is_admitted([wide], name, port)
    assert is_admitted([wide], f"a.b.{name}", port)
    assert not is_admitted([plain], f"a.{name}", port)
    for others in (f"x{name}", f"{name}.evil.test", f"evil-{name}"):
        assert not is_admitted([plain, wide], others, port)
    assert not is_admitted([plain, wide], name, port % 65_535 + 1)


@given(st.text(max_size=40))
def test_whatever_is_parsed_says_itself_again(text: str) -> None:
    try:
        target = parse_target(text)
    except ValueError:
        return
    assert parse_target(str(target)) == target
    assert target.host == clean_host(f"[{target.host}]" if ":" in target.host else target.host)


@pytest.mark.parametrize(
    "text",
    [
        "", "example.com", "example.com:", "example.com:0", "example.com:65536", "example.com:http",
        "mail.example.com:25", ":443",
        "http://example.com:443", "example.com/path:443", "user@example.com:443", "exa mple.com:443", "*:443",
        "*.com:443", "*.*.example.com:443", "a*.example.com:443", "-a.example.com:443", "127.1:80", "0x7f.1:80",
        "2130706433:80", "1.2.3.4.5:80", "017700000001:80", "::1:80", "[::1:80", "[fe80::1%eth0]:80", "*.1.2.3.4:80",
        "münchen.de:443", "example.com:+443", "example.com:４４３", "a" * 64 + ".com:443", "example..com:443",
    ],
)  # fmt: skip
def test_what_is_no_host_and_port_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(ValueError, match=r"write host:port|too broad"):
        parse_target(text)


def test_forms_that_mean_the_same_are_one() -> None:
    assert parse_target(" Files.Example.org.:443 ") == Target("files.example.org", 443)
    assert parse_targets(["a.test:1", "A.test:1", "b.test:1"]) == (Target("a.test", 1), Target("b.test", 1))
    assert parse_target("[2606:4700:0:0::1111]:443") == Target("2606:4700::1111", 443)
    with pytest.raises(ValueError, match=f"the maximum is {TARGETS_MAX}"):
        parse_targets(f"a{number}.test:443" for number in range(TARGETS_MAX + 1))


def test_networks_are_checked() -> None:
    assert parse_networks(["192.168.7.0/24", "fd00::/8"])[0].num_addresses == 256
    for bad in ("192.168.7.1/24", "home", ""):
        with pytest.raises(ValueError, match="is not a network"):
            parse_networks([bad])
