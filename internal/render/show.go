package render

import (
	"umbra/internal/client"
	"umbra/internal/term"
)

// Commit prints a commit's header and entries.
func Commit(o *term.Output, c *client.Commit) {
	o.Printf("%s\n", o.Paint(term.Commit, "commit "+c.ID))
	field := func(name string, value *string) {
		if value != nil && *value != "" {
			o.Printf("%-9s%s\n", name+":", term.Line(*value))
		}
	}
	field("Task", c.TaskID)
	field("Subtask", c.SubtaskID)
	field("Actor", &c.Actor)
	field("Source", &c.Source)
	field("Request", c.RequestID)
	date := Stamp(c.When) + c.When.Local().Format(" -0700")
	field("Date", &date)
	o.Printf("\n    %s\n", term.Line(c.Subject))
	for _, id := range c.Reverts {
		o.Printf("    %s\n", o.Paint(term.Dim, "undoes "+Short(id)))
	}
	o.Printf("\n")
	for i := range c.Entries {
		writeEntry(o, &c.Entries[i])
	}
	if len(c.Entries) > 0 {
		o.Printf("\n")
	}
}
