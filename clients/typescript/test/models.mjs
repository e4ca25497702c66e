import { MockLanguageModelV4, convertArrayToReadableStream } from "ai/test";

const usage = { inputTokens: { total: 1, noCache: 1 }, outputTokens: { total: 1, text: 1 } };

/** scripted plays one turn after another: a list of calls `[name, input]`, or a text. */
export function scripted(turns) {
  let turn = 0;
  const next = () => {
    const said = turns[Math.min(turn++, turns.length - 1)];
    if (typeof said === "string") return { content: [{ type: "text", text: said }], finishReason: { unified: "stop" }, usage, warnings: [] };
    return { content: said.map(([toolName, input], i) => ({ type: "tool-call", toolCallId: `c${turn}-${i}`, toolName, input: JSON.stringify(input) })), finishReason: { unified: "tool-calls" }, usage, warnings: [] };
  };
  return new MockLanguageModelV4({
    doGenerate: async () => next(),
    doStream: async () => {
      const { content, finishReason } = next();
      const parts = content.flatMap((c, i) => (c.type === "text" ? [{ type: "text-start", id: `${i}` }, { type: "text-delta", id: `${i}`, delta: c.text }, { type: "text-end", id: `${i}` }] : [c]));
      return { stream: convertArrayToReadableStream([{ type: "stream-start", warnings: [] }, ...parts, { type: "finish", finishReason, usage }]) };
    },
  });
}
