package diff

// Hard lends the hard texts to the tests outside the package, which may import
// difftest.
func Hard(lines int) map[string][2][]byte { return hard(lines) }
