// Models that follow a script, so that the examples run without an account.
import { AIMessage } from "@langchain/core/messages";
import { fakeModel } from "@langchain/core/testing";

/** chat is a LangChain model: a script of calls a turn for each agent, found by its task's text. */
export function chat(scripts) {
  const model = fakeModel();
  for (let i = 0; i < 50; i++) {
    model.respond((messages) => {
      const asked = String(messages.find((m) => m.getType() === "human").content);
      const turn = messages.filter((m) => m.getType() === "ai").length;
      const calls = scripts[asked]?.[turn];
      return calls === undefined ? new AIMessage("Done.") : new AIMessage({ content: "", tool_calls: calls.map(([name, args], n) => ({ type: "tool_call", id: `${asked}-${turn}-${n}`, name, args })) });
    });
  }
  return model;
}
