package ui_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "GET /ui/none.js", Status: 404, Code: "not_found"},
		{Request: "GET /ui/index.html", Status: 404, Code: "not_found"},
	})
}
