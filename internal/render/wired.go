package render

import (
	"strings"

	"umbra/gitstore/diff"
	"umbra/gitstore/object"
	"umbra/internal/agentconf"
	"umbra/internal/term"
)

// Wired is what init reports of one agent.
type Wired struct {
	Agent string             `json:"agent"`
	Found bool               `json:"found"`
	Files []agentconf.Change `json:"files"`
}

// Wiring prints what umbra init does to the agents' files; with diffs, their patches.
func Wiring(o *term.Output, list []Wired, diffs bool) error {
	if len(list) == 0 {
		o.Printf("no agent was found; name one with --agent: %s\n", strings.Join(agentconf.Names(), ", "))
		return nil
	}
	for _, a := range list {
		for _, c := range a.Files {
			o.Printf("%-12s %-9s %s", a.Agent, c.Action, term.Name(c.Path))
			if c.Reason != "" {
				o.Printf(": %s", term.Line(c.Reason))
			}
			o.Printf("\n")
			if !diffs || c.Action == "unchanged" || c.Action == "left" {
				continue
			}
			side := func(data []byte) diff.File {
				if data == nil {
					return diff.File{}
				}
				return diff.File{Path: strings.TrimPrefix(c.Path, "/"), Mode: object.Regular, Data: data}
			}
			patch, err := diff.Format(side(c.Before), side(c.After), diff.Options{Abbrev: 7})
			if err != nil {
				return err
			}
			if err := o.Diff(strings.NewReader(string(patch.Text))); err != nil {
				return err
			}
		}
	}
	return nil
}
