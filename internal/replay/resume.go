package replay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// progressFile notes the steps as they are done, one JSON object a line after a
// line that says what is replayed: an interrupted replay continues after them. Their changes are applied and proven again, which costs little; their
// commands are not run again. It is removed when the replay has come to its end.
type progressFile struct {
	name  string
	f     *os.File
	w     *bufio.Writer
	done  []Step // of the run before
	each  bool   // steps are costly: each is noted at once
	dirty int
}

// subject is what a progress file is about: another replay does not go on from
// it.
type subject struct {
	Format  int    `json:"umbra_replay"`
	Task    string `json:"task"`
	Base    string `json:"base"`
	Onto    string `json:"onto,omitempty"`
	Rev     string `json:"rev,omitempty"`
	Subtask string `json:"subtask,omitempty"`
	Only    bool   `json:"only,omitempty"`
	Exec    string `json:"exec,omitempty"`
	Branch  string `json:"branch,omitempty"`
}

// flushEvery is how many steps without a command may be lost: they are done
// again.
const flushEvery = 256

// openProgress reads what a run before noted, and goes on writing behind it.
func openProgress(name string, s subject, each bool) (*progressFile, error) {
	head, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	head = append(head, '\n')
	p := &progressFile{name: name, each: each}
	data, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	good := len(head)
	if !bytes.HasPrefix(data, head) {
		if len(data) > 0 && bytes.HasSuffix(data, []byte("\n")) {
			return nil, fmt.Errorf("%s is of another replay: remove it to start over", name)
		}
		data = head // nothing, or a first line that was cut off
	}
	for line := range bytes.Lines(data[len(head):]) {
		var step Step
		if !bytes.HasSuffix(line, []byte("\n")) || json.Unmarshal(line, &step) != nil || step.Number != len(p.done)+1 {
			break // cut off while it was written
		}
		p.done = append(p.done, step)
		good += len(line)
	}
	if p.f, err = os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, err
	}
	if err = p.f.Truncate(int64(good)); err == nil {
		_, err = p.f.WriteAt(head, 0)
	}
	if err == nil {
		_, err = p.f.Seek(int64(good), 0)
	}
	if err != nil {
		p.f.Close()
		return nil, err
	}
	p.w = bufio.NewWriter(p.f)
	return p, nil
}

// before gives what a step came to in the run before; ok is false for one that
// is new.
func (p *progressFile) before(s *Step) (done Step, ok bool, err error) {
	if p == nil || s.Number > len(p.done) {
		return Step{}, false, nil
	}
	done = p.done[s.Number-1]
	if done.Commit != s.Commit {
		return done, false, fmt.Errorf("%s is of another history: its step %d is commit %s, not %s", p.name, s.Number, done.Commit, s.Commit)
	}
	return done, true, nil
}

// note writes a step down.
func (p *progressFile) note(s *Step) error {
	if p == nil {
		return nil
	}
	line, err := json.Marshal(s)
	if err != nil {
		return err
	}
	p.w.Write(line) // a failure stays, and Flush gives it
	p.w.WriteByte('\n')
	if p.dirty++; p.each || p.dirty >= flushEvery {
		p.dirty = 0
		return p.w.Flush()
	}
	return nil
}

// close keeps the file for a run that goes on, and removes it once there is
// nothing to go on with.
func (p *progressFile) close(finished bool) error {
	if p == nil {
		return nil
	}
	err := errors.Join(p.w.Flush(), p.f.Close())
	if finished && err == nil {
		err = os.Remove(p.name)
	}
	return err
}
