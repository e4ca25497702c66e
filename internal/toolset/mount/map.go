package mount

import "strings"

// Map is the file system map that goes into a model's prompt.
func (t *Table) Map() string {
	var b strings.Builder
	b.WriteString("Filesystem Map:\n")
	used := make(map[Scope]bool)
	for _, m := range t.Sorted() {
		b.WriteString("- " + m.Prefix + " [" + string(m.Scope) + "] " + string(m.Kind) + "\n")
		used[m.Scope] = true
	}
	if len(used) == 0 {
		b.WriteString("- (no mounted workspaces)\n- All filesystem operations are denied by default.\n")
		return b.String()
	}
	for _, s := range Scopes() {
		if used[s] {
			b.WriteString(string(s) + ": " + s.Words() + "\n")
		}
	}
	return b.String()
}
