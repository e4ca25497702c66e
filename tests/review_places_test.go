package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
)

// TestReviewPlaces rejects together what made a directory of a file, or of the file that
// it then moved there: the directory makes way.
func TestReviewPlaces(t *testing.T) {
	for name, operations := range map[string][]any{
		"made":  {map[string]any{"op": "delete", "path": "f"}, map[string]any{"op": "write", "path": "f/in/it", "content": "i\n"}},
		"moved": {map[string]any{"op": "rename", "path": "f", "new_path": "t"}, map[string]any{"op": "rename", "path": "t", "new_path": "f/in/it"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProject(t, map[string]string{"f": "text\n"})
			k := p.task(t)
			p.post(t, k.url("/batch"), map[string]any{"operations": operations}).want(t, 200)
			reject := func() *answer {
				var ids []string
				list, _ := k.hunks(t, "")
				for _, h := range list {
					ids = append(ids, h.ID)
				}
				return p.post(t, k.url("/review"), map[string]any{"reject": ids})
			}
			// A file that another process made stays, and the directory with it.
			p.fill(t, map[string]string{"f/other": "o\n"})
			k.sync(t)
			reject().fails(t, 409, "revert_conflict")
			if p.read(t, "f/in/it") == "" || p.read(t, "f/other") != "o\n" {
				t.Error("something was done")
			}
			need.NoError(t, os.Remove(filepath.Join(p.dir, "f/other")))
			k.sync(t)
			reject().want(t, 200)
			if got := p.read(t, "f"); got != "text\n" {
				t.Errorf("%q", got)
			}
			if list, _ := k.hunks(t, ""); len(list) > 0 {
				t.Errorf("left: %+v", list)
			}
		})
	}
}

// TestReviewMadeDirectories rejects files in directories that the task made: these go with
// them, and one that was there before stays.
func TestReviewMadeDirectories(t *testing.T) {
	p := newProject(t, map[string]string{"d/a": numbered(9), "with/b": "b\n"})
	need.NoError(t, os.Mkdir(filepath.Join(p.dir, "empty"), 0o755))
	k := p.task(t)
	p.post(t, k.url("/move"), map[string]any{"from": "d/a", "to": "e/f/a"}).want(t, 200)
	for _, name := range []string{"m/n/new", "empty/in/new", "with/new"} {
		k.put(t, name, "x\n").want(t, 201)
	}
	k.put(t, "m/n/new", "y\n").want(t, 200)
	list, _ := k.hunks(t, "")
	for _, h := range list {
		body := map[string]any{"reject": []string{h.ID}, "dry_run": true}
		p.post(t, k.url("/review"), body).want(t, 200)
		delete(body, "dry_run")
		p.post(t, k.url("/review"), body).want(t, 200)
	}
	for _, name := range []string{"e", "m", "empty/in", "with/new"} {
		p.absent(t, name)
	}
	if p.read(t, "d/a") != numbered(9) || p.read(t, "with/b") != "b\n" {
		t.Error("a file is not what it was")
	}
	if _, err := os.Lstat(filepath.Join(p.dir, "empty")); err != nil {
		t.Error(err)
	}
}

// TestReviewWholeRenamed accepts a file that the task made and a change of one that is not
// text: both stay accepted, by the same ids, when another task renames them.
func TestReviewWholeRenamed(t *testing.T) {
	p := newProject(t, map[string]string{"bin": "\x00a"})
	k, o := p.task(t), p.task(t)
	k.put(t, "bin", "\x00b").want(t, 200)
	k.put(t, "made", "m\n").want(t, 201)
	list, _ := k.hunks(t, "")
	p.post(t, k.url("/review"), map[string]any{"accept_rest": true}).want(t, 200)
	for _, name := range []string{"bin", "made"} {
		p.post(t, o.url("/move"), map[string]any{"from": name, "to": "to/" + name}).want(t, 200)
	}
	now, _ := k.hunks(t, "")
	if len(list) != 2 || len(now) != 2 {
		t.Fatalf("%+v, then %+v", list, now)
	}
	for i := range now {
		if now[i].ID != list[i].ID || now[i].Status != "accepted" || now[i].Path != "to/"+list[i].Path {
			t.Errorf("%+v, then %+v", list[i], now[i])
		}
	}
	p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID, list[1].ID}}).want(t, 200)
	if got := p.read(t, "to/bin"); got != "\x00a" {
		t.Errorf("%q", got)
	}
	p.absent(t, "to/made")
}

// TestReviewFormerID rejects a hunk by the id that it had when another one had the same
// lines.
func TestReviewFormerID(t *testing.T) {
	p := newProject(t, map[string]string{"a": numbered(40)})
	k := p.task(t)
	k.put(t, "a", strings.NewReplacer("line 5\n", "line 5\nsame\n", "line 25\n", "line 25\nsame\n").Replace(numbered(40))).want(t, 200)
	list, _ := k.hunks(t, "")
	if len(list) != 2 || list[0].ID == list[1].ID {
		t.Fatalf("%+v", list)
	}
	for i, h := range list {
		p.post(t, k.url("/review"), map[string]any{"reject": []string{h.ID}}).want(t, 200)
		if rejected, _ := k.hunks(t, "?status=rejected"); len(rejected) != i+1 || i == 0 && rejected[0].ID != h.ID {
			t.Errorf("%d: %+v", i, rejected)
		}
	}
	if got := p.read(t, "a"); got != numbered(40) {
		t.Errorf("%q", got)
	}
	p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID}}).fails(t, 409, "hunk_changed")
}

// TestReviewRejectedAfterRename lists hunks that were rejected in a file that the task had
// renamed by their ids.
func TestReviewRejectedAfterRename(t *testing.T) {
	p := newProject(t, map[string]string{"a": numbered(40)})
	k := p.task(t)
	p.post(t, k.url("/batch"), map[string]any{"operations": []any{
		map[string]any{"op": "rename", "path": "a", "new_path": "d/b"}, map[string]any{"op": "rename", "path": "d/b", "new_path": "c"},
	}}).want(t, 200)
	k.put(t, "c", strings.NewReplacer("line 5\n", "line five\n", "line 15\n", "line fifteen\n", "line 25\n", "line 25\nmore\n").Replace(numbered(40))).want(t, 200)
	list, _ := k.hunks(t, "")
	if len(list) != 4 {
		t.Fatalf("%+v", list)
	}
	var ids []string
	for _, h := range list {
		if !strings.HasPrefix(h.Text, "rename") {
			ids = append(ids, h.ID)
		}
	}
	p.post(t, k.url("/review"), map[string]any{"reject": ids[:2]}).want(t, 200)
	p.post(t, k.url("/review"), map[string]any{"reject": ids[2:]}).want(t, 200)
	rejected, _ := k.hunks(t, "?status=rejected")
	for i, h := range rejected {
		if i >= len(ids) || h.ID != ids[i] {
			t.Errorf("%d: %+v", i, h)
		}
	}
	if len(rejected) != len(ids) || p.read(t, "c") != numbered(40) {
		t.Errorf("%d hunks, %q", len(rejected), p.read(t, "c"))
	}
}
