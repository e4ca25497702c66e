package revert

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/internal/need"
)

type gitEntry = gitstore.Entry

const eight = "1\n2\n3\n4\n5\n6\n7\n8\n"

func with(base map[string]string, more map[string]string) map[string]string {
	out := maps.Clone(base)
	for k, v := range more {
		if v == "-" {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

var start = map[string]string{
	"a": eight, "b": "b\n", "dir/x": "x\n", "dir/sub/y": "y\n", "dir/skip.log": "ignored\n", "empty/": "",
	".gitignore": "*.log\n", "link": "->a",
}

// TestOnlyTask undoes all of the only task's work: the folder is what it was.
func TestOnlyTask(t *testing.T) {
	for name, script := range map[string][][]string{
		"modify":                 {{"put a changed"}, {"put a again"}},
		"create":                 {{"put n new"}, {"put deep/er/n new"}},
		"create and delete":      {{"put n new"}, {"del n"}},
		"delete":                 {{"del b"}},
		"delete and make again":  {{"del b"}, {"put b other"}},
		"rename":                 {{"mv b c"}},
		"rename and edit":        {{"mv b c"}, {"put c edited"}, {"mv c d"}},
		"rename onto a file":     {{"mv b a"}},
		"rename chain":           {{"mv a t"}, {"mv b a"}, {"mv t b"}},
		"swap in one commit":     {{"mv a t", "mv b a", "mv t b"}},
		"swap with edits":        {{"mv a t", "mv b a", "mv t b"}, {"put a edited"}, {"put b edited"}},
		"three in a ring":        {{"mv a t", "mv b a", "mv dir/x b", "mv t dir/x"}},
		"case only":              {{"mv b B"}},
		"folder":                 {{"mv dir moved"}},
		"folder deeper":          {{"mv dir deep/er/dir"}, {"put deep/er/dir/x edited"}},
		"folder and file inside": {{"put dir/x edited"}, {"mv dir moved"}, {"mv moved/sub/y y"}},
		"delete folder":          {{"del dir"}},
		"folder becomes file":    {{"del dir"}, {"put dir file"}},
		"file becomes folder":    {{"del b"}, {"put b/in/it new"}},
		"file becomes link":      {{"del b"}, {"ln b a"}},
		"link becomes file":      {{"del link"}, {"put link file"}},
		"link retargeted":        {{"ln link b"}},
		"mode":                   {{"chmod+x b"}},
		"mode and text":          {{"chmod+x b"}, {"put b changed"}},
		"mkdir":                  {{"mkdir made"}},
		"mkdir and fill":         {{"mkdir made"}, {"put made/f new"}},
		"rmdir":                  {{"rmdir empty"}},
		"empty folder moved":     {{"mv empty void"}},
		"binary":                 {{"put bin \x00\x01\x02"}, {"put a \x00a"}},
		"CRLF":                   {{"put a 1\r\\n2\r\\n"}},
		"ignored file written":   {{"put out.log text"}},
		"batch":                  {{"put n1 x", "put b y", "del dir/x", "mv a dir/x"}},
		// What the random test found (tests/model).
		"made in a folder, and deleted":        {{"mv b m/n"}, {"del m/n"}},
		"only folders are left to go":          {{"put m/n/o new"}, {"del m/n/o"}},
		"file becomes an empty folder":         {{"del b"}, {"mkdir b"}},
		"empty folder takes a file's name":     {{"mv b t", "mv empty b"}},
		"empty folder moved to a new one":      {{"mv empty m/n"}},
		"folder and file swap":                 {{"mv dir t", "mv b dir", "mv t b"}, {"del dir"}},
		"folder takes a file's name, twice":    {{"mv b t", "mv dir/sub b"}, {"mv b empty"}},
		"folder moved after its files changed": {{"mv b dir/x"}, {"del dir/sub"}, {"mv dir empty"}},
		"made folder filled":                   {{"put n/in/f new", "mkdir out.log"}, {"put out.log/g/h new"}},
		"emptied and removed":                  {{"put n/sub/f new"}, {"del n/sub/f"}, {"del n"}},
		"what is moved is as what it replaced": {{"put same b\\n"}, {"mv same b"}},
		"link behind itself":                   {{"mv dir moved", "ln dir dir"}},
		"two operations on one mode":           {{"chmod+x b", "put b other"}, {"mv b c"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, start)
			g.task("t")
			mtime := func() int64 {
				info, err := os.Stat(filepath.Join(g.root, ".gitignore"))
				need.NoError(t, err)
				return info.ModTime().UnixNano()
			}
			untouched := mtime()
			for _, ops := range script {
				g.do("t", ops...)
			}
			worked := g.disk()
			g.mustRevert(Request{Task: "t"})
			g.want(start)
			if mtime() != untouched {
				t.Error("an untouched file has a new mtime")
			}
			if res := g.mustRevert(Request{Task: "t"}); !res.Commit.IsZero() {
				t.Errorf("a second revert did something: %+v", res)
			}
			// The revert of the revert, entry by entry, newest first, brings the
			// work back; the files' names at least and their contents.
			hist, err := g.cache.Task(t.Context(), g.w, "t")
			need.NoError(t, err)
			single := true
			for i := len(hist.Entries) - 1; i >= 0; i-- {
				e := hist.Entries[i]
				if e.IsRevert() && !e.Undone {
					if _, err := g.revert(Request{Task: "t", Scope: Scope{Change: e.ID}}); err != nil {
						single = false // a swap needs both at once
					}
				}
			}
			if single {
				// An empty folder that was made on the way may be left.
				got := g.disk()
				for k, v := range worked {
					if !strings.HasSuffix(k, "/") && !strings.HasSuffix(k, ".log") && got[k] != v {
						t.Errorf("brought back: %s is %q, was %q", k, got[k], v)
					}
				}
			}
		})
	}
}

// TestOthersWork undoes one task among others.
func TestOthersWork(t *testing.T) {
	edit := func(line, with string) string { return strings.Replace(eight, line+"\n", with+"\n", 1) }
	for name, c := range map[string]struct {
		run       func(g *rig)
		req       Request
		want      map[string]string
		code      string
		conflicts string // paths
	}{
		"another hunk": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.do("B", "put a "+strings.Replace(edit("1", "A"), "8\n", "B\n", 1))
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": edit("8", "B")}),
		},
		"A B A": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.do("B", "put a "+strings.Replace(edit("1", "A"), "8\n", "B\n", 1))
				g.do("A", "put a "+strings.Replace(strings.Replace(edit("1", "A"), "8\n", "B\n", 1), "4\n", "A\n", 1))
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": edit("8", "B")}),
		},
		"a line taken out and put back, then taken out by another": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.do("A", "put a "+strings.Replace(edit("1", "A"), "4\n", "", 1))
				g.do("B", "put a "+strings.Replace(edit("1", "A"), "4\n5\n6\n7\n8\n", "5\n6\n7\nB\n", 1))
				g.do("A", "put a "+strings.Replace(edit("1", "A"), "8\n", "B\n", 1))
				g.do("B", "put a "+strings.Replace(edit("1", "A"), "4\n5\n6\n7\n8\n", "5\n6\n7\nB\n", 1))
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": strings.Replace(edit("8", "B"), "4\n", "", 1)}),
		},
		"a line put in and taken out, then put in by another": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("4", "4\nnew"))
				g.do("B", "put a "+strings.Replace(edit("4", "4\nnew"), "8\n", "B\n", 1))
				g.do("A", "put a "+edit("8", "B"))
				g.do("B", "put a "+strings.Replace(edit("4", "4\nnew"), "8\n", "B\n", 1))
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": strings.Replace(edit("4", "4\nnew"), "8\n", "B\n", 1)}),
		},
		"a line put in, taken out and put back by another": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("4", "4\nnew"))
				g.do("B", "put a "+eight)
				g.do("A", "put a "+edit("8", "A"))
				g.do("B", "put a "+strings.Replace(edit("4", "4\nnew"), "8\n", "A\n", 1))
			},
			req: Request{Task: "A"}, want: start,
		},
		"renamed there and back, then there by another": {
			run: func(g *rig) {
				g.do("A", "mv a c")
				g.do("B", "put c "+edit("8", "B"))
				g.do("A", "mv c a")
				g.do("B", "mv a c")
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": "-", "c": edit("8", "B")}), code: "revert_conflict", conflicts: "c",
		},
		"the same hunk": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.do("B", "put a "+edit("1", "B"))
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": edit("1", "B")}), code: "revert_conflict", conflicts: "a",
		},
		"the same hunk, forced": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.do("B", "put a "+edit("1", "B"))
			},
			req: Request{Task: "A", OnConflict: Force}, want: start,
		},
		"the same hunk, skipped": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"), "put b other")
				g.do("B", "put a "+edit("1", "B"))
			},
			req: Request{Task: "A", OnConflict: Skip}, want: with(start, map[string]string{"a": edit("1", "B")}), conflicts: "a",
		},
		"B did the same": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.do("B", "put a "+eight)
			},
			req: Request{Task: "A"}, want: start,
		},
		"create, edited by another": {
			run: func(g *rig) { g.do("A", "put n new"); g.do("B", "put n newer") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"n": "newer"}), code: "revert_conflict", conflicts: "n",
		},
		"create, deleted by another": {
			run: func(g *rig) { g.do("A", "put n new"); g.do("B", "del n") },
			req: Request{Task: "A"}, want: start,
		},
		"delete, another file is there": {
			run: func(g *rig) { g.do("A", "del b"); g.do("B", "put b other") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "other"}), code: "revert_conflict", conflicts: "b",
		},
		"modify, deleted by another": {
			run: func(g *rig) { g.do("A", "put b other"); g.do("B", "del b") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "-"}), code: "revert_conflict", conflicts: "b",
		},
		"rename, edited by another": {
			run: func(g *rig) { g.do("A", "mv b c"); g.do("B", "put c other") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "other"}),
		},
		"rename, old name taken": {
			run: func(g *rig) { g.do("A", "mv b c"); g.do("B", "put b other") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "other", "c": "b\n"}), code: "revert_conflict", conflicts: "b",
		},
		"folder moved, another's file in it": {
			run:  func(g *rig) { g.do("A", "mv dir moved"); g.do("B", "put moved/other B") },
			req:  Request{Task: "A"},
			want: with(start, map[string]string{"dir/skip.log": "-", "moved/skip.log": "ignored\n", "moved/other": "B"}),
		},
		"files moved one by one to a folder with ignored ones": {
			run: func(g *rig) {
				g.do("B", "put p/x 1", "put p/y 2")
				g.edit("empty/skip.log", "ignored")
				g.do("A", "mv p/x empty/x", "mv p/y empty/y")
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"p/x": "1", "p/y": "2", "empty/": "-", "empty/skip.log": "ignored"}),
		},
		// Others' renames are followed.
		"edited, then renamed by another subtask": {
			run: func(g *rig) { g.do("A one", "put b edited"); g.do("A two", "mv b c") },
			req: Request{Task: "A", Scope: Scope{Subtask: "one"}}, want: with(start, map[string]string{"b": "-", "c": "b\n"}),
		},
		"edited, then renamed by another task": {
			run: func(g *rig) { g.do("A", "put b edited"); g.do("B", "mv b deep/c") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "-", "deep/c": "b\n"}),
		},
		"edited, then renamed and edited by another": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.do("B", "mv a c", "put c "+strings.Replace(edit("1", "A"), "8\n", "B\n", 1))
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": "-", "c": edit("8", "B")}),
		},
		"edited, then its folder renamed by another": {
			run: func(g *rig) { g.do("A", "put dir/x edited", "put dir/n new"); g.do("B", "mv dir moved") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"dir/x": "-", "dir/sub/y": "-", "dir/skip.log": "-",
				"moved/x": "x\n", "moved/sub/y": "y\n", "moved/skip.log": "ignored\n"}),
		},
		"edited, then its folder renamed by a person": {
			run: func(g *rig) {
				g.do("A", "put dir/x edited")
				if err := os.Rename(filepath.Join(g.root, "dir"), filepath.Join(g.root, "moved")); err != nil {
					g.t.Fatal(err)
				}
				g.sync()
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"dir/x": "-", "dir/sub/y": "-", "dir/skip.log": "-",
				"moved/x": "x\n", "moved/sub/y": "y\n", "moved/skip.log": "ignored\n"}),
		},
		"edited before and after another's rename": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.do("B", "mv a c")
				g.do("A", "put c "+strings.Replace(edit("1", "A"), "8\n", "B\n", 1))
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": "-", "c": eight}),
		},
		"edited, then swapped with another file": {
			run: func(g *rig) { g.do("A", "put a "+edit("1", "A")); g.do("B", "mv a t", "mv b a", "mv t b") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": "b\n", "b": eight}),
		},
		"edited, then renamed there and back": {
			run: func(g *rig) { g.do("A", "put b edited"); g.do("B", "mv b c"); g.do("B", "mv c b") },
			req: Request{Task: "A"}, want: start,
		},
		"edited, then renamed, and a new file in its place": {
			run: func(g *rig) { g.do("A", "put b edited"); g.do("B", "mv b c"); g.do("B", "put b new") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "new", "c": "b\n"}),
		},
		"created, then renamed by another": {
			run: func(g *rig) { g.do("A", "put n new"); g.do("B", "mv n m") },
			req: Request{Task: "A"}, want: start,
		},
		"renamed, then renamed by another": {
			run: func(g *rig) { g.do("A", "mv b c"); g.do("B", "mv c d") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "-", "d": "b\n"}), code: "revert_conflict", conflicts: "d",
		},
		"renamed, then renamed by another, forced": {
			run: func(g *rig) { g.do("A", "mv b c"); g.do("B", "mv c d") },
			req: Request{Task: "A", OnConflict: Force}, want: start,
		},
		"edited, then renamed and overwritten by another, forced": {
			run: func(g *rig) { g.do("A", "put b edited"); g.do("B", "mv b c"); g.do("B", "put c other") },
			req: Request{Task: "A", OnConflict: Force}, want: with(start, map[string]string{"b": "-", "c": "b\n"}),
		},
		"edited, then put over another of its files": {
			run: func(g *rig) { g.do("A", "put a x", "put b y"); g.do("B", "mv b a") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": "y", "b": "-"}), code: "revert_conflict", conflicts: "a",
		},
		"an empty folder made in one that another renamed": {
			run: func(g *rig) { g.do("A", "mkdir dir/new"); g.do("B", "mv dir moved") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"dir/x": "-", "dir/sub/y": "-", "dir/skip.log": "-",
				"moved/x": "x\n", "moved/sub/y": "y\n", "moved/skip.log": "ignored\n"}),
		},
		"a folder with another's file stays": {
			run: func(g *rig) { g.do("A", "put n/a A"); g.do("B", "put n/b B") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"n/b": "B"}),
		},
		"mode by A, text by B": {
			run: func(g *rig) { g.do("A", "chmod+x b"); g.do("B", "put b other") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "other"}),
		},
		"one subtask": {
			run: func(g *rig) {
				g.do("A one", "put a "+edit("1", "A"), "put n one")
				g.do("A two", "put a "+strings.Replace(edit("1", "A"), "8\n", "B\n", 1), "put m two")
			},
			req: Request{Task: "A", Scope: Scope{Subtask: "one"}}, want: with(start, map[string]string{"a": edit("8", "B"), "m": "two"}),
		},
		"one file, by its new name": {
			run: func(g *rig) { g.do("A", "put b other"); g.do("A", "mv b c"); g.do("A", "put a x") },
			req: Request{Task: "A", Scope: Scope{Path: "c"}}, want: with(start, map[string]string{"a": "x"}),
		},
		"a deleted file, by its last name": {
			run: func(g *rig) { g.do("A", "mv b c"); g.do("A", "del c"); g.do("A", "put a x") },
			req: Request{Task: "A", Scope: Scope{Path: "c"}}, want: with(start, map[string]string{"a": "x"}),
		},
		// What the random test found (tests/model).
		"an ignored file in the way of a folder": {
			run: func(g *rig) { g.do("A", "del b"); g.edit("b/x.log", "ignored") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "-", "b/x.log": "ignored"}), code: "revert_conflict", conflicts: "b/x.log",
		},
		"an empty folder in the way": {
			run: func(g *rig) { g.do("A", "del b"); g.do("B", "mkdir b") },
			req: Request{Task: "A"}, want: start,
		},
		"an empty folder comes back where a file is": {
			run: func(g *rig) { g.do("A", "rmdir empty"); g.do("B", "put empty B") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"empty/": "-", "empty": "B"}), code: "revert_conflict", conflicts: "empty",
		},
		"a folder of files in the way, forced": {
			run: func(g *rig) { g.do("A", "del b"); g.do("B", "put b/1 B"); g.do("B", "put b/2/3 B") },
			req: Request{Task: "A", OnConflict: Force}, want: start,
		},
		"a user's file where the folder was": {
			run: func(g *rig) { g.do("A", "del dir/sub"); g.edit("dir", "-"); g.edit("dir", "person's"); g.sync() },
			req: Request{Task: "A"}, want: with(start, map[string]string{"dir/x": "-", "dir/sub/y": "-", "dir/skip.log": "-", "dir": "person's"}),
			code: "revert_conflict", conflicts: "dir",
		},
		"one part of a change, another part in the way": {
			run: func(g *rig) { g.do("A", "mv b c", "put b other") },
			req: Request{Task: "A", Scope: Scope{Change: 1}}, want: with(start, map[string]string{"b": "other", "c": "b\n"}),
			code: "revert_conflict", conflicts: "b",
		},
		"a moved file replaced by another's": {
			run: func(g *rig) { g.do("A", "mv b c"); g.do("B", "mv a c") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": "-", "b": "-", "c": eight}), code: "revert_conflict", conflicts: "c",
		},
		"a moved file replaced by another's, forced": {
			run: func(g *rig) { g.do("A", "mv b c"); g.do("B", "mv a c") },
			req: Request{Task: "A", OnConflict: Force}, want: with(start, map[string]string{"a": "-", "c": eight}),
		},
		"a moved file replaced by another's folder, forced": {
			run: func(g *rig) { g.do("A", "mv b c"); g.do("B", "del c"); g.do("B", "put c/x B") },
			req: Request{Task: "A", OnConflict: Force}, want: with(start, map[string]string{"c/x": "B"}),
		},
		"a file that came back from under another name, and later ones there": {
			run: func(g *rig) {
				g.do("A", "mv link e/x")
				g.do("A", "mv a e/x")
				g.mustRevert(Request{Task: "A"})
				g.do("A one", "put e/x new")
				g.do("A", "del e/x")
				g.mustRevert(Request{Task: "A", Scope: Scope{Subtask: "one"}})
			},
			req: Request{Task: "A"}, want: start,
		},
		"two files that had one path, one brought back there after the other went": {
			run: func(g *rig) {
				g.do("A", "mv b dir/x")
				g.mustRevert(Request{Task: "A"})
				g.do("A", "del dir")
				for _, change := range []uint64{4, 3} { // of the revert
					g.mustRevert(Request{Task: "A", Scope: Scope{Change: change}})
				}
				g.want(with(start, map[string]string{"b": "-", "dir/x": "b\n", "dir/sub/y": "-", "dir/skip.log": "-"}))
				g.mustRevert(Request{Task: "A", Scope: Scope{Path: "dir"}})
			},
			req: Request{Task: "A"}, want: start,
		},
		"a file that came back from under another's name, which came back too": {
			run: func(g *rig) {
				g.do("A", "del b")
				g.mustRevert(Request{Task: "A"})
				g.do("A", "mv b a")
				g.mustRevert(Request{Task: "A", Scope: Scope{Change: 2}}) // the first revert's
				g.mustRevert(Request{Task: "A"})
				for _, change := range []uint64{7, 6} { // of the second
					g.mustRevert(Request{Task: "A", Scope: Scope{Change: change}})
				}
				g.want(with(start, map[string]string{"a": "-", "b": "-"}))
			},
			req: Request{Task: "A"}, want: start,
		},
		"one change": {
			run: func(g *rig) { g.do("A", "put b one"); g.do("A", "put a x") },
			req: Request{Task: "A", Scope: Scope{Change: 1}}, want: with(start, map[string]string{"a": "x"}),
		},
		"a user's edit on disk": {
			run: func(g *rig) {
				g.do("A", "put a "+edit("1", "A"))
				g.edit("a", strings.Replace(edit("1", "A"), "8\n", "P\n", 1))
			},
			req: Request{Task: "A"}, want: with(start, map[string]string{"a": edit("8", "P")}),
		},
		"a user's edit in the way": {
			run: func(g *rig) { g.do("A", "put b other"); g.edit("b", "person's") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "person's"}), code: "revert_conflict", conflicts: "b",
		},
		"a user's untracked file in the way": {
			run: func(g *rig) { g.do("A", "del b"); g.edit("b", "person's") },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "person's"}), code: "revert_conflict", conflicts: "b",
		},
		"an external change of the task": {
			run: func(g *rig) { g.alone = "A"; g.do("A", "put a x"); g.edit("b", "shell\n"); g.sync() },
			req: Request{Task: "A", IncludeExternal: true}, want: start,
		},
		"an external change is left": {
			run: func(g *rig) { g.alone = "A"; g.do("A", "put a x"); g.edit("b", "shell\n"); g.sync() },
			req: Request{Task: "A"}, want: with(start, map[string]string{"b": "shell\n"}),
		},
		"unknown subtask": {run: func(g *rig) {}, req: Request{Task: "A", Scope: Scope{Subtask: "no"}}, want: start, code: "subtask_not_found"},
		"unknown change":  {run: func(g *rig) {}, req: Request{Task: "A", Scope: Scope{Change: 7}}, want: start, code: "change_not_found"},
		"unknown file":    {run: func(g *rig) {}, req: Request{Task: "A", Scope: Scope{Path: "no"}}, want: start, code: "file_not_found"},
		"untouched file":  {run: func(g *rig) {}, req: Request{Task: "A", Scope: Scope{Path: "a"}}, want: start},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, start)
			g.task("A")
			g.task("B")
			c.run(g)
			dry := c.req
			dry.DryRun = true
			planned, err := g.revert(dry)
			if err != nil && c.code == "" {
				t.Fatalf("dry run: %v", err)
			}
			res, err := g.revert(c.req)
			if codeOf(err) != c.code {
				t.Fatalf("error %q (%v), wanted %q; %+v", codeOf(err), err, c.code, res)
			}
			g.want(c.want)
			if res == nil {
				return
			}
			var paths []string
			for _, x := range res.Conflicts {
				paths = append(paths, x.Path)
				if x.By.Commit.IsZero() && !strings.HasSuffix(x.Path, ".log") {
					t.Errorf("no change is named for %s", x.Path)
				}
			}
			if strings.Join(paths, " ") != c.conflicts {
				t.Errorf("conflicts %q, wanted %q", paths, c.conflicts)
			}
			if err == nil && len(planned.Files) != len(res.Files) {
				t.Errorf("planned %+v, did %+v", planned.Files, res.Files)
			}
		})
	}
}

