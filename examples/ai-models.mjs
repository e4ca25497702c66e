// A model of the AI SDK that follows a script, so that the examples run without an account.
import { MockLanguageModelV4, convertArrayToReadableStream } from "ai/test";

const usage = { inputTokens: { total: 1, noCache: 1 }, outputTokens: { total: 1, text: 1 } };

/** scripted makes the calls of one turn after another, then says that it is done. */
export function scripted(turns) {
  let turn = 0;
  const next = () => {
    const calls = turns[turn++];
    if (calls === undefined) return { content: [{ type: "text", text: "Done." }], finishReason: { unified: "stop" }, usage, warnings: [] };
    return { content: calls.map(([toolName, input], n) => ({ type: "tool-call", toolCallId: `c${turn}-${n}`, toolName, input: JSON.stringify(input) })), finishReason: { unified: "tool-calls" }, usage, warnings: [] };
  };
  return new MockLanguageModelV4({
    doGenerate: async () => next(),
    doStream: async () => {
      const { content, finishReason } = next();
      const parts = content.flatMap((c) => (c.type === "text" ? [{ type: "text-start", id: "t" }, { type: "text-delta", id: "t", delta: c.text }, { type: "text-end", id: "t" }] : [c]));
      return { stream: convertArrayToReadableStream([{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason, usage }]) };
    },
  });
}
