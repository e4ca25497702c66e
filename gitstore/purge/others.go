package purge

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"umbra/gitstore/object"
	"umbra/gitstore/refs"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// Holder is something of a user's in the repository that leads to what is to
// be purged: "ref", "head", "worktree", "reflog", "pack" (one that cannot be
// read).
type Holder struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
}

// othersIntent is what goes of people's own.
type othersIntent struct {
	Refs      []movedRef `json:"refs,omitempty"` // New is empty: they go; checkpoints move
	Head      bool       `json:"head,omitempty"` // HEAD names such a commit: it points at the history again
	Worktrees []string   `json:"worktrees,omitempty"`
	Files     []string   `json:"files,omitempty"` // in the repository
	Logs      []string   `json:"logs,omitempty"`  // reflogs that lose lines
	Gone      []string   `json:"gone,omitempty"`  // the ids that such lines name
}

// others finds what of people's own leads to purged bytes. holders are what
// their owner has to be asked about; foreign, the refs under refs/foreign that
// go, are what others set in place of our refs, and no user is asked.
type others struct {
	othersIntent
	holders []Holder
	foreign []string
	gone    map[string]bool
}

func (h *finder) others(ctx context.Context) (*others, error) {
	o := &others{gone: make(map[string]bool)}
	for _, look := range []func(context.Context, *others) error{h.refs, h.heads, h.worktrees, h.logs, h.looseObjects} {
		if err := look(ctx, o); err != nil {
			return nil, err
		}
	}
	for id := range o.gone {
		o.Gone = append(o.Gone, id)
	}
	slices.Sort(o.Gone)
	return o, nil
}

func (o *others) hold(kind, name string) { o.holders = append(o.holders, Holder{kind, name}) }

// conflictsPrefix is of the refs to what a command's layer had and could not be
// merged. Nothing depends on them, so a purge drops them as it does what was at
// our own refs.
const conflictsPrefix = "refs/umbra/conflicts/"

// checkpointPrefix is of the tags of checkpoints (package checkpoint).
const checkpointPrefix = "refs/tags/umbra/"

func isOurs(ref string) bool {
	return ref == refs.ShadowRef || strings.HasPrefix(ref, "refs/umbra/") && !strings.HasPrefix(ref, conflictsPrefix)
}

func (h *finder) refs(ctx context.Context, o *others) error {
	list, err := h.s.Refs.List("refs/")
	if err != nil {
		return err
	}
	dropped := make(map[string]bool)
	drop := func(r refs.Ref) {
		dropped[r.Name] = true
		o.Refs = append(o.Refs, movedRef{Name: r.Name, Old: r.ID.String()})
		if strings.HasPrefix(r.Name, refs.ForeignPrefix) || strings.HasPrefix(r.Name, conflictsPrefix) {
			o.foreign = append(o.foreign, r.Name)
		} else {
			o.hold("ref", r.Name)
		}
	}
	for _, r := range list {
		if isOurs(r.Name) || r.ID.IsZero() {
			continue
		}
		bad, err := h.from(ctx, r.ID)
		if err != nil {
			return err
		}
		if !bad {
			continue
		}
		if now, err := h.checkpoint(r); err != nil {
			return err
		} else if now != r.ID {
			o.Refs = append(o.Refs, movedRef{Name: r.Name, Old: r.ID.String(), New: now.String()})
		} else {
			drop(r)
		}
	}
	for _, r := range list {
		if !isOurs(r.Name) && dropped[r.Symbolic] {
			drop(r)
		}
	}
	return nil
}

// checkpoint returns what the tag of a checkpoint becomes; any other ref stays as it is.
func (h *finder) checkpoint(r refs.Ref) (object.ID, error) {
	if !strings.HasPrefix(r.Name, checkpointPrefix) || r.Symbolic != "" {
		return r.ID, nil
	}
	kind, data, err := h.read(r.ID)
	if err != nil || kind != object.Tag {
		return h.r.Is(r.ID), err
	}
	if _, err := object.ParseTag(data); err != nil {
		return r.ID, nil
	}
	return h.r.TagText(r.ID, data)
}

// pseudoRef is the name of a file that names commits as refs do (gitrevisions(7)).
var pseudoRef = regexp.MustCompile(`^[A-Z_]*HEAD$`)

