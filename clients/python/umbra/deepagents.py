"""A backend and a sandbox for Deep Agents.

Where `deepagents` can be imported the results are its dataclasses and the
classes are subclasses of its protocol's; else they are dataclasses of the same
shape.
"""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable

from .client import Client, Task
from .errors import UmbraError
from .http import segment

try:
    from deepagents.backends import protocol as _protocol  # type: ignore[import-not-found]
except ImportError:
    _protocol = None


def _shape(name: str, *fields: str) -> Any:
    """deepagents' own class if it has one, else a dataclass of these fields."""
    theirs = getattr(_protocol, name, None)
    if theirs is not None:
        return theirs
    return dataclasses.make_dataclass(name, [(f, Any, dataclasses.field(default=None)) for f in fields])


LsResult = _shape("LsResult", "error", "entries")
ReadResult = _shape("ReadResult", "error", "file_data", "total_lines", "start_line", "end_line", "next_offset")
WriteResult = _shape("WriteResult", "error", "path", "files_update")
EditResult = _shape("EditResult", "error", "path", "files_update", "occurrences")
DeleteResult = _shape("DeleteResult", "error", "path", "files_update")
GrepResult = _shape("GrepResult", "error", "matches", "truncated")
GlobResult = _shape("GlobResult", "error", "matches", "truncated")
FileUploadResponse = _shape("FileUploadResponse", "path", "error")
FileDownloadResponse = _shape("FileDownloadResponse", "path", "content", "error")
ExecuteResponse = _shape("ExecuteResponse", "output", "exit_code", "truncated")
_Backend = getattr(_protocol, "BackendProtocol", object)
_Sandbox = getattr(_protocol, "SandboxBackendProtocol", object)


def _make(kind: Any, **values: Any) -> Any:
    """An instance with those fields that its class has."""
    known = {f.name for f in dataclasses.fields(kind)} if dataclasses.is_dataclass(kind) else set(values)
    return kind(**{k: v for k, v in values.items() if k in known})


def legal_subtask(name: str) -> str:
    """A name as a legal subtask id: `-` for what is not, cut at 128."""
    text = re.sub(r"\.{2,}", lambda m: "-" * len(m[0]), re.sub(r"[^A-Za-z0-9._-]", "-", name))[:128]
    if not text or not text[0].isalnum():
        text = ("s" + text)[:128]
    return re.sub(r"\.$", "-", re.sub(r"\.lock$", "-lock", text))


def subagent_of(config: Any) -> str | None:
    """The subtask of the agent that a graph's configuration describes; None for the main agent."""
    configurable = (config or {}).get("configurable") or {}
    if configurable.get("ls_agent_type") != "subagent":
        return None
    name = ((config or {}).get("metadata") or {}).get("lc_agent_name") or "subagent"
    segments = str(configurable.get("checkpoint_ns") or "").split("|")
    at = segments[-2] if len(segments) > 1 else segments[-1]
    digits = re.sub(r"[^0-9a-fA-F]", "", at.partition(":")[2] or at)[:8].lower()
    # A long name is cut before the digits, which tell two runs apart.
    return legal_subtask(f"{name[:119]}.{digits}" if digits else name)


def _config() -> Any:
    try:
        from langgraph.config import get_config  # type: ignore[import-not-found]

        return get_config()
    except (ImportError, RuntimeError):
        return None


class _InvalidPath(Exception):
    pass


def _resolve(path: str, root: str = "") -> str:
    out: list[str] = []
    for name in path.split("/"):
        if name in ("", "."):
            continue
        if name == "..":
            if not out:
                raise _InvalidPath(path)
            out.pop()
        else:
            out.append(name)
    if "\0" in path:
        raise _InvalidPath(path)
    return "/".join([s for s in root.split("/") if s not in ("", ".")] + out)


def _advice(err: Exception, path: str) -> str:
    if isinstance(err, _InvalidPath):
        return f"Invalid path: {path}"
    if not isinstance(err, UmbraError):
        return str(err)
    return {
        "file_not_found": f"File '{path}' not found", "is_a_directory": f"'{path}' is a directory", "not_directory": f"'{path}' is not a directory",
        "not_a_directory": f"'{path}' is not a directory", "bad_path": f"Invalid path: {path}", "too_large": f"File '{path}' is too large: {err.detail}",
        "exec_disabled": "Commands are turned off on this server; its owner can turn them on with exec.enabled: true",
        "network": "The workspace server did not answer; try again", "not_text": f"File '{path}' is not text",
    }.get(err.code) or err.detail or err.code


def _operation_error(err: Exception) -> str:
    if isinstance(err, _InvalidPath):
        return "invalid_path"
    if not isinstance(err, UmbraError):
        raise err
    if err.code == "is_a_directory":
        return "is_directory"
    if err.code in ("bad_path", "not_a_directory", "special_file", "link_leads_out"):
        return "invalid_path"
    return "file_not_found" if err.status == 404 else "permission_denied"


