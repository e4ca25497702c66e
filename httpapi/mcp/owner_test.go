package mcp

import (
	"testing"

	"umbra/internal/toolset/tool"
)

func TestReads(t *testing.T) {
	for name, want := range map[string]bool{tool.ReadFile: true, tool.WriteFile: false, "tool_of_a_newer_program": false} {
		if reads(name) != want {
			t.Errorf("%s: %v", name, !want)
		}
	}
}
