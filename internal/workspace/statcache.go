package workspace

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"time"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// statFile keeps the index from one run to the next, beside the repository, so
// that a start need not read every file. It is a cache: one that is damaged, of
// another epoch or of another folder is as none. It is not synced: a power cut
// begins another epoch.
//
// The file: magic, the epoch's hash, device and inode of the folder, then for
// each folder its path, the number of its files and the files; SHA-256 of it
// all. Numbers are varints, texts have their length before them. Entries that
// the racy rule leaves open are not in it.
const (
	statFile  = "stat"
	statMagic = "USTA\x01"
	statEvery = 5 * time.Minute
	maxStat   = 1 << 30
)

// statHeader ties a file to the folder and the mounts it was written for.
func (w *Workspace) statHeader() []byte {
	h := sha256.Sum256([]byte(w.progress.epoch))
	b := append([]byte(statMagic), h[:]...)
	b = binary.BigEndian.AppendUint64(b, w.dev)
	return binary.BigEndian.AppendUint64(b, w.ino)
}

// saveIndex writes the index if it has changed since it was last written.
func (w *Workspace) saveIndex() error {
	if w.virtual != nil || w.standIn {
		return nil
	}
	changes := w.index.changes.Load()
	if changes == w.index.saved.Load() {
		return nil
	}
	const temp = statFile + ".new"
	f, err := w.files.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.Wrap(err, "")
	}
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(sum, f), 256<<10)
	_, _ = out.Write(w.statHeader())
	w.index.write(out)
	err = out.Flush()
	if err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = w.files.Rename(temp, statFile)
	}
	if err == nil {
		w.index.saved.Store(changes)
	}
	return errs.Wrap(err, "")
}

// write puts the index into its file's form; errors are the writer's to keep.
func (x *index) write(out *bufio.Writer) {
	x.mu.RLock()
	dirs := make([]wspath.Path, 0, x.dirs.Len())
	for dir := range x.dirs.All() {
		dirs = append(dirs, dir)
	}
	x.mu.RUnlock()
	var b []byte
	for _, dir := range dirs {
		files := x.files(dir)
		n := 0
		for i := range files {
			if !files[i].racy {
				n++
			}
		}
		if n == 0 {
			continue
		}
		b = appendText(b[:0], string(dir))
		b = binary.AppendUvarint(b, uint64(n))
		for i := range files {
			if f := &files[i]; !f.racy {
				b = f.append(b)
			}
		}
		_, _ = out.Write(b)
	}
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

func (f *indexFile) append(b []byte) []byte {
	b = appendText(b, f.name)
	b = binary.AppendUvarint(b, f.ino)
	b = binary.AppendVarint(b, f.size)
	b = binary.AppendVarint(b, f.mtime)
	b = binary.AppendVarint(b, f.ctime)
	b = binary.AppendUvarint(b, uint64(f.mode))
	return append(b, f.id[:]...)
}

// loadIndex reads what the last run knew; nothing where the file proves
// nothing.
func (w *Workspace) loadIndex() error {
	if w.virtual != nil || w.standIn {
		return nil
	}
	info, err := w.files.Lstat(statFile)
	if err != nil || info.Size > maxStat {
		return ignoreAbsent(err)
	}
	data, err := vfs.ReadFile(w.files, statFile)
	if err != nil {
		return ignoreAbsent(err)
	}
	body, ok := bytes.CutPrefix(data, w.statHeader())
	if !ok || len(body) < sha256.Size {
		return nil
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return nil
	}
	w.index.read(body[:len(body)-sha256.Size])
	return nil
}

func ignoreAbsent(err error) error {
	if err == nil || isAbsent(err) {
		return nil
	}
	return errs.Wrap(err, "")
}

// read takes over what write wrote. Of a body that breaks off, which the
// checksum rules out, it takes what stands before.
func (x *index) read(body []byte) {
	r := statReader{b: body}
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(r.b) > 0 {
		dir := r.text()
		n := r.uvarint()
		if r.bad || n > uint64(len(r.b)) {
			return
		}
		d := &indexDir{files: make([]indexFile, 0, n)}
		for range n {
			f := indexFile{name: r.text(), ino: r.uvarint(), size: r.varint(), mtime: r.varint(), ctime: r.varint(), mode: object.Mode(r.uvarint())}
			copy(f.id[:], r.take(len(f.id)))
			if r.bad {
				return
			}
			d.files = append(d.files, f)
		}
		x.dirs.Put(wspath.Path(dir), d)
	}
}

// statReader reads numbers and texts; bad says that one was not there.
type statReader struct {
	b   []byte
	bad bool
}

func (r *statReader) take(n int) []byte {
	if r.bad || n < 0 || n > len(r.b) {
		r.bad = true
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *statReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.take(n)
	return v
}

func (r *statReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.take(n)
	return v
}

func (r *statReader) text() string {
	n := r.uvarint()
	if n > wspath.MaxPath {
		r.bad = true
		return ""
	}
	return string(r.take(int(n)))
}
