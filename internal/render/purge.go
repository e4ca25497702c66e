package render

import (
	"cmp"
	"slices"
	"strings"

	"umbra/internal/client"
	"umbra/internal/term"
)

// Purged is what a purge did, as the server reports it.
type Purged struct {
	Workspace string        `json:"workspace"`
	DryRun    bool          `json:"dry_run"`
	Refused   bool          `json:"refused"`
	Blobs     []string      `json:"blobs"`
	Names     []PurgedFile  `json:"names"`
	Kept      []PurgedFile  `json:"kept"`
	Commits   uint64        `json:"commits"`
	Touched   uint64        `json:"touched"`
	First     uint64        `json:"first"`
	Bytes     int64         `json:"bytes"`
	Files     []PurgedFile  `json:"files"`
	Held      []PurgeHolder `json:"held"`
	Dropped   []PurgeHolder `json:"dropped"`
	Foreign   []string      `json:"foreign"`
	Clones    []struct {
		Who  *string `json:"who"`
		From string  `json:"from"`
		What string  `json:"what"`
		Last string  `json:"last"`
	} `json:"clones"`
	NotReached []string `json:"not_reached"`
	// Remaining is what of a cluster still has such bytes; nil: nothing.
	Remaining *PurgeRemaining `json:"remaining"`
}

// PurgeRemaining says where in a cluster purged content may still be.
type PurgeRemaining struct {
	Objects int      `json:"objects"`
	Nodes   []string `json:"nodes"`
	Error   string   `json:"error"`
}

// PurgedFile is a path that had purged content.
type PurgedFile struct {
	Path     string `json:"path"`
	Encoding string `json:"path_encoding"`
}

// Name returns the path, quoted for a terminal.
func (f PurgedFile) Name() string { return term.Name(client.Bytes(f.Path, f.Encoding)) }

// PurgeHolder is a ref, worktree or reflog that leads to purged content.
type PurgeHolder struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// Purge prints the result of a purge.
func Purge(o *term.Output, p *Purged) {
	verb := "purged"
	if p.DryRun {
		verb = "would be purged"
	}
	o.Printf("%s %s: %s had such bytes, %s from number %d on %s another id\n", Count(len(p.Blobs), "content", "contents"), verb,
		Count(int(p.Touched), "commit", "commits"), Count(int(p.Commits), "commit", "commits"), p.First, map[bool]string{true: "would get", false: "got"}[p.DryRun])
	for _, n := range p.Names {
		o.Printf("  name      %s\n", n.Name())
	}
	for _, f := range p.Kept {
		o.Printf("  kept      %s: its content on disk stays in history too\n", f.Name())
	}
	for _, b := range p.Blobs {
		o.Printf("  content   %s\n", b)
	}
	for _, f := range p.Files {
		word := "ignored"
		if p.Refused {
			word = "on disk"
		}
		o.Printf("  %-8s  %s\n", word, f.Name())
	}
	for _, h := range p.Held {
		o.Printf("  %s  %s %s\n", o.Paint(term.Removed, "in the way"), h.Kind, term.Name(h.Name))
	}
	for _, h := range p.Dropped {
		o.Printf("  dropped   %s %s\n", h.Kind, term.Name(h.Name))
	}
	for _, f := range p.Foreign {
		o.Printf("  dropped   %s\n", term.Name(f))
	}
	if p.Refused {
		o.Printf("It would be refused: see --ignore and --force.\n")
	}
	if r := p.Remaining; r != nil {
		o.Printf("%s: %s of the object store, nodes that did not confirm: %s\n", o.Paint(term.Removed, "Not deleted yet"),
			Count(r.Objects, "object", "objects"), cmp.Or(strings.Join(r.Nodes, ", "), "none"))
		if r.Error != "" {
			o.Printf("  error     %s\n", term.Line(r.Error))
		}
	}
	more := ""
	if slices.Contains(p.NotReached, "wal_archive") {
		more = ", the database's WAL archive, versions of the bucket's objects"
	}
	o.Printf("Not reached: scratch, artifacts, earlier backups, clones%s.\n", more)
	for _, c := range p.Clones {
		who := "unknown"
		if c.Who != nil {
			who = *c.Who
		}
		o.Printf("  %-8s  %s from %s, last %s\n", c.What, term.Line(who), term.Line(c.From), c.Last)
	}
}
