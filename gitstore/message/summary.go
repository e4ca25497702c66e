package message

import "strconv"

// summary makes the server's own line: the commit's subject, unless the caller
// gave one.
func (m *Message) summary() string {
	switch m.Source {
	case External:
		return "external change " + m.files()
	case Shared:
		return "shared change " + m.files()
	case Baseline:
		return "baseline " + m.files()
	case Revert:
		what := oneLine(m.RevertWhat)
		if what == "" {
			what = "changes"
		}
		return "revert " + what + " " + m.files()
	case Rollback:
		if len(m.Entries) == 1 && !m.mustCondense() {
			return "rollback " + QuotePath(m.Entries[0].Path)
		}
		return "rollback " + m.files()
	}
	switch {
	case m.Whole != nil:
		return act(m.Whole.Operation, m.Whole.Path, m.Whole.OldPath) + " " + m.files()
	case len(m.Entries) == 1 && !m.mustCondense():
		e := &m.Entries[0]
		return act(e.Operation, e.Path, e.OldPath)
	}
	return string(m.commonOperation()) + " " + strconv.Itoa(m.count()) + " files"
}

// files is the "(3 files)" of contracts/git.md, whatever the number.
func (m *Message) files() string { return "(" + strconv.Itoa(m.count()) + " files)" }

func act(op Operation, path, old string) string {
	if old != "" {
		return string(op) + " " + QuotePath(old) + " -> " + QuotePath(path)
	}
	return string(op) + " " + QuotePath(path)
}

// commonOperation is what all entries have in common, or "change".
func (m *Message) commonOperation() Operation {
	const mixed Operation = "change"
	if len(m.Entries) == 0 || len(m.Entries) < m.count() {
		return mixed
	}
	op := m.Entries[0].Operation
	for i := range m.Entries {
		if m.Entries[i].Operation != op {
			return mixed
		}
	}
	return op
}
