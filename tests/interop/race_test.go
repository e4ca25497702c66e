//go:build race

package interop

// raceEnabled: the race detector multiplies what a program needs.
const raceEnabled = true
