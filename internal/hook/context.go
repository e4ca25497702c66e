package hook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// change is an item of others, overwrote and policy in the server's answers.
type change struct {
	Path      string   `json:"path"`
	Message   *string  `json:"message,omitempty"`
	Rules     []string `json:"rules,omitempty"`
	Operation string   `json:"operation,omitempty"`
	Task      *string  `json:"task_id,omitempty"`
	Subtask   *string  `json:"subtask_id,omitempty"`
	Actor     *string  `json:"actor,omitempty"`
	Source    string   `json:"source,omitempty"`
	Lines     *string  `json:"lines,omitempty"`
}

// maxOthers is how many changes of others are passed to the model at once.
const maxOthers = 20

// merge puts newer changes in front, one a path.
func merge(newer, older []change) []change {
	var out []change
	seen := map[string]bool{}
	for _, list := range [][]change{newer, older} {
		for _, c := range list {
			if !seen[c.Path] && len(out) < maxOthers {
				seen[c.Path] = true
				out = append(out, c)
			}
		}
	}
	return out
}

// rejected reports whether a reviewer took back what the agent had done.
func (c *change) rejected() bool { return c.Operation == "rejected" }

// advice is what the model reads: what others changed, what a reviewer rejected, what
// its call overwrote, and what it did against the policy. It is empty if there is
// nothing.
func advice(others []change, e *ended) string {
	var b strings.Builder
	var rejected []change
	others = slices.DeleteFunc(slices.Clone(others), func(c change) bool {
		if c.rejected() {
			rejected = append(rejected, c)
		}
		return c.rejected()
	})
	if len(rejected) > 0 {
		b.WriteString("umbra: a reviewer rejected changes of yours in these files and took them back; do not make them again, and read the files before you edit them:\n")
		for _, c := range rejected {
			b.WriteString("- " + plain(c.Path))
			if c.Message != nil && *c.Message != "" {
				fmt.Fprintf(&b, " (the reviewer says: %q)", *c.Message)
			}
			b.WriteByte('\n')
		}
	}
	if len(others) > 0 {
		b.WriteString("umbra: others changed these files since your last tool call; read them again before you edit them:\n")
		for _, c := range others {
			b.WriteString("- " + plain(c.Path))
			if c.Lines != nil && *c.Lines != "" {
				b.WriteString(" lines " + plain(*c.Lines))
			}
			fmt.Fprintf(&b, " (%s by %s)\n", plain(orElse(c.Operation, "changed")), c.by())
		}
	}
	if len(e.Overwrote) > 0 {
		b.WriteString("umbra: your last tool call deleted or replaced content of others that no commit of the project has:\n")
		for _, c := range e.Overwrote {
			fmt.Fprintf(&b, "- %s (last written by %s)\n", plain(c.Path), c.by())
		}
		e.undo(&b, "If that was not intended, run: ")
	}
	if len(e.Policy) > 0 {
		b.WriteString("umbra: your last tool call changed what the policy of this workspace forbids:\n")
		for _, c := range e.Policy {
			fmt.Fprintf(&b, "- %s (%s)\n", plain(c.Path), plain(strings.Join(c.Rules, ", ")))
		}
		if e.TakenBack != nil {
			b.WriteString("It was taken back; read these files again, and do not change them.\n")
		} else {
			e.undo(&b, "Take it back: ")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// undo writes the command that undoes the call.
func (e *ended) undo(b *strings.Builder, intro string) {
	if e.Undo != "" {
		b.WriteString(intro + plain(e.Undo) + "\n")
	}
}

func orElse(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (c *change) by() string {
	switch {
	case c.Task != nil && *c.Task != "":
		return "task " + plain(*c.Task)
	case c.Actor != nil && *c.Actor != "":
		return plain(*c.Actor)
	case c.Source == "baseline":
		return "the user, before umbra"
	case c.Source == "external" || c.Source == "":
		return "the user or another program"
	}
	return plain(c.Source)
}

// plain quotes a text that could be read as more than a name: a file's name is
// not an instruction.
func plain(s string) string {
	odd := func(r rune) bool { return !unicode.IsPrint(r) || r == '"' }
	if utf8.ValidString(s) && strings.IndexFunc(s, odd) < 0 {
		return s
	}
	return fmt.Sprintf("%q", s)
}

// answer is the agent's own form for context that goes to the model; nil if the
// agent has none for this event.
func (e *Event) answer(context string) []byte {
	if context == "" {
		return nil
	}
	var v any
	switch {
	case e.Kind != End:
		return nil
	case e.Agent == "cursor":
		if e.Name != "postToolUse" {
			return nil
		}
		v = map[string]any{"additional_context": context}
	case e.Agent == "copilot" && strings.HasPrefix(e.Name, "post"):
		return nil // the camelCase form has no field for it
	case e.Name == "PermissionDenied":
		return nil
	default:
		v = map[string]any{"hookSpecificOutput": map[string]any{"hookEventName": e.Name, "additionalContext": context}}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if enc.Encode(v) != nil {
		return nil
	}
	return b.Bytes()
}
