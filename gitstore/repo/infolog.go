package repo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"

	"umbra/gitstore/inuse"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/storedir"
	"umbra/internal/vfs"
)

// infoLog gathers lines for the reflogs of the tasks' info refs: the tags that
// newer ones superseded. With them these are no dangling objects in
// git-fsck(1)'s eyes, and people can look at what a task said before: git
// reflog show refs/umbra/tasks/<task>/info. Nothing depends on it: it is not
// synced, a failure is only logged, and what a kill takes along is not made up
// for.
//
// A git-fsck that listed the packs before the tag's was there, and reads the
// reflog after, calls the entry invalid (of a ref it would look the object up
// again). So lines are written while no other process is at work in the
// repository.
type infoLog struct {
	// Moving is held while lines go from here to a file: a reader that needs all
	// of them holds it.
	Moving sync.Mutex

	mu    sync.Mutex
	lines map[string][]byte // by task
	bytes int
}

// maxInfoLog bounds the bytes that wait where processes are always at work.
const maxInfoLog = 1 << 20

// LogInfo has a published record's superseded info tags written to the reflog
// soon. The task remembers only those that came since.
func (r *Repo) LogInfo(t *Task) {
	if len(t.Past) == 0 {
		return
	}
	defer r.dropPast(t)
	name, email := message.Committer()
	when := r.Now().Unix()
	var lines []byte
	before := object.ID{}
	for _, id := range append(t.Past[:len(t.Past):len(t.Past)], t.InfoTag) {
		lines = fmt.Appendf(lines, "%s %s %s <%s> %d +0000\tinfo\n", before, id, name, email, when)
		before = id
	}
	l := &r.InfoLog
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.bytes+len(lines) > maxInfoLog {
		return
	}
	if l.lines == nil {
		l.lines = make(map[string][]byte)
	}
	l.lines[t.ID] = append(l.lines[t.ID], lines...)
	l.bytes += len(lines)
}

func (r *Repo) dropPast(t *Task) {
	r.TaskMap.Mu.Lock()
	defer r.TaskMap.Mu.Unlock()
	if now := r.TaskMap.ByID[t.ID]; now != nil {
		c := *now
		c.Past = nil
		if i := slices.Index(now.Past, t.InfoTag); i >= 0 {
			c.Past = now.Past[i:]
		}
		r.TaskMap.ByID[t.ID] = &c
	}
}

func (l *infoLog) Waiting() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bytes > 0
}

// WriteInfoLog writes what waits, if no other process works in the repository.
func (r *Repo) WriteInfoLog(ctx context.Context) error {
	l := &r.InfoLog
	l.Moving.Lock() // also where nothing waits: another may be writing what did
	defer l.Moving.Unlock()
	// Taken before it is looked whether anybody is there: of a tag that is
	// published after that look, one who came after it may not know. One who came
	// after this knows all of these.
	lines := l.take()
	if len(lines) == 0 {
		return nil
	}
	if busy, err := r.atWork(ctx); busy || err != nil && !errors.Is(err, inuse.ErrUndecided) {
		l.putBack(lines)
		return err
	}
	for task, text := range lines {
		if err := r.appendLog(path.Join(storedir.Repo, "logs", storedir.Tasks, task, "info"), text); err != nil {
			r.Log.Warn("reflog of a task's record not written", "task", task, "error", err)
		}
	}
	return nil
}

func (r *Repo) appendLog(name string, lines []byte) error {
	f, err := r.FS.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if errors.Is(err, fs.ErrNotExist) {
		if err = vfs.MkdirAll(r.FS, path.Dir(name), 0o755); err == nil {
			f, err = r.FS.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write(lines)
	return errors.Join(err, f.Close())
}

// take gives all lines that wait.
func (l *infoLog) take() map[string][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := l.lines
	l.lines, l.bytes = nil, 0
	return lines
}

// putBack has lines wait again, before those that came since.
func (l *infoLog) putBack(lines map[string][]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines == nil {
		l.lines = make(map[string][]byte)
	}
	for task, text := range lines {
		l.lines[task] = append(text, l.lines[task]...)
		l.bytes += len(text)
	}
}

// Forget drops the lines of a task.
func (l *infoLog) Forget(task string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.bytes -= len(l.lines[task])
	delete(l.lines, task)
}

// Named gives the ids that the waiting lines of each task name.
func (l *infoLog) Named() map[string][]object.ID {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make(map[string][]object.ID, len(l.lines))
	for task, lines := range l.lines {
		out[task] = ReflogIDs(lines)
	}
	return out
}

// ReflogIDs gives the ids that a reflog's lines name.
func ReflogIDs(lines []byte) (out []object.ID) {
	for line := range bytes.Lines(lines) {
		for _, word := range bytes.SplitN(line, []byte(" "), 3)[:min(2, bytes.Count(line, []byte(" "))+1)] {
			if id, err := object.ParseID(string(word)); err == nil && !id.IsZero() {
				out = append(out, id)
			}
		}
	}
	return out
}

// Rename puts other ids in place of those that the waiting lines name.
func (l *infoLog) Rename(to map[object.ID]object.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for task, lines := range l.lines {
		for _, id := range ReflogIDs(lines) {
			if now, ok := to[id]; ok {
				lines = bytes.ReplaceAll(lines, []byte(id.String()), []byte(now.String()))
			}
		}
		l.lines[task] = lines
	}
}

// DropInfoLog removes the reflog of a task's info, and what waits to be written
// to it.
func (r *Repo) DropInfoLog(task string) error {
	r.InfoLog.Moving.Lock()
	defer r.InfoLog.Moving.Unlock()
	r.InfoLog.Forget(task)
	name := path.Join(storedir.Repo, "logs", storedir.Tasks, task, "info")
	if err := storedir.Remove(r.FS, name); err != nil {
		return err
	}
	// The folders above it are removed too if they are empty.
	for dir := path.Dir(name); strings.HasPrefix(dir, path.Join(storedir.Repo, "logs", storedir.Tasks)+"/"); dir = path.Dir(dir) {
		if r.FS.Remove(dir) != nil {
			break
		}
	}
	return nil
}
