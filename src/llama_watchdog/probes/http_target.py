"""Where a server's url leads over HTTP, and the headers of each request; both checked before any use.

What can't be used raises ValueError here, in words that quote neither key nor value: from httpx it would come
as an exception that does.
"""

from __future__ import annotations

from collections.abc import Mapping

import httpx


def target(url: str) -> tuple[str, str | None]:
    """Where to send requests: the url less its last slash, and the path of a unix socket, if it is one."""
    if url.startswith("unix:///"):
        return "http://localhost", url.removeprefix("unix://")
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        raise ValueError("url cannot be read") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError("url has to be http://HOST:PORT, https://HOST:PORT or unix:///PATH")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise ValueError("url has a user, a query or a fragment: use api_key or headers")
    return str(parsed).rstrip("/"), None


def request_headers(given: Mapping[str, str], api_key: str | None) -> dict[str, str]:
    """The headers of each request. A key or value that HTTP could not carry would end up in an exception."""
    headers = {name.lower(): value for name, value in given.items()}
    if api_key is not None:
        headers["authorization"] = f"Bearer {api_key}"
    for name, value in headers.items():
        if not (name.isascii() and name.replace("-", "").replace("_", "").isalnum()):
            raise ValueError("headers has a name that HTTP does not allow")
        if not (value.isascii() and value.isprintable() and value == value.strip()):
            raise ValueError(f"the header {name} has characters that HTTP cannot carry")
    return {"user-agent": "llama-watchdog"} | headers | {"connection": "close", "accept-encoding": "identity"}
