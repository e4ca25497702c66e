package blame_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"umbra/internal/blame"
	"umbra/internal/need"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// apply makes one commit.
func apply(t *testing.T, w *workspace.Workspace, ops ...workspace.Op) {
	t.Helper()
	if _, err := w.Apply(t.Context(), workspace.Request{By: workspace.By{TaskID: "t", Actor: "somebody else"}, Ops: ops}); err != nil {
		t.Fatal(err)
	}
}

func write(p, data string) workspace.Op {
	return workspace.Op{Kind: workspace.OpWrite, Path: wspath.Path(p), Data: []byte(data)}
}

// porcelain is the server's form of what git prints.
func porcelain(t *testing.T, s *blame.Cache, w *workspace.Workspace, p string, whitespace bool, from, to int) string {
	t.Helper()
	a, err := s.Lines(t.Context(), w, blame.Request{Path: wspath.Path(p), At: w.Store().Tip().Commit, Whitespace: whitespace})
	need.NoError(t, err)
	var out bytes.Buffer
	need.NoError(t, a.Porcelain(t.Context(), w, &out, from, to))
	return out.String()
}

func gitBlame(t *testing.T, w *workspace.Workspace, p string, more ...string) string {
	t.Helper()
	need.NoError(t, w.Store().Publish(t.Context()))
	cmd := exec.Command("git", append(append([]string{"--git-dir", w.GitDir(), "blame", "--porcelain"}, more...), "refs/heads/shadow", "--", p)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git blame: %v", err)
	}
	return string(out)
}

// edit changes random lines of a text; few different lines, so that many are
// equal.
func edit(rnd *rand.Rand, lines []string, alphabet int) []string {
	out := append([]string{}, lines...)
	for range 1 + rnd.IntN(3) {
		at := rnd.IntN(len(out) + 1)
		end := min(len(out), at+rnd.IntN(4))
		var add []string
		for range rnd.IntN(5) {
			add = append(add, line(rnd, alphabet))
		}
		out = append(out[:at:at], append(add, out[end:]...)...)
	}
	return out
}

func line(rnd *rand.Rand, alphabet int) string {
	n := rnd.IntN(alphabet)
	switch n % 5 {
	case 0:
		return ""
	case 1:
		return strings.Repeat("\t", n%3) + "}"
	}
	return strings.Repeat("\t", n%3) + fmt.Sprintf("call(%d)", n)
}

// The result is git's, byte for byte, over random histories of files that change,
// go, come back and are large enough for every short cut.
func TestEqualsGit(t *testing.T) {
	need.Tool(t, "git")
	seeds := 25
	if testing.Short() {
		seeds = 5
	}
	if os.Getenv("UMBRA_SOAK") != "" {
		seeds = 1000
	}
	for seed := range seeds {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(uint64(seed), 7))
			w := newWorkspace(t)
			s := blame.NewCache()
			alphabet := 8 + rnd.IntN(200)
			names := []string{"base", "src/a", "src/b \"x\"\ty"}
			files := map[string][]string{"base": {"1", "2", "3", "4", "5", "6", "7", "8", "9"}}
			if seed%3 == 0 {
				var big []string
				for range 400 {
					big = append(big, line(rnd, 4000))
				}
				files["src/a"] = big
				apply(t, w, write("src/a", strings.Join(big, "\n")+"\n"))
			}
			for step := range 40 {
				p := names[rnd.IntN(len(names))]
				if files[p] != nil && rnd.IntN(20) == 0 {
					apply(t, w, workspace.Op{Kind: workspace.OpDelete, Path: wspath.Path(p)})
					delete(files, p)
					continue
				}
				files[p] = edit(rnd, files[p], alphabet)
				data := strings.Join(files[p], "\n")
				if rnd.IntN(8) != 0 {
					data += "\n"
				}
				apply(t, w, write(p, data))
				if rnd.IntN(4) != 0 && step != 39 {
					continue
				}
				if step == 39 && seed%2 == 0 { // a first answer, from packs
					need.NoError(t, w.Store().Publish(t.Context()))
					need.NoError(t, w.Store().Maintain(t.Context()))
					s = blame.NewCache()
				}
				for p := range files {
					if got, want := porcelain(t, s, w, p, false, 0, 0), gitBlame(t, w, p); got != want {
						t.Fatalf("step %d, %s: %s", step, p, firstDifference(got, want))
					}
					if step != 39 {
						continue
					}
					if got, want := porcelain(t, s, w, p, true, 0, 0), gitBlame(t, w, p, "-w"); got != want {
						t.Fatalf("step %d, %s, -w: %s", step, p, firstDifference(got, want))
					}
					if n := len(files[p]); n > 2 {
						from := 1 + rnd.IntN(n-1)
						if got, want := porcelain(t, s, w, p, false, from, from+1), gitBlame(t, w, p, "-L", fmt.Sprintf("%d,+2", from)); got != want {
							t.Fatalf("step %d, %s, -L %d: %s", step, p, from, firstDifference(got, want))
						}
					}
				}
			}
		})
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range g {
		if i >= len(w) || g[i] != w[i] {
			return fmt.Sprintf("line %d:\n%s\nwant\n%s", i, strings.Join(g[i:min(i+4, len(g))], "\n"), strings.Join(w[min(i, len(w)):min(i+4, len(w))], "\n"))
		}
	}
	return "it is shorter"
}
