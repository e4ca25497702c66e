// What the server answers (openapi.json), as far as the pages use it.

export type Status = "executing" | "paused" | "completed" | "failed" | "cancelled";

export interface Subtask {
  id: string;
  changes: number;
  first: number;
  last: number;
}

export interface Task {
  task_id: string;
  goal: string;
  kind: string;
  workspace: string | null;
  workspace_id: string;
  base: string;
  head: string;
  status: Status;
  metadata: Record<string, unknown>;
  warnings: string[];
  created: string;
  updated: string;
  changes: number;
  subtasks: Subtask[];
}

export interface Workspace {
  id: string;
  root: string | null;
  kind: string;
  head: string | null;
  state: string;
  tasks: number;
  warnings: string[];
  git_dir: string;
  created: string;
  fork_of?: string;
  fork_at?: string;
  name?: string;
  expires_at?: string;
  judged?: Judgment;
}

/** Judgment is how a race ended for a fork. */
export interface Judgment {
  passed: boolean;
  score: number | null;
  exit_code: number | null;
  seconds: number;
  command: string;
  at: string;
}

/** MergeWho is who made one side of a conflict. */
export interface MergeWho {
  commit: string | null;
  task_id: string | null;
  subtask_id: string | null;
  actor: string | null;
  source: string | null;
  at: string | null;
}

export interface MergeConflict {
  path: string;
  path_encoding?: string;
  here?: string;
  here_encoding?: string;
  reason: string;
  ours: MergeWho | null;
  theirs: MergeWho | null;
}

export interface MergeAnswer {
  commits: string[];
  merged: number;
  skipped: { path: string; path_encoding?: string }[];
  conflicts: MergeConflict[];
  files: { path: string; path_encoding?: string; action: "created" | "modified" | "deleted" }[];
  plan: string;
  reverted: number;
  history_dropped: boolean;
  task_id: string | null;
}

export interface Entry {
  id: number | null;
  seq: number;
  task_id: string | null;
  timestamp: string;
  subtask_id: string | null;
  operation: string;
  path: string;
  new_path: string | null;
  path_encoding?: string;
  before_snapshot: string | null;
  after_hash: string | null;
  mode: string | null;
  commit: string;
  actor: string;
  reverts: number[] | null;
  source: string;
  message?: string | null;
  call_id?: string | null;
  tool?: string | null;
  certainty?: Certainty | null;
  claimants?: string[];
  model?: string;
  prompt_id?: string;
  /** policy is the rules that the change is against. */
  policy?: string[];
}

/** Lines is where a piece of a difference is, its state and its text. */
interface Lines {
  id: string;
  old_start: number;
  old_lines: number;
  new_start: number;
  new_lines: number;
  status: "open" | "accepted" | "rejected";
  text: string;
  text_encoding?: string;
}

/** Hunk is one piece of a task's net difference; parts are its changes, each of which can be decided on alone. */
export interface Hunk extends Lines {
  path: string;
  path_encoding?: string;
  old_path?: string;
  subtasks: string[];
  calls: string[];
  entries: number[];
  certainty: Certainty | null;
  mixed: boolean;
  /** held: its rejection waits until no call of the task is open. */
  held?: boolean;
  parts?: Lines[];
}

/** BlameRange is adjacent lines of a file that one commit wrote. */
export interface BlameRange {
  start: number;
  end: number;
  commit: string;
  origin_path: string;
  origin_path_encoding?: string;
  task_id: string | null;
  subtask_id: string | null;
  actor: string | null;
  agent: string | null;
  tool: string | null;
  certainty: Certainty | null;
  source: string;
  at: string;
  project?: { commit: string; author: string; at: string };
}

/** Checkpoint is a named moment of a workspace's history. */
export interface Checkpoint {
  name: string;
  message: string;
  actor: string | null;
  commit: string;
  /** seq is the commit's number in the log; null where a tag names something else. */
  seq: number | null;
  at: string;
}

/** Certainty is how it is known whose a change on disk is. */
export type Certainty = "exact" | "declared" | "window" | "shared";

/** Call is the time in which one tool of one agent worked. */
export interface Call {
  call_id: string;
  task_id: string;
  subtask_id: string | null;
  workspace_id: string;
  agent: string | null;
  agent_session: string | null;
  tool: string | null;
  model: string | null;
  prompt_id: string | null;
  status: "open" | "ok" | "failed" | "cancelled" | "lost";
  begun: string;
  ended: string | null;
}

export interface FileChange {
  path: string;
  path_encoding?: string;
  from?: string | null;
  from_encoding?: string;
  status: "created" | "modified" | "deleted" | "renamed";
  additions: number;
  deletions: number;
  binary: boolean;
  before: string | null;
  after: string | null;
  mixed?: boolean;
  subtasks: string[];
}

export interface Diff {
  path?: string | null;
  diff: string;
  diff_encoding?: string;
  additions: number;
  deletions: number;
  binary: boolean;
  before?: string | null;
  after?: string | null;
  mixed?: boolean;
}

export interface PlannedFile {
  path: string;
  path_encoding?: string;
  action: "restored" | "deleted" | "renamed" | "merged" | "unchanged";
  source: string;
  /** diff, of a dry run that asks for it, is from what the file is now to what it will be. */
  diff?: string;
  diff_encoding?: string;
}

export interface Conflict {
  path: string;
  path_encoding?: string;
  reason: string;
  entry: number | null;
  changed_by: { commit: string | null; task_id: string | null; subtask_id: string | null; actor: string | null };
}

/** LeftChange is a change that a revert leaves, since it may be another's. */
export interface LeftChange {
  path: string;
  path_encoding?: string;
  entry: number | null;
  at: string;
}

export interface RevertAnswer {
  commit: string | null;
  entries_reverted: number;
  files: PlannedFile[];
  conflicts: Conflict[];
  external: LeftChange[];
  shared: LeftChange[];
  dry_run: boolean;
  plan: string | null;
}

export interface Commit {
  commit: string;
  parent: string | null;
  seq: number;
  timestamp: string;
  subject: string;
  task_id: string | null;
  subtask_id: string | null;
  actor: string;
  source: string;
  request_id: string | null;
  reverts: string[];
  entries: Entry[];
}

export interface StreamData {
  seq: number;
  commit: string;
  task_id: string | null;
  subtask_id: string | null;
  source: string;
  entries: Entry[];
}
