import { AgentMiddleware, ToolMessage, createMiddleware, tool } from "langchain";
import { UmbraError } from "./errors.js";
import { legalSubtask, SubtaskOption, rethrowAbort } from "./adapter.js";
import { subagentOf } from "./subagent.js";
import type { Toolset, Umbra } from "./index.js";

/** StorePort is what a mount's store must be: the seed's port. */
export interface StorePort {
  read(path: string): Promise<string>;
  write(path: string, content: string): Promise<void>;
  edit(path: string, oldString: string, newString: string, replaceAll?: boolean): Promise<void>;
  list(path: string): Promise<string[]>;
}

/** A store of ours: what the server mounts. It can be used alone once a middleware has bound it. */
abstract class Store implements StorePort {
  #bound: { toolset: () => Promise<Toolset>; prefix: string } | undefined;

  abstract spec(): Record<string, unknown>;

  bind(toolset: () => Promise<Toolset>, prefix: string): void {
    this.#bound = { toolset, prefix };
  }

  async #call(name: string, path: string, args: Record<string, unknown> = {}): Promise<string> {
    if (this.#bound === undefined) throw new Error("The store is not mounted.");
    const at = (this.#bound.prefix.replace(/\/+$/, "") + "/" + path.replace(/^\/+/, "")) || "/";
    const done = await (await this.#bound.toolset()).call(name, { path: at, ...args });
    if (done.status === "error") throw new Error(done.content);
    return done.content;
  }

  read(path: string): Promise<string> {
    return this.#call("read_file", path);
  }

  async write(path: string, content: string): Promise<void> {
    await this.#call("write_file", path, { content });
  }

  async edit(path: string, oldString: string, newString: string, replaceAll = false): Promise<void> {
    await this.#call("edit_file", path, { old_string: oldString, new_string: newString, replace_all: replaceAll });
  }

  async list(path: string): Promise<string[]> {
    const text = await this.#call("list_directory", path);
    return text === "" ? [] : text.split("\n");
  }
}

/** PhysicalStore is a directory of the server's machine. */
export class PhysicalStore extends Store {
  readonly root: string;
  constructor(root: string) {
    super();
    this.root = root;
  }
  spec() {
    return { type: "physical", root: this.root };
  }
}

/** VirtualStore is a workspace without a directory, found by its namespace. */
export class VirtualStore extends Store {
  readonly namespace: string[];
  constructor(namespace: string[]) {
    super();
    this.namespace = namespace;
  }
  spec() {
    return { type: "virtual", namespace: this.namespace };
  }
}

export interface Mount {
  prefix: string;
  scope: "READ_ONLY" | "READ_WRITE" | "WRITE_ONLY";
  store: StorePort;
}

export interface WorkspacesOptions {
  umbra: Umbra;
  mounts?: Mount[];
  /** An existing toolset instead of a new one. */
  toolset?: string | Toolset;
  taskId?: string;
  subtask?: SubtaskOption<any>;
}

/** A mount error names the field at fault. */
function withField(err: unknown): unknown {
  if (err instanceof UmbraError) {
    const field = (err.body as any)?.field;
    if (field !== undefined) Object.assign(err, { field });
  }
  return err;
}

function specs(mounts: Mount[]): any[] {
  return mounts.map((m) => {
    if (!(m?.store instanceof Store)) {
      throw new TypeError(`mount ${m?.prefix}: the store must be a PhysicalStore or a VirtualStore; another one would have no history`);
    }
    return { prefix: m.prefix, scope: m.scope, store: m.store.spec() };
  });
}

export type WorkspacesMiddleware = AgentMiddleware & {
  setMounts(mounts: Mount[]): Promise<void>;
  readonly toolset: Promise<Toolset>;
  close(): Promise<void>;
};

/**
 * createWorkspacesMiddleware gives an agent the tools of a toolset and the map
 * of its file system, asked for anew at each turn.
 */
export function createWorkspacesMiddleware(o: WorkspacesOptions): WorkspacesMiddleware {
  if (o?.umbra === undefined) throw new TypeError("createWorkspacesMiddleware needs umbra");
  let mounts = o.mounts ?? [];
  specs(mounts); // a foreign store is an error at once
  let made: Promise<Toolset> | undefined;
  let own = false;
  const toolset = (): Promise<Toolset> => {
    made ??= (async () => {
      if (o.toolset !== undefined) {
        const t = typeof o.toolset === "string" ? await o.umbra.toolsets.get(o.toolset) : o.toolset;
        if (o.mounts !== undefined) await t.setMounts(specs(mounts));
        return t;
      }
      own = true;
      return o.umbra.toolsets.create({ mounts: specs(mounts), ...(o.taskId === undefined ? {} : { taskId: o.taskId }) });
    })().catch((err) => {
      made = undefined;
      throw withField(err);
    });
    return made;
  };
  const bind = () => { for (const m of mounts) (m.store as Store).bind(toolset, m.prefix); };
  bind();

  const subtaskOf = (runtime: any): string | undefined => {
    const config = { configurable: runtime?.configurable ?? runtime?.config?.configurable, metadata: runtime?.metadata ?? runtime?.config?.metadata };
    const id = typeof o.subtask === "function" ? o.subtask(runtime) : o.subtask === undefined || o.subtask === "auto" ? subagentOf(config) : o.subtask;
    return id == null ? undefined : legalSubtask(id);
  };

  /** The names that were ours in any turn: a call of one that is no more allowed is the server's to refuse. */
  const ours = new Set<string>();
  let added = new Set<unknown>();

  const middleware = createMiddleware({
    name: "UmbraWorkspaces",
    wrapModelCall: async (request: any, handler: any) => {
      const signal: AbortSignal | undefined = request.runtime?.signal;
      let turn: { map: string; tools: any[] };
      try {
        turn = await (await toolset()).turn({ format: "langchain", signal });
      } catch (err) {
        rethrowAbort(err, signal);
        if (err instanceof UmbraError && err.code !== "network") throw withField(err);
        // Without the server the model goes on with what it has; its calls say so.
        return handler(request);
      }
      const theirs = (request.tools ?? []).filter((x: unknown) => !added.has(x));
      for (const t of turn.tools) {
        if (theirs.some((x: any) => (x.name ?? x.function?.name) === t.name)) throw new TypeError(`The agent has a tool ${t.name} of its own, which the workspace tools have too; rename it.`);
        ours.add(t.name);
      }
      const tools = turn.tools.map((t) => tool(async () => "", { name: t.name, description: t.description, schema: t.schema }));
      added = new Set(tools);
      const prompt: string | undefined = request.systemPrompt;
      const text = prompt === undefined || prompt === "" ? turn.map : prompt.includes(turn.map) ? prompt : `${prompt}\n\n${turn.map}`;
      return handler({ ...request, tools: [...theirs, ...tools], systemPrompt: text });
    },
    wrapToolCall: async (request: any, handler: any) => {
      const { name, args, id } = request.toolCall;
      if (request.tool !== undefined && !ours.has(name)) return handler(request);
      const signal: AbortSignal | undefined = request.runtime?.signal;
      let status: "success" | "error" = "error";
      let content: string;
      try {
        const done = await (await toolset()).call(String(name), args ?? {}, { subtaskId: subtaskOf(request.runtime), signal });
        status = done.status;
        content = done.content;
      } catch (err) {
        rethrowAbort(err, signal);
        content = err instanceof UmbraError && err.code === "network" ? "Error: The workspace server did not answer; try again." : `Error: ${err instanceof UmbraError ? err.detail : String(err)}`;
      }
      return new ToolMessage({ content, name: String(name), tool_call_id: id ?? "", status });
    },
  });
  return Object.assign(middleware as any, {
    async setMounts(next: Mount[]) {
      const list = specs(next);
      try {
        if (made !== undefined) await (await made).setMounts(list);
      } catch (err) {
        throw withField(err);
      }
      mounts = next;
      bind();
    },
    async close() {
      const t = made === undefined ? undefined : await made.catch(() => undefined);
      made = undefined;
      if (own) await t?.delete();
    },
  }, {}) && Object.defineProperty(middleware, "toolset", { get: toolset, configurable: true }) as any;
}