class _Files:
    """What backend and sandbox have in common."""

    _task: Task | None
    _root: str
    _max: int

    def _set_up(self, task: Task | None, root: str, subtask: Any, guard: str, max_read_bytes: int) -> None:
        self._task, self._root, self._subtask, self._guard, self._max = task, root, subtask, guard, max_read_bytes
        self._tags: dict[tuple[str | None, str], str] = {}
        self._lock = threading.Lock()

    def _now(self) -> Task:
        if self._task is None:
            raise RuntimeError("initialize() was not called")
        if callable(self._subtask):
            name = self._subtask(_config())
        elif self._subtask == "auto":
            name = subagent_of(_config()) or self._task.subtask_id
        else:
            name = self._subtask
        return self._task if name is None else self._task.subtask(legal_subtask(name))

    def _path(self, path: str) -> str:
        return _resolve(path, self._root)

    def _saw(self, task: Task, path: str, etag: str | None) -> None:
        if self._guard != "none" and etag:
            with self._lock:
                self._tags[(task.subtask_id, path)] = etag

    def _tag(self, task: Task, path: str) -> str | None:
        with self._lock:
            return self._tags.get((task.subtask_id, path))

    def _forget(self, task: Task, path: str) -> None:
        with self._lock:
            for key in [k for k in self._tags if k[0] == task.subtask_id and (k[1] == path or k[1].startswith(path + "/"))]:
                del self._tags[key]

    def _renew(self, task: Task, path: str, commit: str | None) -> None:
        """Guard a path that the subtask has read by what its own commit left there."""
        if self._tag(task, path) is None:
            self._forget(task, path)  # what is below it
            return
        try:
            answer = task.client.http.send("HEAD", f"/tasks/{segment(task.id)}/content", query={"path": path, "at": commit})
            self._saw(task, path, answer.headers.get("ETag"))
            answer.read(0)
        except UmbraError as err:
            # Where it is not known the old tag stays: then too much is refused.
            if err.status == 404:
                self._forget(task, path)

    def _who(self, task: Task, path: str) -> str:
        try:
            log = task.client.request("GET", f"/workspaces/{task.get().workspace_id}/log", query={"path": path, "limit": 1})
            entry = log["entries"][0]
        except (UmbraError, LookupError):
            return "someone else"
        if entry["source"] == "external":
            return "a person or program outside umbra"
        return f"subtask {entry['subtask_id']}" if entry.get("subtask_id") else entry.get("actor") or "someone else"

    def ls(self, path: str) -> Any:
        prefix = "" if path in ("", ".") else path.rstrip("/") + "/"
        try:
            entries = []
            for e in self._now().files.list(self._path(path), limit=10_000):
                is_dir = e.type == "directory"
                entries.append({"path": prefix + e.name + ("/" if is_dir else ""), "is_dir": is_dir, "size": e.size, "modified_at": e.mtime})
            return _make(LsResult, error=None, entries=entries)
        except (UmbraError, _InvalidPath) as err:
            if isinstance(err, UmbraError) and err.code == "file_not_found":
                return _make(LsResult, error=None, entries=[])
            return _make(LsResult, error=_advice(err, path), entries=None)

    def read(self, file_path: str, offset: int = 0, limit: int = 500) -> Any:
        try:
            task, at = self._now(), self._path(file_path)
            start = max(0, offset)
            try:
                got = task.files.read_text(at, offset=start, limit=max(0, limit), max_bytes=self._max)
            except UmbraError as err:
                if err.code != "not_text":
                    raise
                data, etag = task.files.read_with(at, max_bytes=self._max)
                self._saw(task, at, etag)
                return _make(ReadResult, error=None, file_data={"content": base64.b64encode(data).decode(), "encoding": "base64"})
            self._saw(task, at, got["etag"])
            text = got["text"]
            lines = text.count("\n") + (1 if text and not text.endswith("\n") else 0)
            return _make(ReadResult, error=None, file_data={"content": text, "encoding": "utf-8"}, total_lines=got["total_lines"],
                         start_line=start + 1 if lines else None, end_line=start + lines if lines else None, next_offset=got["next_offset"] if lines else None)
        except (UmbraError, _InvalidPath) as err:
            return _make(ReadResult, error=_advice(err, file_path))

    def write(self, file_path: str, content: str) -> Any:
        task = None
        try:
            task, at = self._now(), self._path(file_path)
            tag = self._tag(task, at)
            try:
                done = task.files.write(at, content, if_match=tag)
            except UmbraError as err:
                if tag is None or err.status != 412:
                    raise
                return _make(WriteResult, error=f"'{file_path}' was changed by {self._who(task, at)} since you read it; nothing was written. Read it again, then write.")
            self._saw(task, at, done.etag)
            return _make(WriteResult, error=None, path=file_path, files_update=None)
        except (UmbraError, _InvalidPath) as err:
            return _make(WriteResult, error=_advice(err, file_path))

    def edit(self, file_path: str, old_string: str, new_string: str, replace_all: bool = False) -> Any:
        try:
            task, at = self._now(), self._path(file_path)
            tag = self._tag(task, at)
            try:
                done = task.files.edit(at, old_string, new_string, replace_all=replace_all, if_match=tag)
                if tag is not None:
                    self._saw(task, at, done.etag)
            except UmbraError as err:
                if tag is None or err.status != 412:
                    raise
                # An edit matches by content. The tag stays old, so the next overwrite is refused.
                done = task.files.edit(at, old_string, new_string, replace_all=replace_all)
            return _make(EditResult, error=None, path=file_path, files_update=None, occurrences=done.extra.get("occurrences"))
        except (UmbraError, _InvalidPath) as err:
            text = _advice(err, file_path)
            if isinstance(err, UmbraError):
                if err.code == "no_match":
                    text = f"String not found in file: '{old_string}'"
                elif err.code == "many_matches":
                    text = f"String '{old_string}' appears multiple times ({err.body.get('occurrences')}) in file; give more of the text around it, or set replace_all"
            return _make(EditResult, error=text)

    def grep(self, pattern: str, path: str | None = None, glob: str | None = None, *, max_count: int | None = None) -> Any:
        shown = path if path is not None else self._top()
        try:
            base = self._path(shown)
            if pattern == "" or max_count == 0:
                return _make(GrepResult, error=None, matches=[], truncated=False)
            found, truncated = self._now().files.search(pattern, literal=True, path=base, glob=glob, max=max_count if max_count is not None else 10_000)
            matches = [{"path": self._shown(shown, base, m.path), "line": m.line, "text": m.text} for m in found]
            return _make(GrepResult, error=None, matches=matches, truncated=truncated)
        except (UmbraError, _InvalidPath) as err:
            if isinstance(err, UmbraError) and err.code == "file_not_found":
                return _make(GrepResult, error=None, matches=[], truncated=False)
            return _make(GrepResult, error=_advice(err, shown))

    def _top(self) -> str:
        return "/"

    @staticmethod
    def _shown(asked: str, base: str, path: str) -> str:
        if path == base:
            return asked
        below = path if base == "" else path[len(base) + 1:]
        return below if asked in ("", ".") else asked.rstrip("/") + "/" + below

    def glob(self, pattern: str, path: str | None = None) -> Any:
        shown = path if path is not None else self._top()
        try:
            base = self._path(shown)
            found, truncated = self._now().files.glob(pattern.lstrip("/"), path=base, max=10_000)
            matches = [{"path": e.path if base == "" else e.path[len(base) + 1:], "is_dir": e.type == "directory", "size": e.size, "modified_at": e.mtime} for e in found]
            return _make(GlobResult, error=None, matches=matches, truncated=truncated)
        except (UmbraError, _InvalidPath) as err:
            if isinstance(err, UmbraError) and err.code == "file_not_found":
                return _make(GlobResult, error=None, matches=[], truncated=False)
            return _make(GlobResult, error=_advice(err, shown))

    def delete(self, file_path: str) -> Any:
        try:
            task, at = self._now(), self._path(file_path)
            task.files.delete(at, recursive=True)
            self._forget(task, at)
            return _make(DeleteResult, error=None, path=file_path, files_update=None)
        except (UmbraError, _InvalidPath) as err:
            return _make(DeleteResult, error=_advice(err, file_path))

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[Any]:
        task = self._now()
        errors: list[str | None] = [None] * len(files)
        at: list[str] = []
        for i, (path, _) in enumerate(files):
            try:
                at.append(self._path(path))
                if at[-1] == "":
                    raise _InvalidPath(path)
            except _InvalidPath:
                at[i:] = [""]
                errors[i] = "invalid_path"
        while True:
            left = [i for i, e in enumerate(errors) if e is None]
            if not left:
                break
            try:
                done = task.files.batch([{"op": "write", "path": at[i], "content": base64.b64encode(files[i][1]).decode(), "encoding": "base64"} for i in left])
                for i in left:
                    self._renew(task, at[i], done.get("commit"))
                break
            except UmbraError as err:
                named = err.body.get("path") if isinstance(err.body, dict) else None
                bad = [i for i in left if named is not None and (at[i] == named or at[i].startswith(named + "/"))]
                for i in bad or left:
                    errors[i] = _operation_error(err)
        return [_make(FileUploadResponse, path=path, error=errors[i]) for i, (path, _) in enumerate(files)]

    def download_files(self, paths: list[str]) -> list[Any]:
        task = self._now()

        def one(path: str) -> Any:
            try:
                at = self._path(path)
                data, etag = task.files.read_with(at, max_bytes=self._max)
                self._saw(task, at, etag)
                return _make(FileDownloadResponse, path=path, content=data, error=None)
            except (UmbraError, _InvalidPath) as err:
                return _make(FileDownloadResponse, path=path, content=None, error=_operation_error(err))

        if not paths:
            return []
        with ThreadPoolExecutor(min(8, len(paths))) as pool:
            return list(pool.map(one, paths))


