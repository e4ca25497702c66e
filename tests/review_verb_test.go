package tests

import (
	"strings"
	"testing"

	"umbra/tests/harness"
)

// ask runs umbra review with keys on its standard input.
func (p *project) ask(t *testing.T, keys string, args ...string) (status int, out string) {
	t.Helper()
	cmd := harness.Command(t, []string{"UMBRA_DATA_DIR=" + p.DataDir}, append([]string{"review"}, args...)...)
	cmd.Dir, cmd.Stdin = p.dir, strings.NewReader(strings.ReplaceAll(keys, " ", "\n")+"\n")
	said, _ := cmd.CombinedOutput()
	return cmd.ProcessState.ExitCode(), string(said)
}

// TestReviewTwoTasks holds that the second of two tasks on a file is reviewed alone: its
// hunks have none of the first one's lines, and what is decided leaves these open.
func TestReviewTwoTasks(t *testing.T) {
	p := newProject(t, map[string]string{"a": numbered(40)})
	one, two := p.task(t), p.task(t)
	one.put(t, "a", strings.Replace(numbered(40), "line 5\n", "five\n", 1))
	first, _ := one.hunks(t, "")
	two.put(t, "a", strings.NewReplacer("line 8\n", "eight\n", "line 30\n", "thirty\n").Replace(p.read(t, "a")))
	if status, out := p.ask(t, ""); status != 2 || !strings.Contains(out, one.ID) || !strings.Contains(out, two.ID) {
		t.Errorf("%d %s", status, out)
	}
	status, out := p.ask(t, "n y", "--task", two.ID)
	if status != 0 || strings.Contains(out, "+five") || strings.Contains(out, "-line 5") || !strings.Contains(out, "1 accepted, 1 rejected") {
		t.Errorf("%d %s", status, out)
	}
	if got, want := p.read(t, "a"), strings.NewReplacer("line 5\n", "five\n", "line 30\n", "thirty\n").Replace(numbered(40)); got != want {
		t.Errorf("%q", got)
	}
	if list, _ := one.hunks(t, ""); len(list) != 1 || list[0].ID != first[0].ID || list[0].Status != "open" {
		t.Errorf("the first one's: %+v, before %+v", list, first)
	}
	if status, out = p.ask(t, "n", "--task", one.ID); status != 0 || p.read(t, "a") != strings.Replace(numbered(40), "line 30\n", "thirty\n", 1) {
		t.Errorf("%d %s %q", status, out, p.read(t, "a"))
	}
}

// TestReviewVerb holds that umbra review asks as git add -p does, and does what was
// answered.
func TestReviewVerb(t *testing.T) {
	p := newProject(t, map[string]string{"a": numbered(40), "b": "b\n"})
	k := p.task(t)
	text := strings.NewReplacer("line 5\n", "five\n", "line 8\n", "eight\n", "line 30\n", "thirty\n").Replace(numbered(40))
	k.put(t, "a", text)
	k.put(t, "b", "B\n", "X-Subtask-Id", "s")
	if status, out := p.ask(t, "q"); status != 0 || !strings.Contains(out, "-line 5\n+five\n") || !strings.Contains(out, "(1/3) Accept this hunk [y,n,q,a,d,j,k,s,?]? ") {
		t.Errorf("%d %s", status, out)
	}
	if p.read(t, "a") != text {
		t.Error("q did something")
	}
	// A part of a hunk alone.
	status, out := p.ask(t, "s n y y q")
	if status != 0 || !strings.Contains(out, "Split into 2 hunks.") || !strings.Contains(out, "2 accepted, 1 rejected") {
		t.Errorf("%d %s", status, out)
	}
	text = strings.Replace(text, "five\n", "line 5\n", 1)
	if p.read(t, "a") != text {
		t.Errorf("%q", p.read(t, "a"))
	}
	list, _ := k.hunks(t, "")
	var states []string
	for _, h := range list {
		states = append(states, h.Path+" "+h.Status)
	}
	if got := strings.Join(states, ", "); got != "a accepted, a accepted, b open" {
		t.Errorf("%s", got)
	}
	status, out = p.ask(t, "", "--json", "--subtask", "s")
	if status != 0 || strings.Count(out, `"id":`) != 1 || !strings.Contains(out, `"path":"b"`) {
		t.Errorf("%d %s", status, out)
	}
	if status, out = p.ask(t, "", "--reject", "0000"); status != 1 || !strings.Contains(out, "hunk_changed") && !strings.Contains(out, "no longer what they were") {
		t.Errorf("%d %s", status, out)
	}
	if status, out = p.ask(t, "", "--dry-run", "--reject-rest"); status != 0 || !strings.Contains(out, "1 would be rejected") || p.read(t, "b") != "B\n" {
		t.Errorf("%d %s", status, out)
	}
	if status, out = p.ask(t, "", "--reject-rest", "-m", "no"); status != 0 || p.read(t, "b") != "b\n" {
		t.Errorf("%d %s", status, out)
	}
	if status, out = p.ask(t, ""); status != 0 || !strings.Contains(out, "Nothing is open.") {
		t.Errorf("%d %s", status, out)
	}
	if status, _ = p.ask(t, "", "--accept-rest", "--reject-rest"); status != 2 {
		t.Error(status)
	}
	// A hunk and a part of it cannot be decided on in two ways at once.
	k.put(t, "a", strings.NewReplacer("line 17\n", "x\n", "line 20\n", "y\n").Replace(text))
	list, _ = k.hunks(t, "?status=open")
	if len(list) != 1 || len(list[0].Parts) != 2 {
		t.Fatalf("%+v", list)
	}
	p.post(t, k.url("/review"), map[string]any{"accept": []string{list[0].ID}, "reject": []string{list[0].Parts[0].ID}}).fails(t, 400, "invalid_field")
	p.post(t, k.url("/review"), map[string]any{"accept": []string{list[0].Parts[0].ID}, "reject_rest": true}).want(t, 200)
	if got := p.read(t, "a"); !strings.Contains(got, "\nx\n") || strings.Contains(got, "\ny\n") {
		t.Errorf("%q", got)
	}
	// What was accepted stays so where a new change comes close to it.
	k.put(t, "a", strings.Replace(p.read(t, "a"), "line 11\n", "eleven\n", 1))
	list, _ = k.hunks(t, "?status=open")
	if len(list) != 1 || len(list[0].Parts) != 3 || list[0].Parts[2].Status != "accepted" || list[0].Parts[0].Status != "accepted" || list[0].Parts[1].Status != "open" {
		t.Fatalf("%+v", list)
	}
	if status, out = p.ask(t, "n"); status != 0 || strings.Contains(out, "+eight") || !strings.Contains(p.read(t, "a"), "\neight\n") || strings.Contains(p.read(t, "a"), "eleven") {
		t.Errorf("%d %s", status, out)
	}
	k.fsck(t)
}
