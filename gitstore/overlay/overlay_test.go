package overlay

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// A map of files is the oracle of random edits in random rounds.
func TestRandomEdits(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 3))
	trees := map[object.ID]*object.TreeData{}
	read := func(id object.ID) (*object.TreeData, error) {
		if t := trees[id]; t != nil {
			return t, nil
		}
		return nil, fmt.Errorf("no tree %s", id)
	}
	var flat func(id object.ID, dir string, out map[string]object.ID)
	flat = func(id object.ID, dir string, out map[string]object.ID) {
		if id == object.EmptyTree {
			return
		}
		for i := range trees[id].Len() {
			e := trees[id].At(i)
			if e.Mode == object.Dir {
				flat(e.ID, dir+e.Name+"/", out)
			} else {
				out[dir+e.Name] = e.ID
			}
		}
	}
	path := func() string {
		parts := make([]string, 1+rnd.IntN(3))
		for i := range parts {
			parts[i] = string(rune('a' + rnd.IntN(3)))
		}
		return strings.Join(parts, "/")
	}
	files, root := map[string]object.ID{}, object.EmptyTree
	under := func(dir string) (out []string) {
		for f := range files {
			if f == dir || strings.HasPrefix(f, dir+"/") {
				out = append(out, f)
			}
		}
		return out
	}
	parentFile := func(p string) bool {
		for i := range p {
			if p[i] == '/' {
				if _, ok := files[p[:i]]; ok {
					return true
				}
			}
		}
		return false
	}
	for round := range 500 {
		o, err := New(read, root)
		need.NoError(t, err)
		for range rnd.IntN(6) {
			p, to := path(), path()
			switch rnd.IntN(4) {
			case 0: // only what is there
				if list := under(p); len(list) > 0 {
					err = o.Remove(wspath.Path(p))
					for _, f := range list {
						delete(files, f)
					}
				}
			case 1:
				if list := under(p); len(list) > 0 && to != p && !strings.HasPrefix(to, p+"/") && !strings.HasPrefix(p, to+"/") && !parentFile(to) {
					err = o.Move(wspath.Path(p), wspath.Path(to))
					for _, f := range under(to) {
						delete(files, f)
					}
					for _, f := range list {
						files[to+f[len(p):]] = files[f]
						delete(files, f)
					}
				}
			default:
				_, isFile := files[p]
				if (isFile || len(under(p)) == 0) && !parentFile(p) {
					id := object.ID{byte(round), byte(round >> 8), byte(rnd.IntN(200)), 1}
					err = o.Put(wspath.Path(p), object.Regular, id)
					files[p] = id
				}
			}
			if err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
		}
		root, err = o.Write(func(tree, _ *object.TreeData, _ object.ID) (object.ID, error) {
			trees[tree.ID()] = tree
			return tree.ID(), nil
		})
		need.NoError(t, err)
		got := map[string]object.ID{}
		flat(root, "", got)
		if !maps.Equal(got, files) {
			t.Fatalf("round %d: %v, want %v", round, got, files)
		}
	}
}
