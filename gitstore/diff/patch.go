package diff

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"umbra/gitstore/object"
)

// ErrMode is returned for a mode that a patch cannot express: only regular files,
// executables and symbolic links have one.
var ErrMode = errors.New("diff: no mode of a file")

// DefaultContext is the number of unchanged lines around a change.
const DefaultContext = 3

// NoContext asks for no unchanged lines at all. Such a patch needs `git apply
// --unidiff-zero`.
const NoContext = -1

// DefaultMaxBinary is the size up to which a patch includes binary content.
const DefaultMaxBinary = 64 << 20

// File is one side of a comparison.
type File struct {
	Path string      // relative, `/` separated, any bytes but NUL
	Mode object.Mode // 0: there is no file on this side
	ID   object.ID   // of the blob; the zero id is computed from Data
	Data []byte      // content, or a link's target
}

// Options shape a patch and bound its cost. The zero value gives git's defaults
// with full object ids.
type Options struct {
	Context   int   // unchanged lines around a change; 0: DefaultContext, NoContext or less: none
	Abbrev    int   // hex digits of ids in index lines, 4 to 40; 0: 40. Binary patches always have 40
	Work      int64 // steps of the comparison; 0: DefaultWork
	MaxBinary int64 // bytes of both sides together, above which only "Binary files … differ" is written; 0: DefaultMaxBinary
}

// Patch is the difference of one file.
type Patch struct {
	Text      []byte // empty if the sides are the same
	Additions int    // lines; 0 for binary content
	Deletions int
	Binary    bool
	Truncated bool // binary content was left out by MaxBinary: git apply refuses this patch
	Coarse    bool // the allowance of work was used up: right, but larger than need be
	removal   int  // how much of Text removes a file that became another kind of thing under another name
}

// Series joins the patches of several files to one that `git apply` takes, also
// with -R. It may share their texts, which must not be changed.
type Series struct{ first, then, last []byte }

// Add appends a patch. If a path got another kind of entry under another name, its
// removal comes before everything else and its creation after: another file may
// have its old name now, or may have had its new one, and without renames git
// applies patches in order.
func (s *Series) Add(p Patch) {
	if p.removal == 0 {
		if s.then == nil {
			s.then = slices.Clip(p.Text) // the only one mostly: it is not copied
			return
		}
		s.then = append(s.then, p.Text...)
		return
	}
	s.first = append(s.first, p.Text[:p.removal]...)
	s.last = append(s.last, p.Text[p.removal:]...)
}

// Len is the size so far, in bytes.
func (s *Series) Len() int { return len(s.first) + len(s.then) + len(s.last) }

// Bytes gives the whole.
func (s *Series) Bytes() []byte {
	if len(s.first) == 0 {
		return s.then
	}
	return slices.Concat(s.first, s.then, s.last)
}

// Format writes the patch that turns old into new, as `git diff` would:
// creation and deletion where a side is absent, a rename where the paths
// differ, deletion and creation where a file became a link or the other way
// round. `git apply` takes the patches of several files joined (Series), also
// when they swap names, and with -R.
//
// Errors: ErrMode.
func Format(old, new File, opts Options) (Patch, error) {
	for _, f := range []File{old, new} {
		switch f.Mode {
		case 0, object.Regular, object.Executable, object.Symlink:
		default:
			return Patch{}, fmt.Errorf("%w: %v", ErrMode, f.Mode)
		}
	}
	switch {
	case old.Mode == 0 && new.Mode == 0:
		return Patch{}, nil
	case old.Mode == 0:
		old.Path, old.Data, old.ID = new.Path, nil, object.Zero
	case new.Mode == 0:
		new.Path, new.Data, new.ID = old.Path, nil, object.Zero
	case (old.Mode == object.Symlink) != (new.Mode == object.Symlink):
		return replaced(old, new, opts)
	}
	w := writer{old: old.identified(), new: new.identified(), opts: opts}
	if err := w.write(); err != nil {
		return Patch{}, err
	}
	return w.patch, nil
}

// replaced writes a deletion and a creation: no patch turns a file into a link.
func replaced(old, new File, opts Options) (Patch, error) {
	gone, err := Format(old, File{}, opts)
	if err != nil {
		return Patch{}, err
	}
	made, err := Format(File{}, new, opts)
	if err != nil {
		return Patch{}, err
	}
	removal := 0
	if old.Path != new.Path {
		removal = len(gone.Text)
	}
	return Patch{
		removal:   removal,
		Text:      append(gone.Text, made.Text...),
		Additions: made.Additions,
		Deletions: gone.Deletions,
		Binary:    gone.Binary || made.Binary,
		Truncated: gone.Truncated || made.Truncated,
		Coarse:    gone.Coarse || made.Coarse,
	}, nil
}

