package render

import (
	"umbra/internal/term"
)

// Merge is the server's answer to a merge, as far as it is shown.
type Merge struct {
	Commits   []string `json:"commits"`
	Merged    int      `json:"merged"`
	Reverted  int      `json:"reverted"`
	Dropped   bool     `json:"history_dropped"`
	Plan      string   `json:"plan"`
	TaskID    *string  `json:"task_id"`
	Conflicts []struct {
		Path, Here, Reason string
		Ours, Theirs       *Writer
	} `json:"conflicts"`
	Files []struct{ Path, Action string } `json:"files"`
}

// Writer is whose a side of a conflict is.
type Writer struct {
	TaskID    *string `json:"task_id"`
	SubtaskID *string `json:"subtask_id"`
	Actor     *string `json:"actor"`
}

// Write prints the merge; dry says that it was a dry run.
func (m *Merge) Write(o *term.Output, dry bool) {
	for _, f := range m.Files {
		o.Printf("%-9s %s\n", f.Action, term.Name(f.Path))
	}
	for _, c := range m.Conflicts {
		o.Printf("conflict  %s (%s)", term.Name(c.Path), c.Reason)
		if c.Here != "" {
			o.Printf("; its name here: %s", term.Name(c.Here))
		}
		for i, who := range []*Writer{c.Ours, c.Theirs} {
			if who != nil {
				o.Printf("; %s: %s, task %s, subtask %s", []string{"here", "there"}[i], Text(who.Actor), Text(who.TaskID), Text(who.SubtaskID))
			}
		}
		o.Printf("\n")
	}
	if m.Dropped && dry {
		o.Printf("retention dropped commits of the target since the fork: what was merged before may be listed again\nplan: %s\n", m.Plan)
	}
	switch {
	case dry:
		o.Printf("%s would be merged\n", Count(m.Merged, "commit", "commits"))
	case len(m.Commits) == 0:
		o.Printf("nothing to merge\n")
	default:
		o.Printf("merged %s into %d; undo with umbra revert --task %s\n", Count(m.Merged, "commit", "commits"), len(m.Commits), Text(m.TaskID))
	}
	if m.Reverted > 0 {
		o.Printf("left out, since a revert took them back: %s; --again merges them\n", Count(m.Reverted, "commit", "commits"))
	}
}