func (g *rig) sync() {
	g.t.Helper()
	if _, err := g.w.Sync(g.t.Context(), syncOptions); err != nil {
		g.t.Fatal(err)
	}
}

func TestPlan(t *testing.T) {
	g := newRig(t, start)
	g.task("A")
	g.do("A", "put b other")
	planned := g.mustRevert(Request{Task: "A", DryRun: true, OnConflict: Skip})
	if planned.Plan == "" || !planned.Commit.IsZero() {
		t.Fatalf("%+v", planned)
	}
	g.do("A", "put a other")
	if _, err := g.revert(Request{Task: "A", Plan: planned.Plan}); codeOf(err) != "plan_stale" {
		t.Fatalf("a stale plan: %v", err)
	}
	planned = g.mustRevert(Request{Task: "A", DryRun: true})
	g.edit("dir/x", "unrelated")
	if res := g.mustRevert(Request{Task: "A", Plan: planned.Plan}); res.Reverted != 2 {
		t.Fatalf("%+v", res)
	}
	for _, bad := range []string{"", "x", "n.", "q." + strings.Repeat("0", 64)} {
		if _, err := g.revert(Request{Task: "A", Plan: bad}); bad != "" && codeOf(err) != "invalid_plan" {
			t.Errorf("plan %q: %v", bad, err)
		}
	}
}

