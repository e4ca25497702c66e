//go:build mutants

package cluster

import "os"

// mutant names what is left out of the protocol, for tests of the tests.
var mutant = os.Getenv("UMBRA_MUTANT")
