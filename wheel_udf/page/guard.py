"""Access control: who may see the page, and who may act through it.

::

    request    Host header known?              no -> 400    another site's name that leads here (DNS rebinding)
               from another site?              yes -> 403   Sec-Fetch-Site, Origin
               signed in, where a token is?    no -> the page that asks for it
               POST: secret of the session?    no -> 400    a form of another site (CSRF); Flask-WTF
               act: --allow-acts?              no -> 403

    answer     Content-Security-Policy: nothing from another host, no inline script, no frame
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from flask import Flask, Response, abort, redirect, request, session, url_for
from flask_wtf.csrf import CSRFProtect
from werkzeug.wrappers import Response as AnyResponse

from wheel_udf.common.errors import ConfigError

SHORTEST_TOKEN: Final = 16
_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?")
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Access:
    """Where the page listens, and who may do what.

    Attributes:
        address: Address to listen on.
        port: Port to listen on; 0 for any free one.
        allow_acts: Whether pending entries can be changed through the page.
        token: What has to be typed to see the page; None: nothing.
        hosts: Further names by which the page is opened.

    Raises:
        ConfigError: The address is not loopback and there is no token, or a value is out of range.
    """

    address: str = "127.0.0.1"
    port: int = 8440
    allow_acts: bool = False
    token: str | None = None
    hosts: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ConfigError(
                "not a port", field="--port", value=self.port, rule="from 0 to 65535; 0: any free one"
            )
        if self.token is not None and len(self.token) < SHORTEST_TOKEN:
            rule = f"at least {SHORTEST_TOKEN} characters"
            raise ConfigError("the token is too short", field="--token", rule=rule)
        if self.token is None and not is_loopback(self.address):
            raise ConfigError(
                "other machines can open this page, so it needs a token",
                field="--address",
                value=self.address,
                rule="a loopback address, or --token",
                hint="--token '${env:NAME}' reads it from an environment variable",
            )

    @cached_property
    def _names(self) -> frozenset[str]:
        names = {self.address, *self.hosts}
        if is_loopback(self.address):
            names |= {"localhost", "127.0.0.1", "::1"}
        else:
            names |= {socket.gethostname(), socket.getfqdn()}
        return frozenset(name.lower().strip("[]") for name in names)

    def knows(self, host: str) -> bool:
        """Whether a Host header has an allowed name, with any port; werkzeug's check does not support IPv6."""
        found = _HOST.fullmatch(host.lower())
        return found is not None and found[1].strip("[]") in self._names


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def protect(app: Flask, access: Access) -> None:
    """Puts the checks of this module in front of an application, and its headers on the answers."""
    app.config.update(
        SECRET_KEY=secrets.token_bytes(32),  # of this process: a restart ends all sessions
        SESSION_COOKIE_NAME=f"wheel_udf_page_{secrets.token_hex(4)}",  # cookies of a host count for all of its ports
        SESSION_COOKIE_HTTPONLY=True,
        SESSION_COOKIE_SAMESITE="Strict",
        WTF_CSRF_TIME_LIMIT=None,  # as long as the session
        WTF_CSRF_SSL_STRICT=False,  # behind a proxy with TLS the referrer's host is the proxy's
        MAX_CONTENT_LENGTH=1_000_000,
        MAX_FORM_MEMORY_SIZE=1_000_000,
    )

    @app.before_request
    def _refuse_others() -> AnyResponse | None:
        if not access.knows(request.headers.get("Host", "")):
            abort(400, "this page is not opened by this name; wheel-udf ui --host NAME adds one")
        if _is_cross_site():
            abort(403, "this request comes from another site")
        if access.token is None or session.get("signed_in") or request.endpoint in ("sign_in", "static"):
            return None
        return redirect(url_for("sign_in"))

    # After the checks above: a user who is not signed in gets the token page, not an error about forms.
    CSRFProtect(app)

    @app.after_request
    def _add_headers(response: Response) -> Response:
        for name, value in _HEADERS.items():
            response.headers[name] = value
        if request.endpoint != "static":
            response.headers["Cache-Control"] = "no-store"
        return response


def _is_cross_site() -> bool:
    """Whether a page of another site has made this request. Opening the page by a link is allowed."""
    if request.method in ("GET", "HEAD"):
        fetched = request.headers.get("Sec-Fetch-Mode", "navigate") != "navigate"
        return fetched and request.headers.get("Sec-Fetch-Site") == "cross-site"
    origin = request.headers.get("Origin")
    return origin is not None and origin.partition("://")[2] != request.host


def is_token(access: Access, typed: str) -> bool:
    """Compares a typed token with that of the page, in a time that does not depend on where they differ."""
    return access.token is not None and hmac.compare_digest(
        typed.encode(errors="replace"), access.token.encode()
    )
