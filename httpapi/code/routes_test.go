package code_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "PUT /workspace", Body: `{"code":"1"}`, Status: 400, Code: "ValidationError"},
		{Request: "PUT /workspace", Body: `{"codeId":"../x","code":"1"}`, Status: 400, Code: "ValidationError"},
		{Request: "PUT /workspace", Body: `{"codeId":"a","code":"export const a = 1\n"}`, Status: 200, Has: `"success":true`},
		{Request: "GET /workspace/a", Status: 200, Has: `"version":1`},
		{Request: "GET /workspace/none", Status: 404, Code: "FileNotFoundError"},
		{Request: "GET /workspace/a/versions", Status: 200, Has: `"version":1`},
		{Request: "GET /workspace", Status: 200, Has: `"a"`},
		{Request: "POST /execute", Body: "{}", Status: 400, Code: "ValidationError"},
		{Request: "POST /lint", Body: "{}", Status: 400, Code: "ValidationError"},
		{Request: "DELETE /workspace/none", Status: 404, Code: "FileNotFoundError"},
		{Request: "DELETE /workspace/a", Status: 200, Has: `"success":true`},
	})
}
