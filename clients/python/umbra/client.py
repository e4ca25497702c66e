"""The client and its objects."""

from __future__ import annotations

import contextlib
import dataclasses
import http.client
import json
import os
from typing import Any, Callable, Iterator

from . import wire
from .errors import UmbraError, network
from .http import Transport, current_cancel, pause, segment

_ENDED = {"completed", "failed", "cancelled"}
_SILENCE = 45.0
_ABSENT: Any = object()


def _load(kind: type, value: dict[str, Any]) -> Any:
    """A dataclass of an answer; fields that it does not know are in `extra`."""
    known = {f.name for f in dataclasses.fields(kind)} - {"extra"}
    return kind(**{k: v for k, v in value.items() if k in known}, extra={k: v for k, v in value.items() if k not in known})


def find_server() -> str:
    """The server of this machine, found as `umbra hook` finds it."""
    if os.environ.get("UMBRA_SERVER"):
        return _url(os.environ["UMBRA_SERVER"])
    data = os.environ.get("UMBRA_DATA_DIR") or os.path.join(os.environ.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "umbra")
    try:
        with open(os.path.join(data, "lock"), encoding="utf-8") as f:
            holder = json.load(f)
        if holder.get("address"):
            try:
                os.kill(holder["pid"], 0)
            except PermissionError:
                pass
            return _url(holder["address"])
    except (OSError, ValueError, KeyError, TypeError):
        pass
    return "http://127.0.0.1:8080"


def _url(address: str) -> str:
    return address if address.startswith(("http://", "https://", "unix:")) else "http://" + address


