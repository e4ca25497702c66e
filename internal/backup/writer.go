package backup

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"umbra/internal/vfs"
)

// Sizes of pieces, in bytes: of files that are copied once, and of those whose
// pages change here and there (state.db).
const (
	pieceSize = 8 << 20
	pageRun   = 256 << 10
)

// writer puts pieces into a backup, each once.
type writer struct {
	to       vfs.FS
	known    map[sum]int64    // durable in the backup, by size
	packs    map[string]entry // what never changes, by path
	made     map[string]bool  // folders of objects that are there
	log      vfs.File         // partial
	end      int64
	temps    int
	buf      []byte
	rep      *Report
	progress func(Report)
}

// openWriter begins a backup in a folder, or goes on with one.
func openWriter(to vfs.FS, old *manifest, rep *Report, progress func(Report)) (*writer, error) {
	w := &writer{to: to, known: make(map[sum]int64), packs: make(map[string]entry), made: make(map[string]bool), rep: rep, progress: progress}
	if err := w.mark(); err != nil {
		return nil, err
	}
	if old != nil {
		for i := range old.entries {
			w.take(&old.entries[i])
		}
	}
	var err error
	if w.log, err = to.OpenFile(partialFile, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err := w.readPartial(); err != nil {
		return nil, errors.Join(err, w.log.Close())
	}
	return w, nil
}

// mark makes the folder a backup, and removes what a cut left half.
func (w *writer) mark() error {
	if is, _, err := isBackup(w.to); err != nil || !is {
		if err != nil {
			return err
		}
		if err := w.whole(markFile+".new", []byte(markText)); err != nil {
			return err
		}
		if err := w.to.Rename(markFile+".new", markFile); err != nil {
			return err
		}
		// Before anything else: without it the files in the directory are a user's.
		if err := w.to.SyncDir("."); err != nil {
			return err
		}
	}
	if err := w.to.Mkdir(objectsDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := w.to.SyncDir("."); err != nil {
		return err
	}
	list, err := w.to.ReadDir(objectsDir)
	if err != nil {
		return err
	}
	for _, e := range list {
		if e.Type.IsDir() {
			w.made[e.Name] = true
		} else if err := w.to.Remove(objectsDir + "/" + e.Name); err != nil {
			return err
		}
	}
	return nil
}

// whole writes a small file, durably but for its name.
func (w *writer) whole(name string, data []byte) error {
	f, err := w.to.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// take notes what an entry says is there.
func (w *writer) take(e *entry) {
	for _, p := range e.Pieces {
		w.known[p.Sum] = p.Size
	}
	if e.Kind == kindFile && !e.Damaged && immutable(e.path()) {
		w.packs[e.path()] = *e
	}
}

// readPartial takes up what a backup that was cut off has copied: its lines are
// entries without a kind for single pieces. A torn one ends it.
func (w *writer) readPartial() error {
	data, err := io.ReadAll(w.log)
	if err != nil {
		return err
	}
	lines := bufio.NewReader(bytes.NewReader(data))
	for {
		line, err := lines.ReadBytes('\n')
		var e entry
		if err != nil || json.Unmarshal(line, &e) != nil {
			return w.log.Truncate(w.end)
		}
		w.end += int64(len(line))
		w.take(&e)
	}
}

// note adds a line to partial. It is not synced: the piece is looked up, and a lost
// line costs a copy.
func (w *writer) note(e entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	if _, err := w.log.WriteAt(line, w.end); err != nil {
		return err
	}
	w.end += int64(len(line))
	return nil
}

// has reports whether a piece is in the backup.
func (w *writer) has(s sum, size int64) (bool, error) {
	if n, ok := w.known[s]; !ok || n != size {
		return false, nil
	}
	info, err := w.to.Lstat(s.name())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil && info.Size == size, err
}

// put copies a stream, in pieces of the given size.
func (w *writer) put(ctx context.Context, r io.Reader, size int) (pieces []piece, total int64, err error) {
	if len(w.buf) < size {
		w.buf = make([]byte, size)
	}
	for {
		if err := ctx.Err(); err != nil {
			return nil, 0, context.Cause(ctx)
		}
		n, err := io.ReadFull(r, w.buf[:size])
		if n > 0 {
			p, err := w.piece(w.buf[:n])
			if err != nil {
				return nil, 0, err
			}
			pieces = append(pieces, p)
			total += int64(n)
			w.progress(*w.rep)
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			return pieces, total, nil
		}
		if err != nil {
			return nil, 0, err
		}
	}
}

// piece puts bytes into the backup, if they are not there.
func (w *writer) piece(data []byte) (piece, error) {
	p := piece{Sum: sha256.Sum256(data), Size: int64(len(data))}
	there, err := w.has(p.Sum, p.Size)
	if err != nil {
		return p, err
	}
	w.rep.Bytes += p.Size
	if there {
		w.rep.ReusedBytes += p.Size
		return p, nil
	}
	dir := p.Sum.String()[:2]
	if !w.made[dir] {
		if err := w.to.Mkdir(objectsDir+"/"+dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return p, err
		}
		w.made[dir] = true
	}
	w.temps++
	temp := objectsDir + "/" + tempPrefix + strconv.Itoa(w.temps)
	if err := w.whole(temp, data); err != nil {
		return p, err
	}
	if err := w.to.Rename(temp, p.Sum.name()); err != nil {
		return p, err
	}
	w.known[p.Sum] = p.Size
	w.rep.CopiedBytes += p.Size
	return p, w.note(entry{Pieces: []piece{p}})
}

// sync makes the names of all pieces durable, also of those that a backup before
// this one left when it was cut off.
func (w *writer) sync() error {
	for dir := range w.made {
		if err := w.to.SyncDir(objectsDir + "/" + dir); err != nil {
			return err
		}
	}
	return w.to.SyncDir(objectsDir)
}

// sweep removes what the current manifest does not name.
func (w *writer) sweep(m *manifest) error {
	want := make(map[string]bool)
	for i := range m.entries {
		for _, p := range m.entries[i].Pieces {
			want[p.Sum.String()] = true
		}
	}
	for dir := range w.made {
		list, err := w.to.ReadDir(objectsDir + "/" + dir)
		if err != nil {
			return err
		}
		for _, e := range list {
			if want[e.Name] {
				continue
			}
			name := objectsDir + "/" + dir + "/" + e.Name
			info, err := w.to.Lstat(name)
			if err != nil {
				return err
			}
			if err := w.to.Remove(name); err != nil {
				return err
			}
			w.rep.RemovedBytes += info.Size
		}
	}
	return w.to.Remove(partialFile)
}
