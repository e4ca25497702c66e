// Package enter is the child's side of package layer: a program that imports it
// and is started under Name mounts the overlay, changes to the directory and
// replaces itself by the command.
//
// It runs before the rest of the program initializes, as package
// internal/hook/early does, and so imports little.
package enter

// Name is the argument zero that the child is started with.
const Name = "umbra-layer-enter"

// Args are the child's arguments, in this order.
type Args struct {
	Root        string // the directory that is covered; empty: none is
	Over        string // a lower directory above it, or empty
	Below       string // what is below in place of the root's files, or empty
	Upper, Work string
	Dir         string // where the command runs
	Command     []string
}

// List returns the child's arguments.
func (a *Args) List() []string {
	return append([]string{Name, a.Root, a.Over, a.Below, a.Upper, a.Work, a.Dir}, a.Command...)
}

// What the child reports, before a space and a text, if the command does not run.
// The last two are also exit statuses.
const (
	NoLayer     = 125 // the overlay could not be mounted
	NotRunnable = 126
	NotFound    = 127
)
