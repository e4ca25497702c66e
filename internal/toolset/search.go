package toolset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"umbra/internal/errs"
	"umbra/internal/textsearch"
	"umbra/internal/toolset/glob"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Bounds of a search.
const (
	maxFound   = 1000     // paths that search_files answers
	maxNodes   = 200_000  // files and folders that one search checks
	maxGrepped = 8 << 20  // bytes of a file that is searched
	maxText    = 64 << 10 // bytes of an answer, without its last line
	maxLine    = 400      // bytes of a line that is shown
	sniff      = 8 << 10  // bytes in which a NUL makes a file binary
	maxDepth   = 1 << 12  // of folders
	searchTime = 30 * time.Second
)

// found is a file that a search met.
type found struct {
	path  string // logical
	below string // from the folder that is searched
	mount int
	rel   wspath.Path
}

// walker goes through what may be read at and below a folder, mount by mount.
type walker struct {
	r     *run
	base  string // clean
	left  int    // nodes
	files []found
	cut   bool
}

// walk gathers the files at and below a path, sorted by path bytewise. A mount
// that is below another hides what is there in the folder behind it.
func (r *run) walk(path string, given bool) (*walker, error) {
	clean, err := r.clean(path)
	if err != nil {
		return nil, err
	}
	w := &walker{r: r, base: clean, left: maxNodes}
	below := r.l.table.Under(clean)
	if i, _, ok := r.l.table.Lookup(clean); ok {
		if err := r.l.rec.Mounts[i].Scope.Allow(mount.Search, clean); err != nil && (given && !r.anyReads(below)) {
			return nil, err
		} else if err == nil {
			if err := w.start(clean); err != nil {
				return nil, err
			}
		}
	} else if len(below) == 0 && clean != "/" {
		return nil, r.l.table.NotMounted(clean)
	}
	for _, i := range below {
		m := &r.l.rec.Mounts[i]
		if m.Prefix == clean || !m.Scope.Reads() {
			continue
		}
		if err := w.folder(i, wspath.Root, m.Prefix); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(w.files, func(a, b found) int { return strings.Compare(a.path, b.path) })
	return w, nil
}

func (r *run) anyReads(mounts []int) bool {
	return slices.ContainsFunc(mounts, func(i int) bool { return r.l.rec.Mounts[i].Scope.Reads() })
}

// start checks the path itself: a file, or a folder of a mount.
func (w *walker) start(clean string) error {
	at, err := w.r.resolve(clean, mount.Search)
	if err != nil {
		return err
	}
	ws, err := w.r.workspace(at.Mount)
	if err != nil {
		return err
	}
	l, err := ws.Stat(w.r.ctx, at.rel)
	switch {
	case errs.CodeOf(err) == "file_not_found" && err != nil && w.r.l.table.HasBelow(clean):
		return nil
	case err != nil:
		return explain(err, clean)
	case l.Kind == workspace.KindFile:
		w.add(found{path: clean, below: at.rel.Base(), mount: at.Mount, rel: at.rel})
		return nil
	case l.Kind != workspace.KindDir:
		return mount.Message(mount.Show(clean) + " is not a regular file")
	}
	return w.folder(at.Mount, at.rel, clean)
}

// folder walks a folder of a mount.
func (w *walker) folder(i int, rel wspath.Path, logical string) error {
	ws, err := w.r.workspace(i)
	if err != nil {
		return err
	}
	if w.left <= 0 {
		w.cut = true
		return nil
	}
	root, truncated, err := ws.Tree(w.r.ctx, rel, maxDepth, w.left, workspace.ListOptions{})
	if err != nil {
		return explain(err, logical)
	}
	w.cut = w.cut || truncated
	w.tree(i, root, rel, logical)
	return nil
}

func (w *walker) tree(i int, n *workspace.Node, rel wspath.Path, logical string) {
	for _, c := range n.Children {
		w.left--
		name := c.Path.Base()
		path := mount.Join(logical, name)
		if w.r.l.table.IsMount(path) {
			continue
		}
		at := rel.Join(name)
		if c.Type.IsDir() {
			w.tree(i, c, at, path)
		} else if c.Type.IsRegular() || c.Type&fs.ModeSymlink != 0 {
			below := strings.TrimPrefix(strings.TrimPrefix(path, w.base), "/")
			w.add(found{path: path, below: below, mount: i, rel: at})
		}
	}
}

func (w *walker) add(f found) { w.files = append(w.files, f) }

// matcher compiles a glob: against the path below the folder, or the whole path
// where the pattern is one.
func matcher(name, pattern string) (func(f *found) bool, error) {
	g, err := glob.Compile(pattern)
	if err != nil {
		return nil, mount.Message("Invalid arguments: " + name + ": " + err.Error())
	}
	if strings.HasPrefix(pattern, "/") {
		return func(f *found) bool { return g.Match(f.path) }, nil
	}
	return func(f *found) bool { return g.Match(f.below) }, nil
}

// bound gives the folder to search, everything if none was given.
func bound(a tool.Args) (path string, given bool) {
	if a.Has("path") {
		return a.Str("path"), true
	}
	return "/", false
}

func (r *run) searchFiles(a tool.Args) (string, error) {
	match, err := matcher("pattern", a.Str("pattern"))
	if err != nil {
		return "", err
	}
	w, err := r.walk(bound(a))
	if err != nil {
		return "", err
	}
	var b strings.Builder
	n, more := 0, w.cut
	for i := range w.files {
		f := &w.files[i]
		if !match(f) {
			continue
		}
		line := mount.Show(f.path) + "\n"
		if n == maxFound || b.Len()+len(line) > maxText {
			more = true
			break
		}
		b.WriteString(line)
		n++
	}
	switch {
	case more:
		fmt.Fprintf(&b, "[cut: there are more files; search below a directory, or with a narrower pattern]")
	case n == 0:
		return "No files match.", nil
	}
	return strings.TrimSuffix(b.String(), "\n"), nil
}

// compilePattern is textsearch.Compile for a model: its errors are Messages.
func compilePattern(pattern string) (*regexp.Regexp, error) {
	re, err := textsearch.Compile(pattern)
	if err != nil {
		return nil, mount.Message("Invalid arguments: pattern: " + err.Error())
	}
	return re, nil
}

func (r *run) grepFiles(a tool.Args) (string, error) {
	re, err := compilePattern(a.Str("pattern"))
	if err != nil {
		return "", err
	}
	release, err := r.s.searching.Take(r.ctx)
	if err != nil {
		return "", err
	}
	defer release()
	match := func(*found) bool { return true }
	if a.Has("glob") {
		if match, err = matcher("glob", a.Str("glob")); err != nil {
			return "", err
		}
	}
	w, err := r.walk(bound(a))
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(r.ctx, searchTime)
	defer cancel()
	g := &grep{r: r, ctx: ctx, re: re, left: int(a.Int("max_results", tool.DefaultMatches))}
	g.literal, _ = re.LiteralPrefix()
	for i := range w.files {
		if !match(&w.files[i]) {
			continue
		}
		if i%256 == 0 && r.c.Progress != nil {
			r.c.Progress(int64(i), int64(len(w.files)), "files searched")
		}
		err := g.file(&w.files[i])
		if errors.Is(err, errFull) {
			g.full = true
			break
		}
		if r.ctx.Err() != nil {
			return "", r.ctx.Err()
		}
		if ctx.Err() != nil {
			g.late = true
			break
		}
		if err != nil {
			return "", err
		}
	}
	return g.text(w.cut), nil
}

// errFull ends a search that has enough.
var errFull = errors.New("toolset: enough found")

// grep is one search in files.
type grep struct {
	r       *run
	ctx     context.Context
	re      *regexp.Regexp
	literal string // every match begins with it
	left    int
	out     strings.Builder
	large   int
	full    bool
	late    bool
	long    bool // of some line only the beginning was searched
}

// file searches one file; what cannot be read, or is no text, is passed over.
func (g *grep) file(f *found) error {
	ws, err := g.r.workspace(f.mount)
	if err != nil {
		return err
	}
	o, err := ws.OpenFile(g.ctx, f.rel)
	if err != nil {
		if errs.Is(err, errs.Canceled) || errs.Is(err, errs.Unavailable) {
			return err
		}
		return nil // gone, unreadable, a link to a folder
	}
	defer o.Close()
	if o.Info.Size > maxGrepped {
		g.large++
		return nil
	}
	data, err := io.ReadAll(io.LimitReader(contextReader{g.ctx, o.File}, maxGrepped))
	if err != nil {
		return errs.Wrap(err, "")
	}
	if bytes.IndexByte(data[:min(len(data), sniff)], 0) >= 0 || !bytes.Contains(data, []byte(g.literal)) {
		return nil
	}
	for n := 1; len(data) > 0; n++ {
		if err := g.ctx.Err(); err != nil {
			return err
		}
		line := data
		if i := bytes.IndexByte(data, '\n'); i >= 0 {
			line, data = data[:i], data[i+1:]
		} else {
			data = nil
		}
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) > textsearch.MaxLine {
			cut := textsearch.MaxLine
			for cut > 0 && !utf8.RuneStart(line[cut]) {
				cut--
			}
			line, g.long = line[:cut], true
		}
		at := g.re.FindIndex(line)
		if at == nil || !utf8.Valid(line) {
			continue
		}
		if err := g.match(f, n, line, at[0]); err != nil {
			return err
		}
	}
	return nil
}

