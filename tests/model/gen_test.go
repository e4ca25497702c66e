package model

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"strings"

	"umbra/gitstore/object"
	"umbra/internal/workspace/wstest"
)

// profile is what a sequence is about: the more is mixed, the less can be told
// of what must come out.
type profile uint8

const (
	solo  profile = iota // one task alone, with subtasks: its full revert gives everything back
	apart                // several tasks, each with files of its own
	lines                // several tasks and subtasks on the same texts
	wild                 // everything on everything, and people
	profiles
)

func (p profile) String() string { return [...]string{"solo", "apart", "lines", "wild"}[p] }

// files is what every workspace begins with.
func files() wstest.Folder {
	r, x, l, d := object.Regular, object.Executable, object.Symlink, object.Dir
	out := wstest.Folder{
		"a": {Mode: r, Data: "1\n2\n3\n4\n5\n6\n7\n8\n"}, "b": {Mode: r, Data: "b\n"}, "dir/x": {Mode: r, Data: "x\n"}, "dir/sub/y": {Mode: r, Data: "y\n"},
		"dir/skip.log": {Mode: r, Data: "ignored\n"}, "skip.log": {Mode: r, Data: "ignored too\n"}, ".gitignore": {Mode: r, Data: "*.log\n"},
		"empty": {Mode: d}, "void": {Mode: r}, "link": {Mode: l, Data: "a"}, "run.sh": {Mode: x, Data: "#!/bin/sh\n"},
		"crlf": {Mode: r, Data: "1\r\n2\r\n3\r\n"}, "bin": {Mode: r, Data: "\x00\x01\x02"}, "key": {Mode: r, Data: "secret\n"}, "no end": {Mode: r, Data: "no newline"},
	}
	for _, name := range lineFiles {
		out[name] = wstest.Thing{Mode: r, Data: linesText()}
	}
	return out
}

// names that operations draw from, beside what stands on disk.
var names = []string{"a", "b", "dir/x", "dir/sub/y", "dir", "dir/sub", "n", "m/n", "m/o/p", "m", "e", "e/x", "B", "link", "run.sh", "crlf", "bin", "key", "empty",
	"empty/f", "void", "skip.log", "dir/skip.log", "out.log", "no end", "q\t\"é\\", "n/in"}

type generator struct {
	r    *rand.Rand
	p    profile
	cuts int // power cuts too: how often, as a multiple of the usual rate
}

func (n *generator) one(of ...string) string { return of[n.r.IntN(len(of))] }

func (n *generator) chance(percent int) bool { return n.r.IntN(100) < percent }

// path draws a path: one that is there, two times of three.
func (n *generator) path(g *rig, who string) string {
	var there []string
	for _, p := range slices.Sorted(maps.Keys(g.disk)) {
		if n.mine(p, who) && !slices.Contains(lineFiles, p) && p != ".gitignore" {
			there = append(there, p)
			if d := path.Dir(p); d != "." && n.mine(d, who) {
				there = append(there, d)
			}
		}
	}
	if len(there) > 0 && n.chance(66) {
		return n.one(there...)
	}
	p := n.one(names...)
	if n.p == apart {
		p = who + "/" + p
	}
	return p
}

func (n *generator) mine(p, who string) bool {
	return n.p != apart || strings.HasPrefix(p, who+"/") || who == "A" && !slices.ContainsFunc(tasks, func(t string) bool { return within(p, t) })
}

func (n *generator) data() string {
	switch n.r.IntN(10) {
	case 0:
		return ""
	case 1:
		return fmt.Sprintf("\x00%d\xff", n.r.IntN(1000))
	case 2:
		return fmt.Sprintf("%d\r\n2\r\n3\r\n", n.r.IntN(9))
	case 3:
		return fmt.Sprintf("end %d", n.r.IntN(1000))
	case 4: // the same content as somewhere else
		return n.one("b\n", "x\n", "ignored\n")
	}
	var b strings.Builder
	for i := range 1 + n.r.IntN(12) {
		v := i + 1
		if n.chance(15) {
			v = n.r.IntN(1000)
		}
		fmt.Fprintf(&b, "%d\n", v)
	}
	return b.String()
}