def _twin(name: str) -> Callable[..., Any]:
    async def method(self: Any, *args: Any, **options: Any) -> Any:
        return await asyncio.to_thread(getattr(self, name), *args, **options)

    method.__name__ = "a" + name
    return method


for _name in ("ls", "read", "write", "edit", "grep", "glob", "delete", "upload_files", "download_files"):
    setattr(_Files, "a" + _name, _twin(_name))


class UmbraBackend(_Files, _Backend):  # type: ignore[misc, valid-type]
    """Serves all agents of a graph: each call belongs to the subtask of the agent that makes it."""

    def __init__(self, task: Task, *, root: str = "", subtask: Any = "auto", guard: str = "etag", max_read_bytes: int = 10 << 20):
        self._set_up(task, root, subtask, guard, max_read_bytes)


class UmbraSandbox(_Files, _Sandbox):  # type: ignore[misc, valid-type]
    """A backend with a task of its own that can run commands."""

    def __init__(self, client: Client, *, workspace: str | None = None, virtual: bool | list[str] | None = None, goal: str = "deepagents sandbox",
                 initial_files: dict[str, str] | None = None, paths: str = "host", subtask: Any = "auto", guard: str = "etag", max_read_bytes: int = 10 << 20):
        if (workspace is None) == (virtual is None):
            raise TypeError("UmbraSandbox needs one of workspace and virtual")
        self._set_up(None, "", subtask, guard, max_read_bytes)
        self._client, self._workspace, self._virtual, self._goal, self._initial, self._paths = client, workspace, virtual, goal, initial_files or {}, paths
        self._host = ""

    @classmethod
    def create(cls, client: Client, **options: Any) -> "UmbraSandbox":
        sandbox = cls(client, **options)
        sandbox.initialize()
        return sandbox

    @property
    def id(self) -> str:
        """The task's id; empty before initialize()."""
        return self._task.id if self._task is not None else ""

    @property
    def task(self) -> Task | None:
        return self._task

    @property
    def is_running(self) -> bool:
        return self._task is not None

    def initialize(self) -> None:
        if self._task is not None:
            return
        if self._workspace is not None:
            task = self._client.tasks.create(self._goal, self._workspace)
            if self._paths == "host":
                self._host = (task.get().workspace or "").rstrip("/")
        else:
            task = self._client.tasks.create(self._goal, kind="virtual", namespace=self._virtual if isinstance(self._virtual, list) else None)
        self._task = task
        if self._initial:
            for done in self.upload_files([(p, text.encode()) for p, text in self._initial.items()]):
                if done.error:
                    raise ValueError(f"initial_files: {done.path}: {done.error}")

    def _top(self) -> str:
        return self._host or "/"

    def _path(self, path: str) -> str:
        if self._host and path.startswith("/"):
            if path != self._host and not path.startswith(self._host + "/"):
                raise _InvalidPath(path)
            path = path[len(self._host):]
        return _resolve(path, self._root)

    def execute(self, command: str, *, timeout: int | None = None) -> Any:
        """Run a command; output is both streams in the order of arrival, at most what the server answers of them."""
        task = self._now()
        fields = {} if timeout is None else {"timeout_ms": timeout * 1000}
        parts: list[str] = []
        size, cut = 0, False
        try:
            for e in task.exec_stream(command, **fields):
                if e["event"] != "end":
                    cut = cut or size > self._max
                    if not cut:
                        parts.append(e["text"])
                        size += len(e["text"])
                    continue
                done, output = e["result"], "".join(parts)
                for entry in done.get("entries") or []:
                    for path in (entry.get("path"), entry.get("new_path")):
                        if path:
                            self._renew(task, path, entry.get("commit"))  # its own command is no stranger
                if done.get("truncated"):
                    output = output[: len(done.get("stdout") or "") + len(done.get("stderr") or "")]
                return _make(ExecuteResponse, output=output, exit_code=None if done.get("timed_out") else done.get("exit_code"), truncated=bool(done.get("truncated")) or cut)
        except UmbraError as err:
            return _make(ExecuteResponse, output="Error: " + _advice(err, ""), exit_code=1, truncated=False)

    aexecute = _twin("execute")

    def close(self) -> None:
        """Complete the task; its changes stay and can still be undone."""
        task, self._task = self._task, None
        if task is not None:
            task.complete()
