package rearrange

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"umbra/internal/wspath"
)

// node is a file or directory of a tree in memory. A step moves it with all that
// is in it.
type node struct {
	name string // as it was before; of new ones "+" and the path
	dir  bool
	kids map[string]*node
}

func newDir(name string) *node { return &node{name: name, dir: true, kids: map[string]*node{}} }

func (n *node) at(p wspath.Path) *node {
	for _, name := range p.Components() {
		if n == nil || !n.dir {
			return nil
		}
		n = n.kids[name]
	}
	return n
}

func (n *node) set(p wspath.Path, x *node) error {
	dir := n.at(p.Dir())
	switch {
	case dir == nil || !dir.dir:
		return fmt.Errorf("%q: no directory", p)
	case x == nil:
		delete(dir.kids, p.Base())
	case dir.kids[p.Base()] != nil:
		return fmt.Errorf("%q: exists", p)
	default:
		dir.kids[p.Base()] = x
	}
	return nil
}

func (n *node) list() map[wspath.Path]string {
	out := map[wspath.Path]string{}
	var walk func(p wspath.Path, n *node)
	walk = func(p wspath.Path, n *node) {
		for name, k := range n.kids {
			out[p.Join(name)] = k.name
			walk(p.Join(name), k)
		}
	}
	walk(wspath.Root, n)
	return out
}

// do does a step as the materialiser would.
func (n *node) do(s Step) error {
	is := n.at(s.From)
	switch s.Kind {
	case Make:
		return n.set(s.To, newDir("+"+string(s.To)))
	case Put:
		if old := n.at(s.To); (old != nil) != (s.Over != None) {
			return fmt.Errorf("put %q over %v, Over %d", s.To, old, s.Over)
		}
		if err := n.set(s.To, nil); err != nil {
			return err
		}
		return n.set(s.To, &node{name: "+" + string(s.To)})
	case Take:
		if is == nil || is.dir != s.Dir {
			return fmt.Errorf("take %q: %v", s.From, is)
		}
		return n.set(s.From, nil)
	case Prune:
		if is == nil || len(is.kids) > 0 {
			return fmt.Errorf("prune %q: %v", s.From, is)
		}
		return n.set(s.From, nil)
	case Exchange:
		other := n.at(s.To)
		if is == nil || other == nil || s.From.Within(s.To) || s.To.Within(s.From) {
			return fmt.Errorf("exchange %q and %q", s.From, s.To)
		}
		n.at(s.From.Dir()).kids[s.From.Base()], n.at(s.To.Dir()).kids[s.To.Base()] = other, is
		return nil
	}
	if is == nil || s.To.Within(s.From) {
		return fmt.Errorf("rename %q to %q", s.From, s.To)
	}
	if s.Over != None {
		if err := n.set(s.To, nil); err != nil {
			return err
		}
	}
	if err := n.set(s.From, nil); err != nil {
		return err
	}
	return n.set(s.To, is)
}

// random makes a tree, and another arrangement of it by operations one after the
// other, as a request has them.
func random(r *rand.Rand) (before *node, objects []Object, news []New) {
	pruned := map[string]bool{}
	before = newDir("")
	names := []string{"a", "b", "c", "d"}
	var fill func(p wspath.Path, depth int)
	fill = func(p wspath.Path, depth int) {
		for _, name := range names {
			at := p.Join(name)
			switch r.IntN(4) {
			case 0:
				_ = before.set(at, &node{name: string(at)})
			case 1:
				if depth < 3 {
					_ = before.set(at, newDir(string(at)))
					fill(at, depth+1)
				}
			}
		}
	}
	fill(wspath.Root, 0)
	after := clone(before)
	pick := func() wspath.Path {
		all := slices.Sorted(maps.Keys(after.list()))
		if len(all) == 0 || r.IntN(3) == 0 {
			return wspath.Path(names[r.IntN(4)])
		}
		p := all[r.IntN(len(all))]
		if r.IntN(2) == 0 {
			p = p.Join(names[r.IntN(4)])
		}
		return p
	}
	for range 1 + r.IntN(8) {
		p, q := pick(), pick()
		if dir := after.at(p.Dir()); dir == nil || !dir.dir {
			continue
		}
		is := after.at(p)
		switch r.IntN(7) {
		case 6:
			if is != nil && is.dir && len(is.kids) == 0 {
				pruned[is.name] = true
				_ = after.set(p, nil)
			}
		case 5:
			other := after.at(q)
			if is == nil || other == nil || p.Within(q) || q.Within(p) {
				continue
			}
			_ = after.set(p, nil)
			_ = after.set(q, nil)
			_ = after.set(p, other)
			_ = after.set(q, is)
		case 0:
			if is != nil {
				_ = after.set(p, nil)
			}
		case 1:
			if is == nil || !is.dir {
				_ = after.set(p, nil)
				_ = after.set(p, &node{name: "+"})
			}
		case 2:
			if is == nil {
				_ = after.set(p, newDir("+"))
			}
		default:
			if dir := after.at(q.Dir()); is == nil || dir == nil || !dir.dir || q.Within(p) {
				continue
			}
			if old := after.at(q); old != nil && (old.dir || is.dir) || p == q {
				continue
			}
			_ = after.set(p, nil)
			_ = after.set(q, nil)
			_ = after.set(q, is)
		}
	}
	// What a directory takes along has no object, half of the time.
	was, is, seen := before.list(), after.list(), map[string]bool{}
	for at, name := range is {
		if strings.HasPrefix(name, "+") {
			news = append(news, New{Path: at, Dir: after.at(at).dir, Ref: len(news) + 1000})
			continue
		}
		seen[name] = true
		above := after.at(at.Dir()).name
		stays := !at.Dir().IsRoot() && above != "+" && string(wspath.Path(above).Join(at.Base())) == name || at.Dir().IsRoot() && string(at) == name
		if !stays || r.IntN(2) == 0 {
			objects = append(objects, Object{From: wspath.Path(name), To: at, Dir: after.at(at).dir, Ref: len(objects)})
		}
	}
	for at := range was {
		if !seen[string(at)] {
			objects = append(objects, Object{From: at, Dir: before.at(at).dir, Prune: pruned[string(at)], Ref: len(objects)})
		}
	}
	return before, objects, news
}

