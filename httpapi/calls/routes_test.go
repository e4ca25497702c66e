package calls_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "POST /calls", Body: `{"call_id":"one","agent":"codex","agent_session":"s","cwd":"{root}"}`, Status: 201, Has: `"call_id":"one"`},
		{Request: "POST /calls", Body: `{"call_id":"one","agent":"codex","agent_session":"s","cwd":"{root}"}`, Status: 200, Has: `"call_id":"one"`},
		{Request: "POST /calls", Body: `{"agent":"codex","agent_session":"s","cwd":"{root}","ttl_s":1}`, Status: 400, Code: "invalid_field"},
		{Request: "POST /calls", Body: `{"agents":"codex"}`, Status: 400, Code: "unknown_field"},
		{Request: "POST /calls", Body: `{"agent":"codex","agent_session":"s","cwd":"{root}","actor":"<"}`, Status: 400, Code: "invalid_field"},
		{Request: "POST /calls", Body: `{"agent":"codex","agent_session":"s","cwd":"{root}","task_id":"{task}"}`, Headers: []string{"X-Task-Id: other"}, Status: 400, Code: "task_id_mismatch"},
		{Request: "GET /calls/one", Status: 200, Has: `"call_id":"one"`},
		{Request: "GET /calls/none", Status: 404, Code: "call_not_found"},
		{Request: "POST /calls/none/touch", Status: 404, Code: "call_not_found"},
		{Request: "POST /calls/one/touch", Status: 200},
		{Request: "POST /calls/one/end", Status: 200},
		{Request: "POST /calls/one/revert", Body: `{"dry_run":true}`, Status: 200},
		{Request: "GET /calls?workspace_id={ws}", Status: 200, Has: `"one"`},
	})
}
