//go:build linux

package powercut

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// written is a text that must not get lost.
type written struct {
	by     string // an agent's name, or user
	id     string
	text   string
	ino    uint64 // the user's: of the file
	acked  bool   // an agent's: it was answered
	synced bool   // the user's: it is on stable storage
	gone   bool   // the user has destroyed it
}

// known is what is at a path for certain; none is empty.
type known struct {
	content string
	hard    bool // also after a power failure
}

// heldFile is a descriptor of the user's.
type heldFile struct {
	f    *os.File
	from string
	lost bool // the user removed it
}

// user is who writes to the disk.
const user = "U"

var (
	dirNames  = []string{"d0", "d1", "e", "d0/s", "d1/s", "g"}
	fileNames = []string{"f0", "f1", "f2", "f3"}
)

func pick(r *rand.Rand, list []string) string { return list[r.IntN(len(list))] }

// name is a path of a file.
func (x *schedule) name() string {
	if x.r.IntN(3) == 0 {
		return pick(x.r, fileNames)
	}
	return pick(x.r, dirNames) + "/" + pick(x.r, fileNames)
}

// text makes one that was not written before.
func (x *schedule) text(by string) *written {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := &written{by: by, id: fmt.Sprintf("<%s%d-%04x>", by, len(x.written), x.r.IntN(1<<16))}
	var b strings.Builder
	b.WriteString(w.id)
	for range x.r.IntN(5) * x.r.IntN(200) {
		fmt.Fprintf(&b, "%08x\n", x.r.Uint32())
	}
	b.WriteString(".\n")
	w.text = b.String()
	x.written = append(x.written, w)
	return w
}

// op is a request of an agent's.
type op struct {
	a            *agent
	method, path string
	body         any
	writes       []*written
	touches      []string // paths, with all below them
	carries      bool     // a directory, with what is in it when it is done
	done         func()   // what is known after a success
	status       int
}

// op makes a random request.
func (x *schedule) op(a *agent, moves bool) *op {
	o := &op{a: a}
	content := func(p string) string { return "/content?path=" + url.QueryEscape(p) }
	n := x.r.IntN(100)
	if !moves {
		n = n * 70 / 100
	}
	switch {
	case n < 45:
		p, w := x.name(), x.text(a.name)
		o.method, o.path, o.body, o.writes, o.touches = "PUT", content(p), w.text, []*written{w}, []string{p}
		o.done = func() { x.know(p, w.text, true) }
	case n < 60:
		p := x.name()
		o.method, o.path, o.touches = "DELETE", content(p), []string{p}
		o.done = func() { x.know(p, "", true) }
	case n < 70:
		p := pick(x.r, dirNames)
		o.method, o.path, o.touches = "DELETE", content(p)+"&recursive=true", []string{p}
		o.done = func() { x.knowGone(p, true) }
	case n < 78:
		p, q := x.name(), x.name()
		o.method, o.path, o.body, o.touches = "POST", "/move", map[string]string{"from": p, "to": q}, []string{p, q}
		o.done = func() { x.knowMoved(p, q, true) }
	case n < 86:
		p, q := pick(x.r, dirNames), pick(x.r, dirNames)
		o.method, o.path, o.body, o.touches, o.carries = "POST", "/move", map[string]string{"from": p, "to": q}, []string{p, q}, true
		o.done = func() { x.knowMoved(p, q, true) }
	case n < 94:
		p, q := x.name(), x.name()
		w, v := x.text(a.name), x.text(a.name)
		o.method, o.path, o.touches = "POST", "/batch", []string{p, q}
		o.body = map[string]any{"operations": []any{
			map[string]any{"op": "write", "path": p, "content": w.text},
			map[string]any{"op": "rename", "path": p, "new_path": q},
			map[string]any{"op": "write", "path": p, "content": v.text}}}
		if p != q {
			o.writes = []*written{w, v}
		}
		o.done = func() {
			x.know(p, v.text, true)
			x.know(q, w.text, true)
		}
	default:
		o.method, o.path, o.body, o.touches = "POST", "/revert", map[string]string{"on_conflict": []string{"skip", "force"}[x.r.IntN(2)]}, []string{""}
		o.done = func() { x.forget("") }
	}
	return o
}