func clone(n *node) *node {
	c := &node{name: n.name, dir: n.dir}
	if n.dir {
		c.kids = map[string]*node{}
	}
	for name, k := range n.kids {
		c.kids[name] = clone(k)
	}
	return c
}

// Whatever the operations were, the steps can be done in their order, they lead to
// the arrangement that is wanted, and on the way no path holds anything but what
// it held before, what it holds afterwards, what a rename along with it brought
// there, or nothing.
func TestRandom(t *testing.T) {
	kinds := map[Kind]int{}
	for seed := range uint64(20_000) {
		r := rand.New(rand.NewPCG(seed, 1))
		tree, objects, news := random(r)
		was := clone(tree)
		temps := 0
		steps, ok := Order(objects, news, func(dir wspath.Path) wspath.Path {
			temps++
			return dir.Join(fmt.Sprint(".temp", temps))
		})
		fail := func(format string, args ...any) {
			t.Helper()
			t.Errorf("seed %d: "+format, append([]any{seed}, args...)...)
			t.Logf("before %v\nobjects %+v\nnew %+v", was.list(), objects, news)
			for _, s := range steps {
				t.Logf("%+v", s)
			}
			t.FailNow()
		}
		if !ok {
			fail("no steps")
		}
		for _, s := range steps {
			kinds[s.Kind]++
			if err := tree.do(s); err != nil {
				fail("%v", err)
			}
		}
		got := tree.list()
		for _, x := range objects {
			if x.To != "" && got[x.To] != string(x.From) {
				fail("%q is at %q", got[x.To], x.To)
			}
		}
		for _, x := range news {
			stays := slices.ContainsFunc(objects, func(o Object) bool { return o.Prune && string(o.From) == got[x.Path] }) && x.Dir
			if got[x.Path] != "+"+string(x.Path) && !stays {
				fail("%q is at %q", got[x.Path], x.Path)
			}
		}
		for at, name := range got {
			if slices.ContainsFunc(objects, func(x Object) bool { return string(x.From) == name && x.To == "" && !x.Prune }) {
				fail("%q is left at %q", name, at)
			}
		}
		if temps > 0 && kinds[Park] == 0 {
			fail("a temporary name without a step")
		}
	}
	for _, k := range []Kind{Rename, Exchange, Park, Take, Make, Put, Prune} {
		if kinds[k] == 0 {
			t.Errorf("no step of kind %d: %v", k, kinds)
		}
	}
}

func TestOrder(t *testing.T) {
	temp := func(dir wspath.Path) wspath.Path { return dir.Join("temp") }
	for _, c := range []struct {
		name    string
		objects []Object
		news    []New
		want    string
	}{
		{"replaced", []Object{{From: "a"}}, []New{{Path: "a"}}, "put a over"},
		{"renamed over", []Object{{From: "a", To: "b"}, {From: "b", Ref: 1}}, nil, "rename a b over"},
		{"swapped", []Object{{From: "a", To: "b"}, {From: "b", To: "a", Ref: 1}}, nil, "exchange a b over"},
		{"ring", []Object{{From: "a", To: "b"}, {From: "b", To: "c"}, {From: "c", To: "a"}}, nil, "park a temp, rename c a, rename b c, rename temp b"},
		{"a file for a directory", []Object{{From: "d", Dir: true}}, []New{{Path: "d"}}, "take d, put d"},
		{"a directory for a file", []Object{{From: "a"}}, []New{{Path: "a", Dir: true}, {Path: "a/b"}}, "take a, make a, put a/b"},
		{"out of a removed directory into its place", []Object{{From: "d", Dir: true}, {From: "d/x", To: "d"}}, nil, "park d/x temp, take d, rename temp d"},
		{"moved with the directory, and out of it", []Object{{From: "d", To: "e", Dir: true}, {From: "d/x", To: "y"}}, nil, "rename d e, rename e/x y"},
		{"pruned, and made again", []Object{{From: "d", Dir: true, Prune: true}}, []New{{Path: "d", Dir: true}, {Path: "d/x"}}, "put d/x"},
		{"pruned inside out", []Object{{From: "d", Dir: true, Prune: true}, {From: "d/e", Dir: true, Prune: true}, {From: "d/e/x"}}, nil, "take d/e/x, prune d/e, prune d"},
	} {
		var got []string
		steps, _ := Order(c.objects, c.news, temp)
		for _, s := range steps {
			words := []string{[]string{"", "rename", "exchange", "park", "take", "prune", "make", "put"}[s.Kind]}
			for _, p := range []wspath.Path{s.From, s.To} {
				if p != "" {
					words = append(words, string(p))
				}
			}
			if s.Over != None {
				words = append(words, "over")
			}
			got = append(got, strings.Join(words, " "))
		}
		if g := strings.Join(got, ", "); g != c.want {
			t.Errorf("%s: %s, want %s", c.name, g, c.want)
		}
	}
}
