//go:build !mutants

package cluster

// mutant names what is left out of the protocol, for tests of the tests.
const mutant = ""
