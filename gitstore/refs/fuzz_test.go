package refs

import (
	"testing"

	"umbra/gitstore/object"
)

func FuzzPacked(f *testing.F) {
	const id = "0123456789012345678901234567890123456789"
	f.Add("")
	f.Add("# pack-refs with: peeled fully-peeled sorted \n" + id + " refs/heads/a\n" + id + " refs/tags/b\n^" + id + "\n")
	f.Add(id + " refs/b\n" + id + " refs/a\n")
	f.Add("^" + id + "\n")
	f.Fuzz(func(t *testing.T, data string) {
		p, err := parsePacked(data)
		if err != nil {
			return
		}
		again, err := parsePacked(string(p.encode()))
		if err != nil || len(again.refs) != len(p.refs) || again.fully != p.fully {
			t.Fatalf("%v: %q", err, p.encode())
		}
		for i := range p.refs {
			if p.refs[i] != again.refs[i] {
				t.Fatalf("%v is %v", p.refs[i], again.refs[i])
			}
		}
	})
}

func FuzzLoose(f *testing.F) {
	for _, s := range []string{"", "ref: refs/heads/a\n", "0123456789012345678901234567890123456789\n", "ref: ../x", "ref:", "0123456789012345678901234567890123456789x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		r := Ref{Name: "refs/x"}
		r.parse(data)
		if r.found() == r.Damaged {
			t.Fatalf("%q: found and damaged: %v", data, r.Damaged)
		}
		if r.Symbolic != "" && !ValidName(r.Symbolic) {
			t.Fatalf("%q points at %q", data, r.Symbolic)
		}
	})
}

func FuzzNote(f *testing.F) {
	f.Add([]byte(noteHeader))
	g := noteGroup{shown: 3, values: []Value{{"refs/a", object.ID{1}}, {"refs/a", object.ID{2}}, {"refs/b", object.ID{}}}}
	f.Add(g.encode([]byte(noteHeader)))
	f.Add([]byte(noteHeader1 + "00000000 " + (object.ID{1}).String() + " refs/a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		n := &Note{values: map[string]object.ID{}, before: map[string][]object.ID{}}
		n.parse(data)
		for name, id := range n.values {
			if !ValidName(name) || id.IsZero() {
				t.Fatalf("noted %q, %s", name, id)
			}
		}
	})
}
