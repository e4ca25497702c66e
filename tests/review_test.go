package tests

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
)

type hunk struct {
	ID       string
	Path     string
	OldPath  string   `json:"old_path"`
	OldStart int      `json:"old_start"`
	OldLines int      `json:"old_lines"`
	NewStart int      `json:"new_start"`
	Subtasks []string `json:"subtasks"`
	Calls    []string
	Entries  []uint64
	Mixed    bool
	Held     bool
	Parts    []hunk
	Status   string
	Text     string
}

func (k *taskOf) hunks(t *testing.T, query string) (list []hunk, plan string) {
	t.Helper()
	var out struct {
		Plan  string
		Hunks []hunk
	}
	k.p.call(t, "GET", k.url("/hunks"+query), nil).want(t, 200).into(t, &out)
	return out.Hunks, out.Plan
}

func numbered(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "line %d\n", i+1)
	}
	return b.String()
}

// Hunks are taken and left one by one, keep their ids while others write, and a
// rejection can be reverted.
func TestReview(t *testing.T) {
	p := newProject(t, map[string]string{"a": numbered(40), "gone": "x\n", "old": "o\n", "run": "r\n"})
	k := p.task(t)
	edit := func(from, to, subtask string) {
		t.Helper()
		p.post(t, k.url("/edit"), map[string]any{"path": "a", "old_string": from, "new_string": to}, "X-Subtask-Id", subtask).want(t, 200)
	}
	edit("line 5\n", "five\n", "s1")
	edit("line 6\n", "six\n", "s2")
	edit("line 30\n", "thirty\n", "s1")
	k.put(t, "new", "n\n")
	p.call(t, "DELETE", k.file("gone"), nil).want(t, 200)
	p.post(t, k.url("/move"), map[string]any{"from": "old", "to": "moved"}).want(t, 200)
	list, plan := k.hunks(t, "")
	var listed []string
	for _, h := range list {
		listed = append(listed, h.Path+" "+strings.Join(h.Subtasks, "+"))
	}
	if got := strings.Join(listed, ", "); got != "a s1, a s2, a s1, gone , moved , new " {
		t.Fatalf("%s", got)
	}
	if !strings.Contains(list[0].Text, "-line 5\n+five\n") || strings.Contains(list[0].Text, "+six") || len(list[0].Entries) != 1 {
		t.Errorf("%+v", list[0])
	}
	// A person writes above: the hunks move down and stay the same.
	p.shell(t, "{ echo top; cat a; } > a2; cat a2 > a; rm a2")
	moved, _ := k.hunks(t, "?path=a")
	for i := range moved {
		if moved[i].ID != list[i].ID || moved[i].NewStart != list[i].NewStart+1 {
			t.Errorf("%d: %+v", i, moved[i])
		}
	}
	p.post(t, k.url("/review"), map[string]any{"reject": []string{"0000"}}).fails(t, 409, "hunk_changed")
	p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID}, "accept": []string{list[0].ID}}).fails(t, 400, "invalid_field")
	p.post(t, k.url("/review"), map[string]any{}).fails(t, 422, "validation_failed")
	p.post(t, k.url("/review"), map[string]any{"reject_rest": true, "plan": strings.Repeat("0", 64)}).fails(t, 409, "hunk_changed")
	if _, now := k.hunks(t, ""); now == "" || plan == "" {
		t.Error("no plan")
	}
	dry := p.post(t, k.url("/review"), map[string]any{"reject": []string{list[1].ID}, "dry_run": true}).want(t, 200).obj(t)
	if dry["commit"] != nil || !strings.Contains(p.read(t, "a"), "six\n") {
		t.Errorf("%v", dry)
	}
	done := p.post(t, k.url("/review"), map[string]any{"reject": []string{list[1].ID, list[3].ID, list[4].ID}, "accept": []string{list[0].ID}, "message": "not these"}).want(t, 200)
	want := "top\n" + strings.Replace(strings.Replace(numbered(40), "line 5\n", "five\n", 1), "line 30\n", "thirty\n", 1)
	if p.read(t, "a") != want || p.read(t, "gone") != "x\n" || p.read(t, "old") != "o\n" {
		t.Errorf("%q", p.read(t, "a"))
	}
	p.absent(t, "moved")
	out := k.git(t, "log", "-1", "--format=%(trailers:key=Rejects-Hunk,valueonly)%(trailers:key=Accepts-Hunk,valueonly)%s", "refs/umbra/head")
	if !strings.Contains(out, list[1].ID) || !strings.Contains(out, list[0].ID) || !strings.Contains(out, "not these") {
		t.Errorf("%s", out)
	}
	left, _ := k.hunks(t, "")
	listed = nil
	for _, h := range left {
		listed = append(listed, h.Path+" "+h.Status)
	}
	if got := strings.Join(listed, ", "); got != "a accepted, a open, new open" {
		t.Errorf("%s", got)
	}
	rejected, _ := k.hunks(t, "?status=rejected")
	if len(rejected) != 3 || !slices.ContainsFunc(rejected, func(h hunk) bool { return h.ID == list[1].ID }) {
		t.Errorf("%+v", rejected)
	}
	p.post(t, "/workspaces/"+k.str("workspace_id")+"/commits/"+done.str(t, "commit")+"/revert", map[string]any{}).want(t, 200)
	if !strings.Contains(p.read(t, "a"), "six\n") || p.read(t, "moved") != "o\n" {
		t.Errorf("the rejection's revert: %q", p.read(t, "a"))
	}
	p.post(t, k.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
	p.post(t, k.url("/review"), map[string]any{"accept_rest": true}).want(t, 200)
	k.fsck(t)
}

