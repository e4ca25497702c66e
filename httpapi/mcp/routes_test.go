package mcp_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "POST /mcp", Body: `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}`, Headers: []string{"Accept: application/json, text/event-stream"}, Status: 200, Has: `"serverInfo"`},
		{Request: "POST /mcp", Body: `{"jsonrpc"`, Headers: []string{"Accept: application/json, text/event-stream"}, Status: 400, Has: `"code":-32700,"message":"Parse error: `},
		{Request: "POST /mcp/none", Body: "{}", Status: 404, Code: "toolset_not_found"},
		{Request: "DELETE /mcp/none", Status: 404, Code: "toolset_not_found"},
	})
}
