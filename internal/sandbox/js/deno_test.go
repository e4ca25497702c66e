package js

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

// A stand-in for Deno: it shows what it was started with, and does as its
// program says.
const standIn = `#!/bin/sh
text=$(cat)
case "$text" in
loop) exec sleep 60;;
fail) echo oops >&2; exit 3;;
flood) exec yes;;
memory) echo "Fatal: JavaScript heap out of memory" >&2; exit 133;;
esac
echo "$@"; echo "K=$K"
`

func TestDeno(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	need.NoError(t, os.WriteFile(filepath.Join(bin, "deno"), []byte(standIn), 0o700))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	d, err := FindDeno(newPool(t, Options{Output: 1 << 20}), dir)
	need.NoError(t, err)
	for _, x := range []struct {
		code    string
		failure Failure
		exit    int
		timeout time.Duration
	}{
		{"ok", "", 0, 10 * time.Second}, {"loop", FailedTime, -1, 200 * time.Millisecond}, {"fail", FailedExit, 3, 10 * time.Second},
		{"flood", FailedOutput, 1, 20 * time.Second}, {"memory", FailedMemory, 1, 10 * time.Second},
	} {
		out, err := d.Run(context.Background(), Job{Name: "main.ts", Code: x.code, Timeout: x.timeout, Env: map[string]string{"K": "v"}, Args: []string{"one"}})
		need.NoError(t, err)
		if out.Failure != x.failure || out.ExitCode != x.exit {
			t.Errorf("%s: %q %d %s", x.code, out.Failure, out.ExitCode, out.Stderr)
		}
		if x.code == "ok" {
			for _, want := range []string{"--no-prompt", "--allow-read=" + dir, "--allow-env=K", "--no-remote", "- one\nK=v"} {
				if !strings.Contains(string(out.Stdout), want) {
					t.Errorf("not shown: %s in %s", want, out.Stdout)
				}
			}
			if strings.Contains(string(out.Stdout), "--allow-net") || strings.Contains(string(out.Stdout), "--allow-write") {
				t.Errorf("%s", out.Stdout)
			}
		}
	}
}
