package server

import (
	"testing"
)

// A server that listens everywhere is called by one name.
func TestWelcomeBase(t *testing.T) {
	for address, want := range map[string]string{
		"http://127.0.0.1:8080": "http://127.0.0.1:8080",
		"http://0.0.0.0:80":     "http://127.0.0.1:80",
		"http://[::]:9000":      "http://[::1]:9000",
		"http://10.0.0.7:1":     "http://10.0.0.7:1",
		"unix:/run/umbra.sock":  "",
		"":                      "",
	} {
		if got := (Welcome{Address: address}).Base(); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}
