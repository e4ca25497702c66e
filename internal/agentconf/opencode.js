// Made by `umbra init`: tells umbra when a tool begins and ends, so that what it
// changes on disk is recorded as this session's work. `umbra init --remove` takes
// it out.
import { spawn } from "node:child_process"

const command = ["umbra", "hook", "generic"]
// Tools that change no file; a sub-agent's own tools are seen themselves.
const quiet = new Set(["read", "glob", "grep", "list", "webfetch", "websearch", "todowrite", "todoread", "task", "question", "skill"])

// Runs the hook. It answers within 2 s, and with nothing if there is no server.
const hook = (body) =>
  new Promise((resolve) => {
    try {
      const child = spawn(command[0], command.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
      let out = ""
      child.stdout.on("data", (data) => (out += data))
      child.on("error", () => resolve(undefined))
      child.on("close", () => {
        try {
          resolve(JSON.parse(out))
        } catch {
          resolve(undefined)
        }
      })
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify(body))
    } catch {
      resolve(undefined)
    }
  })

const who = (x) => (x.task_id ? `task ${x.task_id}` : x.actor || "the user or another program")
const list = (items, text) => items.map((x) => `- ${JSON.stringify(x.path)} ${text(x)}`).join("\n")

// What the model is told with a tool's output.
const advice = (others, ended) => {
  const parts = []
  if (others?.length)
    parts.push("umbra: others changed these files since your last tool call; read them again before you edit them:\n" +
      list(others, (x) => `${x.lines ? `lines ${x.lines} ` : ""}(${x.operation} by ${who(x)})`))
  if (ended?.overwrote?.length)
    parts.push("umbra: this tool call deleted or replaced content of others that no commit of the project has:\n" +
      list(ended.overwrote, (x) => `(last written by ${who(x)})`) + `\nIf that was not intended, run: ${ended.undo}`)
  return parts.join("\n")
}

export const Umbra = async ({ directory }) => {
  const parents = new Map() // of sub-agents' sessions
  const prompts = new Map() // the user's message, by session
  const open = new Map() // calls: their session, and what others changed
  const root = (id) => {
    while (parents.has(id)) id = parents.get(id)
    return id
  }
  const name = (session, call) => `${session}-${call}`
  const end = async (session, call, status) => {
    const id = name(session, call)
    const begun = open.get(id)
    if (!begun) return ""
    open.delete(id)
    const ended = await hook({ phase: "end", agent: "opencode", agent_session: root(session), call_id: id, status })
    return process.env.UMBRA_HOOKS_CONTEXT === "off" ? "" : advice(begun.others, ended)
  }
  const endAll = async (session) => {
    for (const [id, begun] of [...open])
      if (begun.session === session) await end(session, id.slice(session.length + 1), "cancelled")
  }
  return {
    "chat.message": async (input, output) => {
      const id = input.messageID ?? output?.message?.id
      if (id) prompts.set(input.sessionID, id)
      await endAll(input.sessionID)
    },
    "tool.execute.before": async (input, output) => {
      if (quiet.has(input.tool)) return
      const top = root(input.sessionID)
      const body = {
        phase: "begin", agent: "opencode", agent_session: top, cwd: directory,
        call_id: name(input.sessionID, input.callID), tool: input.tool, tool_input: output?.args ?? {},
      }
      if (top !== input.sessionID) body.subtask_id = input.sessionID
      if (prompts.has(top)) body.prompt_id = prompts.get(top)
      const begun = await hook(body)
      if (begun) open.set(body.call_id, { session: input.sessionID, others: begun.others })
    },
    "tool.execute.after": async (input, output) => {
      const text = await end(input.sessionID, input.callID, "ok")
      if (text && typeof output?.output === "string") output.output += `\n\n${text}`
    },
    event: async ({ event }) => {
      const p = event.properties ?? {}
      if (event.type === "session.created" && p.info?.parentID) parents.set(p.info.id, p.info.parentID)
      // A tool that throws has no tool.execute.after.
      if (event.type === "message.part.updated" && p.part?.type === "tool" && p.part.state?.status === "error")
        await end(p.part.sessionID, p.part.callID, "failed")
      if (event.type === "session.idle" || event.type === "session.deleted") await endAll(p.sessionID ?? p.info?.id)
    },
  }
}
