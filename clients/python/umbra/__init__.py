"""Client of the umbra workspace server: durable, undoable files for AI agents.

    import umbra

    client = umbra.Client("http://127.0.0.1:8080")
    task = client.tasks.create(goal="add types", kind="virtual")
    task.subtask("alice").files.write("a.txt", "alice\\n")
    task.revert(subtask="alice")

It uses the standard library only. Client is safe for concurrent use by threads;
AsyncClient has the same objects with coroutines and asynchronous iterators.
"""

from .aio import AsyncClient
from .client import Client, Files, Session, Task, Toolset, Workspace
from .errors import UmbraError

__all__ = ["AsyncClient", "Client", "Files", "Session", "Task", "Toolset", "UmbraError", "Workspace"]
