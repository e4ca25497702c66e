package toolset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
	"umbra/internal/workspace"
)

func (r *run) writeFile(a tool.Args) (string, error) {
	at, err := r.resolve(a.Str("path"), mount.Write)
	if err != nil {
		return "", err
	}
	if at.rel.IsRoot() || r.l.table.HasBelow(at.Path) {
		return "", mount.Message(mount.Show(at.Path) + " is a directory")
	}
	content := a.Str("content")
	if _, err := r.apply(at.Mount, workspace.Op{Kind: workspace.OpWrite, Path: at.rel, Data: []byte(content)}); err != nil {
		return "", explain(err, at.Path)
	}
	return fmt.Sprintf("Wrote %d bytes to %s", len(content), mount.Show(at.Path)), nil
}

func (r *run) editFile(a tool.Args) (string, error) {
	at, err := r.resolve(a.Str("path"), mount.Edit)
	if err != nil {
		return "", err
	}
	p := mount.Show(at.Path)
	if at.rel.IsRoot() || r.l.table.HasBelow(at.Path) {
		return "", mount.Message(p + " is a directory")
	}
	edits, err := editsOf(a, p)
	if err != nil {
		return "", err
	}
	n := 0
	op := workspace.Op{Kind: workspace.OpEdit, Path: at.rel, Edit: func(data []byte) (out []byte, err error) {
		out, n, err = edits.apply(data)
		return out, err
	}}
	res, err := r.apply(at.Mount, op)
	if err != nil {
		return "", explain(err, at.Path)
	}
	if res.Replayed {
		if n, err = r.replayedCount(at.Mount, res, edits); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("Replaced %d occurrence(s) in %s", n, p), nil
}

// edit is one replacement; where names it in messages.
type edit struct {
	where    string
	old, now []byte
	all      bool
}

// edits are replacements that are made in their order, all or none.
type edits []edit

// editsOf reads the arguments of edit_file in either form. Errors are Messages.
func editsOf(a tool.Args, p string) (edits, error) {
	list := a.List("edits")
	single := a.Has("old_string") || a.Has("new_string") || a.Has("replace_all")
	switch {
	case list != nil && single:
		return nil, mount.Message("Invalid arguments: give either old_string and new_string or edits")
	case list == nil && !a.Has("old_string"):
		return nil, mount.Message("Invalid arguments: old_string is required")
	case list == nil && !a.Has("new_string"):
		return nil, mount.Message("Invalid arguments: new_string is required")
	case list == nil:
		list = []tool.Args{a}
	}
	out := make(edits, len(list))
	for i, e := range list {
		out[i] = edit{where: p, old: []byte(e.Str("old_string")), now: []byte(e.Str("new_string")), all: e.Bool("replace_all")}
		prefix := ""
		if !single {
			prefix = fmt.Sprintf("edits[%d]: ", i)
			out[i].where = fmt.Sprintf("%s (edits[%d])", p, i)
		}
		if bytes.Equal(out[i].old, out[i].now) {
			return nil, mount.Message(prefix + "old_string and new_string are the same")
		}
	}
	return out, nil
}

// apply makes the replacements, each in what the ones before left, and counts
// them. Errors are Messages.
func (list edits) apply(data []byte) (out []byte, n int, err error) {
	for _, e := range list {
		found := bytes.Count(data, e.old)
		switch {
		case found == 0:
			return nil, 0, mount.Message("old_string not found in " + e.where)
		case found > 1 && !e.all:
			return nil, 0, mount.Message(fmt.Sprintf("old_string appears %d times in %s; give more context or set replace_all", found, e.where))
		}
		data, n = bytes.ReplaceAll(data, e.old, e.now), n+found
	}
	return data, n, nil
}

// replayedCount gives how often an edit that was made before has replaced: its
// commit reports what the file was.
func (r *run) replayedCount(i int, res *workspace.Result, list edits) (int, error) {
	if len(res.Entries) != 1 || res.Entries[0].Before.IsZero() {
		return 1, nil
	}
	w, err := r.workspace(i)
	if err != nil {
		return 0, err
	}
	data, err := w.Store().ReadBlob(r.ctx, res.Entries[0].Before, maxRead)
	if err != nil {
		return 0, err
	}
	_, n, err := list.apply(data)
	return n, err
}

// maxRead bounds a file that is taken into memory as a whole, in bytes.
const maxRead = 64 << 20

func (r *run) deleteFile(a tool.Args) (string, error) {
	at, err := r.resolve(a.Str("path"), mount.Delete)
	if err != nil {
		return "", err
	}
	if err := r.movable(at); err != nil {
		return "", err
	}
	if _, err := r.apply(at.Mount, workspace.Op{Kind: workspace.OpDelete, Path: at.rel, Recursive: a.Bool("recursive")}); err != nil {
		return "", explain(err, at.Path)
	}
	return "Deleted " + mount.Show(at.Path), nil
}

// movable refuses what must stay where it is.
func (r *run) movable(at place) error {
	switch {
	case at.rel.IsRoot():
		return mount.Refused(at.Path, "it is a mounted workspace itself")
	case r.l.table.HasBelow(at.Path):
		return mount.Refused(at.Path, "another workspace is mounted below it")
	}
	return nil
}

func (r *run) moveFile(a tool.Args) (string, error) {
	from, err := r.resolve(a.Str("from"), mount.Move)
	if err != nil {
		return "", err
	}
	to, err := r.resolve(a.Str("to"), mount.Move)
	if err != nil {
		return "", err
	}
	for _, at := range []place{from, to} {
		if err := r.movable(at); err != nil {
			return "", err
		}
	}
	over := a.Bool("overwrite")
	if from.Path == to.Path || r.l.rec.Mounts[from.Mount].Workspace == r.l.rec.Mounts[to.Mount].Workspace {
		_, err = r.apply(from.Mount, workspace.Op{Kind: workspace.OpRename, Path: from.rel, To: to.rel, Overwrite: over})
	} else {
		err = r.moveAcross(from, to, over)
	}
	if err != nil {
		return "", r.explainMove(err, from, to, over)
	}
	return "Moved " + mount.Show(from.Path) + " to " + mount.Show(to.Path), nil
}

func (r *run) explainMove(err error, from, to place, over bool) error {
	switch errs.CodeOf(err) {
	case "target_exists", "precondition_failed":
		if !over {
			return mount.Message(mount.Show(to.Path) + " exists already; set overwrite to replace it")
		}
		return mount.Message(mount.Show(to.Path) + " exists already and cannot be replaced")
	case "is_a_directory", "not_a_directory":
		return explain(err, to.Path)
	case "same_path":
		return mount.Message("from and to are the same path")
	case "move_into_itself":
		return mount.Message(mount.Show(from.Path) + " cannot be moved into itself")
	}
	return explain(err, from.Path)
}

// moveAcross moves a file to another workspace: written there, then deleted
// here, if it is still the same.
func (r *run) moveAcross(from, to place, over bool) error {
	w, err := r.workspace(from.Mount)
	if err != nil {
		return err
	}
	f, err := w.OpenFile(r.ctx, from.rel)
	if errs.CodeOf(err) == "is_a_directory" {
		return mount.Message("A directory cannot be moved to another workspace; move the files of " + mount.Show(from.Path) + " one by one")
	}
	if err != nil && r.c.Key != "" {
		// The same request may have moved it. A condition that never holds deletes nothing.
		moved := workspace.Op{Kind: workspace.OpDelete, Path: from.rel}
		moved.If.Match = []string{""}
		if res, err := r.apply(from.Mount, moved); err == nil && res.Replayed {
			return nil
		}
	}
	if err != nil {
		return err
	}
	defer f.Close()
	mode := f.Mode
	write := workspace.Op{Kind: workspace.OpWrite, Path: to.rel, Body: f, Size: f.Info.Size, Mode: &mode}
	write.If.NoneMatchAny = !over
	if _, err := r.apply(to.Mount, write); err != nil {
		return err
	}
	del := workspace.Op{Kind: workspace.OpDelete, Path: from.rel}
	if !f.Blob.IsZero() && f.Path == from.rel {
		del.If.Match = []string{f.Blob.String()}
	}
	_, err = r.apply(from.Mount, del)
	switch errs.CodeOf(err) {
	case "precondition_failed", "file_not_found":
		if err != nil {
			return mount.Message(mount.Show(from.Path) + " was changed meanwhile: it was copied to " + mount.Show(to.Path) + ", and stays")
		}
	}
	return err
}

// maxListed bounds a listing, in names.
const maxListed = 5000

func (r *run) listDirectory(a tool.Args) (string, error) {
	clean, err := r.clean(a.Str("path"))
	if err != nil {
		return "", err
	}
	below := r.l.table.Below(clean)
	i, _, mounted := r.l.table.Lookup(clean)
	scope := mount.ReadOnly
	if mounted {
		scope = r.l.rec.Mounts[i].Scope
	}
	names := make([]string, 0, len(below))
	for _, name := range below {
		names = append(names, name+"/")
	}
	cut := false
	switch {
	case !mounted && len(below) == 0:
		return "", r.l.table.NotMounted(clean)
	case !mounted, clean == "/" && !scope.Reads():
	default:
		if names, cut, err = r.names(clean, names); err != nil {
			return "", err
		}
	}
	slices.Sort(names)
	text := strings.Join(slices.Compact(names), "\n")
	if cut {
		text += fmt.Sprintf("\n[cut: only %d names are shown; search_files finds others]", maxListed)
	}
	return text, nil
}

// names adds what a mounted folder holds.
func (r *run) names(clean string, names []string) (all []string, cut bool, err error) {
	at, err := r.resolve(clean, mount.List)
	if err != nil {
		return nil, false, err
	}
	w, err := r.workspace(at.Mount)
	if err != nil {
		return nil, false, err
	}
	list, total, err := w.List(r.ctx, at.rel, workspace.ListOptions{Count: maxListed})
	switch {
	case err == nil:
	case errs.CodeOf(err) == "file_not_found" && len(names) > 0: // a folder that only a mount below makes
		return names, false, nil
	case errs.CodeOf(err) == "not_a_directory":
		return nil, false, mount.Message(mount.Show(at.Path) + " is not a directory")
	default:
		return nil, false, explain(err, at.Path)
	}
	hidden := make(map[string]bool, len(names)) // a mount is in their place
	for _, n := range names {
		hidden[n] = true
	}
	for _, e := range list {
		name := e.Path.Base()
		if hidden[name+"/"] {
			continue
		}
		folder := e.Info.IsDir()
		if e.Info.IsSymlink() {
			l, err := w.Stat(r.ctx, at.rel.Join(name))
			folder = err == nil && l.Kind == workspace.KindDir
		}
		name = mount.Show(name)
		if folder {
			name += "/"
		}
		names = append(names, name)
	}
	return names, total > len(list), nil
}

// stat is stat_file's answer.
type stat struct {
	Path  string  `json:"path"`
	Type  string  `json:"type"`
	Size  int64   `json:"size"`
	Mtime *string `json:"mtime"`
}

func (r *run) statFile(a tool.Args) (string, error) {
	clean, err := r.clean(a.Str("path"))
	if err != nil {
		return "", err
	}
	if _, _, mounted := r.l.table.Lookup(clean); !mounted && r.l.table.HasBelow(clean) {
		return jsonText(stat{Path: clean, Type: "directory"})
	}
	at, err := r.resolve(clean, mount.Stat)
	if err != nil {
		return "", err
	}
	w, err := r.workspace(at.Mount)
	if err != nil {
		return "", err
	}
	l, err := w.Stat(r.ctx, at.rel)
	if errs.CodeOf(err) == "file_not_found" && err != nil && r.l.table.HasBelow(clean) {
		return jsonText(stat{Path: clean, Type: "directory"})
	}
	if err != nil {
		return "", explain(err, at.Path)
	}
	out := stat{Path: at.Path, Size: l.Info.Size}
	switch l.Kind {
	case workspace.KindDir:
		out.Type, out.Size = "directory", 0
	case workspace.KindFile:
		out.Type = "file"
	case workspace.KindSymlink:
		out.Type = "symlink"
	default:
		out.Type = "other"
	}
	if l.Info.MtimeNs != 0 {
		t := time.Unix(0, l.Info.MtimeNs).UTC().Format(time.RFC3339Nano)
		out.Mtime = &t
	}
	return jsonText(out)
}

func jsonText(v any) (string, error) {
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return strings.TrimSuffix(b.String(), "\n"), err
}

// Content is a file as a resource.
type Content struct {
	Path string // clean
	Data []byte
	Blob object.ID
}

// MaxContent bounds what ReadContent gives, in bytes.
const MaxContent = 8 << 20