// match writes one line of the answer.
func (g *grep) match(f *found, n int, line []byte, at int) error {
	text := fmt.Sprintf("%s:%d: %s\n", mount.Show(f.path), n, excerpt(line, at))
	if g.left == 0 || g.out.Len()+len(text) > maxText {
		return errFull
	}
	g.left--
	g.out.WriteString(text)
	return nil
}

// excerpt gives a line, or, of a long one, what is around the match.
func excerpt(line []byte, at int) string {
	if len(line) <= maxLine {
		return string(line)
	}
	from := max(0, min(at-maxLine/4, len(line)-maxLine))
	to := from + maxLine
	for from > 0 && !utf8.RuneStart(line[from]) {
		from--
	}
	for to < len(line) && !utf8.RuneStart(line[to]) {
		to--
	}
	s := string(line[from:to])
	if from > 0 {
		s = "…" + s
	}
	if to < len(line) {
		s += "…"
	}
	return s
}

func (g *grep) text(cut bool) string {
	if g.out.Len() == 0 && !g.full && !cut && !g.late {
		g.out.WriteString("No lines match.\n")
	}
	switch {
	case g.full:
		g.out.WriteString("[cut: there are more matches; search below a directory, or with a narrower pattern]\n")
	case g.late:
		g.out.WriteString("[cut: the search took too long; search below a directory, or with glob]\n")
	case cut:
		g.out.WriteString("[cut: there are too many files; search below a directory]\n")
	}
	if g.long {
		fmt.Fprintf(&g.out, "[lines over %d KiB were searched in their first %d KiB]\n", textsearch.MaxLine>>10, textsearch.MaxLine>>10)
	}
	if g.large > 0 {
		fmt.Fprintf(&g.out, "[files over %d MiB were left out: %d]\n", maxGrepped>>20, g.large)
	}
	return strings.TrimSuffix(g.out.String(), "\n")
}
