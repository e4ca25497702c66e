package index

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"

	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// statFile keeps the index from one run to the next, next to the repository, so
// that a start need not read every file. It is a cache: one that is damaged, of
// another epoch or of another folder is as none. It is not synced: a power
// failure begins another epoch.
//
// The file: the header of the owner, which ties it to a directory and an epoch,
// then for each directory its path, the number of its files and the files; SHA-256 of it
// all. Numbers are varints, texts have their length before them. Racy entries
// are not in it.
const (
	statFile = "stat"
	maxStat  = 1 << 30
)

// Save writes the index, after a header, if it has changed since it was last
// written.
func (x *Index) Save(files vfs.FS, header []byte) error {
	changes := x.changes.Load()
	if changes == x.saved.Load() {
		return nil
	}
	const temp = statFile + ".new"
	f, err := files.OpenFile(temp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return errs.Wrap(err, "")
	}
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(sum, f), 256<<10)
	_, _ = out.Write(header)
	x.write(out)
	err = out.Flush()
	if err == nil {
		_, err = f.Write(sum.Sum(nil))
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = files.Rename(temp, statFile)
	}
	if err == nil {
		x.saved.Store(changes)
	}
	return errs.Wrap(err, "")
}

// write puts the index into its file's form; errors are the writer's to keep.
func (x *Index) write(out *bufio.Writer) {
	x.mu.RLock()
	dirs := make([]wspath.Path, 0, x.dirs.Len())
	for dir := range x.dirs.All() {
		dirs = append(dirs, dir)
	}
	x.mu.RUnlock()
	var b []byte
	for _, dir := range dirs {
		files := x.Files(dir)
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

func (f *File) append(b []byte) []byte {
	b = appendText(b, f.Name)
	b = binary.AppendUvarint(b, f.ino)
	b = binary.AppendVarint(b, f.size)
	b = binary.AppendVarint(b, f.mtime)
	b = binary.AppendVarint(b, f.ctime)
	b = binary.AppendUvarint(b, uint64(f.mode)<<16|uint64(f.perm))
	return append(b, f.ID[:]...)
}

// Load reads what Save wrote after the same header; nothing where the file does not
// exist, is damaged or has another header.
func (x *Index) Load(files vfs.FS, header []byte) error {
	info, err := files.Lstat(statFile)
	if vfs.IsAbsent(err) || err == nil && info.Size > maxStat {
		return nil
	}
	var data []byte
	if err == nil {
		data, err = vfs.ReadFile(files, statFile)
	}
	if vfs.IsAbsent(err) {
		return nil
	}
	if err != nil {
		return errs.Wrap(err, "")
	}
	body, ok := bytes.CutPrefix(data, header)
	if !ok || len(body) < sha256.Size {
		return nil
	}
	end := len(data) - sha256.Size
	if sum := sha256.Sum256(data[:end]); !bytes.Equal(sum[:], data[end:]) {
		return nil
	}
	x.read(body[:len(body)-sha256.Size])
	return nil
}

// read reads what write wrote. Of a truncated body, which the checksum rules out,
// it takes the entries before the end.
func (x *Index) read(body []byte) {
	r := statReader{b: body}
	x.mu.Lock()
	defer x.mu.Unlock()
	for len(r.b) > 0 {
		dir := r.text()
		n := r.uvarint()
		if r.bad || n > uint64(len(r.b)) {
			return
		}
		d := &listing{files: make([]File, 0, n)}
		for range n {
			f := File{Name: r.text(), ino: r.uvarint(), size: r.varint(), mtime: r.varint(), ctime: r.varint()}
			bits := r.uvarint()
			f.mode, f.perm = object.Mode(bits>>16), uint16(bits)
			copy(f.ID[:], r.take(len(f.ID)))
			if r.bad {
				return
			}
			d.files = append(d.files, f)
		}
		x.dirs.Put(wspath.Path(dir), d)
	}
}

// statReader reads numbers and texts; bad is set if the data ended before one.
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
