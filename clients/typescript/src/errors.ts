/** The JSON of an error answer, whatever the dialect. */
export interface ErrorInit {
  code: string;
  status: number;
  detail: string;
  requestId?: string;
  taskId?: string;
  conflicts?: unknown[];
  etag?: string;
  retryAfter?: number;
  body?: unknown;
  cause?: unknown;
}

/**
 * UmbraError is every failure of a request: an error answer (`status` is its
 * HTTP status), no answer (`code` is "network", `status` 0), or an answer that
 * cannot be used (`bad_response`, `response_too_large`).
 */
export class UmbraError extends Error {
  readonly code: string;
  readonly status: number;
  readonly detail: string;
  readonly requestId: string;
  readonly taskId?: string;
  readonly conflicts?: unknown[];
  readonly etag?: string;
  /** Seconds after which to retry, where the server said so. */
  readonly retryAfter?: number;
  /** The parsed body of the answer, if there was one. */
  readonly body?: unknown;

  constructor(init: ErrorInit) {
    super(`${init.code}: ${init.detail}`, init.cause === undefined ? undefined : { cause: init.cause });
    this.name = "UmbraError";
    this.code = init.code;
    this.status = init.status;
    this.detail = init.detail;
    this.requestId = init.requestId ?? "";
    if (init.taskId !== undefined) this.taskId = init.taskId;
    if (init.conflicts !== undefined) this.conflicts = init.conflicts;
    if (init.etag !== undefined) this.etag = init.etag;
    if (init.retryAfter !== undefined) this.retryAfter = init.retryAfter;
    // Not enumerable: a log of the error shows neither content nor paths.
    Object.defineProperty(this, "body", { value: init.body, enumerable: false });
  }
}

const byStatus: Record<number, string> = {
  400: "bad_request", 401: "unauthorized", 403: "forbidden", 404: "not_found", 405: "method_not_allowed",
  408: "timeout", 409: "conflict", 412: "etag_mismatch", 413: "too_large", 415: "unsupported_media_type",
  422: "unprocessable", 429: "rate_limited", 500: "internal_error", 502: "bad_gateway", 503: "unavailable",
  504: "gateway_timeout", 507: "insufficient_storage",
};

const snake = (s: string) =>
  s.replace(/([a-z0-9])([A-Z])/g, "$1_$2").replace(/[^A-Za-z0-9]+/g, "_").toLowerCase();

/** retryAfterOf reads Retry-After: seconds or a date. */
export function retryAfterOf(headers: Headers): number | undefined {
  const value = headers.get("retry-after");
  if (value === null) return undefined;
  if (/^\d+$/.test(value)) return Number(value);
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, (at - Date.now()) / 1000);
}

/** errorOf makes an error of an answer: one class for all dialects. */
export function errorOf(path: string, res: Response, text: string): UmbraError {
  let body: any;
  try {
    body = JSON.parse(text);
  } catch {
    body = undefined;
  }
  const etag = res.headers.get("etag") ?? undefined;
  const init: ErrorInit = {
    code: byStatus[res.status] ?? (res.status >= 500 ? "internal_error" : "bad_request"),
    status: res.status,
    detail: `The server answered ${res.status}.`,
    requestId: res.headers.get("x-request-id") ?? "",
    etag,
    retryAfter: retryAfterOf(res.headers),
    body,
  };
  if (body === null || typeof body !== "object" || Array.isArray(body)) return new UmbraError(init);
  const inner = body.error;
  if (path.startsWith("/api/")) {
    if (typeof inner === "string") init.detail = inner;
    // The sessions dialect says 409 with the current tag where a condition fails.
    if (res.status === 409 && etag !== undefined) init.code = "etag_mismatch";
  } else if (typeof inner === "string") {
    init.code = inner;
    if (typeof body.detail === "string") init.detail = body.detail;
  } else if (inner !== null && typeof inner === "object") {
    const type = inner.type ?? inner.name ?? inner.code;
    if (typeof type === "string") init.code = snake(type).replace(/_error$/, "_error");
    if (typeof inner.message === "string") init.detail = inner.message;
  }
  if (typeof body.request_id === "string" && init.requestId === "") init.requestId = body.request_id;
  if (typeof body.task_id === "string") init.taskId = body.task_id;
  if (Array.isArray(body.conflicts)) init.conflicts = body.conflicts;
  if (typeof body.etag === "string") init.etag = body.etag;
  return new UmbraError(init);
}
