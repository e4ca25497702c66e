// A hook as one would write it in Node: reads the agent's event, and begins or ends a call.
const http = require("node:http");

let text = "";
process.stdin.setEncoding("utf8");
process.stdin.on("data", (part) => (text += part));
process.stdin.on("end", () => {
  const event = JSON.parse(text);
  const id = `node-${event.session_id}-${event.tool_use_id}`;
  const begins = event.hook_event_name === "PreToolUse";
  const body = JSON.stringify(
    begins
      ? { agent: "node", agent_session: event.session_id, cwd: event.cwd, call_id: id, tool: event.tool_name, prompt_id: event.prompt_id }
      : { status: "ok" },
  );
  const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
  const path = begins ? "/calls" : `/calls/${id}/end`;
  const request = http.request(process.argv[2] + path, { method: "POST", headers, agent: false }, (answer) => {
    answer.resume();
    if (answer.statusCode >= 300) process.exitCode = 1;
  });
  request.end(body);
});
