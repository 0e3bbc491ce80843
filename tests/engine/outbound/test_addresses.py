"""What is public, and how the operator's list is read. Forbidden addresses are in test_ssrf.py."""

from __future__ import annotations

import pytest

from engine.outbound import UrlRefused, check_url, is_public, parse_allowed


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1",
        "9.255.255.255",
        "11.0.0.0",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.255.255",
        "172.32.0.0",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2001:4860:4860::8888",
        "::ffff:1.1.1.1",
        "64:ff9b::101:101",  # what DNS64 answers for 1.1.1.1
    ],
)
def test_ordinary_addresses_are_public(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize(
    "item",
    [
        "",
        "10.0.0.0/8",
        "10.0.0.0/8:",
        "10.0.0.0/8:0",
        "10.0.0.0/8:65536",
        "10.0.0.0/8:http",
        "10.0.0.1/8:80",
        "grader.corp:80",
        "10.0.0.0/33:80",
    ],
)
def test_an_entry_of_the_operators_list_that_is_wrong_is_named(item: str) -> None:
    with pytest.raises(ValueError, match="is no network and port such as") as caught:
        parse_allowed(["10.1.0.0/16:8080", item])
    assert repr(item) in str(caught.value)


def test_the_operators_list_takes_both_families() -> None:
    allowed = parse_allowed(["10.1.0.0/16:8080", "[fd00:1::/64]:443", "10.2.0.1:80"])
    for url in (
        "http://10.1.255.1:8080/x",
        "https://10.1.0.0:8080/",
        "https://[fd00:1::5]/",
        "http://[fd00:1::5]:443/",
        "http://10.2.0.1/",
        "http://[::ffff:10.2.0.1]/",
    ):
        check_url(url, allowed)
    for url in ("http://10.1.0.1/", "https://10.3.0.1:8080/", "https://[fd00:2::5]/"):
        with pytest.raises(UrlRefused):
            check_url(url, allowed)


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://Grader.Example.COM", "https://grader.example.com/"),
        ("https://grader.example.com:443/a%20b", "https://grader.example.com/a%20b"),
        ("https://bücher.example/ü?q=ü", "https://xn--bcher-kva.example/%C3%BC?q=%C3%BC"),
        ("https://1.1.1.1/x#fragment", "https://1.1.1.1/x"),
        ("https://[2606:4700:4700:0::1111]/", "https://[2606:4700:4700::1111]/"),
        ("https://my_service.example.com/", "https://my_service.example.com/"),
    ],
)
def test_ordinary_urls_are_read(url: str, seen: str) -> None:
    assert check_url(url).url == seen


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://grader.example.com/", "Must begin with https://, not http://."),
        ("https://grader.example.com:8443/", "Must use port 443, not 8443."),
        ("https://10.0.0.1/", "10.0.0.1 is not an address on the public internet."),
        (
            "https://me:pw@grader.example.com/",
            "Must not contain a user name or password: save them as a secret.",
        ),
        ("https://127.1/", "'127.1' is neither a host name nor an address."),
    ],
)
def test_a_refusal_says_what_to_change(url: str, sentence: str) -> None:
    with pytest.raises(UrlRefused) as caught:
        check_url(url)
    assert str(caught.value) == sentence
