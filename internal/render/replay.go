package render

import (
	"fmt"
	"io"
	"strings"

	"umbra/internal/replay"
	"umbra/internal/term"
)

// Export prints the result of an export.
func Export(w *term.Output, out *replay.Exported) {
	if !out.OK {
		for _, c := range out.Conflicts {
			w.Printf("conflict in %s: %s (%.10s %s)\n", term.Name(c.Path), c.Reason, c.Commit, term.Line(c.Title))
		}
		w.Printf("%s: nothing was written\n", Count(len(out.Conflicts), "conflict", "conflicts"))
		return
	}
	base := "a branch of its own"
	switch {
	case out.Base != "" && out.SameBase:
		base = fmt.Sprintf("%.10s, where the work began", out.Base)
	case out.Base != "":
		base = fmt.Sprintf("%.10s, merged", out.Base)
	}
	w.Printf("branch %s is at %.10s: %s from %s, on %s\n", out.Branch, out.Commit, Count(out.Commits, "commit", "commits"),
		Count(out.Changes, "change", "changes"), base)
	for _, n := range out.Notes {
		kept := ""
		if n.Kept > 0 {
			kept = fmt.Sprintf(", %d kept", n.Kept)
		}
		w.Printf("%s: %s%s\n", n.Ref, Count(n.Written, "note", "notes"), kept)
	}
}

// Replay prints the result of a replay as text.
func Replay(rep *replay.Report, w io.Writer) error {
	var b strings.Builder
	for i := range rep.Steps {
		s := &rep.Steps[i]
		switch s.Outcome {
		case replay.OK, replay.Skipped:
			continue
		}
		fmt.Fprintf(&b, "step %d  %.10s  %s\n", s.Number, s.Commit, term.Name(s.Title))
		if s.Outcome == replay.Conflicted {
			for _, c := range s.Conflicts {
				fmt.Fprintf(&b, "  conflict in %s: %s\n", term.Name(c.Path), c.Reason)
			}
			continue
		}
		fmt.Fprintf(&b, "  %s: %s\n", s.Outcome, s.Problem())
		if s.Exec != nil {
			for line := range strings.Lines(s.Exec.Output) {
				fmt.Fprintf(&b, "  | %s\n", term.Line(strings.TrimRight(line, "\n")))
			}
		}
	}
	if rep.Detail != "" {
		fmt.Fprintln(&b, rep.Detail)
	}
	verdict := "ok"
	switch {
	case rep.OK && rep.Proven:
		verdict = "ok, every tree proven"
	case rep.Broken > 0:
		verdict = fmt.Sprintf("first broken at step %d", rep.Broken)
	case !rep.OK:
		verdict = "not as recorded"
	}
	fmt.Fprintf(&b, "task %s: %s, %s of others between: %s\n", rep.Task, Count(len(rep.Steps), "step", "steps"), Count(rep.Context, "commit", "commits"), verdict)
	if rep.Commit != "" {
		fmt.Fprintf(&b, "branch %s is at %s\n", rep.Branch, rep.Commit)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