func (n *generator) op(g *rig, who string) op {
	p := n.path(g, who)
	switch n.r.IntN(17) {
	case 0, 1, 2:
		return op{verb: "put", path: p, arg: n.data()}
	case 3, 4, 5, 6:
		if t, ok := g.disk[p]; ok && t.Mode != object.Dir && t.Mode != object.Symlink && t.Data != "" {
			return op{verb: "line", path: p, n: n.r.IntN(strings.Count(t.Data, "\n") + 1), arg: fmt.Sprint(n.r.IntN(1000))}
		}
		return op{verb: "put", path: p, arg: n.data()}
	case 7, 8:
		return op{verb: "del", path: p}
	case 9, 10, 11:
		return op{verb: "mv", path: p, arg: n.path(g, who)}
	case 12:
		return op{verb: n.one("+x", "-x"), path: p}
	case 13:
		return op{verb: "ln", path: p, arg: n.one("a", "b", "nowhere", "dir")}
	case 14:
		return op{verb: "mkdir", path: p}
	case 15:
		return op{verb: "rmdir", path: p}
	}
	return op{verb: "put", path: path.Join(p, n.one("f", "g/h")), arg: n.data()}
}

// batch is the operations of one request: one, several, or a swap.
func (n *generator) batch(g *rig, who string) []op {
	if n.chance(8) {
		a, b := n.path(g, who), n.path(g, who)
		t := "tmp"
		if n.p == apart {
			t = who + "/tmp"
		}
		ops := []op{{verb: "mv", path: a, arg: t}, {verb: "mv", path: b, arg: a}, {verb: "mv", path: t, arg: b}}
		if n.chance(40) {
			ops = append(ops, op{verb: "put", path: a, arg: n.data()})
		}
		return ops
	}
	count := 1
	if n.chance(25) {
		count = 2 + n.r.IntN(3)
	}
	var out []op
	for range count {
		out = append(out, n.op(g, who))
	}
	return out
}

func (n *generator) task() string {
	if n.p == solo {
		return "A"
	}
	return n.one(tasks...)
}

func (n *generator) next(g *rig) step {
	who := n.task()
	switch k := n.r.IntN(100); {
	case k < 5 && n.p == wild:
		return step{verb: "sync"}
	case k < 17 && n.p == wild:
		return step{verb: "disk", ops: n.batch(g, who)}
	case k < 19 && n.p == wild:
		return step{verb: "alone", who: n.one("", "A", "A")}
	case k < 37:
		return step{verb: "revert", who: who, rev: n.reversal(g, who)}
	case k < 41:
		return step{verb: "unrevert", who: who}
	case k < 43:
		return step{verb: n.one("restart", "cold")}
	case k < 43+3*n.cuts && g.mem != nil:
		return step{verb: "crash", n: n.r.Uint64N(1 << 20)}
	}
	s := step{verb: "do", who: who, sub: n.one("", "s1", "s2")}
	if n.p == lines && n.chance(80) || n.p == wild && n.chance(15) {
		i := slices.Index(owners(), owner{s.who, s.sub})
		s.ops = []op{{verb: "line", path: n.one(lineFiles...), n: lineOf(i), arg: fmt.Sprintf("%s%s %d", s.who, s.sub, n.r.IntN(100))}}
		return s
	}
	s.ops = n.batch(g, who)
	return s
}

func (n *generator) reversal(g *rig, who string) reversal {
	var r reversal
	switch k := n.r.IntN(100); {
	case k < 35:
	case k < 55:
		r.scope, r.arg = "sub", n.one("s1", "s2")
	case k < 75:
		r.scope, r.arg = "path", n.path(g, who)
		if n.p == lines && n.chance(70) {
			r.arg = n.one(lineFiles...)
		}
	default:
		r.scope, r.n = "change", n.r.IntN(60)
	}
	switch k := n.r.IntN(100); {
	case k < 12:
		r.mode = "force"
	case k < 27:
		r.mode = "skip"
	}
	r.noext = n.p == wild && n.chance(10)
	switch k := n.r.IntN(100); {
	case k < 25:
		r.plan = "plan"
	case k < 32 && (n.p == wild || n.p == lines):
		r.plan = "stale"
	}
	return r
}