func TestPrivateStaysPrivate(t *testing.T) {
	g := newRig(t, map[string]string{"key": "secret\n"})
	full := filepath.Join(g.root, "key")
	need.NoError(t, os.Chmod(full, 0o600))
	g.task("A")
	g.do("A", "del key")
	g.mustRevert(Request{Task: "A"})
	info, err := os.Stat(full)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	// Another task removed it under the task's name for it.
	g.task("B")
	g.do("A", "mv key k3")
	g.do("B", "del k3")
	g.mustRevert(Request{Task: "A", OnConflict: Force})
	if info, err := os.Stat(full); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
	g.do("A", "mv key k2")
	g.do("A", "put k2 other")
	g.mustRevert(Request{Task: "A"})
	if info, err := os.Stat(full); err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info.Mode(), err)
	}
}

// TestOwnReverts undoes all of a task that undid some of its work itself before.
func TestOwnReverts(t *testing.T) {
	change := func(g *rig, n uint64, way OnConflict) {
		g.t.Helper()
		g.mustRevert(Request{Task: "A", Scope: Scope{Change: n}, OnConflict: way})
	}
	for name, run := range map[string]func(g *rig){
		"a change under others": func(g *rig) {
			g.do("A", "put b one")
			g.do("A", "put b two")
			change(g, 1, Force)
		},
		"a change brought back and undone": func(g *rig) {
			g.do("A", "put b one")
			change(g, 1, Fail)
			change(g, 2, Fail)
			g.do("A", "mv b c")
		},
		"a deletion under another file": func(g *rig) {
			g.do("A", "mv b dir/x")
			change(g, 1, Force)
		},
		"a deletion brought back elsewhere": func(g *rig) {
			g.do("A", "mv b dir/x")
			g.mustRevert(Request{Task: "A"})
			g.do("A", "mv dir tmp")
		},
		"a change of a file that has moved on": func(g *rig) {
			g.do("A", "put a other")
			g.do("A", "mv a b")
			change(g, 1, Force)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, start)
			g.task("A")
			run(g)
			g.mustRevert(Request{Task: "A"})
			g.want(start)
		})
	}
}