// heads checks HEAD, and what git notes of its last runs.
func (h *finder) heads(ctx context.Context, o *others) error {
	names, err := h.s.FS.ReadDir(storedir.Repo)
	if err != nil {
		return err
	}
	for _, e := range names {
		if e.Type.IsDir() || !pseudoRef.MatchString(e.Name) {
			continue
		}
		bad, err := h.textNames(ctx, path.Join(storedir.Repo, e.Name))
		if err != nil {
			return err
		}
		if e.Name == refs.HEAD {
			_, target, _, err := h.s.Refs.Read(refs.HEAD)
			if _, damaged := errors.AsType[*refs.DamagedError](err); err != nil && !damaged {
				return err
			}
			bad = bad || slices.ContainsFunc(o.Refs, func(r movedRef) bool { return r.Name == target && r.New == "" })
		}
		switch {
		case !bad:
		case e.Name == refs.HEAD:
			o.Head = true
			o.hold("head", refs.HEAD)
		default:
			o.Files = append(o.Files, e.Name)
		}
	}
	for _, sort := range []string{"commit", "other"} { // git fsck --lost-found
		dir := path.Join("lost-found", sort)
		found, err := h.s.FS.ReadDir(path.Join(storedir.Repo, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, e := range found {
			id, err := object.ParseID(e.Name)
			if err != nil {
				continue
			}
			bad, err := h.from(ctx, id)
			if err != nil {
				return err
			}
			if bad {
				o.Files = append(o.Files, path.Join(dir, e.Name))
			}
		}
	}
	return nil
}

// textNames reports whether a file names an object, at the beginning of a line,
// that leads to what goes.
func (h *finder) textNames(ctx context.Context, name string) (bool, error) {
	text, err := readAll(h.s, name)
	if err != nil {
		return false, err
	}
	for line := range bytes.Lines(text) {
		if len(line) < 40 {
			continue
		}
		id, err := object.ParseID(string(line[:40]))
		if err != nil {
			continue
		}
		if bad, err := h.from(ctx, id); bad || err != nil {
			return bad, err
		}
	}
	return false, nil
}

// worktrees checks what git-worktree(1) keeps of each: its HEAD, its own refs,
// its index. The working tree itself is not ours to look at.
func (h *finder) worktrees(ctx context.Context, o *others) error {
	dir := path.Join(storedir.Repo, "worktrees")
	list, err := h.s.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	dropped := make(map[string]bool)
	for _, r := range o.Refs {
		dropped[r.Name] = true
	}
	for _, e := range list {
		if !e.Type.IsDir() {
			continue
		}
		bad, err := h.worktree(ctx, path.Join(dir, e.Name), dropped)
		if err != nil {
			return err
		}
		if bad {
			o.Worktrees = append(o.Worktrees, e.Name)
			o.hold("worktree", e.Name)
		}
	}
	return nil
}

func (h *finder) worktree(ctx context.Context, dir string, dropped map[string]bool) (bool, error) {
	bad := false
	err := h.s.walkFiles(dir, func(name string) error {
		rel := strings.TrimPrefix(name, dir+"/")
		switch {
		case bad || strings.HasPrefix(rel, "logs/"):
			return nil
		case rel == refs.HEAD || strings.HasPrefix(rel, "refs/"):
			text, err := readAll(h.s, name)
			if err != nil {
				return err
			}
			if target, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "ref: "); ok {
				bad = dropped[target]
				return nil
			}
			bad, err = h.textNames(ctx, name)
			return err
		case rel == "index":
			data, err := readAll(h.s, name)
			if err != nil {
				return err
			}
			bad = h.indexNames(data)
		}
		return nil
	})
	return bad, err
}

// indexNames reports whether an index (gitformat-index(5)) names an object that
// goes. Ids are in it as they are; where is ignored.
func (h *finder) indexNames(data []byte) bool {
	var id object.ID
	for i := 0; i+len(id) <= len(data); i++ {
		copy(id[:], data[i:])
		if h.r.Changed(id) {
			return true
		}
	}
	return false
}

func (h *finder) logs(ctx context.Context, o *others) error {
	look := func(dir string) error {
		return h.s.walkFiles(dir, func(name string) error {
			if strings.HasPrefix(name, storedir.InfoLogs) {
				return nil
			}
			text, err := readAll(h.s, name)
			if err != nil {
				return err
			}
			bad := false
			for line := range bytes.Lines(text) {
				for _, id := range logIDs(line) {
					leads, err := h.from(ctx, id)
					if err != nil {
						return err
					}
					if leads {
						bad = true
						o.gone[id.String()] = true
					}
				}
			}
			if bad {
				rel := strings.TrimPrefix(name, storedir.Repo+"/")
				o.Logs = append(o.Logs, rel)
				o.hold("reflog", rel)
			}
			return nil
		})
	}
	if err := look(path.Join(storedir.Repo, "logs")); err != nil {
		return err
	}
	list, err := h.s.FS.ReadDir(path.Join(storedir.Repo, "worktrees"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range list {
		if err := look(path.Join(storedir.Repo, "worktrees", e.Name, "logs")); err != nil {
			return err
		}
	}
	return nil
}

// logIDs gives the two ids of a reflog's line.
func logIDs(line []byte) (out []object.ID) {
	for i := range 2 {
		if len(line) < 41*(i+1) {
			break
		}
		if id, err := object.ParseID(string(line[41*i : 41*i+40])); err == nil && !id.IsZero() {
			out = append(out, id)
		}
	}
	return out
}

func (h *finder) looseObjects(ctx context.Context, o *others) error {
	dir := path.Join(storedir.Repo, "objects")
	list, err := h.s.FS.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if !e.Type.IsDir() || len(e.Name) != 2 {
			continue
		}
		files, err := h.s.FS.ReadDir(path.Join(dir, e.Name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, f := range files {
			id, err := object.ParseID(e.Name + f.Name)
			if err != nil {
				continue
			}
			bad, err := h.from(ctx, id)
			if err != nil {
				return err
			}
			if bad {
				o.Files = append(o.Files, path.Join("objects", e.Name, f.Name))
			}
		}
	}
	return nil
}

// dropOthers removes what was found, or moves it; refs by git's lock protocol, and only if
// they still say the same.
func (pr *Purger) dropOthers(ctx context.Context, in *purgeIntent) error {
	o := &in.Others
	var todo []refs.Update
	for _, r := range o.Refs {
		old, now, err := r.ids()
		if err != nil {
			return err
		}
		todo = append(todo, refs.Update{Name: r.Name, New: now, Before: []object.ID{old}})
	}
	if o.Head {
		if err := storedir.WriteFile(pr.FS, path.Join(storedir.Repo, refs.HEAD), []byte("ref: "+refs.ShadowRef+"\n")); err != nil {
			return err
		}
	}
	foreign, failed := pr.Refs.Update(ctx, todo)
	pr.host.Report(foreign)
	if err := refs.Join(failed); err != nil {
		return err
	}
	for _, name := range o.Worktrees {
		if err := pr.removeAll(path.Join(storedir.Repo, "worktrees", name)); err != nil {
			return err
		}
	}
	for _, name := range o.Files {
		if err := storedir.Remove(pr.FS, path.Join(storedir.Repo, name)); err != nil {
			return err
		}
	}
	if err := pr.rewriteLogs(in); err != nil {
		return err
	}
	return pr.FS.SyncDir(storedir.Repo)
}

// rewriteLogs takes the lines out of people's reflogs that name what goes, and
// puts the new ids of tasks' records into ours.
func (pr *Purger) rewriteLogs(in *purgeIntent) error {
	gone := make(map[string]bool)
	for _, id := range in.Others.Gone {
		gone[id] = true
	}
	for _, name := range in.Others.Logs {
		err := pr.rewriteLog(path.Join(storedir.Repo, name), func(line string) string {
			for _, id := range logIDs([]byte(line)) {
				if gone[id.String()] {
					return ""
				}
			}
			return line
		})
		if err != nil {
			return err
		}
	}
	return pr.walkFiles(strings.TrimSuffix(storedir.InfoLogs, "/"), func(name string) error {
		return pr.rewriteLog(name, func(line string) string {
			for i := range 2 {
				if len(line) < 41*(i+1) {
					break
				}
				if now := in.Tags[line[41*i:41*i+40]]; now != "" {
					line = line[:41*i] + now + line[41*i+40:]
				}
			}
			return line
		})
	})
}

// rewriteLog changes a reflog's lines; one that has none left goes.
func (pr *Purger) rewriteLog(name string, change func(line string) string) error {
	text, err := readAll(pr, name)
	if err != nil {
		return err
	}
	var out strings.Builder
	for line := range strings.Lines(string(text)) {
		out.WriteString(change(line))
	}
	switch out.String() {
	case string(text):
		return nil
	case "":
		return storedir.Remove(pr.FS, name)
	}
	return storedir.WriteFile(pr.FS, name, []byte(out.String()))
}

// walkFiles visits every file under a folder; one that goes meanwhile, or was
// never there, is passed over.
func (pr *Purger) walkFiles(dir string, visit func(name string) error) error {
	list, err := pr.FS.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, e := range list {
		name := path.Join(dir, e.Name)
		if e.Type.IsDir() {
			err = pr.walkFiles(name, visit)
		} else if e.Type.IsRegular() {
			err = visit(name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readAll reads a file of the repository; one that is gone is empty.
func readAll(s *Purger, name string) ([]byte, error) {
	data, err := vfs.ReadFile(s.FS, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func parseHex(text string) (object.ID, error) {
	if text == "" {
		return object.ID{}, nil
	}
	return object.ParseID(text)
}
