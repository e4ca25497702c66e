package review

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// save writes a whole file for the task.
func (g *rig) save(text string) {
	g.t.Helper()
	_, err := g.w.Apply(g.t.Context(), workspace.Request{By: workspace.By{TaskID: "t", Source: message.API}, Ops: []workspace.Op{
		{Kind: workspace.OpWrite, Path: "a", Data: []byte(text), Size: -1}}})
	if err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) text(name string) string {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.root, name))
	if err != nil {
		g.t.Fatal(err)
	}
	return string(b)
}

// at returns the hunk whose lines begin after a line of the old file.
func (g *rig) at(line int) *Hunk {
	g.t.Helper()
	list := g.hunks()
	for i := range list {
		if h := &list[i]; h.OldStart+contextLines-1 == line {
			return h
		}
	}
	return nil
}

// TestEqualHunks holds that the id of a hunk never comes to mean another one with the
// same lines: what was accepted is, and what is rejected is the one that was meant.
func TestEqualHunks(t *testing.T) {
	const add = "defer end()\n"
	after := func(text string, lines ...string) string {
		for _, l := range lines {
			text = strings.Replace(text, l+"\n", l+"\n"+add, 1)
		}
		return text
	}
	g := newRig(t)
	g.open = 0
	g.save(after(lines(40), "line 5", "line 20", "line 35"))
	if len(g.hunks()) != 3 {
		t.Fatalf("%+v", g.hunks())
	}
	first, second := g.at(5).ID, g.at(20).ID
	g.decide(Decision{Accept: []string{second}})
	g.decide(Decision{Reject: []string{first}})
	if g.at(20).Status != Accepted || g.at(35).Status != Open {
		t.Errorf("after a rejection the second is %s, the third %s", g.at(20).Status, g.at(35).Status)
	}
	// The same request again means the hunk that is gone, and no other.
	if _, _, err := g.h.Decide(t.Context(), g.w, Decision{Task: "t", Reject: []string{first}}); errs.CodeOf(err) != "hunk_changed" {
		t.Errorf("%v", err)
	}
	g.decide(Decision{Reject: []string{g.at(35).ID}})
	if h := g.at(20); h == nil || h.Status != Accepted {
		t.Errorf("alone it is %+v", h)
	}
	if want := after(lines(40), "line 20"); g.text("a") != want {
		t.Errorf("%q", g.text("a"))
	}
	// Another one above it, written later, is not what was accepted.
	g.save(after(lines(40), "line 20", "line 5"))
	if g.at(5).Status != Open || g.at(20).Status != Accepted {
		t.Errorf("the new one is %s, the old one %s", g.at(5).Status, g.at(20).Status)
	}
	// Nor when it is alone.
	g.decide(Decision{Accept: []string{g.at(5).ID}})
	g.save(lines(40))
	g.save(after(lines(40), "line 30"))
	if h := g.at(30); h.Status != Open {
		t.Errorf("the rewritten text is %s", h.Status)
	}
}

// TestEqualDeletions is the same for lines that are gone, which no later version has.
func TestEqualDeletions(t *testing.T) {
	const twice = "same\n"
	base := strings.NewReplacer("line 5\n", "line 5\n"+twice, "line 20\n", "line 20\n"+twice, "line 35\n", "line 35\n"+twice).Replace(lines(40))
	g := newRig(t)
	g.open = 0
	if _, err := g.w.Apply(t.Context(), workspace.Request{By: workspace.By{Source: message.API}, Ops: []workspace.Op{{Kind: workspace.OpWrite, Path: "a", Data: []byte(base), Size: -1}}}); err != nil {
		t.Fatal(err)
	}
	g.save(lines(40))
	list := g.hunks()
	if len(list) != 3 {
		t.Fatalf("%+v", list)
	}
	g.decide(Decision{Accept: []string{list[1].ID}})
	g.decide(Decision{Reject: []string{list[0].ID}})
	now := g.hunks()
	if len(now) != 2 || now[0].Status != Accepted || now[1].Status != Open || now[0].ID != list[1].ID {
		t.Errorf("%+v", now)
	}
	if _, _, err := g.h.Decide(t.Context(), g.w, Decision{Task: "t", Reject: []string{list[0].ID}}); errs.CodeOf(err) != "hunk_changed" {
		t.Errorf("%v", err)
	}
}

// TestDeletedAgain holds that a deletion which was rejected, and is then another
// writer's, is no hunk of the task.
func TestDeletedAgain(t *testing.T) {
	g := newRig(t)
	g.open = 0
	other := func(text string) {
		t.Helper()
		if _, err := g.w.Apply(t.Context(), workspace.Request{By: workspace.By{Source: message.API}, Ops: []workspace.Op{{Kind: workspace.OpWrite, Path: "a", Data: []byte(text), Size: -1}}}); err != nil {
			t.Fatal(err)
		}
	}
	without := func(text, line string) string { return strings.Replace(text, line+"\n", "", 1) }
	g.save(without(lines(40), "line 10"))
	other(without(g.text("a"), "line 30"))
	g.decide(Decision{Reject: []string{g.at(9).ID}})
	if list := g.hunks(); len(list) > 0 {
		t.Fatalf("after the rejection: %+v", list)
	}
	other(without(g.text("a"), "line 10"))
	if list := g.hunks(); len(list) > 0 {
		t.Errorf("another's deletion: %s", list[0].Text)
	}
}
