// Package taskfiles reads a workspace for programs: sorted pages of a
// directory, stat, lines of a text file, search by regular expression, and glob
// (contracts/clients.md). It works on physical and virtual workspaces alike and
// changes nothing, except that Edit and Append build operations that
// workspace.Apply carries out.
//
// Nothing is cached. Walks go in the bytewise order of whole paths, so a page
// that begins after a path costs the directories above that path and the page
// itself, not the whole tree.
package taskfiles
