// Package need is for what tests need: calls that return no error, what is in a directory,
// and things that the machine may lack. Without those a test is left out, but never where
// CI=true says that everything must run.
//
// It is imported by tests alone.
package need

import (
	"os"
	"os/exec"
	"testing"
)

// T is a test: a *testing.T, *testing.B, *testing.F or *rapid.T.
type T interface {
	Helper()
	Fatal(args ...any)
}

// NoError fails and ends the test at an error.
func NoError(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Tool gives the path of a program, or leaves the test out.
func Tool(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		Missing(t, name+" is not installed")
	}
	return path
}

// Root leaves the test out for any other user.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		Missing(t, "this test needs root")
	}
}

// Missing leaves the test out, or fails it where CI=true.
func Missing(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatal("CI leaves nothing out: " + why)
	}
	t.Skip(why)
}

// Long leaves a long test out where -short is given.
func Long(t testing.TB, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: " + why)
	}
}

// Soak leaves out a test that is too long for everyday: UMBRA_SOAK asks for it.
func Soak(t testing.TB, why string) {
	t.Helper()
	if os.Getenv("UMBRA_SOAK") == "" {
		t.Skip("UMBRA_SOAK is not set: " + why)
	}
}
