package tests

import (
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

// treeOf returns the files of a directory: "mode content" by path.
func treeOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(dir, func(name string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, name)
		mode := "100644"
		if info.Mode()&0o100 != 0 {
			mode = "100755"
		}
		out[rel] = mode + " " + string(data)
		return err
	})
	need.NoError(t, err)
	return out
}

// withHunks returns a tree with hunks applied, by their own texts; what has no lines in
// its hunk is as it is now.
func withHunks(base, now map[string]string, list []hunk) (map[string]string, error) {
	out := maps.Clone(base)
	type file struct{ mode, data string }
	read := func(path string) file {
		mode, data, _ := strings.Cut(out[path], " ")
		return file{mode, data}
	}
	text := make(map[string][]hunk)
	var order []string
	for _, h := range list {
		verb, _, _ := strings.Cut(h.Text, " ")
		switch verb {
		case "@@":
			if text[h.Path] == nil {
				order = append(order, h.Path)
			}
			text[h.Path] = append(text[h.Path], h)
		case "create", "modify":
			if now[h.Path] == "" {
				return nil, fmt.Errorf("%s: %s", h.Path, h.Text)
			}
		case "delete":
			delete(out, h.Path)
		case "rename":
			if h.OldPath == "" || base[h.OldPath] == "" {
				return nil, fmt.Errorf("renamed from %q: %s", h.OldPath, h.Text)
			}
			delete(out, h.OldPath) // before any file gets its new name
		case "mode":
		default:
			return nil, fmt.Errorf("unknown hunk %q", h.Text)
		}
	}
	for _, h := range list {
		switch verb, _, _ := strings.Cut(h.Text, " "); verb {
		case "rename":
			out[h.Path] = base[h.OldPath]
		case "create", "modify":
			out[h.Path] = now[h.Path]
		}
	}
	for _, h := range list {
		if from, to, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(h.Text), "mode "), " -> "); ok && strings.HasPrefix(h.Text, "mode ") {
			f := read(h.Path)
			if f.mode != from {
				return nil, fmt.Errorf("%s has mode %s: %s", h.Path, f.mode, h.Text)
			}
			out[h.Path] = to + " " + f.data
		}
	}
	for _, path := range order {
		f := read(path)
		old := slices.Collect(strings.Lines(f.data))
		type edit struct {
			at, del int
			add     []string
		}
		var edits []edit
		for _, h := range text[path] {
			at := h.OldStart - 1
			if h.OldLines == 0 {
				at = h.OldStart
			}
			var lines []string
			for l := range strings.Lines(h.Text) {
				if strings.HasPrefix(l, "\\") {
					lines[len(lines)-1] = strings.TrimSuffix(lines[len(lines)-1], "\n")
					continue
				}
				lines = append(lines, l)
			}
			for _, l := range lines[1:] {
				switch l[0] {
				case ' ':
					at++
				case '-':
					if at >= len(old) || old[at] != l[1:] {
						return nil, fmt.Errorf("%s:%d is not %q", path, at+1, l[1:])
					}
					edits = append(edits, edit{at: at, del: 1})
					at++
				case '+':
					edits = append(edits, edit{at: at, add: []string{l[1:]}})
				}
			}
		}
		var b strings.Builder
		gone := make(map[int]bool)
		before := make(map[int][]string)
		for _, e := range edits {
			if e.del > 0 {
				gone[e.at] = true
			} else {
				before[e.at] = append(before[e.at], e.add...)
			}
		}
		put := func(l string) {
			if s := b.String(); s != "" && !strings.HasSuffix(s, "\n") {
				b.WriteString("\n") // the last line of before is another now
			}
			b.WriteString(l)
		}
		for i := 0; i <= len(old); i++ {
			for _, l := range before[i] {
				put(l)
			}
			if i < len(old) && !gone[i] {
				put(old[i])
			}
		}
		out[path] = f.mode + " " + b.String()
	}
	return out, nil
}

