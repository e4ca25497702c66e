package review_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "GET /tasks/{task}/hunks", Status: 200, Has: `"status":"open"`},
		{Request: "GET /tasks/{task}/hunks?status=x", Status: 400, Code: "invalid_parameter"},
		{Request: "GET /tasks/{task}/hunks?path=../x", Status: 400, Code: "bad_path"},
		{Request: "GET /tasks/none/hunks", Status: 404, Code: "task_not_found"},
		{Request: "POST /tasks/{task}/review", Body: `{"accept_rest":true}`, Headers: []string{"X-Task-Id: other"}, Status: 400, Code: "task_id_mismatch"},
		{Request: "POST /tasks/{task}/review", Body: "{}", Status: 422, Code: "validation_failed"},
		{Request: "POST /tasks/{task}/review", Body: `{"accept_rest":true,"plan":"x"}`, Status: 409, Code: "hunk_changed"},
		{Request: "POST /tasks/{task}/review", Body: `{"accept_rest":true,"message":"a\nb"}`, Status: 400, Code: "invalid_field"},
		{Request: "POST /workspaces/{ws}/policy/check", Body: `{"paths":["a.txt"],"task_id":"none"}`, Status: 404, Code: "task_not_found"},
		{Request: "POST /workspaces/none/policy/check", Body: `{"paths":["a.txt"]}`, Status: 404, Code: "workspace_not_found"},
		{Request: "POST /workspaces/{ws}/policy/check", Body: `{"paths":["a.txt"]}`, Status: 200},
		{Request: "POST /tasks/{task}/review", Body: `{"accept_rest":true}`, Status: 200},
		{Request: "GET /tasks/{task}/hunks?status=open", Status: 200, Has: `"hunks":[]`},
	})
}
