package gitstore

import (
	"math/rand/v2"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
)

// Blobs reads versions of a file in any order, from packs and from a journal, and what
// it read last stays as it is while the next one is read.
func TestBlobsReadVersions(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{Foreground: true})
	r := rand.New(rand.NewPCG(4, 2))
	lines := strings.SplitAfter(strings.Repeat("a line of text\n", 300), "\n")
	var all []string
	version := func() {
		at := r.IntN(len(lines))
		lines[at] = strings.Repeat("x", r.IntN(40)) + lines[at]
		if r.IntN(8) == 0 {
			lines = lines[:len(lines)-r.IntN(9)]
		}
		all = append(all, strings.Join(lines, ""))
		mustPut(t, s, "", "f", all[len(all)-1])
	}
	check := func() {
		t.Helper()
		order := r.Perm(len(all))
		for i := range all {
			order = append(order, i)
		}
		blobs := s.Blobs()
		var last []byte
		was := ""
		for _, i := range order {
			data, err := blobs.Read(t.Context(), object.Hash(object.Blob, []byte(all[i])), 1<<20)
			need.NoError(t, err)
			if string(data) != all[i] || string(last) != was {
				t.Fatalf("version %d of %d is another, or the one before it changed", i, len(all))
			}
			last, was = data, all[i]
		}
	}
	for range 120 {
		version()
	}
	check()
	need.NoError(t, s.Publish(t.Context()))
	need.NoError(t, s.Maintain(t.Context()))
	for range 20 {
		version()
	}
	check()
	closeStore(t, s)
	s = openAt(t, dir, Options{Foreground: true})
	defer closeStore(t, s)
	check()
}
