package model

import (
	"fmt"
	"strings"

	"umbra/gitstore/object"
)

// Files whose lines are owned: every owner edits a line of its own, with lines
// between that nobody edits, so that taking back one owner's work must leave
// everybody else's, whatever came when.
var lineFiles = []string{"t1", "t2"}

type owner struct{ task, sub string }

func owners() (out []owner) {
	for _, t := range tasks {
		for _, s := range []string{"", "s1", "s2"} {
			out = append(out, owner{t, s})
		}
	}
	return out
}

// lineOf is the number of an owner's line.
func lineOf(i int) int { return 4*i + 2 }

func linesText() string {
	var b strings.Builder
	for i := range 4*len(owners()) + 4 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	return b.String()
}

// checkLines compares each owner's line with the last of the owner's entries
// that are in effect. Where a change was taken back out of order, the line is
// for three-way merges to decide; where somebody did more to a file than edit
// lines, the file.
func (g *rig) checkLines() error {
	if g.forced || len(g.pending) > 0 {
		return nil
	}
	for _, name := range lineFiles {
		if err := g.checkLinesOf(name); err != nil {
			return err
		}
	}
	return nil
}

func (g *rig) checkLinesOf(name string) error {
	for _, e := range g.log {
		if e.Path == name && (e.Mode != object.Regular || e.BeforeMode != object.Regular || e.NewPath != "") || e.NewPath == name || e.TaskID == "" && e.Path == name {
			return nil
		}
	}
	is, ok := g.disk[name]
	if !ok {
		return nil
	}
	lines, base := strings.Split(is.Data, "\n"), strings.Split(linesText(), "\n")
	for i, o := range owners() {
		t, err := g.cache.Task(background, g.w, o.task)
		if err != nil {
			return err
		}
		want, inOrder, over := base[lineOf(i)], true, false
		for j := range t.Entries {
			e := &t.Entries[j]
			if e.Path != name || e.IsRevert() || e.SubtaskID != o.sub {
				continue
			}
			if e.Undone {
				over = true
				continue
			}
			if over {
				inOrder = false
			}
			data, err := g.w.Store().ReadBlob(background, e.After, 1<<30)
			if err != nil {
				return err
			}
			if l := strings.Split(string(data), "\n"); len(l) > lineOf(i) {
				want = l[lineOf(i)]
			}
		}
		if !inOrder {
			continue
		}
		if len(lines) != len(base) {
			return broken("lines", "%s has %d lines", name, len(lines))
		}
		if lines[lineOf(i)] != want {
			return broken("lines", "%s, the line of %s/%s is %q, not %q", name, o.task, o.sub, lines[lineOf(i)], want)
		}
	}
	return nil
}
