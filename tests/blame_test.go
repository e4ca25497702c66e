package tests

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"umbra/tests/harness"
)

type blamed struct {
	At     string
	Lines  int
	Ranges []struct {
		Start, End int
		Commit     string
		OriginPath string  `json:"origin_path"`
		OriginLine int     `json:"origin_line"`
		TaskID     *string `json:"task_id"`
		SubtaskID  *string `json:"subtask_id"`
		CallID     *string `json:"call_id"`
		Agent      *string
		Certainty  *string
		Source     string
		Via        *string
		Project    *struct{ Commit, Author string }
	}
	Next *string
}

// commits gives the commit of each line.
func (b *blamed) commits() []string {
	var out []string
	for _, r := range b.Ranges {
		for range r.End - r.Start + 1 {
			out = append(out, r.Commit)
		}
	}
	return out
}

func (p *project) blame(t *testing.T, ws, path, more string) blamed {
	t.Helper()
	var out blamed
	p.call(t, "GET", "/workspaces/"+ws+"/blame?path="+url.QueryEscape(path)+more, nil).want(t, 200).into(t, &out)
	return out
}

// gitBlame is what git says of a file of the shadow ref.
func gitBlame(t *testing.T, dir, path string) []string {
	t.Helper()
	var out []string
	commit := ""
	for line := range strings.SplitSeq(harness.Git(t, dir, "blame", "--no-follow", "--line-porcelain", "refs/umbra/head", "--", path), "\n") {
		if strings.HasPrefix(line, "\t") {
			out = append(out, commit)
			commit = ""
		} else if commit == "" && len(line) > 40 {
			commit = line[:40]
		}
	}
	return out
}

// TestBlameAsGit holds blame to git's own over random histories without renames and
// reverts.
func TestBlameAsGit(t *testing.T) {
	seeds := 25
	if soaking() {
		seeds = 1000
	}
	p := newProject(t, map[string]string{"x": "x\n"})
	task := p.task(t)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		path := fmt.Sprintf("f%d", seed)
		var lines []string
		line := func() string {
			return strings.Repeat(" ", 2*r.IntN(3)) + []string{"", "}", "{", "if x {", "return", "a", "b", "c", fmt.Sprint(r.IntN(1000))}[r.IntN(9)]
		}
		for range 20 + r.IntN(30) {
			if len(lines) > 5 && r.IntN(12) == 0 {
				task.put(t, path, "")
				lines = nil
			}
			for range 1 + r.IntN(4) {
				at := r.IntN(len(lines) + 1)
				switch end := min(len(lines), at+r.IntN(4)); r.IntN(3) {
				case 0:
					lines = append(lines[:at:at], lines[end:]...)
				case 1:
					lines = append(lines[:at:at], append([]string{line(), line()}, lines[at:]...)...)
				default:
					lines = append(lines[:at:at], append([]string{line()}, lines[end:]...)...)
				}
			}
			text := strings.Join(lines, "\n")
			if r.IntN(4) > 0 && text != "" {
				text += "\n"
			}
			task.put(t, path, text)
			if r.IntN(6) == 0 { // so that later answers go on from this one
				p.blame(t, task.str("workspace_id"), path, "")
			}
		}
	}
	task.sync(t)
	for seed := range seeds {
		path := fmt.Sprintf("f%d", seed)
		got, want := p.blame(t, task.str("workspace_id"), path, ""), gitBlame(t, task.gitDir(), path)
		if strings.Join(got.commits(), "\n") != strings.Join(want, "\n") {
			t.Fatalf("%s\ngot\n%s\nwant\n%s", path, strings.Join(got.commits(), "\n"), strings.Join(want, "\n"))
		}
	}
	task.put(t, "w", "a b\nc\n")
	first := p.blame(t, task.str("workspace_id"), "w", "").Ranges[0].Commit
	task.put(t, "w", "  a  b\nd\n")
	if got := p.blame(t, task.str("workspace_id"), "w", "&ignore_whitespace=true"); len(got.Ranges) != 2 || got.Ranges[0].Commit != first {
		t.Errorf("white space looked through: %+v", got.Ranges)
	}
}