// TestReviewFilesModel reviews random histories of one agent that edits, makes,
// renames, deletes files and changes their modes, with many equal lines. The hunks,
// applied to the base by their texts, give what is there, byte for byte; and all
// rejected, by parts, give the base.
func TestReviewFilesModel(t *testing.T) {
	rounds, began := 40, time.Now()
	seed := uint64(5)
	if soaking() {
		rounds, seed = 1<<30, uint64(began.UnixNano())
	}
	if n, err := strconv.ParseUint(os.Getenv("UMBRA_SEED"), 10, 64); err == nil {
		seed = n
	}
	p := newProject(t, map[string]string{"x": "x\n"})
	kinds := make(map[string]int)
	for round := 0; round < rounds && (!soaking() || time.Since(began) < 20*time.Minute); round++ {
		r := rand.New(rand.NewPCG(seed, uint64(round)))
		var log []string
		fail := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d, round %d: "+format+"\n%s", append(append([]any{seed, round}, args...), strings.Join(log, "\n"))...)
		}
		top := fmt.Sprintf("r%d", round)
		text := func(n int) string {
			var b strings.Builder
			for range n {
				fmt.Fprintf(&b, "line %d\n", r.IntN(12))
			}
			return b.String()
		}
		names := []string{"a", "b", "d/c", "d/e", "f"}
		files := make(map[string]string)
		for _, name := range names[:3+r.IntN(2)] {
			files[top+"/"+name] = text(15 + r.IntN(40))
		}
		p.fill(t, files)
		k := p.task(t)
		k.sync(t)
		base := treeOf(t, filepath.Join(p.dir, top))
		do := func(what string, a *answer) {
			t.Helper()
			log = append(log, fmt.Sprintf("%s: %d", what, a.Status))
			if a.Status/100 != 2 && a.Status != 409 {
				fail("%s: %d %s", what, a.Status, a.Body)
			}
		}
		step := func() {
			now := treeOf(t, filepath.Join(p.dir, top))
			paths := slices.Sorted(maps.Keys(now))
			header := []string{"X-Subtask-Id", fmt.Sprintf("s%d", r.IntN(3))}
			free := top + "/" + []string{"a", "b", "d/c", "d/e", "f", "g/h"}[r.IntN(6)]
			if len(paths) == 0 {
				do("make "+free, k.put(t, free, text(5), header...))
				return
			}
			rel := paths[r.IntN(len(paths))]
			path := top + "/" + rel
			switch n := r.IntN(10); {
			case n < 5:
				_, data, _ := strings.Cut(now[rel], " ")
				lines := slices.Collect(strings.Lines(data))
				at := r.IntN(len(lines) + 1)
				end := min(len(lines), at+r.IntN(3))
				lines = slices.Concat(lines[:at], slices.Collect(strings.Lines(text(r.IntN(3)))), lines[end:])
				data = strings.Join(lines, "")
				if r.IntN(6) == 0 {
					data = strings.TrimSuffix(data, "\n")
				}
				do("edit "+path, k.put(t, path, data, header...))
			case n == 5:
				do("make "+free, k.put(t, free, text(1+r.IntN(8)), header...))
			case n == 6:
				do("delete "+path, p.call(t, "DELETE", k.file(path), nil, header...))
			case n == 7 && path != free:
				do("move "+path+" "+free, p.post(t, k.url("/move"), map[string]any{"from": path, "to": free}, header...))
			default:
				mode := []string{"100644", "100755"}[r.IntN(2)]
				do("chmod "+path+" "+mode, p.post(t, k.url("/batch"), map[string]any{"operations": []any{map[string]any{"op": "chmod", "path": path, "mode": mode}}}, header...))
			}
		}
		check := func(list []hunk) {
			t.Helper()
			for i := range list {
				list[i].Path, list[i].OldPath = strings.TrimPrefix(list[i].Path, top+"/"), strings.TrimPrefix(list[i].OldPath, top+"/")
			}
			now := treeOf(t, filepath.Join(p.dir, top))
			got, err := withHunks(base, now, list)
			if err != nil {
				fail("%v", err)
			}
			if !maps.Equal(got, now) {
				fail("applied: %q\nnow: %q", got, now)
			}
		}
		for range 1 + r.IntN(3) {
			for range 2 + r.IntN(9) {
				step()
			}
			list, _ := k.hunks(t, "")
			var accept, reject []string
			for _, h := range list {
				verb, _, _ := strings.Cut(h.Text, " ")
				kinds[verb]++
				if h.Mixed {
					fail("%s is mixed: %s", h.Path, h.Text)
				}
				switch r.IntN(4) {
				case 0:
					reject = append(reject, h.ID)
				case 1:
					if h.Status == "open" {
						accept = append(accept, h.ID)
					}
				}
			}
			check(slices.Clone(list))
			if len(accept)+len(reject) == 0 {
				continue
			}
			log = append(log, fmt.Sprintf("accept %v reject %v of %+v", accept, reject, list))
			a := p.post(t, k.url("/review"), map[string]any{"accept": accept, "reject": reject})
			if a.Status != 200 {
				// A name may be taken by another hunk that stays.
				log = append(log, fmt.Sprintf("%d %s", a.Status, a.Body))
				if a.Status != 409 {
					fail("%d %s", a.Status, a.Body)
				}
				kinds["refused"]++
				continue
			}
			left, _ := k.hunks(t, "")
			check(slices.Clone(left))
			// Just these were taken back. With equal lines the rest may be cut otherwise.
			var kept []hunk
			back := make(map[string]string) // names that were taken back
			for _, h := range list {
				if slices.Contains(reject, h.ID) && h.OldPath != "" {
					back[h.Path] = h.OldPath
				}
			}
			for _, h := range list {
				if slices.Contains(reject, h.ID) {
					continue
				}
				verb, _, _ := strings.Cut(h.Text, " ")
				if old := back[h.Path]; old != "" && verb != "create" && verb != "delete" {
					h.Path = old
				}
				kept = append(kept, h)
			}
			check(kept)
			for _, h := range left {
				if slices.Contains(accept, h.ID) && h.Status != "accepted" {
					fail("%s is %s", h.ID, h.Status)
				}
				// A file that is back at a path which another one had meanwhile is that one,
				// as history has it: the bytes are right, and the pieces are others.
				_, err := os.Lstat(filepath.Join(p.dir, h.Path))
				if slices.Contains(reject, h.ID) && !strings.HasPrefix(h.Text, "@@") && !(strings.HasPrefix(h.Text, "delete ") && err == nil) {
					fail("%s is still there: %+v", h.ID, left)
				}
			}
		}
		list, _ := k.hunks(t, "")
		var all []string
		for _, h := range list {
			all = append(all, h.ID)
		}
		if len(all) > 0 {
			a := p.post(t, k.url("/review"), map[string]any{"reject": all})
			if a.Status != 200 {
				fail("all rejected: %d %s", a.Status, a.Body)
			}
		}
		if now := treeOf(t, filepath.Join(p.dir, top)); !maps.Equal(now, base) {
			fail("all rejected: %q\nbase: %q", now, base)
		}
		p.call(t, "PATCH", k.url(""), map[string]any{"status": "completed"}).want(t, 200)
	}
	t.Logf("%v", kinds)
	for _, kind := range []string{"@@", "create", "delete", "rename", "mode"} {
		if os.Getenv("UMBRA_SEED") == "" && kinds[kind] < 10 {
			t.Errorf("only %d of %s", kinds[kind], kind)
		}
	}
}