// request sends one, and notes what is known afterwards.
func (x *schedule) request(o *op) {
	x.send(o)
	switch {
	case o.status == 0 || o.status >= 500 && o.status != 507:
		x.doubt(o)
	case o.status < 300:
		x.cut, x.carried = false, nil
		o.done()
	}
}

// doubt notes that a request may or may not have been done.
func (x *schedule) doubt(o *op) {
	if o.carries {
		x.carried = append(x.carried, o.touches...)
	}
	for _, p := range o.touches {
		x.forget(p)
	}
}

// send sends a request whose answer may never come.
func (x *schedule) send(o *op) {
	var body io.Reader
	header := ""
	switch b := o.body.(type) {
	case nil:
	case string:
		body = strings.NewReader(b)
	default:
		raw, err := json.Marshal(b)
		if err != nil {
			x.t.Error(err)
			return
		}
		body, header = bytes.NewReader(raw), "application/json"
	}
	req, err := http.NewRequest(o.method, x.srv.URL+"/tasks/"+o.a.task+o.path, body)
	if err != nil {
		x.t.Error(err)
		return
	}
	if header != "" {
		req.Header.Set("Content-Type", header)
	}
	answer := ""
	res, err := x.srv.Client.Do(req)
	if err == nil {
		raw, rerr := io.ReadAll(res.Body)
		res.Body.Close()
		if answer = string(raw); rerr == nil {
			o.status = res.StatusCode
		}
	}
	ids := ""
	for _, w := range o.writes {
		ids += " " + w.id
		w.acked = o.status >= 200 && o.status < 300
	}
	if o.status < 300 {
		answer = ""
	}
	x.say("%s: %s %s%s %v -> %d %.200s", o.a.name, o.method, o.path, ids, o.touches, o.status, answer)
}

// mayBeCarried reports whether the next start may move what the user puts at a path.
func (x *schedule) mayBeCarried(p string) bool {
	return slices.ContainsFunc(x.carried, func(dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") })
}

// below returns the known paths at and below one.
func (x *schedule) below(p string) (list []string) {
	for q := range x.known {
		if p == "" || q == p || strings.HasPrefix(q, p+"/") {
			list = append(list, q)
		}
	}
	return list
}

func (x *schedule) know(p, content string, hard bool) { x.known[p] = known{content, hard} }

func (x *schedule) forget(p string) {
	for _, q := range x.below(p) {
		delete(x.known, q)
	}
}

func (x *schedule) knowGone(p string, hard bool) {
	for _, q := range x.below(p) {
		x.know(q, "", hard)
	}
}

func (x *schedule) knowMoved(p, q string, hard bool) {
	was := make(map[string]known)
	for _, at := range x.below(p) {
		was[at] = x.known[at]
	}
	x.forget(q)
	x.forget(p)
	for at, k := range was {
		x.know(q+strings.TrimPrefix(at, p), k.content, hard && k.hard)
		if at == p {
			x.know(at, "", hard)
		}
	}
}

// unsynced forgets what a power failure may have undone.
func (x *schedule) unsynced() {
	for _, w := range x.written {
		if w.by == user && !w.synced {
			w.gone = true
		}
	}
	for p, k := range x.known {
		if !k.hard {
			delete(x.known, p)
		}
	}
}

// user does something on disk.
func (x *schedule) user() {
	switch n := x.r.IntN(100); {
	case n < 20:
		x.userSave()
	case n < 35:
		x.userAppend()
	case n < 45:
		x.userOverwrite()
	case n < 53:
		x.userRemove(x.name())
	case n < 57:
		x.userRemove(pick(x.r, dirNames))
	case n < 64:
		x.userRename(x.name(), x.name())
	case n < 70:
		x.userRename(pick(x.r, dirNames), pick(x.r, dirNames))
	case n < 77:
		x.hold()
	case n < 80:
		x.holdDir()
	case n < 84:
		x.dirCreate()
	case n < 95:
		x.heldAppend()
	default:
		x.release()
	}
}

func (x *schedule) at(p string) string { return filepath.Join(x.ws, p) }

// syncAbove makes the names that lead to a path durable.
func (x *schedule) syncAbove(p string) error {
	for dir := path.Dir(p); ; dir = path.Dir(dir) {
		if err := syncFile(x.at(dir)); err != nil || dir == "." {
			return err
		}
	}
}

func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// inode returns a file's inode and how many names it has.
func inode(info fs.FileInfo) (ino, names uint64) {
	s := info.Sys().(*syscall.Stat_t)
	return s.Ino, uint64(s.Nlink)
}

// filesAt returns the inodes of the files at and below a path.
func (x *schedule) filesAt(p string) (inos []uint64) {
	_ = filepath.WalkDir(x.at(p), func(_ string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return nil
		}
		if info, err := e.Info(); err == nil {
			ino, _ := inode(info)
			inos = append(inos, ino)
		}
		return nil
	})
	return inos
}

// destroyed notes that the user removed or overwrote files: what the user wrote to
// them is the user's to lose.
func (x *schedule) destroyed(inos []uint64) {
	for _, w := range x.written {
		if w.by == user && slices.Contains(inos, w.ino) {
			w.gone = true
		}
	}
	for _, h := range x.held {
		if x.names(h) == 0 {
			h.lost = true
		}
	}
}

// names is how many names a file has that is held open.
func (x *schedule) names(h *heldFile) uint64 {
	info, err := h.f.Stat()
	if err != nil {
		x.t.Error(err)
		return 1
	}
	_, n := inode(info)
	return n
}

// userDid notes what the user has written to a path.
func (x *schedule) userDid(what, p string, w *written, sync bool, err error) {
	w.gone = w.gone || err != nil
	w.synced = err == nil && sync && x.syncAbove(p) == nil
	x.say("%s: %s %s %s, synced: %v, %v", user, what, p, w.id, w.synced, err)
	if x.cut && err != nil { // what is there is not the user's, and may be recovered yet
		x.forget(p)
		return
	}
	x.reread(p, w.synced)
}

// reread notes what the user sees at a path.
func (x *schedule) reread(p string, hard bool) {
	data, err := os.ReadFile(x.at(p))
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) || x.mayBeCarried(p) {
		x.forget(p)
		return
	}
	x.know(p, string(data), hard && err == nil)
}

