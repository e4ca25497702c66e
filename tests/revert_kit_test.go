package tests

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// laid is what stands at a path: "-rw-r--r-- text", "d", or "-> target".
type laid map[string]string

// lay reads a folder whole: kinds, permission bits, bytes, empty folders.
func lay(t *testing.T, dir string) laid {
	t.Helper()
	out := laid{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			out[name] = "d"
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			out[name] = "-> " + to
			return err
		default:
			data, err := os.ReadFile(path)
			out[name] = info.Mode().String() + " " + string(data)
			return err
		}
		return nil
	})
	need.NoError(t, err)
	return out
}

// times gives the modification times of the files of a folder.
func times(t *testing.T, dir string) map[string]int64 {
	t.Helper()
	out := make(map[string]int64)
	for name, what := range lay(t, dir) {
		if what == "d" {
			continue
		}
		info, err := os.Lstat(filepath.Join(dir, name))
		need.NoError(t, err)
		out[name] = info.ModTime().UnixNano()
	}
	return out
}

// same compares two folders.
func same(t *testing.T, is, want laid) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got, ok := is[name]; !ok {
			t.Errorf("%q is gone, was %.80q", name, want[name])
		} else if got != want[name] {
			t.Errorf("%q is %.80q, want %.80q", name, got, want[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if _, ok := want[name]; !ok {
			t.Errorf("%q is there: %.80q", name, is[name])
		}
	}
}

// files of the folders that the tests of diffs and reverts work on: a name
// ending in "/" is an empty folder, "-> x" a link, "+x " an executable, "0600 "
// a private file.
func (p *project) lay(t *testing.T, files map[string]string) {
	t.Helper()
	for name, data := range files {
		full := filepath.Join(p.dir, name)
		dir, perm := filepath.Dir(full), fs.FileMode(0o644)
		if strings.HasSuffix(name, "/") {
			dir = full
		}
		need.NoError(t, os.MkdirAll(dir, 0o755))
		if dir == full {
			continue
		}
		if to, ok := strings.CutPrefix(data, "-> "); ok {
			need.NoError(t, os.Symlink(to, full))
			continue
		}
		if rest, ok := strings.CutPrefix(data, "+x "); ok {
			data, perm = rest, 0o755
		} else if rest, ok := strings.CutPrefix(data, "0600 "); ok {
			data, perm = rest, 0o600
		}
		need.NoError(t, os.WriteFile(full, []byte(data), perm))
		need.NoError(t, os.Chmod(full, perm))
	}
}

// step is one request of a task. "put a text", "del a", "mv a b", "+x a", "-x a"
// joined by " | " are one batch; what begins with "disk " a person does, found
// by a sync.
func (k *taskOf) step(t *testing.T, line string, header ...string) {
	t.Helper()
	if rest, ok := strings.CutPrefix(line, "disk "); ok {
		k.p.byHand(t, rest)
		k.sync(t)
		return
	}
	var ops []map[string]any
	for one := range strings.SplitSeq(line, " | ") {
		verb, rest, _ := strings.Cut(one, " ")
		path, arg, _ := strings.Cut(rest, " ")
		op := map[string]any{}
		switch verb {
		case "put":
			op["op"], op["encoding"], op["content"] = "write", "base64", base64.StdEncoding.EncodeToString([]byte(arg))
		case "del":
			op["op"], op["recursive"] = "delete", true
		case "mv":
			op["op"], op["overwrite"] = "rename", true
			op["new_path"] = named(op, arg)
		case "+x", "-x":
			op["op"], op["mode"] = "chmod", map[string]string{"+x": "100755", "-x": "100644"}[verb]
		default:
			t.Fatalf("no such step: %q", one)
		}
		op["path"] = named(op, path)
		ops = append(ops, op)
	}
	k.p.post(t, k.url("/batch"), map[string]any{"operations": ops}, header...).want(t, 200)
}

// named gives a name as JSON carries it. One whose bytes are no UTF-8 is
// percent-encoded, and so is the other name beside it then.
func named(op map[string]any, name string) string {
	name = strings.ReplaceAll(name, "␠", " ")
	if utf8.ValidString(name) && op["path_encoding"] == nil {
		return name
	}
	op["path_encoding"] = "percent"
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; c >= 0x80 || c == '%' {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// byHand is what a person does on disk.
func (p *project) byHand(t *testing.T, line string) {
	t.Helper()
	verb, rest, _ := strings.Cut(line, " ")
	path, arg, _ := strings.Cut(rest, " ")
	full := filepath.Join(p.dir, path)
	var err error
	switch verb {
	case "put":
		if err = os.MkdirAll(filepath.Dir(full), 0o755); err == nil {
			err = os.WriteFile(full, []byte(arg), 0o644)
		}
	case "del":
		err = os.RemoveAll(full)
	case "mv":
		err = os.Rename(full, filepath.Join(p.dir, arg))
	case "ln":
		if err = os.RemoveAll(full); err == nil {
			err = os.Symlink(arg, full)
		}
	case "+x":
		err = os.Chmod(full, 0o755)
	default:
		t.Fatalf("nobody does %q", line)
	}
	need.NoError(t, err)
}

// revert asks for a revert of the task, or of what rest names.
func (k *taskOf) revert(t *testing.T, rest string, body map[string]any, header ...string) *answer {
	t.Helper()
	if body == nil {
		body = map[string]any{}
	}
	return k.p.post(t, k.url(rest+"/revert"), body, header...)
}

// on gives the same server with another folder.
func (p *project) on(t *testing.T, files map[string]string) *project {
	t.Helper()
	q := &project{Server: p.Server, dir: t.TempDir()}
	q.lay(t, files)
	return q
}

// newServer is a project without a folder of its own.
func newServer(t *testing.T) *project {
	t.Helper()
	return &project{Server: harness.Start(t, harness.Options{})}
}
