package blame_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "GET /workspaces/{ws}/blame?path=a.txt", Status: 200, Has: `"task_id":"`},
		{Request: "GET /workspaces/{ws}/blame", Status: 400, Code: "missing_parameter"},
		{Request: "GET /workspaces/{ws}/blame?path=../x", Status: 400, Code: "bad_path"},
		{Request: "GET /workspaces/{ws}/blame?path=none", Status: 404, Code: "file_not_found"},
		{Request: "GET /workspaces/{ws}/blame?path=a.txt&at=zz", Status: 400, Code: "invalid_commit"},
		{Request: "GET /workspaces/none/blame?path=a.txt", Status: 404, Code: "workspace_not_found"},
		{Request: "GET /tasks/{task}/trace", Status: 200},
		{Request: "GET /tasks/none/trace", Status: 404, Code: "task_not_found"},
	})
}
