package mcplink

import (
	"errors"
	"testing"

	"umbra/internal/client"
	"umbra/internal/need"
)

// TestRefusedMount: the server's refusal of a mount names it as the user gave it.
func TestRefusedMount(t *testing.T) {
	mounts, err := ParseMounts([]string{"/a=/somewhere", "/b=virtual:x/y"})
	need.NoError(t, err)
	for field, want := range map[string]string{
		"mounts[0].store.root":      "--mount /a=/somewhere: It does not exist (code)",
		"mounts[1].store.namespace": "--mount /b=virtual:x/y: It does not exist (code)",
		"mounts[2]":                 "It does not exist (code)",
		"mounts":                    "It does not exist (code)",
	} {
		refused := &client.Error{Status: 400, Code: "code", Detail: "It does not exist.", Body: []byte(`{"field":"` + field + `"}`)}
		got := ofMount(refused, mounts)
		if got.Error() != want || !errors.Is(got, refused) {
			t.Errorf("%s: %v", field, got)
		}
	}
}
