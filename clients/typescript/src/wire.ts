// Generated from openapi.json by tests/clients (UMBRA_UPDATE=1). Do not edit.

export type TaskCommitId = string | null;

export interface TaskEntry {
  actor: string;
  after_hash: string | null;
  before_snapshot: string | null;
  call_id?: string | null;
  certainty?: "exact" | "declared" | "window" | "shared" | null;
  claimants?: (string)[];
  commit: TaskCommitId;
  id: number | null;
  message?: string | null;
  mode: "100644" | "100755" | "120000" | "040000" | null;
  model?: string;
  new_path: string | null;
  operation: "create" | "modify" | "delete" | "rename" | "chmod" | "mkdir" | "rmdir" | "symlink";
  path: string;
  path_encoding?: TaskPathEncoding;
  prompt_id?: string;
  reverts: (number | null)[] | null;
  reverts_entries?: ({ id: number; task_id: string | null })[];
  seq: number | null;
  source: "api" | "script" | "external" | "revert" | "baseline" | "rollback" | "call" | "shared";
  subtask_id: string | null;
  task_id: string | null;
  timestamp: string;
  tool?: string | null;
}

export interface TaskFileEntry {
  created?: string;
  etag?: string;
  mode: string;
  mtime: string;
  name: string;
  path: string;
  path_encoding?: TaskPathEncoding;
  size: number;
  target?: string;
  type: "file" | "directory" | "symlink";
}

export interface TaskListing {
  entries: (TaskFileEntry)[];
  next: string | null;
  path: string;
  path_encoding?: TaskPathEncoding;
}

export interface TaskMatch {
  after: (string)[];
  before: (string)[];
  column: number;
  line: number;
  path: string;
  path_encoding?: TaskPathEncoding;
  text: string;
}

export interface TaskObject {
  artifacts: string;
  base: string;
  base_dropped: boolean;
  changes: number;
  created: string;
  git_dir: string;
  goal: string;
  head: string;
  kind?: "physical" | "virtual";
  metadata: Record<string, unknown>;
  pinned: boolean;
  ref: string;
  scratch: string;
  status: TaskStatus;
  subtasks: ({ changes: number; first: number; id: string; last: number })[];
  task_id: string;
  updated: string;
  warnings: (string)[];
  workspace: string | null;
  workspace_id: string;
}

export type TaskPathEncoding = "percent" | null;

export interface TaskSkipped {
  path: string;
  path_encoding?: TaskPathEncoding;
  reason: string;
}

export type TaskStatus = "executing" | "paused" | "completed" | "failed" | "cancelled";

export interface TaskSummary {
  created: (string)[];
  deleted: (string)[];
  files: ({ additions: number; after: string | null; before: string | null; binary: boolean; deletions: number; from?: string; from_encoding?: TaskPathEncoding; mixed: boolean; path: string; path_encoding?: TaskPathEncoding; shared?: boolean; status: "created" | "modified" | "deleted" | "renamed"; subtasks: (string)[] })[];
  modified: (string)[];
  renamed: ({ from: string; from_encoding?: TaskPathEncoding; modified: boolean; to: string; to_encoding?: TaskPathEncoding })[];
  task_id: string;
}

export interface TaskWritten {
  bytes: number | null;
  change_id: number | null;
  commit: TaskCommitId;
  etag: string | null;
  new_path?: string | null;
  new_path_encoding?: TaskPathEncoding;
  operation: string | null;
  path: string;
  path_encoding?: TaskPathEncoding;
  unrecorded?: (TaskSkipped)[];
}
