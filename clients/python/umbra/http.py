"""Requests: connections, keys, attempts."""

from __future__ import annotations

import contextvars
import http.client
import json
import random
import re
import socket
import ssl
import threading
import time
import uuid
from typing import Any, Callable
from urllib.parse import quote, urlencode, urlsplit

from .errors import UmbraError, error_of, network

_RETRIED = {408, 429, 502, 503, 504}
_MAX_JSON = 256 << 20
_MAX_ERROR = 1 << 20
_DELETES_ONCE = re.compile(r"^/(tasks|toolsets|workspaces)/[^/]+$|^/api/sessions/[^/]+$")


class Cancel:
    """What an asynchronous call leaves behind so that its connection can be closed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self.event = threading.Event()

    def uses(self, connection: http.client.HTTPConnection | None) -> None:
        with self._lock:
            self._connection = connection
            if self.event.is_set() and connection is not None:
                _shut(connection)

    def cancel(self) -> None:
        with self._lock:
            self.event.set()
            if self._connection is not None:
                _shut(self._connection)


current_cancel: contextvars.ContextVar[Cancel | None] = contextvars.ContextVar("umbra_cancel", default=None)


def _shut(connection: http.client.HTTPConnection) -> None:
    sock = connection.sock
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout: float | None):
        super().__init__("localhost", timeout=timeout)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


class Answer:
    """An answer whose body is not read yet. The caller reads it to its end or closes it."""

    def __init__(self, transport: "Transport", connection: http.client.HTTPConnection, response: http.client.HTTPResponse):
        self._transport = transport
        self._connection: http.client.HTTPConnection | None = connection
        self.response = response
        self.status = response.status
        self.headers = response.headers

    def read(self, limit: int, cut: bool = False) -> bytes:
        parts, size = [], 0
        deadline = time.monotonic() + self._transport.timeout if self._transport.timeout else None
        try:
            while True:
                piece = self.response.read1(1 << 16)
                if not piece:
                    break
                parts.append(piece)
                size += len(piece)
                if size > limit:
                    self.close()
                    if cut:
                        break
                    raise UmbraError("response_too_large", 0, f"The answer has more than {limit} bytes.")
                if limit <= _MAX_JSON and deadline is not None and time.monotonic() > deadline:
                    raise network("The answer was not complete in time.")
            length = self.headers.get("Content-Length")
            if not cut and length is not None and length.isdigit() and size < int(length) and self.response.length not in (0, None):
                raise network("The answer ended early.")
            if self.response.length == 0:
                self.response.read()  # some versions of Python end the answer with this alone
        except (OSError, http.client.HTTPException) as err:
            self.close()
            raise network() from err
        except UmbraError:
            self.close()
            raise
        self.done()
        return b"".join(parts)

    def done(self) -> None:
        """Give the connection back for the next request."""
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self.response.will_close or not self.response.isclosed():
            connection.close()
        else:
            self._transport._put(connection)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class Transport:
    """Sends requests. It is safe for concurrent use; connections are kept."""

    def __init__(self, url: str, token: str | Callable[[], str] | None, actor: str | None, headers: dict[str, str], timeout: float, retries: int, follower_reads: bool):
        self.url = url.rstrip("/")
        self.timeout = timeout
        self.retries = retries
        self._token = token
        self._actor = actor
        self._headers = dict(headers)
        self._follower_reads = follower_reads
        self._newest: dict[str, int] = {}  # with follower_reads: the newest sequence number seen of a workspace
        self._workspaces: dict[str, str] = {}  # and the workspace of a task
        self._lock = threading.Lock()
        self._idle: list[http.client.HTTPConnection] = []
        self._unix = None
        if url.startswith("unix:"):
            self._unix = re.sub(r"^unix:(//)?", "", url)
            self._prefix = ""
        else:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname:
                raise ValueError(f"not a server's URL: {url}")
            self._parts = parts
            self._prefix = parts.path.rstrip("/")

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _connect(self) -> http.client.HTTPConnection:
        timeout = self.timeout or None
        if self._unix is not None:
            return _UnixConnection(self._unix, timeout)
        host, port = self._parts.hostname or "", self._parts.port
        if self._parts.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=ssl.create_default_context())
        return http.client.HTTPConnection(host, port, timeout=timeout)

    def _take(self) -> http.client.HTTPConnection:
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _put(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if len(self._idle) < 16:
                self._idle.append(connection)
                return
        connection.close()

    def send(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None, content: Any = None, headers: dict[str, str] | None = None,
             key: str | None = None, timeout: float | None = None) -> Answer:
        """Send a request and return an answer of status 2xx or 304."""
        reads = method in ("GET", "HEAD")
        head = {**self._headers, **(headers or {})}
        if self._actor is not None:
            head.setdefault("X-Actor", self._actor)
        if not reads:
            head.setdefault("Idempotency-Key", key or str(uuid.uuid4()))
        if reads and self._follower_reads:
            # Without it a read is answered by the workspace's owner.
            newest = self._newest.get(self._workspace_of(path) or "")
            if newest is not None:
                head["Umbra-Min-Seq"] = str(newest)
        once = False
        raw: Any = None
        if content is not None:
            head.setdefault("Content-Type", "application/octet-stream")
            raw = content.encode() if isinstance(content, str) else content
            once = not isinstance(raw, (bytes, bytearray, memoryview)) and not callable(raw)
        elif body is not None:
            head["Content-Type"] = "application/json"
            raw = json.dumps(body).encode()
        target = self._prefix + path + query_of(query)
        cancel = current_cancel.get()
        lost = False
        attempt = 0
        while True:
            if self._token is not None:
                token = (self._token() if callable(self._token) else self._token).strip()
                if not token.isascii() or not token.isprintable():
                    # http.client would name the token in its error.
                    raise UmbraError("bad_token", 0, "The token has characters that a header cannot carry.")
                head["Authorization"] = "Bearer " + token
            try:
                answer = self._attempt(method, target, raw() if callable(raw) else raw, head, timeout, cancel, once)
                if self._follower_reads:
                    self._see(path, reads, answer.headers.get("Umbra-Seq"))
                if 200 <= answer.status < 300 or answer.status == 304:
                    return answer
                if lost and method == "DELETE" and answer.status == 404 and _DELETES_ONCE.match(path):
                    answer.status = 204  # the answer of an earlier attempt was lost
                    return answer
                failure = error_of(path, answer.status, answer.headers, answer.read(_MAX_ERROR, cut=True))
                if answer.status not in _RETRIED:
                    raise failure
            except (OSError, http.client.HTTPException) as err:
                failure = network()
                failure.__cause__ = err
                lost = True
            except UmbraError as err:
                if err.code != "network":
                    raise
                failure = err
                lost = True
            if cancel is not None and cancel.event.is_set():
                raise failure
            if attempt >= self.retries or once:
                raise failure
            pause(attempt, failure.retry_after, cancel)
            attempt += 1

    def _workspace_of(self, path: str) -> str | None:
        kind, name = (path.split("/") + ["", ""])[1:3]
        return name if kind == "workspaces" else self._workspaces.get(name) if kind == "tasks" else None

    def _see(self, path: str, read: bool, seq: str | None) -> None:
        if seq is None or not seq.isdecimal():
            return
        workspace = self._workspace_of(path)
        with self._lock:
            if workspace is not None:
                self._newest[workspace] = max(int(seq), self._newest.get(workspace, 0))
            elif not read:
                self._newest.clear()  # it may be of any of them

    def _attempt(self, method: str, target: str, raw: Any, head: dict[str, str], timeout: float | None, cancel: Cancel | None, fresh: bool) -> Answer:
        connection = self._connect() if fresh else self._take()
        if connection.sock is not None:
            connection.sock.settimeout(self.timeout or None)
        connection.timeout = timeout if timeout is not None else (self.timeout or None)
        if timeout is not None and connection.sock is not None:
            connection.sock.settimeout(timeout)
        try:
            if cancel is not None:
                if connection.sock is None:
                    connection.connect()
                cancel.uses(connection)
            connection.request(method, target, body=raw, headers=head)
            return Answer(self, connection, connection.getresponse())
        except BaseException:
            connection.close()
            self.close()  # the server may have closed the others too
            raise

    def json(self, method: str, path: str, **options: Any) -> Any:
        """Send a request and parse its answer; None for 204 and 304."""
        options.setdefault("key", str(uuid.uuid4()))
        content = options.get("content")
        once = content is not None and not isinstance(content, (str, bytes, bytearray, memoryview)) and not callable(content)
        attempt = 0
        while True:
            answer = self.send(method, path, **options)
            if answer.status in (204, 304):
                answer.read(_MAX_ERROR, cut=True)
                return None
            try:
                raw = answer.read(_MAX_JSON)
            except UmbraError as err:
                cancel = current_cancel.get()
                if err.code != "network" or attempt >= self.retries or once or cancel is not None and cancel.event.is_set():
                    raise
                pause(attempt, None, cancel)
                attempt += 1
                continue
            try:
                value = json.loads(raw)
                if self._follower_reads and isinstance(value, dict) and isinstance(value.get("task_id"), str) and isinstance(value.get("workspace_id"), str):
                    self._workspaces[segment(value["task_id"])] = segment(value["workspace_id"])
                return value
            except (ValueError, RecursionError):
                raise UmbraError("bad_response", answer.status, "The answer is not JSON.", request_id=answer.headers.get("X-Request-Id") or "") from None


def pause(attempt: int, after: float | None = None, cancel: Cancel | None = None) -> None:
    """Wait before the next attempt: full jitter from 100 ms to 5 s, unless the server said when."""
    seconds = min(after, 300.0) if after is not None else 0.1 + random.random() * (min(5.0, 0.1 * 2 ** (attempt + 1)) - 0.1)
    if cancel is not None:
        cancel.event.wait(seconds)
    else:
        time.sleep(seconds)


def query_of(query: dict[str, Any] | None) -> str:
    pairs = []
    for name, value in (query or {}).items():
        if value is None:
            continue
        pairs.append((name, ("true" if value else "false") if isinstance(value, bool) else str(value)))
    return "?" + urlencode(pairs, quote_via=quote) if pairs else ""


def segment(name: str) -> str:
    return quote(name, safe="") if name.strip(".") else "%2E" * len(name)
