//go:build race

package js

// raced: the race detector's own memory and its slowness are not a program's.
const raced = true
