package revert

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/need"
	"umbra/internal/workspace"
	"umbra/internal/workspaces"
	"umbra/internal/wspath"
)

// rig is a workspace on a real folder, with tasks that work in it.
type rig struct {
	t     testing.TB
	top   string
	root  string
	recs  *workspaces.MemRecords
	m     *workspaces.Manager
	w     *workspace.Workspace
	cache *history.Cache
	alone string // the task that external changes belong to
}

// newRig makes a folder with files ("name" → content; a name ending in "/" is
// an empty folder, content beginning with "->" a link) and opens it.
func newRig(t testing.TB, files map[string]string) *rig {
	t.Helper()
	top, err := os.MkdirTemp("", "revert-")
	need.NoError(t, err)
	g := &rig{t: t, top: top, root: filepath.Join(top, "ws"), recs: &workspaces.MemRecords{}, cache: history.NewCache()}
	need.NoError(t, os.Mkdir(g.root, 0o755))
	for name, content := range files {
		g.edit(name, content)
	}
	g.open()
	t.Cleanup(func() {
		g.close()
		os.RemoveAll(top)
	})
	return g
}

func (g *rig) open() {
	g.t.Helper()
	m, err := workspaces.NewManager(workspaces.Options{DataDir: filepath.Join(g.top, "data"), Records: g.recs})
	if err != nil {
		g.t.Fatal(err)
	}
	m.SetAttribute(func(string) string { return g.alone })
	g.m = m
	if g.w, _, err = m.Open(context.Background(), g.root, workspaces.OpenOptions{}); err != nil {
		g.t.Fatal(err)
	}
}

func (g *rig) close() {
	g.w.Release()
	if err := g.m.Close(context.Background()); err != nil {
		g.t.Error(err)
	}
}

func (g *rig) task(id string) {
	g.t.Helper()
	if _, err := g.w.Store().PutTask(context.Background(), message.Info{TaskID: id, Goal: id, Status: "executing"}, object.Zero); err != nil {
		g.t.Fatal(err)
	}
}

// edit changes the disk as a person does. "-" removes.
func (g *rig) edit(name, content string) {
	g.t.Helper()
	full := filepath.Join(g.root, name)
	var err error
	switch {
	case content == "-":
		err = os.RemoveAll(full)
	case strings.HasSuffix(name, "/"):
		err = os.MkdirAll(full, 0o755)
	default:
		if err = os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
			break
		}
		if to, ok := strings.CutPrefix(content, "->"); ok {
			err = os.Symlink(to, full)
		} else {
			err = os.WriteFile(full, []byte(content), 0o644)
		}
	}
	if err != nil {
		g.t.Fatal(err)
	}
}

// do applies operations written as "put path content", "del path", "mv a b",
// "mkdir path", "rmdir path", "chmod+x path", "ln path target", one commit.
// The first word of who is the task, the second, if any, the subtask.
func (g *rig) do(who string, script ...string) {
	g.t.Helper()
	if err := g.try(who, script...); err != nil {
		g.t.Fatalf("%s: %q: %v", who, script, err)
	}
}

func (g *rig) try(who string, script ...string) error {
	task, sub, _ := strings.Cut(who, " ")
	x := object.Executable
	var ops []workspace.Op
	for _, line := range script {
		f := strings.SplitN(line, " ", 3)
		op := workspace.Op{Path: wspath.Path(f[1])}
		switch f[0] {
		case "put":
			op.Kind, op.Data = workspace.OpWrite, []byte(strings.ReplaceAll(f[2], `\n`, "\n"))
		case "del":
			op.Kind, op.Recursive = workspace.OpDelete, true
		case "mv":
			op.Kind, op.To, op.Overwrite = workspace.OpRename, wspath.Path(f[2]), true
		case "mkdir":
			op.Kind = workspace.OpMkdir
		case "rmdir":
			op.Kind = workspace.OpDelete
		case "chmod+x":
			op.Kind, op.Mode = workspace.OpChmod, &x
		case "ln":
			op.Kind, op.Target, op.Overwrite = workspace.OpSymlink, f[2], true
		default:
			return fmt.Errorf("no such operation: %s", line)
		}
		ops = append(ops, op)
	}
	_, err := g.w.Apply(context.Background(), workspace.Request{By: workspace.By{TaskID: task, SubtaskID: sub, Actor: task}, Ops: ops})
	return err
}

func (g *rig) revert(req Request) (*Result, error) {
	return Do(context.Background(), g.w, g.cache, req)
}

func (g *rig) mustRevert(req Request) *Result {
	g.t.Helper()
	res, err := g.revert(req)
	if err != nil {
		if res != nil {
			g.t.Logf("conflicts: %+v", res.Conflicts)
		}
		g.t.Fatalf("revert %+v: %v", req.Scope, err)
	}
	return res
}

// disk reads the folder: files with their content, links as "->target",
// executables with a "*" before the content, empty folders as "name/".
func (g *rig) disk() map[string]string {
	g.t.Helper()
	out := make(map[string]string)
	err := filepath.WalkDir(g.root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == g.root {
			return err
		}
		name, _ := filepath.Rel(g.root, p)
		switch {
		case d.IsDir():
			list, err := os.ReadDir(p)
			if err == nil && len(list) == 0 {
				out[name+"/"] = ""
			}
			return err
		case d.Type()&fs.ModeSymlink != 0:
			to, err := os.Readlink(p)
			out[name] = "->" + to
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		out[name] = string(data)
		if info, err := d.Info(); err == nil && info.Mode()&0o100 != 0 {
			out[name] = "*" + out[name]
		}
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

func (g *rig) want(files map[string]string) {
	g.t.Helper()
	if got := g.disk(); !maps.Equal(got, files) {
		g.t.Errorf("on disk: %s\nwanted:  %s", show(got), show(files))
	}
	// History says the same.
	tip := make(map[string]string)
	if err := g.w.Store().Snapshot().Walk(wspath.Root, func(e gitEntry) error {
		data, err := g.w.Store().ReadBlob(context.Background(), e.ID, 1<<20)
		switch e.Mode {
		case object.Symlink:
			tip[string(e.Path)] = "->" + string(data)
		case object.Executable:
			tip[string(e.Path)] = "*" + string(data)
		default:
			tip[string(e.Path)] = string(data)
		}
		return err
	}); err != nil {
		g.t.Fatal(err)
	}
	onDisk := maps.Clone(files)
	// What is ignored may be in history (a delete recorded it) or not.
	left := func(k, _ string) bool { return strings.HasSuffix(k, "/") || strings.HasSuffix(k, ".log") }
	maps.DeleteFunc(onDisk, left)
	maps.DeleteFunc(tip, left)
	if !maps.Equal(tip, onDisk) {
		g.t.Errorf("tip:    %s\nwanted: %s", show(tip), show(onDisk))
	}
}

func show(m map[string]string) string {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(m)) {
		fmt.Fprintf(&b, "%s=%q ", k, m[k])
	}
	return b.String()
}

func codeOf(err error) string {
	if err == nil {
		return ""
	}
	return errs.CodeOf(err)
}

var syncOptions = workspace.SyncOptions{Attribute: true}
