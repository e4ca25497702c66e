package toolset

import (
	"fmt"
	"slices"
	"strings"

	"umbra/internal/errs"
	"umbra/internal/revert"
	"umbra/internal/task"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
)

// revertChanges takes back own changes. It says which files became what, and
// nothing of what is in them.
func (r *run) revertChanges(a tool.Args) (string, error) {
	scope, where, err := r.revertScope(a)
	if err != nil {
		return "", err
	}
	dry := a.Bool("dry_run")
	var b strings.Builder
	var clashes []string
	n, missing := 0, 0
	for i := range where {
		o := &where[i]
		if o.task == "" {
			if !a.Bool("all") {
				missing++
			}
			continue
		}
		if !dry && r.c.TaskID != "" {
			if _, err := r.taskOf(o.mount); err != nil {
				return "", err
			}
		}
		res, err := revert.Do(r.ctx, o.ws, r.s.o.History, revert.Request{By: r.by(), Task: o.task, Scope: scope, DryRun: dry})
		switch code := errs.CodeOf(err); {
		case err == nil:
		case code == "revert_conflict" && res != nil:
		case code == "subtask_not_found" || code == "change_not_found" || code == "file_not_found":
			missing++
			continue
		default:
			return "", explain(err, o.prefix)
		}
		if err == nil {
			n += res.Reverted
			for _, f := range res.Files {
				if f.Action != revert.Unchanged {
					b.WriteString(verb(f.Action, dry) + " " + o.logical(f.Path) + "\n")
				}
			}
			if !res.Commit.IsZero() {
				r.commit = res.Commit
			}
			r.replayed = r.replayed || res.Replayed
		}
		for _, c := range res.Conflicts {
			clashes = append(clashes, o.logical(c.Path)+": "+reason(c.Reason))
		}
	}
	if missing == len(where) && missing > 0 {
		return "", mount.Message(nothing(a))
	}
	if len(clashes) > 0 {
		slices.Sort(clashes)
		text := "These were changed by others since and were left as they are, with everything that depends on them:\n" + strings.Join(clashes, "\n")
		if b.Len() > 0 {
			text += "\nDone elsewhere:\n" + strings.TrimSuffix(b.String(), "\n")
		}
		return "", mount.Message(text)
	}
	if n == 0 {
		return "Nothing to take back.", nil
	}
	if dry {
		fmt.Fprintf(&b, "%d change(s) would be taken back", n)
	} else {
		fmt.Fprintf(&b, "%d change(s) taken back", n)
	}
	return b.String(), nil
}

// revertScope reads what is to be taken back, and on which workspaces.
func (r *run) revertScope(a tool.Args) (revert.Scope, []own, error) {
	given := 0
	for _, name := range []string{"path", "subtask", "change"} {
		if a.Has(name) {
			given++
		}
	}
	if a.Bool("all") {
		given++
	}
	if given != 1 {
		return revert.Scope{}, nil, mount.Message("Invalid arguments: give exactly one of path, subtask, change and all")
	}
	if a.Has("path") {
		at, err := r.resolve(a.Str("path"), mount.Write)
		if err != nil {
			return revert.Scope{}, nil, err
		}
		o, err := r.own(at.Mount)
		scope := revert.Scope{}
		if !at.rel.IsRoot() {
			scope.Path = string(at.rel)
		}
		return scope, []own{o}, err
	}
	where, err := r.revertWhere(a)
	if err != nil {
		return revert.Scope{}, nil, err
	}
	switch {
	case a.Has("subtask"):
		if !task.ValidID(a.Str("subtask")) {
			return revert.Scope{}, nil, mount.Message(nothing(a))
		}
		return revert.Scope{Subtask: a.Str("subtask")}, where, nil
	case a.Has("change"):
		n := uint64(a.Int("change", 0))
		where, err = r.having(where, n)
		return revert.Scope{Change: n}, where, err
	}
	return revert.Scope{}, where, nil
}

// revertWhere gives the workspaces that may be written, or the one that the
// call names.
func (r *run) revertWhere(a tool.Args) ([]own, error) {
	if !a.Has("mount") {
		return r.owns(mount.Scope.Writes)
	}
	at, err := r.resolve(a.Str("mount"), mount.Write)
	if err != nil {
		return nil, err
	}
	o, err := r.own(at.Mount)
	return []own{o}, err
}

// having gives the one workspace whose task has a change of a number.
func (r *run) having(where []own, change uint64) ([]own, error) {
	var out []own
	var names []string
	for _, o := range where {
		t, err := r.s.o.History.Task(r.ctx, o.ws, o.task)
		if err != nil {
			return nil, err
		}
		if t.Find(change) != nil {
			out, names = append(out, o), append(names, o.prefix)
		}
	}
	switch len(out) {
	case 0:
		return nil, mount.Message(fmt.Sprintf("There is no change %d", change))
	case 1:
		return out, nil
	}
	return nil, mount.Message(fmt.Sprintf("There is a change %d in each of %s; give mount too", change, strings.Join(names, ", ")))
}

func nothing(a tool.Args) string {
	switch {
	case a.Has("subtask"):
		return "There are no changes of subtask " + mount.Show(a.Str("subtask"))
	case a.Has("change"):
		return fmt.Sprintf("There is no change %d", a.Int("change", 0))
	}
	return "You have changed nothing at " + mount.Show(a.Str("path"))
}

func verb(a revert.Action, dry bool) string {
	words := map[revert.Action]string{revert.Restored: "restore", revert.Deleted: "delete", revert.Renamed: "rename back to", revert.Merged: "merge"}
	past := map[revert.Action]string{revert.Restored: "Restored", revert.Deleted: "Deleted", revert.Renamed: "Renamed back to", revert.Merged: "Took own lines back in"}
	if dry {
		return "Would " + words[a]
	}
	return past[a]
}

func reason(code string) string {
	switch code {
	case "deleted":
		return "another actor deleted it"
	case "occupied":
		return "something else exists there"
	case "binary", "overlapping", "modified":
		return "another actor changed the same lines"
	}
	return code
}
