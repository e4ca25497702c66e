package toolset

import (
	"fmt"
	"strings"

	"umbra/gitstore/diff"
	"umbra/gitstore/message"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// own is the work of one task on one mounted workspace.
type own struct {
	mount  int
	prefix string
	task   string // empty: a lazy toolset's client has changed nothing yet
	ws     *workspace.Workspace
}

// owns gives the tasks of the mounts that a scope allows, one a workspace, by
// prefix.
func (r *run) owns(allowed func(mount.Scope) bool) ([]own, error) {
	var out []own
	seen := make(map[string]bool)
	for _, i := range r.l.table.Under("/") {
		m := &r.l.rec.Mounts[i]
		if !allowed(m.Scope) || seen[m.Workspace] {
			continue
		}
		seen[m.Workspace] = true
		o, err := r.own(i)
		if err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}

func (r *run) own(i int) (own, error) {
	m := &r.l.rec.Mounts[i]
	ws, err := r.workspace(i)
	if err != nil {
		return own{}, err
	}
	id := r.ownTask(m.Workspace)
	if r.c.TaskID != "" {
		if err := r.s.o.Tasks.Writable(r.c.TaskID, m.Workspace); errs.CodeOf(err) != "task_other_workspace" || err == nil {
			id = r.c.TaskID
		}
	}
	return own{mount: i, prefix: m.Prefix, task: id, ws: ws}, nil
}

// logical gives the path of an entry of history as the model knows it.
func (o *own) logical(p string) string {
	if dir, ok := strings.CutSuffix(p, "/"); ok {
		return mount.Show(mount.Join(o.prefix, dir)) + "/"
	}
	return mount.Show(mount.Join(o.prefix, p))
}

// maxChanges bounds what task_changes lists of one task.
const maxChanges = 300

func (r *run) taskChanges() (string, error) {
	list, err := r.owns(mount.Scope.Reads)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for i := range list {
		o := &list[i]
		if o.task == "" {
			continue
		}
		t, err := r.s.o.History.Task(r.ctx, o.ws, o.task)
		if err != nil {
			return "", err
		}
		if len(t.Entries) == 0 {
			continue
		}
		if len(list) > 1 {
			fmt.Fprintf(&b, "In %s:\n", o.prefix)
		}
		entries := t.Entries
		if n := len(entries) - maxChanges; n > 0 {
			fmt.Fprintf(&b, "[%d earlier changes are left out]\n", n)
			entries = entries[n:]
		}
		for j := range entries {
			b.WriteString(o.line(&entries[j]) + "\n")
		}
	}
	if b.Len() == 0 {
		return "No changes.", nil
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// line formats one entry: "3 modify /project/a.txt (subtask s1, taken back)".
func (o *own) line(e *history.Entry) string {
	s := fmt.Sprintf("%d %s %s", e.ID, e.Operation, o.logical(e.Path))
	if e.NewPath != "" {
		s += " -> " + o.logical(e.NewPath)
	}
	var notes []string
	if e.SubtaskID != "" {
		notes = append(notes, "subtask "+e.SubtaskID)
	}
	switch e.Source {
	case message.External:
		notes = append(notes, "changed on disk")
	case message.Revert:
		notes = append(notes, "takes back")
	}
	if e.Undone {
		notes = append(notes, "taken back")
	}
	if len(notes) > 0 {
		s += " (" + strings.Join(notes, ", ") + ")"
	}
	return s
}

// maxDiffed bounds one version of a file that is compared, in bytes.
const maxDiffed = 16 << 20

func (r *run) taskDiff(a tool.Args) (string, error) {
	d := differ{}
	if !a.Has("path") {
		list, err := r.owns(mount.Scope.Reads)
		if err != nil {
			return "", err
		}
		for i := range list {
			if err := r.diffOwn(&d, &list[i], ""); err != nil {
				return "", err
			}
		}
		return d.answer("No changes."), nil
	}
	at, err := r.resolve(a.Str("path"), mount.Read)
	if err != nil {
		return "", err
	}
	o, err := r.own(at.Mount)
	if err != nil {
		return "", err
	}
	rel := string(at.rel)
	if at.rel.IsRoot() {
		rel = ""
	}
	if err := r.diffOwn(&d, &o, rel); err != nil {
		return "", err
	}
	if d.files == 0 && rel != "" {
		if _, err := o.ws.Stat(r.ctx, at.rel); err != nil {
			return "", explain(err, at.Path)
		}
	}
	return d.answer("No changes of " + mount.Show(at.Path) + "."), nil
}

// differ gathers a diff until it is long enough.
type differ struct {
	out   strings.Builder
	files int
	left  int // files that did not fit
}

func (d *differ) answer(none string) string {
	if d.files == 0 {
		return none
	}
	if d.left > 0 {
		fmt.Fprintf(&d.out, "[cut: %d more files were changed; ask for one file by its path]\n", d.left)
	}
	return strings.TrimSuffix(d.out.String(), "\n")
}

// diffOwn adds the files of one task: all, or those at and under a path by any
// of their names.
func (r *run) diffOwn(d *differ, o *own, rel string) error {
	if o.task == "" {
		return nil
	}
	sum, err := r.s.o.History.Summary(r.ctx, o.ws, o.task)
	if err != nil {
		return err
	}
	one := -1
	if rel != "" {
		if f := sum.Find(rel); f != nil {
			for i := range sum.Files {
				if f == &sum.Files[i] {
					one = i
				}
			}
		}
	}
	for i := range sum.Files {
		f := &sum.Files[i]
		if rel != "" && i != one && !wspath.Path(f.Path).Within(wspath.Path(rel)) {
			continue
		}
		d.files++
		text, err := r.diffFile(o, f)
		if err != nil {
			return err
		}
		switch room := maxText - d.out.Len(); {
		case len(text) <= room:
			d.out.WriteString(text)
		case d.out.Len() == 0:
			cut := strings.LastIndexByte(text[:room], '\n') + 1
			d.out.WriteString(text[:cut] + "[cut: the diff of this file goes on]\n")
		default:
			d.left++
		}
	}
	return nil
}

// diffFile gives the diff of one file, under its logical names.
func (r *run) diffFile(o *own, f *history.File) (string, error) {
	old, now, err := f.Sides(r.ctx, o.ws.Store(), maxDiffed)
	if errs.Is(err, errs.TooLarge) {
		return "File " + o.logical(f.Path) + " was changed and is too large to be compared\n", nil
	}
	if err != nil {
		return "", err
	}
	for _, side := range []*diff.File{&old, &now} {
		if side.Path != "" {
			side.Path = strings.TrimPrefix(mount.Join(o.prefix, side.Path), "/")
		}
	}
	p, err := diff.Format(old, now, diff.Options{Abbrev: 7, MaxBinary: 1})
	return strings.ToValidUTF8(string(p.Text), "\uFFFD"), err
}
