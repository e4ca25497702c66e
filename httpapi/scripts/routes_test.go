package scripts_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "POST /scripts/execute", Body: "{}", Status: 400, Code: "invalid_parameter"},
		{Request: "POST /scripts/execute", Body: `{"script":"return 1","timeout_ms":0}`, Status: 400, Code: "invalid_parameter"},
		{Request: "POST /scripts/execute", Body: `{"script":"return 1","language":"lua"}`, Status: 400, Code: "invalid_parameter"},
		{Request: "POST /scripts/execute", Body: `{"script":"return 1"}`, Headers: []string{"X-Task-Id: none"}, Status: 404, Code: "task_not_found"},
		{Request: "POST /scripts/execute", Body: `{"script":"return ("}`, Status: 422, Has: `"type":"`},
		{Request: "POST /scripts/execute", Body: `{"script":"return 1 + 2"}`, Status: 200, Has: `"result":3`},
		{Request: "GET /scripts/sdk", Status: 200, Has: "file"},
	})
}
