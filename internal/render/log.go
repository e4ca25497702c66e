package render

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"umbra/internal/client"
	"umbra/internal/term"
)

// abbrev is how many digits of an id are shown.
const abbrev = 12

// Short returns the first digits of an object id.
func Short(id string) string { return id[:min(len(id), abbrev)] }

// Stamp formats a time in the local time zone.
func Stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05") }

// Log writes entries, those of one commit under one head.
func Log(o *term.Output, entries iter.Seq2[client.Item[client.Entry], error]) error {
	last := ""
	for item, err := range entries {
		if err != nil {
			return err
		}
		e := &item.Value
		if e.Commit != last {
			if last != "" {
				o.Printf("\n")
			}
			last = e.Commit
			o.Printf("%s  %s  %s\n", o.Paint(term.Commit, "commit "+Short(e.Commit)), Stamp(e.When), whose(e))
		}
		writeEntry(o, e)
		if o.Err() != nil {
			return o.Err()
		}
	}
	return nil
}

// whose returns the actor, the source, and the task with its subtask.
func whose(e *client.Entry) string {
	s := e.Source
	if e.Actor != "" {
		s = term.Line(e.Actor) + " (" + s + ")"
	}
	if e.TaskID != "" {
		s += "  task " + e.TaskID
	}
	if e.SubtaskID != "" {
		s += "/" + e.SubtaskID
	}
	return s
}

// writeEntry writes one line: "    #4  rename  a -> b".
func writeEntry(o *term.Output, e *client.Entry) {
	number := ""
	if e.ID != nil {
		number = fmt.Sprintf("#%d", *e.ID)
	}
	o.Printf("    %-5s %-7s %s", number, e.Operation, moved(e.Path, e.NewPath))
	if len(e.Reverts) > 0 {
		list := make([]string, len(e.Reverts))
		for i, n := range e.Reverts {
			if list[i] = "a change without a task"; n != 0 {
				list[i] = fmt.Sprintf("#%d", n)
			}
		}
		list = slices.Compact(list)
		o.Printf("  %s", o.Paint(term.Dim, "undoes "+strings.Join(list, ", ")))
	}
	o.Printf("\n")
}

// moved names a path, or two of a rename.
func moved(from, to string) string {
	if to == "" {
		return term.Name(from)
	}
	return term.Name(from) + " -> " + term.Name(to)
}