class Client:
    """A client of one server, safe for concurrent use by threads."""

    def __init__(self, url: str | None = None, token: str | Callable[[], str] | None = None, *, actor: str | None = None, headers: dict[str, str] | None = None,
                 timeout: float = 30.0, retries: int = 4, follower_reads: bool = False):
        if url is None:
            url = find_server()
            token = token or os.environ.get("UMBRA_TOKEN") or None
        self.http = Transport(url, token, actor, headers or {}, timeout, retries, follower_reads)
        self.tasks = Tasks(self)
        self.toolsets = Toolsets(self)
        self.sessions = Sessions(self)
        self.workspaces = Workspaces(self)
        self.calls = Calls(self)
        self.forks = Forks(self)

    def close(self) -> None:
        """Close the connections that are kept."""
        self.http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def request(self, method: str, path: str, *, query: dict[str, Any] | None = None, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Send any request and return its parsed answer."""
        return self.http.json(method, path, query=query, body=body, headers=headers)

    def task(self, task_id: str) -> "Task":
        """A task by its id, without asking the server."""
        return Task(self, task_id)


def _pages(http_: Transport, path: str, member: str, query: dict[str, Any], headers: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
    query = dict(query)
    while True:
        page = http_.json("GET", path, query=query, headers=headers)
        yield from page[member]
        if page.get("next") is None:
            return
        query["after"] = page["next"]


class Tasks:
    def __init__(self, client: Client):
        self._c = client

    def create(self, goal: str, workspace: str | None = None, *, task_id: str | None = None, kind: str | None = None, namespace: list[str] | None = None,
               metadata: dict[str, Any] | None = None, force: bool | None = None) -> "Task":
        body: dict[str, Any] = {"goal": goal, "workspace": workspace if workspace is not None else ""}
        for name, value in (("task_id", task_id), ("kind", kind), ("namespace", namespace), ("metadata", metadata), ("force", force)):
            if value is not None:
                body[name] = value
        return Task(self._c, self._c.http.json("POST", "/tasks", body=body, timeout=600.0)["task_id"])

    def get(self, task_id: str) -> "Task":
        self._c.http.json("GET", "/tasks/" + segment(task_id))
        return Task(self._c, task_id)

    def list(self, *, status: str | None = None, workspace: str | None = None, limit: int | None = None) -> Iterator[wire.TaskObject]:
        for t in _pages(self._c.http, "/tasks", "tasks", {"status": status, "workspace": workspace, "limit": limit}):
            yield _load(wire.TaskObject, t)


def _present(content: Any) -> None:
    """Refuse a content that is missing: it would empty the file."""
    if content is None:
        raise TypeError("the content is missing; an empty file is an empty string")


class Files:
    """The files of a task. Paths are relative to the workspace's root."""

    def __init__(self, http_: Transport, path: str, headers: dict[str, str]):
        self._http, self._path, self._headers = http_, path, headers

    def _json(self, method: str, path: str, *, headers: dict[str, str] | None = None, **options: Any) -> Any:
        return self._http.json(method, self._path + path, headers={**self._headers, **(headers or {})}, **options)

    @staticmethod
    def _conditions(if_match: str | None = None, if_none_match: str | None = None, mode: str | None = None) -> dict[str, str]:
        given = {"If-Match": if_match, "If-None-Match": if_none_match, "X-File-Mode": mode}
        return {k: v for k, v in given.items() if v is not None}

    def read(self, path: str, *, at: str | None = None, max_bytes: int | None = None) -> bytes:
        """A whole file; over max_bytes it raises `too_large`."""
        return self.read_with(path, at=at, max_bytes=max_bytes)[0]

    def read_with(self, path: str, *, at: str | None = None, max_bytes: int | None = None) -> tuple[bytes, str]:
        """A whole file and its entity tag."""
        parts, size = [], 0
        etag = ""
        for piece, etag in self._stream(path, at):
            parts.append(piece)
            size += len(piece)
            if max_bytes is not None and size > max_bytes:
                raise UmbraError("too_large", 0, f"The file has more than {max_bytes} bytes.")
        return b"".join(parts), etag

    def stream(self, path: str, *, at: str | None = None) -> Iterator[bytes]:
        """A file in pieces, over broken connections."""
        for piece, _ in self._stream(path, at):
            if piece:
                yield piece

    def _stream(self, path: str, at: str | None) -> Iterator[tuple[bytes, str]]:
        query = {"path": path, "at": at}
        head = {**self._headers, "Accept-Encoding": "identity"}
        answer = self._http.send("GET", self._path + "/content", query=query, headers=head)
        etag = answer.headers.get("ETag") or ""
        length = answer.headers.get("Content-Length")
        total = int(length) if length is not None else None
        done, failures = 0, 0
        try:
            while True:
                try:
                    piece = answer.response.read1(1 << 18) if total is None or done < total else b""
                    if piece:
                        done += len(piece)
                        failures = 0
                        yield piece, etag
                        continue
                    if total is None or done >= total:
                        answer.response.read()
                        answer.done()
                        yield b"", etag
                        return
                    raise network("The answer ended early.")
                except (OSError, http.client.HTTPException, UmbraError) as err:
                    answer.close()
                    if isinstance(err, UmbraError) and err.code != "network":
                        raise
                    cancel = current_cancel.get()
                    failures += 1
                    if failures > self._http.retries or not etag or cancel is not None and cancel.event.is_set():
                        raise network() from err
                    pause(failures, None, cancel)
                    answer = self._http.send("GET", self._path + "/content", query=query, headers={**head, "Range": f"bytes={done}-", "If-Match": etag})
                    if answer.status != 206:
                        raise UmbraError("bad_response", answer.status, "The server did not resume the download.")
        finally:
            answer.close()

    def read_text(self, path: str, *, offset: int = 0, limit: int | None = None, at: str | None = None, max_bytes: int | None = None) -> dict[str, Any]:
        """Lines of a text with their ends: text, total_lines, next_offset (None at the end), etag."""
        answer = self._http.send("GET", self._path + "/content", query={"path": path, "offset": offset, "limit": limit, "at": at}, headers=self._headers)
        try:
            raw = answer.read(max_bytes if max_bytes is not None else 1 << 62)
        except UmbraError as err:
            if err.code == "response_too_large":
                raise UmbraError("too_large", 0, f"The text has more than {max_bytes} bytes; read fewer lines.") from None
            raise
        following = answer.headers.get("Umbra-Next-Offset")
        return {"text": raw.decode("utf-8"), "total_lines": int(answer.headers.get("Umbra-Total-Lines") or 0),
                "next_offset": int(following) if following is not None else None, "etag": answer.headers.get("ETag") or ""}

    def write(self, path: str, content: Any, *, if_match: str | None = None, if_none_match: str | None = None, mode: str | None = None) -> wire.TaskWritten:
        """Write a file from text, bytes, an open binary file, or a function that returns one."""
        _present(content)
        return _load(wire.TaskWritten, self._json("PUT", "/content", query={"path": path}, content=content, headers=self._conditions(if_match, if_none_match, mode)))

    def edit(self, path: str, old_string: str, new_string: str, *, replace_all: bool = False, if_match: str | None = None) -> wire.TaskWritten:
        """Replace a text; `extra["occurrences"]` of the result is how many there were."""
        body = {"path": path, "old_string": old_string, "new_string": new_string, "replace_all": replace_all}
        return _load(wire.TaskWritten, self._json("POST", "/edit", body=body, headers=self._conditions(if_match)))

    def append(self, path: str, content: Any) -> wire.TaskWritten:
        _present(content)
        return _load(wire.TaskWritten, self._json("POST", "/append", query={"path": path}, content=content))

    def delete(self, path: str, *, recursive: bool = False, force: bool = False, if_match: str | None = None) -> wire.TaskWritten:
        return _load(wire.TaskWritten, self._json("DELETE", "/content", query={"path": path, "recursive": recursive, "force": force}, headers=self._conditions(if_match)))

    def move(self, from_: str, to: str, *, overwrite: bool = False) -> wire.TaskWritten:
        return _load(wire.TaskWritten, self._json("POST", "/move", body={"from": from_, "to": to, "overwrite": overwrite}))

    def copy(self, from_: str, to: str, *, overwrite: bool = False, recursive: bool = False) -> wire.TaskWritten:
        return _load(wire.TaskWritten, self._json("POST", "/copy", body={"from": from_, "to": to, "overwrite": overwrite, "recursive": recursive}))

    def mkdir(self, path: str, *, recursive: bool = False) -> dict[str, Any]:
        return self._json("POST", "/mkdir", body={"path": path, "recursive": recursive})

    def symlink(self, path: str, target: str) -> wire.TaskWritten:
        return _load(wire.TaskWritten, self._json("POST", "/symlink", body={"path": path, "target": target}))

    def list(self, path: str = "", *, recursive: bool = False, limit: int | None = None) -> Iterator[wire.TaskFileEntry]:
        for e in _pages(self._http, self._path + "/list", "entries", {"path": path, "recursive": recursive, "limit": limit}, self._headers):
            yield _load(wire.TaskFileEntry, e)

    def stat(self, path: str, *, follow: bool = True) -> wire.TaskFileEntry:
        return _load(wire.TaskFileEntry, self._json("GET", "/stat", query={"path": path, "follow": follow}))

    def search(self, pattern: str, *, literal: bool = False, ignore_case: bool = False, path: str | None = None, glob: str | None = None, context: int | None = None,
               max: int | None = None, max_per_file: int | None = None) -> tuple[list[wire.TaskMatch], bool]:
        """The matches, and whether some were left out."""
        found = self._json("GET", "/search", query={"pattern": pattern, "literal": literal, "ignore_case": ignore_case, "path": path, "glob": glob, "context": context,
                                                    "max": max, "max_per_file": max_per_file})
        return [_load(wire.TaskMatch, m) for m in found["matches"]], found["truncated"]

    def glob(self, pattern: str, *, path: str | None = None, max: int | None = None) -> tuple[list[wire.TaskFileEntry], bool]:
        """The entries, and whether some were left out."""
        found = self._json("GET", "/glob", query={"pattern": pattern, "path": path, "max": max})
        return [_load(wire.TaskFileEntry, e) for e in found["entries"]], found["truncated"]

    def batch(self, operations: list[dict[str, Any]], *, message: str | None = None) -> dict[str, Any]:
        """Several operations as one commit, all or none."""
        body: dict[str, Any] = {"operations": operations}
        if message is not None:
            body["message"] = message
        return self._json("POST", "/batch", body=body)


class Task:
    """One task as a subtask and an actor see it: a value, free of I/O."""

    def __init__(self, client: Client, task_id: str, subtask_id: str | None = None, actor: str | None = None):
        self.client, self.id, self.subtask_id, self.actor = client, task_id, subtask_id, actor
        self._path = "/tasks/" + segment(task_id)
        self._headers: dict[str, str] = {}
        if subtask_id is not None:
            self._headers["X-Subtask-Id"] = subtask_id
        if actor is not None:
            self._headers["X-Actor"] = actor
        self.files = Files(client.http, self._path, self._headers)

    def subtask(self, subtask_id: str | None) -> "Task":
        """The same task for one subtask of it."""
        return Task(self.client, self.id, subtask_id, self.actor)

    def as_actor(self, actor: str) -> "Task":
        """The same task for another actor."""
        return Task(self.client, self.id, self.subtask_id, actor)

    def _json(self, method: str, path: str, **options: Any) -> Any:
        return self.client.http.json(method, self._path + path, headers=self._headers, **options)

    def get(self) -> wire.TaskObject:
        return _load(wire.TaskObject, self._json("GET", ""))

    def update(self, **fields: Any) -> wire.TaskObject:
        return _load(wire.TaskObject, self._json("PATCH", "", body=fields))

    def complete(self) -> wire.TaskObject:
        return self.update(status="completed")

    def delete(self) -> None:
        self._json("DELETE", "")

    def changes(self, *, subtask_id: str | None = None, path: str | None = None, after: int | None = None, limit: int | None = None) -> Iterator[wire.TaskEntry]:
        for e in _pages(self.client.http, self._path + "/changes", "entries", {"subtask_id": subtask_id, "path": path, "after": after, "limit": limit}, self._headers):
            yield _load(wire.TaskEntry, e)

    def summary(self) -> wire.TaskSummary:
        return _load(wire.TaskSummary, self._json("GET", "/files"))

    def diff(self, path: str | None = None, *, from_: str | None = None, to: str | None = None, context: int | None = None) -> str:
        answer = self.client.http.send("GET", self._path + "/diff", query={"path": path, "from": from_, "to": to, "context": context}, headers=self._headers)
        return answer.read(1 << 32).decode("utf-8", "surrogateescape")

    def revert(self, *, path: str = _ABSENT, subtask: str = _ABSENT, change: int = _ABSENT, call: str = _ABSENT, dry_run: bool = False,
               on_conflict: str | None = None, plan: str | None = None, include_external: bool | None = None, include_shared: bool | None = None) -> dict[str, Any]:
        """Undo all of the task, or one path, subtask, change or call of it."""
        given = [v for v in (path, subtask, change, call) if v is not _ABSENT]
        if len(given) > 1:
            raise TypeError("revert takes one of path, subtask, change and call")
        if given in ([None], [""]):
            # A name that was not found must not undo all of the task.
            raise TypeError("revert: what to undo is empty; leave it out to undo all of the task")
        path, subtask, change, call = (None if v is _ABSENT else v for v in (path, subtask, change, call))
        body: dict[str, Any] = {}
        if dry_run:
            body["dry_run"] = True
        for name, value in (("on_conflict", None if on_conflict == "refuse" else on_conflict), ("plan", plan), ("include_external", include_external), ("include_shared", include_shared), ("path", path)):
            if value is not None:
                body[name] = value
        if call is not None:
            return self.client.http.json("POST", f"/calls/{segment(call)}/revert", body=body, headers=self._headers)
        where = "/revert" if subtask is None and change is None else f"/subtasks/{segment(subtask)}/revert" if subtask is not None else f"/changes/{change}/revert"
        return self._json("POST", where, body=body)

    def hunks(self, *, subtask: str | None = None, path: str | None = None, status: str | None = None) -> Iterator[dict[str, Any]]:
        return _pages(self.client.http, self._path + "/hunks", "hunks", {"subtask": subtask, "path": path, "status": status}, self._headers)

    def review(self, *, accept: list[str] | None = None, reject: list[str] | None = None, **fields: Any) -> dict[str, Any]:
        return self._json("POST", "/review", body={**fields, **({"accept": accept} if accept else {}), **({"reject": reject} if reject else {})})

    def exec(self, command: str | list[str], **fields: Any) -> dict[str, Any]:
        """Run a command; what it changes is this subtask's."""
        return self._json("POST", "/exec", body={"command": command, **fields}, timeout=86400.0)

    def exec_stream(self, command: str | list[str], **fields: Any) -> Iterator[dict[str, Any]]:
        """Run a command and yield its output in the order of arrival: {"event": "stdout" or "stderr", "text"}, then {"event": "end", "result"}.

        The command ends with the iteration.
        """
        answer = self.client.http.send("POST", self._path + "/exec", body={"command": command, **fields}, headers={**self._headers, "Accept": "text/event-stream"}, timeout=86400.0)
        try:
            if not (answer.headers.get("Content-Type") or "").startswith("text/event-stream"):
                raise UmbraError("bad_response", answer.status, "The answer is not an event stream.")
            for e in _parse(answer.response):
                data = e["data"] if isinstance(e["data"], dict) else {}
                if e["event"] == "error":
                    raise UmbraError(str(data.get("error")), 0, str(data.get("detail")))
                if e["event"] in ("stdout", "stderr"):
                    yield {"event": e["event"], "text": str(data.get("text", ""))}
                elif e["event"] == "end":
                    yield {"event": "end", "result": data}
                    return
            raise network("The stream ended before the command.")
        except (OSError, http.client.HTTPException) as err:
            raise network() from err
        finally:
            answer.close()

    def events(self, *, after: int | None = None) -> Iterator[dict[str, Any]]:
        """The task's events, without a gap or a repeat, until it has ended."""
        return follow(self.client.http, self._path + "/stream", self._headers, after, lambda: _newest(self.client.http, self.get().workspace_id or ""),
                      lambda: self.get().status in _ENDED)

    @contextlib.contextmanager
    def call(self, *, tool: str | None = None, paths: list[str] | None = None, **fields: Any) -> Iterator[dict[str, Any]]:
        """Bracket what the agent's own tools do on disk."""
        body: dict[str, Any] = {"agent": "umbra-client", "task_id": self.id, **fields}
        if "workspace_id" not in body and "cwd" not in body:
            body["workspace_id"] = self.get().workspace_id
        for name, value in (("tool", tool), ("paths", paths), ("subtask_id", self.subtask_id)):
            if value is not None:
                body.setdefault(name, value)
        made = self.client.http.json("POST", "/calls", body=body, headers=self._headers)

        def end(status: str) -> None:
            self.client.http.json("POST", f"/calls/{segment(made['call_id'])}/end", body={"status": status}, headers=self._headers)

        try:
            yield made
        except BaseException as err:
            with contextlib.suppress(UmbraError):
                end("failed" if isinstance(err, Exception) else "cancelled")
            raise
        end("ok")


def _newest(http_: Transport, workspace: str) -> int:
    log = http_.json("GET", f"/workspaces/{segment(workspace)}/log", query={"limit": 1})
    entries = log.get("entries") or []
    return entries[0]["seq"] if entries else 1


def follow(http_: Transport, path: str, headers: dict[str, str], after: int | None, now: Callable[[], int], ended: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Events over any number of connections."""
    last = after if after is not None else now()
    failures, reported = 0, None
    while True:
        seen, resume = 0, None
        answer = None
        cancel = current_cancel.get()
        try:
            answer = http_.send("GET", path, query={"after": last}, headers={**headers, "Accept": "text/event-stream", "Last-Event-ID": str(last)}, timeout=_SILENCE)
            if not (answer.headers.get("Content-Type") or "").startswith("text/event-stream"):
                raise UmbraError("bad_response", answer.status, "The answer is not an event stream.")
            for e in _parse(answer.response):
                failures = 0
                if e["event"] == "lagged":
                    resume = e["data"].get("after", last)
                    break
                if "id" in e:
                    if e["id"] <= last:
                        continue
                    last = e["id"]
                    seen += 1
                elif e["event"] == "task":
                    if e["data"] == reported:
                        continue
                    reported = e["data"]
                yield e
            if resume is not None:
                last = max(last, resume)
            elif seen == 0 and ended():
                return
        except (OSError, http.client.HTTPException) as err:
            failures += 1
            if failures > 1000 or cancel is not None and cancel.event.is_set():
                raise network() from err
        except UmbraError as err:
            failures += 1
            if err.code != "network" and err.status not in (502, 503, 504) or failures > 1000 or cancel is not None and cancel.event.is_set():
                raise
        finally:
            if answer is not None:
                answer.close()
        if seen == 0:
            pause(failures, None, cancel)


def _parse(response: Any) -> Iterator[dict[str, Any]]:
    event, number, data = "message", None, []
    while True:
        line = response.readline(64 << 20)
        if not line:
            return
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        if text == "":
            if data:
                try:
                    value = json.loads("\n".join(data))
                except (ValueError, RecursionError):
                    raise UmbraError("bad_response", 200, "An event is not JSON.") from None
                out: dict[str, Any] = {"event": event, "data": value}
                if number is not None and number.isdecimal():
                    out["id"] = int(number)
                yield out
            event, number, data = "message", None, []
            continue
        field, _, value = text.partition(":")
        value = value[1:] if value.startswith(" ") else value
        if field == "event":
            event = value
        elif field == "id":
            number = value
        elif field == "data":
            data.append(value)


class Workspace:
    def __init__(self, client: Client, workspace_id: str):
        self._c, self.id = client, workspace_id
        self._path = "/workspaces/" + segment(workspace_id)

    def get(self) -> dict[str, Any]:
        return self._c.http.json("GET", self._path)

    def sync(self, **fields: Any) -> dict[str, Any]:
        return self._c.http.json("POST", self._path + "/sync", body=fields)

    def log(self, **query: Any) -> Iterator[wire.TaskEntry]:
        for e in _pages(self._c.http, self._path + "/log", "entries", query):
            yield _load(wire.TaskEntry, e)

    def coverage(self) -> dict[str, Any]:
        return self._c.http.json("GET", self._path + "/coverage")

    def revert(self, **body: Any) -> dict[str, Any]:
        return self._c.http.json("POST", self._path + "/revert", body=body)

    def fork(self, **body: Any) -> dict[str, Any]:
        return self._c.http.json("POST", self._path + "/forks", body=body)

    def blame(self, path: str, **query: Any) -> dict[str, Any]:
        """Who wrote the lines of a file."""
        return self._c.http.json("GET", self._path + "/blame", query={"path": path, **query})

    def checkpoints(self) -> Iterator[dict[str, Any]]:
        return _pages(self._c.http, self._path + "/checkpoints", "checkpoints", {})

    def checkpoint(self, name: str, message: str | None = None) -> dict[str, Any]:
        """Name the newest commit."""
        return self._c.http.json("POST", self._path + "/checkpoints", body={"name": name, **({"message": message} if message is not None else {})})

    def delete_checkpoint(self, name: str) -> None:
        self._c.http.json("DELETE", f"{self._path}/checkpoints/{segment(name)}")

    def restore(self, to: str, **body: Any) -> dict[str, Any]:
        """Bring the tree of a checkpoint, a commit or a time back as one new commit."""
        return self._c.http.json("POST", self._path + "/restore", body={"to": to, **body})

    def compare(self, other: str | None = None) -> dict[str, Any]:
        return self._c.http.json("GET", self._path + "/compare", query={"with": other})

    def update(self, **fields: Any) -> dict[str, Any]:
        return self._c.http.json("PATCH", self._path, body=fields)

    def delete(self, *, force: bool = False) -> None:
        self._c.http.json("DELETE", self._path, query={"force": force or None})

    def events(self, *, after: int | None = None) -> Iterator[dict[str, Any]]:
        return follow(self._c.http, self._path + "/stream", {}, after, lambda: _newest(self._c.http, self.id), lambda: False)


class Workspaces:
    def __init__(self, client: Client):
        self._c = client

    def get(self, workspace_id: str) -> Workspace:
        w = Workspace(self._c, workspace_id)
        w.get()
        return w

    def list(self) -> Iterator[dict[str, Any]]:
        return _pages(self._c.http, "/workspaces", "workspaces", {})


class Toolset:
    def __init__(self, client: Client, toolset_id: str, data: dict[str, Any] | None = None):
        self._c, self.id, self.data = client, toolset_id, data
        self._path = "/toolsets/" + segment(toolset_id)

    def get(self) -> dict[str, Any]:
        return self._c.http.json("GET", self._path)

    def set_mounts(self, mounts: list[dict[str, Any]]) -> dict[str, Any]:
        return self._c.http.json("PUT", self._path + "/mounts", body={"mounts": mounts})

    def turn(self, format: str | None = None) -> dict[str, Any]:
        return self._c.http.json("GET", self._path + "/turn", query={"format": format})

    def call(self, name: str, arguments: dict[str, Any], *, subtask_id: str | None = None) -> dict[str, Any]:
        body: dict[str, Any] = {"name": name, "arguments": arguments}
        if subtask_id is not None:
            body["subtaskId"] = subtask_id
        return self._c.http.json("POST", self._path + "/call", body=body)

    def delete(self) -> None:
        self._c.http.json("DELETE", self._path)


class Toolsets:
    def __init__(self, client: Client):
        self._c = client

    def create(self, mounts: list[dict[str, Any]], *, task_id: str | None = None, idle_seconds: int | None = None) -> Toolset:
        body: dict[str, Any] = {"mounts": mounts}
        if task_id is not None:
            body["taskId"] = task_id
        if idle_seconds is not None:
            body["idleSeconds"] = idle_seconds
        made = self._c.http.json("POST", "/toolsets", body=body, timeout=600.0)
        return Toolset(self._c, made["id"], made)

    def get(self, toolset_id: str) -> Toolset:
        return Toolset(self._c, toolset_id, self._c.http.json("GET", "/toolsets/" + segment(toolset_id)))

    def list(self) -> Iterator[dict[str, Any]]:
        return _pages(self._c.http, "/toolsets", "toolsets", {})


class Session:
    def __init__(self, client: Client, session_id: str, data: dict[str, Any] | None = None):
        self._c, self.id, self.data = client, session_id, data
        self._path = "/api/sessions/" + segment(session_id)

    def get(self) -> dict[str, Any]:
        return self._c.http.json("GET", self._path)

    def fs(self, method: str, verb: str = "", **options: Any) -> Any:
        """A route below `/fs`: fs("GET", "stat", query={"path": p})."""
        return self._c.http.json(method, self._path + "/fs" + ("/" + verb if verb else ""), **options)

    def delete(self) -> None:
        self._c.http.json("DELETE", self._path)


class Sessions:
    def __init__(self, client: Client):
        self._c = client

    def create(self, workspace_root: str, *, task_id: str | None = None) -> Session:
        body = {"workspaceRoot": workspace_root, **({"taskId": task_id} if task_id is not None else {})}
        made = self._c.http.json("POST", "/api/sessions", body=body, timeout=600.0)
        return Session(self._c, made["sessionId"], made)

    def get(self, session_id: str) -> Session:
        return Session(self._c, session_id, self._c.http.json("GET", "/api/sessions/" + segment(session_id)))

    def list(self) -> Iterator[dict[str, Any]]:
        return _pages(self._c.http, "/api/sessions", "sessions", {})


class Calls:
    def __init__(self, client: Client):
        self._c = client

    def create(self, **body: Any) -> dict[str, Any]:
        return self._c.http.json("POST", "/calls", body=body)

    def get(self, call_id: str) -> dict[str, Any]:
        return self._c.http.json("GET", "/calls/" + segment(call_id))

    def end(self, call_id: str, **body: Any) -> dict[str, Any]:
        return self._c.http.json("POST", f"/calls/{segment(call_id)}/end", body=body)

    def touch(self, call_id: str) -> dict[str, Any]:
        return self._c.http.json("POST", f"/calls/{segment(call_id)}/touch")

    def revert(self, call_id: str, **body: Any) -> dict[str, Any]:
        return self._c.http.json("POST", f"/calls/{segment(call_id)}/revert", body=body)

    def list(self, **query: Any) -> Iterator[dict[str, Any]]:
        return _pages(self._c.http, "/calls", "calls", query)


class Forks:
    def __init__(self, client: Client):
        self._c = client

    def create(self, workspace_id: str, **body: Any) -> dict[str, Any]:
        return self._c.http.json("POST", f"/workspaces/{segment(workspace_id)}/forks", body=body)

    def list(self, workspace_id: str) -> Iterator[dict[str, Any]]:
        return _pages(self._c.http, f"/workspaces/{segment(workspace_id)}/forks", "forks", {})

    def get(self, fork: str) -> dict[str, Any]:
        return self._c.http.json("GET", f"/workspaces/{segment(fork)}")

    def compare(self, fork: str, other: str | None = None) -> dict[str, Any]:
        """The summary and the diff of a fork and another workspace; default: its parent."""
        return self._c.http.json("GET", f"/workspaces/{segment(fork)}/compare", query={"with": other})

    def merge(self, fork: str, **body: Any) -> dict[str, Any]:
        return self._c.http.json("POST", f"/workspaces/{segment(fork)}/merge", body=body)

    def rebase(self, fork: str, **body: Any) -> dict[str, Any]:
        return self._c.http.json("POST", f"/workspaces/{segment(fork)}/rebase", body=body)

    def delete(self, fork: str, *, force: bool = False) -> None:
        self._c.http.json("DELETE", f"/workspaces/{segment(fork)}", query={"force": force or None})
