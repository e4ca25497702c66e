package replay

import (
	"fmt"
	"slices"
	"strings"

	"umbra/gitstore/message"
)

// squashed gives the head of one commit for several: who made the first, when
// the last was made, what each did as a list, and the trailers of all.
func (e *export) squashed(group []*commit) written {
	if len(group) == 1 {
		return group[0].head()
	}
	last := group[len(group)-1]
	out := written{author: group[0].author, when: last.when}
	out.author.When = last.author.When
	var b strings.Builder
	b.WriteString(e.subject(group))
	b.WriteString("\n\n")
	for i, c := range group {
		if i == message.MaxListed {
			fmt.Fprintf(&b, "- … and %d more\n", len(group)-i)
			break
		}
		fmt.Fprintf(&b, "- %s\n", title(c))
	}
	b.WriteString("\n")
	b.WriteString(trailers(group))
	out.text = b.String()
	return out
}

// subject names what the commits have in common.
func (e *export) subject(group []*commit) string {
	task, sub := group[0].msg.TaskID, group[0].msg.SubtaskID
	for _, c := range group {
		if c.msg.SubtaskID != sub {
			sub = ""
		}
	}
	count := fmt.Sprintf("(%d changes)", len(group))
	switch {
	case task == "":
		return "changes of no task " + count
	case e.o.Squash == SquashSubtask && sub != "":
		return "subtask " + sub + " " + count
	case e.goal != "" && task == e.o.Task:
		line, _, _ := strings.Cut(e.goal, "\n")
		return line
	}
	return "task " + task + " " + count
}

// shared are trailers that are listed once for each value.
var shared = []string{"Task-Id", "Subtask-Id", "Actor", "Source"}

// trailers lists those of all commits: shared ones once a value, then the
// others commit by commit. Where they are too many, a count replaces these.
func trailers(group []*commit) string {
	var head, rest []string
	seen := make(map[string]bool)
	for _, c := range group {
		for _, line := range trailerLines(c.text) {
			key, _, _ := strings.Cut(line, ":")
			if !slices.Contains(shared, key) {
				rest = append(rest, line)
			} else if !seen[line] {
				seen[line] = true
				head = append(head, line)
			}
		}
	}
	slices.SortStableFunc(head, func(a, b string) int { return place(a) - place(b) })
	if len(group) > message.MaxListed {
		rest = []string{fmt.Sprintf("Changes: %d", len(group))}
	}
	return strings.Join(append(head, rest...), "\n") + "\n"
}

func place(line string) int {
	key, _, _ := strings.Cut(line, ":")
	return slices.Index(shared, key)
}

// trailerLines gives a recorded message's last paragraph.
func trailerLines(text string) []string {
	text = strings.TrimRight(text, "\n")
	if i := strings.LastIndex(text, "\n\n"); i >= 0 {
		text = text[i+2:]
	}
	return strings.Split(text, "\n")
}