// A renamed file's lines keep their owners, and so do lines that a revert brings
// back.
func TestBlameThroughRenamesAndReverts(t *testing.T) {
	p := newProject(t, map[string]string{"base": "b1\nb2\n"})
	p.shell(t, "git init -q; git add -A; git -c user.name=Ann -c user.email=a@invalid commit -qm base")
	one, two := p.task(t, "metadata", map[string]any{"agent": "codex"}), p.task(t)
	ws := one.str("workspace_id")
	one.put(t, "a", "1\n2\n3\n", "X-Subtask-Id", "s")
	first := p.blame(t, ws, "a", "").Ranges[0].Commit
	p.post(t, one.url("/move"), map[string]any{"from": "a", "to": "d/b"}).want(t, 200)
	two.put(t, "d/b", "1\nmine\n3\n")
	b := p.blame(t, ws, "d/b", "")
	if len(b.Ranges) != 3 || b.Ranges[0].Commit != first || b.Ranges[0].OriginPath != "a" || b.Ranges[2].OriginLine != 3 ||
		b.Ranges[0].Agent == nil || *b.Ranges[0].Agent != "codex" || *b.Ranges[0].SubtaskID != "s" || *b.Ranges[1].TaskID != two.ID {
		t.Fatalf("%+v", b.Ranges)
	}
	p.post(t, two.url("/revert"), map[string]any{}).want(t, 200)
	b = p.blame(t, ws, "d/b", "")
	if len(b.Ranges) != 3 || b.Ranges[1].Commit != first || b.Ranges[1].Via == nil || b.Ranges[1].OriginPath != "a" || b.Ranges[0].Via != nil {
		t.Fatalf("after the revert: %+v", b.Ranges)
	}
	p.call(t, "DELETE", two.file("d/b"), nil).want(t, 200)
	p.call(t, "GET", "/workspaces/"+ws+"/blame?path=d/b", nil).fails(t, 404, "file_not_found")
	var gone struct{ Entries []struct{ ID uint64 } }
	p.call(t, "GET", two.url("/changes"), nil).into(t, &gone)
	p.post(t, two.url(fmt.Sprintf("/changes/%d/revert", gone.Entries[len(gone.Entries)-1].ID)), map[string]any{}).want(t, 200)
	b = p.blame(t, ws, "d/b", "")
	for _, r := range b.Ranges {
		if r.Commit != first || r.Via == nil {
			t.Errorf("a deleted file that came back: %+v", r)
		}
	}
	base := p.blame(t, ws, "base", "&lines=2-2")
	if len(base.Ranges) != 1 || base.Ranges[0].Start != 2 || base.Ranges[0].Source != "baseline" || base.Ranges[0].Project == nil || base.Ranges[0].Project.Author != "Ann" {
		t.Errorf("%+v", base)
	}
	if b := p.blame(t, ws, "base", "&project=false"); b.Ranges[0].Project != nil {
		t.Errorf("%+v", b)
	}
	one.put(t, "bin", "a\x00b")
	p.call(t, "GET", "/workspaces/"+ws+"/blame?path=bin", nil).fails(t, 422, "not_text")
	p.call(t, "GET", "/workspaces/"+ws+"/blame?path=d", nil).fails(t, 422, "not_text")
	p.call(t, "GET", "/workspaces/"+ws+"/blame", nil).fails(t, 400, "missing_parameter")
	p.call(t, "GET", "/workspaces/"+ws+"/blame?path=base&lines=3-2", nil).fails(t, 400, "invalid_parameter")
	// What a shell has just written is recorded first, and is its call's.
	c := p.begin(t, "s", nil)
	p.shell(t, "echo b3 >> base")
	b = p.blame(t, ws, "base", "")
	if len(b.Ranges) != 2 || b.Ranges[1].CallID == nil || *b.Ranges[1].CallID != c.CallID || *b.Ranges[1].Certainty != "window" {
		t.Errorf("%+v", b.Ranges)
	}
}
