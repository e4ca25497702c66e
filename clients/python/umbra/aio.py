"""The same objects for asyncio: one core, threads underneath."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
from typing import Any, AsyncIterator, Callable

from .client import Calls, Client, Files, Forks, Session, Sessions, Task, Tasks, Toolset, Toolsets, Workspace, Workspaces
from .http import Cancel, current_cancel

_OBJECTS = (Calls, Files, Forks, Session, Sessions, Task, Tasks, Toolset, Toolsets, Workspace, Workspaces)
_PLAIN = {"subtask", "as_actor", "task"}
_ITERATORS = {"list", "changes", "hunks", "events", "log", "stream", "exec_stream", "checkpoints"}


async def _run(fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """Run a blocking call in a thread. If the caller is cancelled its connection is closed."""
    return await _run_with(Cancel(), fn, *args, **options)


async def _run_with(cancel: Cancel, fn: Callable[..., Any], *args: Any, **options: Any) -> Any:
    context = contextvars.copy_context()
    context.run(current_cancel.set, cancel)
    future = asyncio.get_running_loop().run_in_executor(None, lambda: context.run(fn, *args, **options))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        cancel.cancel()
        future.add_done_callback(lambda f: f.cancelled() or f.exception())
        raise


_END = object()


async def _iterate(make: Callable[[], Any]) -> AsyncIterator[Any]:
    iterator = make()
    cancel = Cancel()  # one for all steps: a later step reads the connection of an earlier one
    try:
        while True:
            item = await _run_with(cancel, next, iterator, _END)
            if item is _END:
                return
            yield item
    finally:
        with contextlib.suppress(ValueError, RuntimeError):
            iterator.close()


def _wrap(value: Any) -> Any:
    return AsyncObject(value) if isinstance(value, _OBJECTS) else value


class AsyncObject:
    """An object of the client whose methods are coroutines and asynchronous iterators."""

    def __init__(self, inner: Any):
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if isinstance(value, _OBJECTS):
            return AsyncObject(value)
        if not inspect.ismethod(value):
            return value
        if name in _PLAIN:
            return lambda *a, **o: _wrap(value(*a, **o))
        if name in _ITERATORS:
            return lambda *a, **o: _iterate(lambda: iter(value(*a, **o)))
        if name == "call" and isinstance(self._inner, Task):
            return lambda **o: _AsyncCall(value(**o))

        async def method(*a: Any, **o: Any) -> Any:
            return _wrap(await _run(value, *a, **o))

        return method


class _AsyncCall:
    def __init__(self, manager: Any):
        self._manager = manager

    async def __aenter__(self) -> Any:
        return await _run(self._manager.__enter__)

    async def __aexit__(self, kind: Any, err: Any, trace: Any) -> bool | None:
        return await _run(self._manager.__exit__, kind, err, trace)


class AsyncClient(AsyncObject):
    """Client for asyncio. It takes the same arguments."""

    def __init__(self, url: str | None = None, token: Any = None, **options: Any):
        super().__init__(Client(url, token, **options))

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *_: Any) -> None:
        self._inner.close()