// Random edits by two subtasks and a person: rejecting a hunk is what git makes of
// its patch in reverse, and rejecting all gives the base where nobody else wrote.
func TestReviewRandom(t *testing.T) {
	rounds := 12
	if soaking() {
		rounds = 2000
	}
	p := newProject(t, map[string]string{"x": "x\n"})
	for round := range rounds {
		r := rand.New(rand.NewPCG(uint64(round), 3))
		name := fmt.Sprintf("f%d", round)
		base := numbered(30)
		p.fill(t, map[string]string{name: base})
		k := p.task(t)
		person := r.IntN(2) == 0
		text := base
		change := func(low, high int, mark string) string {
			lines := strings.SplitAfter(text, "\n")
			lines = lines[:len(lines)-1]
			at := low + r.IntN(high-low)
			if at >= len(lines) {
				return text
			}
			switch r.IntN(3) {
			case 0:
				lines[at] = fmt.Sprintf("%s %d\n", mark, r.IntN(1000))
			case 1:
				lines = slices.Insert(lines, at, fmt.Sprintf("%s %d\n", mark, r.IntN(1000)))
			default:
				lines = slices.Delete(lines, at, at+1)
			}
			return strings.Join(lines, "")
		}
		for range 3 + r.IntN(6) {
			text = change(0, 20, "task")
			k.put(t, name, text, "X-Subtask-Id", fmt.Sprintf("s%d", r.IntN(2)))
		}
		if person {
			text = change(24, 27, "person")
			p.fill(t, map[string]string{name: text})
		}
		list, _ := k.hunks(t, "")
		for len(list) > 0 {
			h := list[r.IntN(len(list))]
			if r.IntN(4) == 0 {
				break
			}
			dir := t.TempDir()
			before := p.read(t, name)
			need.NoError(t, os.WriteFile(filepath.Join(dir, "f"), []byte(before), 0o644))
			cmd := exec.CommandContext(t.Context(), "git", "apply", "-R", "--unidiff-zero", "-")
			cmd.Dir, cmd.Stdin = dir, strings.NewReader("--- a/f\n+++ b/f\n"+h.Text)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("round %d: git apply: %v %s\n%s", round, err, out, h.Text)
			}
			want, err := os.ReadFile(filepath.Join(dir, "f"))
			need.NoError(t, err)
			p.post(t, k.url("/review"), map[string]any{"reject": []string{h.ID}}).want(t, 200)
			if got := p.read(t, name); got != string(want) {
				t.Fatalf("round %d\n%s\nbefore\n%s\ngot\n%s\nwant\n%s", round, h.Text, before, got, want)
			}
			now, _ := k.hunks(t, "")
			if len(now) >= len(list) && len(list) > 0 && slices.ContainsFunc(now, func(x hunk) bool { return x.ID == h.ID }) {
				t.Fatalf("round %d: %s is still there", round, h.ID)
			}
			list = now
		}
		p.post(t, k.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
		if got := p.read(t, name); !person && got != base {
			t.Fatalf("round %d: rejecting all leaves\n%s", round, got)
		} else if strings.Contains(got, "task ") {
			t.Fatalf("round %d: something of the task's is left\n%s", round, got)
		}
		p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	}
}
