package tests

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"umbra/internal/need"
)

// TestExecRawNames: names that are not UTF-8 are applied as all others: of ignored files that
// a command made or removed, and of directories that it closed.
func TestExecRawNames(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n", ".gitignore": "*.o\nout/\n"})
	for _, name := range []string{"old\xff.o", "out/old\xfe"} {
		need.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(p.dir, name)), 0o755))
		if err := os.WriteFile(filepath.Join(p.dir, name), nil, 0o644); err != nil {
			need.Missing(t, err.Error())
		}
	}
	r, _, errOut := p.exec(t, `rm *.o out/*; printf x > "$(printf 'new\377.o')"; printf y > "$(printf 'out/new\376')"; D=$(printf 'd\375'); mkdir "$D"; echo z > "$D/z"; chmod 500 "$D"`)
	if r.ExitCode != 0 || len(r.Entries) != 1 {
		t.Errorf("%+v %s", r, errOut)
	}
	if x, y, z := p.read(t, "new\xff.o"), p.read(t, "out/new\xfe"), p.read(t, "d\xfd/z"); x != "x" || y != "y" || z != "z\n" {
		t.Errorf("%q %q %q", x, y, z)
	}
	if info, err := os.Stat(filepath.Join(p.dir, "d\xfd")); err != nil || info.Mode().Perm() != 0o500 {
		t.Errorf("%v %v", info, err)
	}
	p.absent(t, "old\xff.o")
	p.absent(t, "out/old\xfe")
}

// TestForkRawNames: a fork's commands see files whose names are not UTF-8 as the fork has
// them, and none that it has no more.
func TestForkRawNames(t *testing.T) {
	p := newProject(t, map[string]string{"a": "1\n"})
	k := p.task(t)
	fork := p.forks(t, "/workspaces/"+k.str("workspace_id"), map[string]any{"kind": "layer"})[0]["id"].(string)
	in := p.task(t, "workspace", fork)
	list := func() []string {
		var out []string
		for _, name := range []string{"h\xff", "h\xfe"} {
			if p.in(t, fork, "test ! -e '"+name+"' || cat '"+name+"'") == "f\n" {
				out = append(out, name)
			}
		}
		return out
	}
	for _, x := range []struct {
		method, query string
		want          []string
	}{{"PUT", "path=h%FF", []string{"h\xff"}}, {"PUT", "path=h%FE", []string{"h\xff", "h\xfe"}}, {"DELETE", "path=h%FF", []string{"h\xfe"}}, {"DELETE", "path=h%FE", nil}} {
		if a := p.call(t, x.method, in.url("/content?"+x.query), []byte("f\n")); a.Status/100 != 2 {
			t.Fatal(a.Status, string(a.Body))
		}
		if got := list(); !slices.Equal(got, x.want) {
			t.Errorf("%s %s: %q", x.method, x.query, got)
		}
	}
}
