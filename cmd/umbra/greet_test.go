package main

import (
	"os/exec"
	"testing"

	"umbra/internal/need"
)

// What is quoted for a shell comes out of one as it was.
func TestShellWord(t *testing.T) {
	sh := need.Tool(t, "sh")
	for _, word := range []string{"", "plain", "/a/b-c_d.e:1", "two words", "it's", "$HOME `x` \"y\" \\ * ? [a] !", "ü\n\tz", "-x", "#", "~"} {
		out, err := exec.Command(sh, "-c", "printf %s "+shellWord(word)).Output()
		if err != nil || string(out) != word {
			t.Errorf("%q as %s is %q: %v", word, shellWord(word), out, err)
		}
	}
}

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
		if got := (welcome{address: address}).base(); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}
