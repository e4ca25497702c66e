"""The one error of the client."""

from __future__ import annotations

import json
import re
import time
from email.utils import parsedate_to_datetime
from typing import Any

_BY_STATUS = {
    400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed", 408: "timeout",
    409: "conflict", 412: "etag_mismatch", 413: "too_large", 415: "unsupported_media_type", 422: "unprocessable",
    429: "rate_limited", 500: "internal_error", 502: "bad_gateway", 503: "unavailable", 504: "gateway_timeout", 507: "insufficient_storage",
}


class UmbraError(Exception):
    """A failed request: an error answer, no answer (code "network", status 0),
    or an answer that cannot be used ("bad_response", "response_too_large").
    """

    def __init__(self, code: str, status: int, detail: str, *, request_id: str = "", task_id: str | None = None,
                 conflicts: list | None = None, etag: str | None = None, retry_after: float | None = None, body: Any = None):
        super().__init__(f"{code}: {detail}")
        self.code = code
        self.status = status
        self.detail = detail
        self.request_id = request_id
        self.task_id = task_id
        self.conflicts = conflicts
        self.etag = etag
        self.retry_after = retry_after
        self.body = body


def network(detail: str = "The server did not answer.") -> UmbraError:
    return UmbraError("network", 0, detail)


def retry_after(value: str | None) -> float | None:
    """Seconds of a Retry-After header: a number or a date."""
    if value is None:
        return None
    if value.isdecimal():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _snake(name: str) -> str:
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"[^A-Za-z0-9]+", "_", name).lower()


def error_of(path: str, status: int, headers: Any, raw: bytes) -> UmbraError:
    """The error of an answer, whatever its dialect."""
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        body = None
    err = UmbraError(_BY_STATUS.get(status, "internal_error" if status >= 500 else "bad_request"), status, f"The server answered {status}.",
                     request_id=headers.get("X-Request-Id") or "", etag=headers.get("ETag"), retry_after=retry_after(headers.get("Retry-After")), body=body)
    if not isinstance(body, dict):
        return err
    inner = body.get("error")
    if path.startswith("/api/"):
        if isinstance(inner, str):
            err.detail = inner
        if status == 409 and err.etag:
            err.code = "etag_mismatch"
    elif isinstance(inner, str):
        err.code = inner
        if isinstance(body.get("detail"), str):
            err.detail = body["detail"]
    elif isinstance(inner, dict):
        kind = inner.get("type") or inner.get("name") or inner.get("code")
        if isinstance(kind, str):
            err.code = _snake(kind)
        if isinstance(inner.get("message"), str):
            err.detail = inner["message"]
    if not err.request_id and isinstance(body.get("request_id"), str):
        err.request_id = body["request_id"]
    if isinstance(body.get("task_id"), str):
        err.task_id = body["task_id"]
    if isinstance(body.get("conflicts"), list):
        err.conflicts = body["conflicts"]
    if isinstance(body.get("etag"), str):
        err.etag = body["etag"]
    err.args = (f"{err.code}: {err.detail}",)
    return err
