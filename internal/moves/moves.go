// Package moves records which directories a change set renames, so that a start
// after a crash finds each of them by its inode and finishes the renames as the
// renames that they are: what is in no history goes along.
//
// A record is durable before the first rename, and the renames are durable before
// the change set counts as settled. So of two records that name one directory only
// the later can be unfinished. A checkpoint removes the records that it covers.
package moves

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Dir is the directory of the records, in a workspace's part of the data directory.
const Dir = "moves"

// Step is one rename, or an exchange of two names.
type Step struct {
	Swap     bool
	Ino      uint64 // of what is at From before and at To after
	Other    uint64 // Swap: of what is at To before
	From, To wspath.Path
}

// Inverse returns the steps that undo steps.
func Inverse(steps []Step) []Step {
	out := make([]Step, 0, len(steps))
	for _, s := range slices.Backward(steps) {
		if !s.Swap {
			s.From, s.To = s.To, s.From
		} else {
			s.Ino, s.Other = s.Other, s.Ino
		}
		out = append(out, s)
	}
	return out
}

// Record is what one change set renames.
type Record struct {
	Seq   uint64 // of its commit
	Steps []Step // in order
}

const magic = "umbra moves 1"

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Write makes a record durable. files is the workspace's part of the data
// directory.
func Write(files vfs.FS, r Record) error {
	var b strings.Builder
	for _, s := range r.Steps {
		word := "rename"
		if s.Swap {
			word = "swap"
		}
		fmt.Fprintf(&b, "%s %d %d %q %q\n", word, s.Ino, s.Other, string(s.From), string(s.To))
	}
	head := fmt.Sprintf("%s %08x\n", magic, crc32.Checksum([]byte(b.String()), castagnoli))
	name := Dir + "/" + strconv.FormatUint(r.Seq, 10)
	const flags = os.O_RDWR | os.O_CREATE | os.O_TRUNC
	f, err := files.OpenFile(name, flags, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err = files.Mkdir(Dir, 0o700); err == nil || errors.Is(err, fs.ErrExist) {
			if err = files.SyncDir("."); err == nil {
				f, err = files.OpenFile(name, flags, 0o600)
			}
		}
	}
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(head + b.String()))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = files.SyncDir(Dir)
	}
	if err != nil {
		_ = files.Remove(name)
	}
	return err
}

// Read returns the records after a commit, in their order. One that is torn was
// not durable, so nothing was renamed: it is left out.
func Read(files vfs.FS, after uint64) ([]Record, error) {
	entries, err := files.ReadDir(Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var out []Record
	for _, e := range entries {
		seq, err := strconv.ParseUint(e.Name, 10, 64)
		if err != nil || seq <= after {
			continue
		}
		data, err := vfs.ReadFile(files, Dir+"/"+e.Name)
		if err != nil {
			return nil, err
		}
		if steps, ok := parse(string(data)); ok {
			out = append(out, Record{Seq: seq, Steps: steps})
		}
	}
	slices.SortFunc(out, func(a, b Record) int {
		if a.Seq < b.Seq {
			return -1
		}
		return 1
	})
	return out, nil
}

func parse(data string) (steps []Step, ok bool) {
	head, body, _ := strings.Cut(data, "\n")
	if head != fmt.Sprintf("%s %08x", magic, crc32.Checksum([]byte(body), castagnoli)) {
		return nil, false
	}
	for line := range strings.Lines(body) {
		var word, from, to string
		var s Step
		if n, err := fmt.Sscanf(line, "%s %d %d %q %q\n", &word, &s.Ino, &s.Other, &from, &to); err != nil || n != 5 {
			return nil, false
		}
		s.Swap, s.From, s.To = word == "swap", wspath.Path(from), wspath.Path(to)
		steps = append(steps, s)
	}
	return steps, true
}

// Drop removes the records up to a commit. One that stays is removed the next
// time.
func Drop(files vfs.FS, through uint64) {
	entries, err := files.ReadDir(Dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		if seq, err := strconv.ParseUint(e.Name, 10, 64); err == nil && seq <= through {
			_ = files.Remove(Dir + "/" + e.Name)
		}
	}
}

// Unfinished returns the records without those steps whose directory a later
// record names: they are on disk.
func Unfinished(list []Record) []Record {
	later := make(map[uint64]bool)
	out := slices.Clone(list)
	for i := range slices.Backward(out) {
		steps := slices.DeleteFunc(slices.Clone(out[i].Steps), func(s Step) bool { return later[s.Ino] || s.Swap && later[s.Other] })
		for _, s := range out[i].Steps {
			later[s.Ino] = true
			if s.Swap {
				later[s.Other] = true
			}
		}
		out[i].Steps = steps
	}
	return out
}
