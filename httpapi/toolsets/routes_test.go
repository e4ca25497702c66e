package toolsets_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	var made struct{ ID string }
	s.Into(&made, "POST", "/toolsets", `{"mounts":[{"prefix":"/","scope":"READ_WRITE","store":{"type":"physical","root":"{root}"}}]}`)
	s.Names["set"] = made.ID
	s.Check([]servertest.Case{
		{Request: "GET /toolsets", Status: 200, Has: `"id":"{set}"`},
		{Request: "POST /toolsets", Body: "{}", Status: 400, Code: "invalid_field"},
		{Request: "POST /toolsets", Body: `{"mounts":[{"prefix":"/","scope":"x","store":{"type":"physical","root":"{root}"}}]}`, Status: 400, Code: "invalid_field"},
		{Request: "POST /toolsets", Body: `{"mounts":[],"idleSeconds":0}`, Status: 400, Code: "invalid_field"},
		{Request: "GET /toolsets/none", Status: 404, Code: "toolset_not_found"},
		{Request: "DELETE /toolsets/none", Status: 404, Code: "toolset_not_found"},
		{Request: "GET /toolsets/none/tools", Status: 404, Code: "toolset_not_found"},
		{Request: "GET /toolsets/{set}", Status: 200, Has: `"mounts":[`},
		{Request: "GET /toolsets/{set}/tools?format=x", Status: 400, Code: "invalid_parameter"},
		{Request: "GET /toolsets/{set}/tools?format=openai", Status: 200, Has: `"read_file"`},
		{Request: "GET /toolsets/{set}/filesystem-map", Status: 200, Has: "/"},
		{Request: "POST /toolsets/{set}/call", Body: `{"name":"read_file","arguments":{"path":"/a.txt"}}`, Status: 200, Has: "one"},
		{Request: "POST /toolsets/{set}/call", Body: `{"arguments":{}}`, Status: 400, Code: "invalid_field"},
		{Request: "DELETE /toolsets/{set}", Status: 204},
	})
}
