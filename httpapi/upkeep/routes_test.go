package upkeep_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "GET /upkeep/tokens", Status: 200, Has: `"tokens":[]`},
		{Request: "POST /upkeep/tokens", Body: `{"name":"a","scope":"all"}`, Status: 400, Code: "invalid_field"},
		{Request: "POST /upkeep/tokens", Body: `{"name":"a","scope":"read","expires":"soon"}`, Status: 400, Code: "invalid_field"},
		{Request: "POST /upkeep/tokens", Body: `{"name":"a","scope":"read","roots":["x"]}`, Status: 400, Code: "invalid_field"},
		{Request: "DELETE /upkeep/tokens/none", Status: 404, Code: "token_not_found"},
		{Request: "GET /upkeep/du", Status: 200, Has: `"workspace":"{ws}"`},
		{Request: "GET /upkeep/du?by=x", Status: 400, Code: "invalid_parameter"},
		{Request: "POST /upkeep/gc", Body: `{"workspaces":["none"]}`, Status: 404, Code: "workspace_not_found"},
		{Request: "POST /upkeep/gc", Body: `{"dry_run":true}`, Status: 200, Has: `"dry_run":true`},
		{Request: "POST /upkeep/purge", Body: "{}", Status: 400},
		{Request: "POST /upkeep/backup", Body: `{"dir":"relative"}`, Status: 400},
		{Request: "POST /upkeep/doctor", Status: 200},
	})
}