// userSave writes a file as an editor does, next to its name, and renames it.
func (x *schedule) userSave() {
	p, w, sync := x.name(), x.text(user), x.r.IntN(2) == 0
	temp := x.at(p) + "~"
	err := os.MkdirAll(filepath.Dir(temp), 0o755)
	if err == nil {
		err = os.WriteFile(temp, []byte(w.text), 0o644)
	}
	if err == nil && sync {
		err = syncFile(temp)
	}
	if err == nil {
		if inos := x.filesAt(p + "~"); len(inos) == 1 {
			w.ino = inos[0]
		}
		was := x.filesAt(p)
		if err = os.Rename(temp, x.at(p)); err == nil {
			x.destroyed(was)
		}
	}
	if err != nil {
		_ = os.Remove(temp)
	}
	x.userDid("save", p, w, sync, err)
}

// userAppend adds to a file.
func (x *schedule) userAppend() { x.userOpens("append", os.O_APPEND) }

// userOverwrite writes a file in place.
func (x *schedule) userOverwrite() { x.userOpens("overwrite", os.O_TRUNC) }

func (x *schedule) userOpens(what string, flag int) {
	p, sync := x.name(), x.r.IntN(2) == 0
	was := x.filesAt(p)
	f, err := os.OpenFile(x.at(p), os.O_WRONLY|flag, 0)
	if err != nil {
		return // not found
	}
	if flag == os.O_TRUNC {
		x.destroyed(was)
	}
	w := x.text(user)
	err = x.write(f, w, sync)
	x.userDid(what, p, w, sync, errors.Join(err, f.Close()))
}

// write writes a text to an open file.
func (x *schedule) write(f *os.File, w *written, sync bool) error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	w.ino, _ = inode(info)
	if _, err = f.WriteString(w.text); err == nil && sync {
		err = f.Sync()
	}
	return err
}

