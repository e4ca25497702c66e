//go:build !linux || (!amd64 && !arm64)

package js

// harden has no means here: it returns the names of all walls.
func harden(int64) []string { return MissingWalls() }

// MissingWalls returns the names of the walls around a program that this system
// does not have: all. The engine and the server's own checks remain.
func MissingWalls() []string { return []string{"no_new_privs", "landlock", "seccomp"} }
