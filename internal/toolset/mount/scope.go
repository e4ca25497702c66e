package mount

// Scope is what may be done under a prefix.
type Scope string

// The scopes.
const (
	ReadOnly  Scope = "READ_ONLY"
	ReadWrite Scope = "READ_WRITE"
	WriteOnly Scope = "WRITE_ONLY"
)

// Scopes lists all.
func Scopes() []Scope { return []Scope{ReadOnly, ReadWrite, WriteOnly} }

// ParseScope reads a scope; false for any other word.
func ParseScope(s string) (Scope, bool) {
	switch sc := Scope(s); sc {
	case ReadOnly, ReadWrite, WriteOnly:
		return sc, true
	}
	return "", false
}

// Reads reports whether content may come out.
func (s Scope) Reads() bool { return s == ReadOnly || s == ReadWrite }

// Writes reports whether files may be changed.
func (s Scope) Writes() bool { return s == ReadWrite || s == WriteOnly }

// Words says what the scope allows, for the model.
func (s Scope) Words() string {
	switch s {
	case ReadOnly:
		return "files may be read, listed and searched, but not changed."
	case ReadWrite:
		return "files may be read, listed, searched, written, edited, moved and deleted."
	case WriteOnly:
		return "files may be written, edited and deleted, but not read, listed or searched."
	}
	return "nothing may be done."
}

// Op is what a tool does to a path, in the words of its refusal.
type Op string

// The operations.
const (
	Read   Op = "read"
	List   Op = "list"
	Stat   Op = "stat"
	Search Op = "search"
	Write  Op = "write"
	Edit   Op = "edit"
	Move   Op = "move"
	Delete Op = "delete"
)

// Allow is the guard: nil, or the Message that refuses.
func (s Scope) Allow(op Op, path string) error {
	ok := false
	switch op {
	case Read, List, Stat, Search:
		ok = s.Reads()
	case Write, Edit, Delete:
		ok = s.Writes()
	case Move: // it shows that the file is there, and takes it away
		ok = s == ReadWrite
	}
	if ok {
		return nil
	}
	return Message("Operation '" + string(op) + "' is not permitted: " + Show(path) + " is " + string(s))
}
