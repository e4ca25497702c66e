package sessions

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/errs"
	"umbra/internal/session"
	"umbra/internal/textlines"
	"umbra/internal/wspath"
)

// source is a file that is open for reading.
type source struct {
	body  io.ReadSeeker
	size  int64
	blob  object.ID // of just these bytes
	mtime time.Time
	data  []byte // all of it, where it is small
	close func()
}

// inMemory is up to what size a file is read whole before it is served, in
// bytes: then its tag is of the very bytes that go out, also where a program
// writes into the file meanwhile.
const inMemory = 4 << 20

// source opens a file. The caller closes it.
func (d *Dialect) source(c *gin.Context, ses session.Session, t target) (*source, error) {
	if t.InArea() {
		return d.areaSource(c, ses, t)
	}
	w, err := d.open(c, ses)
	if err != nil {
		return nil, err
	}
	f, err := w.OpenFile(c.Request.Context(), t.Path)
	if err != nil {
		w.Release()
		return nil, noFile(err)
	}
	mtime := time.Unix(0, f.Info.MtimeNs)
	if f.Info.MtimeNs == 0 {
		if mtime, err = w.Mtime(c.Request.Context(), f.Path); err != nil {
			f.Close()
			w.Release()
			return nil, noFile(err)
		}
	}
	s := &source{body: f, size: f.Info.Size, blob: f.Blob, mtime: mtime, close: func() {
		f.Close()
		w.Release()
	}}
	if err := s.load(f); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// load reads a small file whole.
func (s *source) load(f io.ReaderAt) error {
	if s.size > inMemory {
		return nil
	}
	data := make([]byte, s.size)
	n, err := f.ReadAt(data, 0)
	if err != nil && err != io.EOF {
		return errs.Wrap(err, "")
	}
	data = data[:n] // it may have become shorter
	s.data, s.size, s.blob, s.body = data, int64(n), object.Hash(object.Blob, data), bytes.NewReader(data)
	return nil
}

func (d *Dialect) download(c *gin.Context, ses session.Session) error {
	t, err := queryTarget(c)
	if err != nil {
		return err
	}
	s, err := d.source(c, ses, t)
	if err != nil {
		return err
	}
	defer s.close()
	return httpapi.ServeContent(c, httpapi.Content{ETag: httpapi.ETag(s.blob.String()), ModTime: s.mtime, Filename: t.Path.Base(), Size: s.size, Body: s.body})
}

// defaultLines is how many lines a read gives where it does not say.
const defaultLines = 1000

type textBody struct {
	Content    string  `json:"content"`
	Truncated  bool    `json:"truncated"`
	ETag       *string `json:"etag"`
	Mtime      string  `json:"mtime"`
	TotalLines int64   `json:"totalLines"`
	Offset     int64   `json:"offset"`
	Lines      int64   `json:"lines"`
}

type base64Body struct {
	Encoding string  `json:"encoding"`
	Content  string  `json:"content"`
	ETag     *string `json:"etag"`
	Mtime    string  `json:"mtime"`
}

func (d *Dialect) read(c *gin.Context, ses session.Session) error {
	t, err := queryTarget(c)
	if err != nil {
		return err
	}
	offset, err := httpapi.QueryInt(c, "offset", 0, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	limit, err := httpapi.QueryInt(c, "limit", defaultLines, 0, math.MaxInt64)
	if err != nil {
		return err
	}
	as, given, err := httpapi.Query(c, "as")
	if err != nil {
		return err
	}
	if given && as != "text" && as != "base64" {
		return wrong("as", "as must be text or base64.")
	}
	s, err := d.source(c, ses, t)
	if err != nil {
		return err
	}
	defer s.close()
	if as == "base64" {
		return s.tellBase64(c)
	}
	return s.serveText(c, offset, limit)
}

func (s *source) serveText(c *gin.Context, offset, limit int64) error {
	lines, err := s.lines(offset, limit)
	if err != nil {
		return err
	}
	body := textBody{Truncated: lines.Truncated(offset), ETag: wire.ETag(s.blob), Mtime: stamp(s.mtime), TotalLines: lines.Total, Offset: offset, Lines: lines.Count}
	if lines.To-lines.From > inMemory {
		return s.stream(c, body, lines.From, lines.To-lines.From, func(w io.Writer) io.WriteCloser { return nopCloser{jsonText{w}} })
	}
	part, err := s.part(lines)
	if err != nil {
		return err
	}
	body.Content = string(part)
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

// lines finds what a read asks for. Unprocessable for content that is not text.
func (s *source) lines(offset, limit int64) (lines textlines.Lines, err error) {
	switch {
	case s.data == nil:
		lines, err = textlines.Find(s.body, offset, limit)
	case utf8.Valid(s.data):
		lines = textlines.In(s.data, offset, limit)
	default:
		err = textlines.NotText()
	}
	if errs.CodeOf(err) == "not_text" {
		err = errs.New(errs.Unprocessable, "not_text", "The file is not UTF-8 text; read it with as=base64.")
	}
	return lines, err
}

// part reads some lines. A file that is not in memory may have been written to
// since they were found.
func (s *source) part(lines textlines.Lines) ([]byte, error) {
	if s.data != nil {
		return s.data[lines.From:lines.To], nil
	}
	part := make([]byte, lines.To-lines.From)
	_, err := s.body.Seek(lines.From, io.SeekStart)
	if err == nil {
		_, err = io.ReadFull(s.body, part)
	}
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && err != io.EOF {
		return nil, errs.Wrap(err, "")
	}
	if err != nil || !utf8.Valid(part) {
		return nil, errs.New(errs.Conflict, "file_changing", "The file keeps changing while it is read.")
	}
	return part, nil
}

func (s *source) tellBase64(c *gin.Context) error {
	body := base64Body{Encoding: "base64", ETag: wire.ETag(s.blob), Mtime: stamp(s.mtime)}
	if s.data == nil && s.size > 0 {
		return s.stream(c, body, 0, s.size, func(w io.Writer) io.WriteCloser { return base64.NewEncoder(base64.StdEncoding, w) })
	}
	body.Content = base64.StdEncoding.EncodeToString(s.data)
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }

// stream answers with a body whose content is too large to be held in memory:
// it is encoded while it is read. Once the answer has begun an error can only
// cut it short.
func (s *source) stream(c *gin.Context, body any, from, size int64, encode func(io.Writer) io.WriteCloser) error {
	raw, err := json.Marshal(body)
	if err != nil {
		return errs.Wrap(err, "")
	}
	head, tail, _ := bytes.Cut(raw, []byte(`"content":"`))
	if _, err := s.body.Seek(from, io.SeekStart); err != nil {
		return errs.Wrap(err, "")
	}
	c.Header("Content-Type", "application/json; charset=utf-8")
	c.Status(http.StatusOK)
	if c.Request.Method == http.MethodHead {
		c.Writer.WriteHeaderNow()
		return nil
	}
	w := bufio.NewWriterSize(c.Writer, 64<<10)
	w.Write(head)
	w.WriteString(`"content":"`)
	enc := encode(w)
	_, err = io.Copy(enc, io.LimitReader(s.body, size))
	if err = errors.Join(err, enc.Close()); err != nil {
		return errs.Wrap(err, "")
	}
	w.Write(tail)
	w.WriteByte('\n')
	return errs.Wrap(w.Flush(), "")
}

type statBody struct {
	Path         string  `json:"path"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	IsDir        bool    `json:"isDir"`
	IsSymlink    bool    `json:"isSymlink"`
	Target       *string `json:"target,omitempty"`
	TargetEnc    string  `json:"target_encoding,omitempty"`
	Size         int64   `json:"size"`
	Mode         uint32  `json:"mode"`
	Mtime        string  `json:"mtime"`
	ETag         *string `json:"etag,omitempty"`
}

func (d *Dialect) stat(c *gin.Context, ses session.Session) error {
	t, err := queryTarget(c, wspath.AllowRoot, wspath.AllowTrailingSlash)
	if err != nil {
		return err
	}
	if t.InArea() {
		return d.statArea(c, ses, t)
	}
	w, err := d.open(c, ses)
	if err != nil {
		return err
	}
	defer w.Release()
	l, err := w.Stat(c.Request.Context(), t.Path)
	if err != nil {
		return noFile(err)
	}
	if t.Folder && !l.Info.IsDir() {
		return wrong("path", "The path is not a directory.")
	}
	body := statBody{IsDir: l.Info.IsDir(), IsSymlink: l.Link, Size: l.Info.Size, Mode: uint32(l.Info.Mode.Perm()), Mtime: stampNs(l.Info.MtimeNs), ETag: wire.ETag(l.Blob)}
	if body.IsDir {
		body.Size = 0
	}
	if l.Link {
		target, encoding := wspath.EncodeJSON(l.Target)
		body.Target, body.TargetEnc = &target, encoding
	}
	body.Path, body.PathEncoding = t.JSON()
	httpapi.JSON(c, http.StatusOK, body)
	return nil
}
