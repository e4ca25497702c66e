// Package wstest is what tests of packages above workspace share: a machine in
// memory in place of the real one, records that outlive a manager, and
// a look at what a folder and a history hold, in one form, so that they can be
// compared.
//
// Only tests import it.
package wstest
