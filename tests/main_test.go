// Package tests is the black box: it starts the program and speaks HTTP, git
// and signals with it, as the pages of the contract say, and knows nothing of
// its inside.
package tests

import (
	"os"
	"testing"

	"umbra/tests/harness"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(m)) }
