package archtest

import (
	"bytes"
	"go/ast"
	"testing"
)

// A package has at most maxLines lines without tests, a struct at most maxFields
// fields. What is larger still has its own bound, which may only shrink.
const (
	maxLines  = 5000
	maxFields = 25
)

var largePackages = map[string]int{}

var largeStructs = map[string]int{}

func TestSizes(t *testing.T) {
	lines := map[string]int{}
	for _, s := range sources(t) {
		if s.test || in(s.dir, "tests") {
			continue
		}
		lines[s.dir] += bytes.Count([]byte(s.text), []byte{'\n'})
		ast.Inspect(s.tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			st, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			fields := 0
			for _, f := range st.Fields.List {
				fields += max(1, len(f.Names))
			}
			name := s.dir + "." + spec.Name.Name
			bound, large := largeStructs[name]
			switch {
			case large && fields > bound:
				t.Errorf("%s has %d fields; its bound is %d and only shrinks", name, fields, bound)
			case !large && fields > maxFields:
				t.Errorf("%s has %d fields, more than %d", name, fields, maxFields)
			}
			return true
		})
	}
	for dir, n := range lines {
		bound, large := largePackages[dir]
		switch {
		case large && n > bound:
			t.Errorf("%s has %d lines; its bound is %d and only shrinks", dir, n, bound)
		case !large && n > maxLines:
			t.Errorf("%s has %d lines, more than %d", dir, n, maxLines)
		}
	}
}
