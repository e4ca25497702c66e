package server

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"umbra/gitstore/message"
	"umbra/httpapi/scripts"
	"umbra/internal/script"
	"umbra/internal/toolset"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
	"umbra/internal/workspace"
)

const scriptDescription = `Run a script in sandboxed Luau. The value that it returns is the result; print writes to the log; json.encode and json.decode convert. ` +
	`file.save(filename, content) saves a file and returns its absolute path, where other tools find it. The answer is JSON: result or error, logs, stats, files_written.`

// scriptTool is execute_script: POST /scripts/execute for a model, with the
// same arguments and the same answer.
func scriptTool(runner *script.Service) toolset.Extra {
	text := scriptDescription
	if d := runner.Declarations(); d != "" {
		text += "\n\n" + d
	}
	return toolset.Extra{
		Tool: tool.Tool{
			Name: "execute_script", Title: "Execute script", Description: text,
			Params: []tool.Param{
				{Name: "script", Type: tool.String, Required: true, Description: "The Luau source"},
				{Name: "timeout_ms", Type: tool.Integer, Description: "How long it may run, 1 to 300000 milliseconds; 30000 if not given"},
				{Name: "language", Type: tool.String, Description: "luau"},
			},
			Scopes: []mount.Scope{mount.ReadWrite, mount.WriteOnly},
			Hints:  tool.Hints{Destructive: true, OpenWorld: true},
		},
		Run: func(ctx context.Context, c toolset.Call, args tool.Args) (string, bool, error) {
			ms := args.Int("timeout_ms", 0)
			switch {
			case args.Has("timeout_ms") && (ms < 1 || ms > script.MaxTimeout.Milliseconds()):
				return fmt.Sprintf("Error: timeout_ms must be 1 to %d", script.MaxTimeout.Milliseconds()), true, nil
			case args.Has("language") && args.Str("language") != "luau":
				return "Error: language must be luau", true, nil
			}
			res, err := runner.Execute(ctx, script.Request{Script: args.Str("script"), Timeout: time.Duration(ms) * time.Millisecond, Begin: c.Begin,
				Owner: script.Owner{By: workspace.By{SubtaskID: c.SubtaskID, Actor: c.Actor, RequestID: c.RequestID, Source: message.Script}, Task: c.TaskID, Sees: c.Sees}})
			if err != nil {
				return "", true, err
			}
			var b bytes.Buffer
			e := json.NewEncoder(&b)
			e.SetEscapeHTML(false)
			if err := e.Encode(scripts.AnswerOf(res)); err != nil {
				return "", true, err
			}
			return string(bytes.TrimSpace(b.Bytes())), res.Err != nil, nil
		},
	}
}
