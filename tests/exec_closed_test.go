package tests

import (
	"testing"

	"umbra/internal/need"
)

// TestExecClosesDirectories: an ordinary user's commands take rights from directories
// that they change, and give them back. The server, which has no more rights, applies that,
// and goes on after a kill.
func TestExecClosesDirectories(t *testing.T) {
	for _, lines := range [][]string{
		{"echo n > d/n; echo o > d/n.o; chmod 000 d"},
		{"mkdir -p out/e; echo y > out/e/y; chmod 000 out/e; chmod 000 out"},
		{"mkdir -p n/m; echo y > n/m/y; echo o > n/m/y.o; chmod 000 n/m; chmod 000 n"},
		{"chmod 600 d", "chmod 755 d; echo n > d/n; rm d/a; echo b >> d/m.o; chmod 600 d"},
		{"mkdir e; chmod 600 e", "rmdir e; mkdir e; echo x > e/x"},
		{"rm d/m.o; chmod 600 d", "chmod 700 d; rm -rf d; ln -s a d"},
		{"chmod 000 out", "chmod 700 out; rm -rf out; mkdir out; echo x > out/x"},
		{"chmod 000 out", "echo x > a"},
		{"mkdir -p out/e; chmod 000 out/e", "rm -rf out"},
		{"chmod 700 out; mv d out/d; chmod 0 out/d; chmod 0 out"},
	} {
		t.Run(lines[len(lines)-1], func(t *testing.T) {
			u := newOrdinary(t, map[string]string{"a": "a\n", "d/a": "da\n", "d/m.o": "o\n", "out/a": "oa\n", ".gitignore": "out/\n*.o\n"})
			for _, line := range lines {
				r, _, errOut := u.run(t, line)
				if got, want := u.plainly(t, line); r.ExitCode != 0 || got != want {
					t.Fatalf("%q: %+v %s\ngot\n%s\nwant\n%s", line, r, errOut, got, want)
				}
			}
			before := need.Tree(t, u.dir)
			u.Kill()
			u.Restart()
			u.post(t, "/workspaces/"+u.workspace(t)+"/sync", map[string]any{}).want(t, 200)
			if now := need.Tree(t, u.dir); now != before {
				t.Errorf("after a kill\n%s\nbefore\n%s", now, before)
			}
			var left struct{ Layers []any }
			if u.call(t, "GET", "/layers", nil).want(t, 200).into(t, &left); len(left.Layers) > 0 {
				t.Error(left)
			}
		})
	}
}
