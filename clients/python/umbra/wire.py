# Generated from openapi.json by tests/clients (UMBRA_UPDATE=1). Do not edit.
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass
class TaskEntry:
    actor: str | None = None
    after_hash: str | None = None
    before_snapshot: str | None = None
    call_id: str | None = None
    certainty: str | None = None
    claimants: list[str] | None = None
    commit: str | None = None
    id: int | None = None
    message: str | None = None
    mode: str | None = None
    model: str | None = None
    new_path: str | None = None
    operation: str | None = None
    path: str | None = None
    path_encoding: str | None = None
    prompt_id: str | None = None
    reverts: list[int | None] | None = None
    reverts_entries: list[dict[str, Any]] | None = None
    seq: int | None = None
    source: str | None = None
    subtask_id: str | None = None
    task_id: str | None = None
    timestamp: str | None = None
    tool: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskFileEntry:
    created: str | None = None
    etag: str | None = None
    mode: str | None = None
    mtime: str | None = None
    name: str | None = None
    path: str | None = None
    path_encoding: str | None = None
    size: int | None = None
    target: str | None = None
    type: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskListing:
    entries: list[TaskFileEntry] | None = None
    next: str | None = None
    path: str | None = None
    path_encoding: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskMatch:
    after: list[str] | None = None
    before: list[str] | None = None
    column: int | None = None
    line: int | None = None
    path: str | None = None
    path_encoding: str | None = None
    text: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskObject:
    artifacts: str | None = None
    base: str | None = None
    base_dropped: bool | None = None
    changes: int | None = None
    created: str | None = None
    git_dir: str | None = None
    goal: str | None = None
    head: str | None = None
    kind: str | None = None
    metadata: dict[str, Any] | None = None
    pinned: bool | None = None
    ref: str | None = None
    scratch: str | None = None
    status: str | None = None
    subtasks: list[dict[str, Any]] | None = None
    task_id: str | None = None
    updated: str | None = None
    warnings: list[str] | None = None
    workspace: str | None = None
    workspace_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskSkipped:
    path: str | None = None
    path_encoding: str | None = None
    reason: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskSummary:
    created: list[str] | None = None
    deleted: list[str] | None = None
    files: list[dict[str, Any]] | None = None
    modified: list[str] | None = None
    renamed: list[dict[str, Any]] | None = None
    task_id: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class TaskWritten:
    bytes: int | None = None
    change_id: int | None = None
    commit: str | None = None
    etag: str | None = None
    new_path: str | None = None
    new_path_encoding: str | None = None
    operation: str | None = None
    path: str | None = None
    path_encoding: str | None = None
    unrecorded: list[TaskSkipped] | None = None
    extra: dict[str, Any] = field(default_factory=dict)
