package toolset

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"umbra/internal/errs"
	"umbra/internal/task"
	"umbra/internal/toolset/mount"
	"umbra/internal/toolset/tool"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
)

// maxShown bounds what one read_file answers, in bytes.
const maxShown = 256 << 10

func (r *run) readFile(a tool.Args) (string, error) {
	at, err := r.resolve(a.Str("path"), mount.Read)
	if err != nil {
		return "", err
	}
	f, err := r.open(at)
	if err != nil {
		return "", err
	}
	defer f.Close()
	win := window{offset: a.Int("offset", 0), skip: a.Int("byte_offset", 0), limit: a.Int("limit", tool.DefaultLines), max: maxShown, size: f.Info.Size}
	text, err := win.read(contextReader{r.ctx, f.File})
	p := mount.Show(at.Path)
	past, isPast := errors.AsType[*pastEnd](err)
	switch {
	case errors.Is(err, errNoText):
		return "", mount.Message(fmt.Sprintf("%s is not UTF-8 text (%d bytes)", p, f.Info.Size))
	case isPast && past.inLine:
		return "", mount.Message(fmt.Sprintf("byte_offset %d is past the end of line %d of %s", win.skip, win.offset, p))
	case isPast:
		return "", mount.Message(fmt.Sprintf("offset %d is past the end of %s (%d lines)", win.offset, p, past.lines))
	}
	if err == nil && a.Bool("line_numbers") {
		text = numbered(text, win.offset+1, win.ended)
	}
	return text, err
}

// numbered begins each line with its number and a tab. The last line of a text
// that was cut is a remark and gets none.
func numbered(text string, first int64, whole bool) string {
	var b strings.Builder
	n := first
	for line := range strings.Lines(text) {
		if !whole && !strings.HasSuffix(line, "\n") {
			b.WriteString(line)
			break
		}
		fmt.Fprintf(&b, "%d\t%s", n, line)
		n++
	}
	return b.String()
}

// open opens a file for reading.
func (r *run) open(at place) (*workspace.Opened, error) {
	if at.rel.IsRoot() {
		return nil, mount.Message(mount.Show(at.Path) + " is a directory")
	}
	w, err := r.workspace(at.Mount)
	if err != nil {
		return nil, err
	}
	f, err := w.OpenFile(r.ctx, at.rel)
	if err != nil && r.l.table.HasBelow(at.Path) && errs.CodeOf(err) == "file_not_found" {
		return nil, mount.Message(mount.Show(at.Path) + " is a directory")
	}
	if err != nil {
		return nil, explain(err, at.Path)
	}
	return f, nil
}

// contextReader ends a long read with its caller.
type contextReader struct {
	ctx context.Context
	f   vfs.File
}

func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.f.Read(p)
}

// window is the part of a text that is shown.
type window struct {
	offset int64 // line to begin with, from 0
	skip   int64 // bytes of that line to leave out
	limit  int64 // lines
	max    int   // bytes
	size   int64 // of the file as it was opened, in bytes; buffers go by it
	ended  bool  // the text goes to the file's end: no remark was added
}

var errNoText = errors.New("toolset: no UTF-8 text")

// pastEnd says that a window begins behind the text's end.
type pastEnd struct {
	lines  int64
	inLine bool
}

func (*pastEnd) Error() string { return "toolset: past the end" }

// read gives the window's text, and, where it is cut, a last line that says how
// to read on. Memory is bounded by the window. The text is checked as far as it
// is read.
func (w *window) read(src io.Reader) (string, error) {
	in := bufio.NewReaderSize(src, int(min(64<<10, max(4<<10, w.size+1))))
	var check validator
	if err := w.forward(in, &check); err != nil {
		return "", err
	}
	var out bytes.Buffer
	line, begun := w.offset, w.skip // where the next byte is: its line, and bytes into it
	for {
		if line == w.offset+w.limit {
			return w.cut(in, &out, line, 0)
		}
		piece, err := in.ReadSlice('\n')
		if !check.ok(piece) {
			return "", errNoText
		}
		if room := w.max - out.Len(); len(piece) > room {
			return w.full(&out, piece, line, begun)
		}
		out.Write(piece)
		begun += int64(len(piece))
		switch {
		case err == nil:
			line, begun = line+1, 0
		case err == io.EOF:
			if !check.done() {
				return "", errNoText
			}
			w.ended = true
			return out.String(), nil
		case err != bufio.ErrBufferFull:
			return "", err
		}
	}
}

