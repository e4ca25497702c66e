package render

import (
	"umbra/internal/client"
	"umbra/internal/doctor"
	"umbra/internal/term"
)

// Examined is the result of umbra doctor.
type Examined struct {
	Hurts    bool             `json:"hurts"`
	Findings []doctor.Finding `json:"findings"`
}

// Examination prints the findings of umbra doctor.
func Examination(o *term.Output, found Examined) {
	for _, f := range found.Findings {
		word := o.Paint(term.Added, "ok   ")
		switch f.Level {
		case doctor.Note:
			word = o.Paint(term.Meta, "note ")
		case doctor.Hurts:
			word = o.Paint(term.Removed, "hurts")
		}
		about := ""
		if f.About != "" {
			about = term.Name(f.About) + ": "
		}
		o.Printf("%s  %-11s %s%s\n", word, f.Check, about, term.Line(f.Detail))
		if f.Do != "" {
			o.Printf("       %-11s → %s\n", "", term.Line(f.Do))
		}
	}
	if !found.Hurts {
		o.Printf("nothing hurts\n")
	}
}

// Sound reports whether nothing was found.
func Sound(v *client.Verified) bool {
	return len(v.Problems) == 0 && (v.Disk == "same" || v.Disk == "none")
}

// maxListed is how many differing paths are named.
const maxListed = 100

// Verified prints the result of verifying a workspace.
func Verified(o *term.Output, v *client.Verified) {
	word := o.Paint(term.Added, "ok ")
	if !Sound(v) {
		word = o.Paint(term.Removed, "bad")
	}
	o.Printf("%s  %s  %s, %s and %s checked", word, v.Workspace, Count(v.Commits, "commit", "commits"), Count(v.Objects, "object", "objects"), Count(v.Hashes, "hash", "hashes"))
	switch v.Disk {
	case "same":
		o.Printf("; the disk is as the head")
	case "missing":
		o.Printf("; the directory is missing")
	case "differs":
		o.Printf("; the disk differs from the head in %s", Count(len(v.Differs), "path", "paths"))
	}
	o.Printf("\n")
	for _, p := range v.Problems {
		o.Printf("     %s\n", term.Line(p))
	}
	for i, d := range v.Differs {
		if i == maxListed {
			o.Printf("     … and %d more\n", len(v.Differs)-i)
			break
		}
		o.Printf("     %-10s %s\n", d.Reason, term.Name(client.Bytes(d.Path, d.Encoding)))
	}
}
