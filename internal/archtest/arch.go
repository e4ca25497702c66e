// Package archtest holds the project's layout: which package may import which,
// and a few habits that a compiler does not know. All of it is in the tests.
package archtest