// forward goes to where the window begins.
func (w *window) forward(in *bufio.Reader, check *validator) error {
	begun := false // something of the line was read
	for line := int64(0); line < w.offset; {
		piece, err := in.ReadSlice('\n')
		if !check.ok(piece) {
			return errNoText
		}
		begun = begun || len(piece) > 0
		switch {
		case err == nil:
			line, begun = line+1, false
			if _, err := in.Peek(1); err == io.EOF && line == w.offset {
				return &pastEnd{lines: line}
			}
		case err == io.EOF:
			if begun {
				line++
			}
			return &pastEnd{lines: line}
		case err != bufio.ErrBufferFull:
			return err
		}
	}
	for left := w.skip; left > 0; {
		piece, err := in.Peek(int(min(left, 4096)))
		if bytes.IndexByte(piece, '\n') >= 0 || int64(len(piece)) < min(left, 4096) {
			if err != nil && err != io.EOF {
				return err
			}
			return &pastEnd{inLine: true}
		}
		n, _ := in.Discard(len(piece))
		left -= int64(n)
	}
	return nil
}

// cut ends a text at the line limit, unless the file ends there too.
func (w *window) cut(in *bufio.Reader, out *bytes.Buffer, line, begun int64) (string, error) {
	if _, err := in.Peek(1); err == io.EOF {
		w.ended = true
		return out.String(), nil
	} else if err != nil {
		return "", err
	}
	return w.withRest(out, line, begun), nil
}

// full ends a text that has reached its size: at the last line's end, or, where
// that is one line alone, within it.
func (w *window) full(out *bytes.Buffer, piece []byte, line, begun int64) (string, error) {
	text := out.Bytes()
	if i := bytes.LastIndexByte(text, '\n'); i >= 0 {
		out.Truncate(i + 1)
		return w.withRest(out, line, 0), nil
	}
	piece = piece[:w.max-out.Len()]
	n := len(piece)
	for n > 0 && n > len(piece)-utf8.UTFMax && !boundary(piece[:n]) {
		n--
	}
	out.Write(piece[:n])
	return w.withRest(out, line, begun+int64(n)), nil
}

// boundary reports whether a text ends between two characters.
func boundary(b []byte) bool {
	r, size := utf8.DecodeLastRune(b)
	return r != utf8.RuneError || size > 1
}

func (w *window) withRest(out *bytes.Buffer, line, begun int64) string {
	if out.Len() > 0 && out.Bytes()[out.Len()-1] != '\n' {
		out.WriteByte('\n')
	}
	if begun > 0 {
		fmt.Fprintf(out, "[cut: line %d goes on; read on with offset %d and byte_offset %d]", line, line, begun)
	} else {
		fmt.Fprintf(out, "[cut: the file goes on; read on with offset %d]", line)
	}
	return out.String()
}

// validator checks UTF-8 that comes in pieces.
type validator struct {
	rest [utf8.UTFMax]byte // an unfinished character
	n    int
}

func (v *validator) ok(p []byte) bool {
	for v.n > 0 && len(p) > 0 {
		v.rest[v.n] = p[0]
		v.n, p = v.n+1, p[1:]
		if utf8.FullRune(v.rest[:v.n]) {
			if r, size := utf8.DecodeRune(v.rest[:v.n]); r == utf8.RuneError && size <= 1 {
				return false
			}
			v.n = 0
		}
	}
	if v.n > 0 {
		return true
	}
	for i := max(0, len(p)-utf8.UTFMax+1); i < len(p); i++ {
		if utf8.RuneStart(p[i]) && !utf8.FullRune(p[i:]) {
			v.n = copy(v.rest[:], p[i:])
			p = p[:i]
			break
		}
	}
	return utf8.Valid(p)
}

// done reports whether the text ended with a whole character.
func (v *validator) done() bool { return v.n == 0 }

// ReadContent returns a whole file that may be read, for a client that takes files
// as resources. Errors: mount.Message for those that a model gets too; NotFound
// "toolset_not_found".
func (s *Service) ReadContent(ctx context.Context, id, path string, sees task.Sees) (Content, error) {
	l, err := s.find(id, sees)
	if err != nil {
		return Content{}, err
	}
	r := &run{s: s, l: l, ctx: ctx}
	defer r.release()
	at, err := r.resolve(path, mount.Read)
	if err != nil {
		return Content{}, err
	}
	f, err := r.open(at)
	if err != nil {
		return Content{}, err
	}
	defer f.Close()
	if f.Info.Size > MaxContent {
		return Content{}, mount.Message(mount.Show(at.Path) + " is too large for a resource; read it in parts with read_file")
	}
	data, err := io.ReadAll(io.LimitReader(contextReader{ctx, f.File}, MaxContent))
	if err != nil {
		return Content{}, errs.Wrap(err, "")
	}
	return Content{Path: at.Path, Data: data, Blob: f.Blob}, nil
}
