package render

import (
	"fmt"

	"umbra/internal/client"
	"umbra/internal/term"
)

// Reverted prints the result of a revert, file by file.
func Reverted(o *term.Output, r *client.Reverted) { reverted(o, r, "undo", "undone") }

// Redone prints the result of the revert of an undo.
func Redone(o *term.Output, r *client.Reverted) { reverted(o, r, "redo", "redone") }

func reverted(o *term.Output, r *client.Reverted, do, done string) {
	for _, f := range r.Files {
		st := map[string]term.Style{"deleted": term.Removed, "restored": term.Added, "merged": term.Frag, "unchanged": term.Dim}[f.Action]
		o.Printf("%s %s", o.Paint(st, fmt.Sprintf("%-9s", f.Action)), term.Name(client.Bytes(f.Path, f.Encoding)))
		if f.Source == "external" {
			o.Printf("  (changed on disk)")
		}
		o.Printf("\n")
	}
	WriteConflicts(o, r.Conflicts)
	writeLeft(o, r.External, "changed outside umbra; --include-external undoes it")
	writeLeft(o, r.Shared, "several agents may have changed it; --include-shared undoes it")
	switch {
	case r.DryRun && r.Entries == 0 && len(r.Conflicts) == 0:
		o.Printf("nothing to %s\n", do)
	case r.DryRun:
		o.Printf("would %s %s\n", do, Count(r.Entries, "change", "changes"))
		if r.Plan != nil {
			o.Printf("plan: %s\n", *r.Plan)
		}
	case r.Commit == nil && len(r.Conflicts) > 0:
		o.Printf("nothing else to %s\n", do)
	case r.Commit == nil:
		o.Printf("nothing to %s\n", do)
	default:
		o.Printf("%s %s in %s\n", Count(r.Entries, "change", "changes"), done, o.Paint(term.Commit, "commit "+Short(*r.Commit)))
	}
}

// writeLeft lists what a revert leaves, a path once.
func writeLeft(o *term.Output, list []client.Left, why string) {
	seen := make(map[string]bool)
	for _, x := range list {
		if p := client.Bytes(x.Path, x.Encoding); !seen[p] {
			seen[p] = true
			o.Printf("%s %s: %s\n", o.Paint(term.Dim, fmt.Sprintf("%-9s", "left")), term.Name(p), why)
		}
	}
}

// WriteConflicts names each file, and who changed it.
func WriteConflicts(o *term.Output, list []client.Conflict) {
	for _, x := range list {
		o.Printf("%s %s: %s since", o.Paint(term.Removed, fmt.Sprintf("%-9s", "conflict")), term.Name(client.Bytes(x.Path, x.Encoding)), x.Reason)
		if x.Entry != 0 {
			o.Printf(" change #%d", x.Entry)
		}
		by := x.ChangedBy
		if by.Commit != nil {
			who := "an unknown actor"
			if by.Actor != nil && *by.Actor != "" {
				who = term.Line(*by.Actor)
			}
			o.Printf(", by %s", who)
			if by.Task != nil {
				o.Printf(" for task %s", *by.Task)
				if by.Subtask != nil {
					o.Printf("/%s", *by.Subtask)
				}
			}
			o.Printf(" in %s", o.Paint(term.Commit, "commit "+Short(*by.Commit)))
		}
		o.Printf("\n")
	}
}