func (f File) identified() File {
	if f.Mode != 0 && f.ID.IsZero() {
		f.ID = object.Hash(object.Blob, f.Data)
	}
	return f
}

// writer writes the patch of one file.
type writer struct {
	old, new File
	opts     Options
	patch    Patch
}

func (w *writer) write() error {
	old, new := &w.old, &w.new
	same := old.Mode != 0 && new.Mode != 0 && old.ID == new.ID
	switch {
	case same && old.Mode == new.Mode && old.Path == new.Path:
	case same:
		w.header(100)
	case Binary(old.Data) || Binary(new.Data) || tooManyLines(old.Data, new.Data):
		w.patch.Binary = true
		return w.binary()
	default:
		w.text()
	}
	return nil
}

func (w *writer) text() {
	var t Table
	work := Work{Limit: w.opts.Work}
	a, b := t.Cut(w.old.Data), t.Cut(w.new.Data)
	changes := t.Compare(a, b, &work)
	w.patch.Coarse = work.Coarse
	gone, made := 0, 0 // bytes
	for _, c := range changes {
		w.patch.Deletions += c.Old.Len()
		w.patch.Additions += c.New.Len()
		gone += len(a.Bytes(c.Old.Start, c.Old.End))
		made += len(b.Bytes(c.New.Start, c.New.End))
	}
	// What changed, each line with its head, and as much again for context; more
	// than both sides it can hardly be.
	heads := w.patch.Deletions + w.patch.Additions
	w.patch.Text = make([]byte, 0, min(2*(gone+made+heads), len(w.old.Data)+len(w.new.Data)+heads)+1024)
	w.header(similarity(len(w.old.Data)-gone, w.old.Data, w.new.Data))
	if len(changes) == 0 {
		return // an empty file made or deleted
	}
	w.names()
	w.hunks(a, b, changes)
}

// similarity gives percent of the larger side; 100 is for equal sides alone.
func similarity(common int, old, new []byte) int {
	return min(int(int64(common)*100/int64(max(len(old), len(new), 1))), 99)
}

// header writes the lines before `---` (git-diff(1), "Generating patch text
// with -p").
func (w *writer) header(similarity int) {
	old, new := &w.old, &w.new
	w.linef("diff --git %s %s", Quote("a/"+old.Path), Quote("b/"+new.Path))
	switch {
	case old.Mode == 0:
		w.linef("new file mode %v", new.Mode)
	case new.Mode == 0:
		w.linef("deleted file mode %v", old.Mode)
	case old.Mode != new.Mode, old.Path != new.Path && old.Mode == object.Symlink:
		// A link's rename has the mode too: else git apply does not see that a
		// directory replaces a link.
		w.linef("old mode %v", old.Mode)
		w.linef("new mode %v", new.Mode)
	}
	if old.Path != new.Path {
		w.linef("similarity index %d%%", similarity)
		w.linef("rename from %s", Quote(old.Path))
		w.linef("rename to %s", Quote(new.Path))
	}
	if old.ID == new.ID {
		return
	}
	digits := 2 * len(old.ID)
	if n := w.opts.Abbrev; n != 0 && !w.patch.Binary {
		digits = min(max(n, 4), digits)
	}
	w.linef("index %s..%s%s", old.ID.String()[:digits], new.ID.String()[:digits], w.sameMode())
}

func (w *writer) sameMode() string {
	if w.old.Mode == w.new.Mode {
		return " " + w.old.Mode.String()
	}
	return ""
}

// names writes the `---` and `+++` lines. A name with a space is followed by a
// tab, so that it is not taken for a name and a date.
func (w *writer) names() {
	for _, side := range []struct {
		marker, prefix string
		f              *File
	}{{"---", "a/", &w.old}, {"+++", "b/", &w.new}} {
		name := label(side.prefix, side.f)
		if strings.IndexByte(name, ' ') >= 0 {
			name += "\t"
		}
		w.linef("%s %s", side.marker, name)
	}
}

func label(prefix string, f *File) string {
	if f.Mode == 0 {
		return "/dev/null"
	}
	return Quote(prefix + f.Path)
}

func (w *writer) linef(format string, args ...any) {
	w.patch.Text = fmt.Appendf(w.patch.Text, format+"\n", args...)
}
