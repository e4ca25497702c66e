package exec_test

import (
	"testing"

	"umbra/config"
	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t, func(cfg *config.Config) { cfg.Exec.Enabled = true })
	s.Check([]servertest.Case{
		{Request: "GET /layers", Status: 200, Has: `"layers":[]`},
		{Request: "POST /layers", Body: `{"cwd":"{root}"}`, Status: 403, Code: "local_only"},
		{Request: "POST /layers", Body: `{"dir":"{root}"}`, Status: 400, Code: "unknown_field"},
		{Request: "POST /layers/none/apply", Status: 404, Code: "layer_not_found"},
		{Request: "DELETE /layers/none", Status: 404, Code: "layer_not_found"},
		{Request: "POST /tasks/none/exec", Body: `{"command":"true"}`, Status: 404, Code: "task_not_found"},
		{Request: "POST /tasks/{task}/exec", Body: `{"command":"true"}`, Headers: []string{"X-Task-Id: other"}, Status: 400, Code: "task_id_mismatch"},
	})
}

func TestCommandsAreOff(t *testing.T) {
	servertest.New(t).Check([]servertest.Case{
		{Request: "POST /tasks/{task}/exec", Body: `{"command":"true"}`, Status: 403, Code: "exec_disabled"},
	})
}
