"""Who may see the page and act through it: hosts, other sites, the token, the secrets of forms."""

from __future__ import annotations

import re
from typing import Any, cast

import pytest
from flask.testing import FlaskClient

from tests.unit.page.figures import NOW_MS, figures_of, subject_of
from wheel_udf.common.errors import ConfigError
from wheel_udf.page.app import Page, make_app
from wheel_udf.page.guard import Access
from wheel_udf.page.reader import Figure
from wheel_udf.page.tasks import Tasks

TOKEN = "correct horse battery"


class Reader:
    """Has figures; reads nothing."""

    def figures(self) -> dict[str, Figure]:
        return figures_of()


def client(access: Access | None = None) -> FlaskClient:
    page = Page(subject_of(), access or Access(), cast("Any", Reader()), Tasks(), lambda: NOW_MS)
    return make_app(page).test_client()


def secret(page: FlaskClient, path: str, **headers: str) -> str:
    """The secret in the form of an address."""
    text = page.get(path, headers=headers).text
    (found,) = set(re.findall(r'name="csrf_token" value="([^"]+)"', text))
    return str(found)


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"address": "0.0.0.0"}, "needs a token: --address = '0.0.0.0'"),
        ({"address": "::"}, "needs a token"),
        ({"address": "build-7.example"}, "needs a token"),
        ({"token": "short"}, "the token is too short: --token; rule: at least 16 characters"),
        ({"port": 70_000}, "not a port: --port = 70000"),
    ],
)
def test_a_page_that_would_be_open_to_others_is_not_served(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        Access(**settings)
    assert sentence in str(error.value)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost", "127.1.2.3"])
def test_loopback_needs_no_token(address: str) -> None:
    assert Access(address).token is None


@pytest.mark.parametrize("host", ["localhost:8440", "127.0.0.1:8440", "[::1]:8440"])
def test_the_names_of_this_machine_are_answered(host: str) -> None:
    assert client().get("/", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8440", "127.0.0.1.evil.example", "localhost.evil.example", ""]
)
def test_another_name_that_leads_here_is_refused(host: str) -> None:
    for path in ("/", "/acts", "/static/page.js", "/live/overview"):
        answer = client().get(path, headers={"Host": host})
        assert (answer.status_code, b"pending" in answer.data) == (400, False)


def test_a_proxy_is_named() -> None:
    assert (
        client(Access(hosts=("wheel.example",))).get("/", headers={"Host": "wheel.example"}).status_code
        == 200
    )


def test_off_loopback_the_machines_own_names_are_answered_to_those_who_have_signed_in() -> None:
    page = client(Access("0.0.0.0", token=TOKEN, hosts=("wheel.example",)))
    assert page.get("/", headers={"Host": "127.0.0.1"}).status_code == 400
    for path in ("/", "/rejects", "/find", "/acts", "/live/overview", "/acts/x"):
        answer = page.get(path, headers={"Host": "wheel.example"})
        assert (answer.status_code, answer.headers["Location"]) == (302, "/sign-in"), path


@pytest.mark.parametrize("typed", ["", "correct horse batter", TOKEN + " ", TOKEN.upper(), "ü", "\udc80"])
def test_another_token_opens_nothing(typed: str) -> None:
    page = client(Access(token=TOKEN))
    form = {"token": typed.encode(errors="surrogateescape"), "csrf_token": secret(page, "/sign-in")}
    assert "This is not the token" in page.post("/sign-in", data=form).text
    assert page.get("/").status_code == 302


def test_the_token_opens_the_page_for_the_session() -> None:
    page = client(Access(token=TOKEN))
    answer = page.post("/sign-in", data={"token": TOKEN, "csrf_token": secret(page, "/sign-in")})
    assert answer.status_code == 303
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert TOKEN not in cookie
    assert page.get("/").status_code == 200


@pytest.mark.parametrize("path", ["/find", "/check", "/act", "/sign-in"])
def test_a_post_without_the_secret_of_the_session_is_refused(path: str) -> None:
    page = client(Access(allow_acts=True))
    page.get("/acts")
    assert page.post(path, data={"id": "a", "verb": "cancel", "ids": "a"}).status_code == 400
    stranger = secret(client(Access(allow_acts=True)), "/acts")
    assert page.post(path, data={"id": "a", "csrf_token": stranger}).status_code == 400


@pytest.mark.parametrize("path", ["/find", "/check", "/act"])
def test_a_post_of_another_site_is_refused_even_with_the_secret(path: str) -> None:
    page = client(Access(allow_acts=True))
    form = {"id": "a", "verb": "cancel", "ids": "a", "csrf_token": secret(page, "/acts")}
    answer = page.post(path, data=form, headers={"Origin": "http://evil.example"})
    assert (answer.status_code, "comes from another site" in answer.text) == (403, True)


@pytest.mark.parametrize("path", ["/check", "/act"])
def test_acts_are_only_posted(path: str) -> None:
    assert client(Access(allow_acts=True)).get(path).status_code == 405


@pytest.mark.parametrize("path", ["/check", "/act"])
def test_acts_are_off_without_the_flag_even_with_the_secret(path: str) -> None:
    page = client()
    form = {"verb": "cancel", "ids": "a", "csrf_token": secret(page, "/find")}
    answer = page.post(path, data=form)
    assert (answer.status_code, "--allow-acts" in answer.text) == (403, True)


def test_figures_are_not_given_to_scripts_of_another_site() -> None:
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
    assert client().get("/live/overview", headers=headers).status_code == 403
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client().get("/", headers=link).status_code == 200


@pytest.mark.parametrize(
    "path", ["/", "/rejects", "/find", "/acts", "/sign-in", "/nowhere", "/static/page.js"]
)
def test_every_answer_forbids_what_is_not_from_this_host(path: str) -> None:
    with client().get(path) as answer:
        headers = answer.headers
    assert headers["Content-Security-Policy"].startswith(
        "default-src 'none'; script-src 'self'; style-src 'self';"
    )
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["X-Frame-Options"] == "DENY"
    assert "Server" not in headers


def test_no_template_and_no_script_names_another_host_or_has_inline_code() -> None:
    from pathlib import Path

    import wheel_udf.page

    folder = Path(wheel_udf.page.__file__ or "").parent
    texts = {
        path.name: path.read_text() for name in ("templates", "static") for path in (folder / name).iterdir()
    }
    assert len(texts) >= 14
    named = {name: re.findall(r"https?://[^\"'\s]+|@import|url\(", text) for name, text in texts.items()}
    assert {name: found for name, found in named.items() if found} == {
        "wheel.svg": ["http://www.w3.org/2000/svg"]
    }
    inline = re.compile(r"<script(?![^>]*\bsrc=)|\son\w+=|\sstyle=|<style|\|\s*safe\b|autoescape")
    assert {name: inline.findall(text) for name, text in texts.items() if inline.search(text)} == {}