// userRemove removes a file or a directory.
func (x *schedule) userRemove(p string) {
	was := x.filesAt(p)
	err := os.RemoveAll(x.at(p))
	x.destroyed(was)
	x.say("%s: remove %s, %v", user, p, err)
	x.removed(p)
}

// removed notes that the user removed what is at a path. A file that was made since
// the last checkpoint may come back after a power failure: it cannot be told from one
// that never got to the disk.
func (x *schedule) removed(p string) {
	if x.cut || x.mayBeCarried(p) {
		x.forget(p)
		return
	}
	x.knowGone(p, false)
}

// userRename renames a file or a directory, over another if there is one.
func (x *schedule) userRename(p, q string) {
	if p == q {
		return
	}
	was := x.filesAt(q)
	_ = os.MkdirAll(filepath.Dir(x.at(q)), 0o755)
	if err := os.Rename(x.at(p), x.at(q)); err != nil {
		return
	}
	x.destroyed(was)
	sync := x.r.IntN(2) == 0 && x.syncAbove(p) == nil && x.syncAbove(q) == nil
	x.say("%s: rename %s %s, synced: %v", user, p, q, sync)
	if x.cut || x.mayBeCarried(p) || x.mayBeCarried(q) { // what was lost is put back at its old path; a move that was lost is done again
		x.forget(p)
		x.forget(q)
		return
	}
	x.knowMoved(p, q, sync)
	x.removed(p)
}

// hold opens a file and keeps it open.
func (x *schedule) hold() {
	p := x.name()
	if f, err := os.OpenFile(x.at(p), os.O_RDWR|os.O_APPEND, 0); err == nil {
		x.held = append(x.held, &heldFile{f: f, from: p})
		x.say("%s: open %s", user, p)
	}
}

// heldAppend writes through a descriptor, wherever its file is by now.
func (x *schedule) heldAppend() {
	if len(x.held) == 0 {
		return
	}
	h := x.held[x.r.IntN(len(x.held))]
	if x.names(h) == 0 && !h.lost {
		x.t.Errorf("%s is open for writing and was removed by the server", h.from)
	}
	w, sync := x.text(user), x.r.IntN(2) == 0
	err := x.write(h.f, w, sync)
	w.gone, w.synced = err != nil || h.lost, err == nil && sync
	x.say("%s: append through %s %s, synced: %v, %v", user, h.from, w.id, w.synced, err)
	if x.cut && err != nil {
		x.forget("")
		return
	}
	x.forgetFile(w.ino, w.synced)
}

// forgetFile reads again what is known of the paths of a file.
func (x *schedule) forgetFile(ino uint64, hard bool) {
	for p := range x.known {
		if slices.Contains(x.filesAt(p), ino) {
			x.reread(p, hard)
		}
	}
}

// release closes a descriptor.
func (x *schedule) release() {
	if len(x.held) == 0 {
		return
	}
	i := x.r.IntN(len(x.held))
	x.say("%s: close %s", user, x.held[i].from)
	x.held[i].f.Close()
	x.held = slices.Delete(x.held, i, i+1)
}

// holdDir keeps a directory open.
func (x *schedule) holdDir() {
	p := pick(x.r, dirNames)
	if f, err := os.Open(x.at(p)); err == nil {
		x.dirs = append(x.dirs, f)
		x.say("%s: open directory %s", user, p)
	}
}

// dirCreate creates a file in a directory that is held open, wherever that is by now.
func (x *schedule) dirCreate() {
	if len(x.dirs) == 0 {
		return
	}
	dir, name := x.dirs[x.r.IntN(len(x.dirs))], fmt.Sprint("n", x.r.IntN(1<<16))
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return // the directory was removed
	}
	f := os.NewFile(uintptr(fd), name)
	w := x.text(user)
	err = errors.Join(x.write(f, w, false), f.Close())
	w.gone = err != nil
	at, _ := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", dir.Fd()))
	x.say("%s: create %s in %s, opened as %s: %s %v", user, name, at, dir.Name(), w.id, err)
}

func (x *schedule) closeAll() {
	for _, h := range x.held {
		h.f.Close()
	}
	for _, f := range x.dirs {
		f.Close()
	}
	x.held, x.dirs = nil, nil
}
