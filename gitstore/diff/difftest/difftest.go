// Package difftest holds what the tests of gitstore/diff and gitstore/merge3
// share: random texts with edits, and real git as the judge of many files
// at a time. Tests alone import it.
package difftest

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"

	"umbra/gitstore/diff"
)

// Git runs git in dir without anybody's configuration, and gives its standard
// output and exit status; the test fails if git was killed or is not there.
func Git(t testing.TB, dir string, stdin []byte, args ...string) (out []byte, status int) {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = bytes.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "LC_ALL=C",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && (!errors.As(err, &exit) || !exit.Exited()) {
		t.Fatalf("git %v: %v", args, err)
	}
	if status = cmd.ProcessState.ExitCode(); status != 0 && stderr.Len() > 0 {
		t.Logf("git %v: status %d: %s", args, status, stderr.Bytes())
	}
	return out, status
}

// MustGit is Git where any other status than 0 fails the test.
func MustGit(t testing.TB, dir string, stdin []byte, args ...string) []byte {
	t.Helper()
	out, status := Git(t, dir, stdin, args...)
	if status != 0 {
		t.Fatalf("git %v: status %d", args, status)
	}
	return out
}

// Tree is a snapshot: files by path. Path and ID of the files are ignored.
type Tree map[string]diff.File

// Import makes a repository in dir, with a commit on branch t0, t1, … for each
// tree; the first one is the parent of the others.
func Import(t testing.TB, dir string, trees ...Tree) {
	t.Helper()
	MustGit(t, dir, nil, "init", "-q", "--initial-branch=none", ".")
	var in bytes.Buffer
	for i, tree := range trees {
		fmt.Fprintf(&in, "commit refs/heads/t%d\nmark :%d\ncommitter a <a@b> 1700000000 +0000\ndata 0\n", i, i+1)
		if i > 0 {
			in.WriteString("from :1\n")
		}
		in.WriteString("deleteall\n")
		for _, path := range slices.Sorted(maps.Keys(tree)) {
			f := tree[path]
			name := diff.Quote(path)
			fmt.Fprintf(&in, "M %v inline %s\ndata %d\n", f.Mode, name, len(f.Data))
			in.Write(f.Data)
			in.WriteByte('\n')
		}
	}
	MustGit(t, dir, in.Bytes(), "fast-import", "--quiet")
}

// Seeded gives the random source of case n.
func Seeded(n int) *rand.Rand { return rand.New(rand.NewPCG(uint64(n), 1)) }

// Count reads how many cases to run from the environment, else gives n.
func Count(t testing.TB, env string, n int) int {
	t.Helper()
	if v := os.Getenv(env); v != "" {
		var err error
		if n, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// Texts gives a base text and two edited copies of it. The fewer different
// lines there are, the more alignments are equally short, so there are few.
func Texts(r *rand.Rand) (base, ours, theirs []byte) {
	g := newGenerator(r)
	lines := g.lines(g.size())
	a, b := g.edit(lines), g.edit(lines)
	if r.IntN(4) == 0 {
		b = g.edit(a) // much in common that the base lacks
	}
	return g.join(lines), g.join(a), g.join(b)
}

type generator struct {
	*rand.Rand
	words int
	eol   string
}

func newGenerator(r *rand.Rand) *generator {
	g := &generator{r, 1 + r.IntN(4), "\n"}
	if r.IntN(3) == 0 {
		g.words = 30
	}
	if r.IntN(5) == 0 {
		g.eol = "\r\n"
	}
	return g
}

func (g *generator) size() int {
	switch g.IntN(100) {
	case 0:
		return g.IntN(3000)
	case 1, 2, 3, 4:
		return g.IntN(400)
	}
	return g.IntN(20)
}

func (g *generator) line() string {
	w := g.IntN(g.words + 2)
	switch {
	case w == g.words:
		return g.eol
	case w == g.words+1:
		return "}" + g.eol // no letter or digit
	case g.IntN(40) == 0:
		return "x\n" // perhaps another line end
	case g.IntN(60) == 0:
		return "  caf\xe9 " + strings.Repeat("long ", g.IntN(30)) + g.eol
	}
	return "line " + strconv.Itoa(w) + g.eol
}

func (g *generator) lines(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = g.line()
	}
	return out
}

func (g *generator) edit(lines []string) []string {
	lines = append([]string(nil), lines...)
	edits := g.IntN(4)
	if len(lines) > 50 {
		edits *= 1 + g.IntN(20)
	}
	for ; edits > 0; edits-- {
		at := g.IntN(len(lines) + 1)
		gone := min(g.IntN(4), len(lines)-at)
		add := g.lines(g.IntN(4))
		if g.IntN(6) == 0 && at > 0 {
			add = append(add, lines[at-1]) // equal neighbors can slide
		}
		lines = append(lines[:at], append(add, lines[at+gone:]...)...)
	}
	return lines
}

func (g *generator) join(lines []string) []byte {
	s := strings.Join(lines, "")
	if g.IntN(5) == 0 {
		s = strings.TrimRight(s, "\r\n")
	}
	return []byte(s)
}