// TestLinksComeBack: a link that a person made is brought back wherever it
// leads; a client could not make it so.
func TestLinksComeBack(t *testing.T) {
	files := with(start, map[string]string{"out": "->/etc/hostname", "up": "->../../x", "self": "->self", "via": "->self/x"})
	g := newRig(t, files)
	g.task("A")
	g.do("A", "del out", "del up", "del self")
	g.do("A", "del via")
	g.mustRevert(Request{Task: "A"})
	g.want(files)
}

// many gives operations on more files than a commit lists.
func many(format string) (out []string) {
	for i := range message.MaxListed + 1 {
		out = append(out, fmt.Sprintf(format, i))
	}
	return out
}

// TestConflictNamesTheChange: a conflict names the newest commit that changed
// the file there, also where it put a file in the place of another of the
// same bytes, so that the trees are equal.
func TestConflictNamesTheChange(t *testing.T) {
	for name, c := range map[string]struct {
		mine, theirs, later []string
		path                string
	}{
		"edited": {
			mine: []string{"put n A"}, theirs: []string{"put n B"}, later: []string{"put b other"}, path: "n",
		},
		"renamed and emptied, over an empty file; then the folder that it came from moves": {
			mine:   []string{"put in/n A"},
			theirs: []string{"mv void t", "mv in/n void", "mv t in/n", "put void "},
			later:  []string{"mv b t", "mv in b"},
			path:   "void",
		},
		"removed": {
			mine: []string{"put b A"}, theirs: []string{"del b"}, later: []string{"put n B"}, path: "b",
		},
		"edited with so many others that the commit does not list them": {
			mine: []string{"put n A"}, theirs: append(many("put p/%d B"), "put n B"), later: []string{"del p/0"}, path: "n",
		},
		"its folder is a file now": {
			mine: []string{"del dir/sub"}, theirs: []string{"del dir", "put dir B"}, later: []string{"del b"}, path: "dir",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, with(start, map[string]string{"void": ""}))
			g.task("A")
			g.task("B")
			g.do("A", c.mine...)
			g.do("B", c.theirs...)
			at := g.w.Store().Tip().Commit
			g.do("B", c.later...)
			res, err := g.revert(Request{Task: "A"})
			if codeOf(err) != "revert_conflict" || len(res.Conflicts) != 1 {
				t.Fatalf("%v, %+v", err, res)
			}
			if x := res.Conflicts[0]; x.Path != c.path || x.By.Commit != at || x.By.Task != "B" {
				t.Errorf("%+v, wanted %s by %s", x, c.path, at)
			}
		})
	}
}
