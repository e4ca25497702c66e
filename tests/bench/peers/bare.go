package peers

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// The names of the bare subjects: what the disk asks of anybody.
const (
	NameAppend   = "bare append + fdatasync"
	NameExchange = "bare file exchange"
)

const (
	// appendBytes is about what a small change comes to in a journal:
	// compressed blob, trees as deltas, commit.
	appendBytes = 1500
	appendFile  = 64 << 20
)

// bareAppend writes into a file that was filled with zeros and synced before:
// no block is allocated, and its length does not change.
type bareAppend struct {
	f    *os.File
	at   int64
	data []byte
}

// Append makes the subject.
func Append(p Params) (measure.Subject, error) {
	dir, err := p.Env.Dir("append")
	if err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, "journal"))
	if err != nil {
		return nil, err
	}
	p.Env.Defer("journal", f.Close)
	zeros := make([]byte, 1<<20)
	for range appendFile / len(zeros) {
		if _, err := f.Write(zeros); err != nil {
			return nil, err
		}
	}
	data := corpus.Content(0, 1)
	for len(data) < appendBytes {
		data = append(data, data...)
	}
	return &bareAppend{f: f, data: data[:appendBytes]}, f.Sync()
}

func (b *bareAppend) Name() string    { return NameAppend }
func (b *bareAppend) Durable() string { return "the appended bytes" }
func (b *bareAppend) OneAtATime()     {}

func (b *bareAppend) Change(context.Context, int, corpus.Change) error {
	if b.at+appendBytes > appendFile {
		b.at = 0
	}
	if _, err := b.f.WriteAt(b.data, b.at); err != nil {
		return err
	}
	b.at += appendBytes
	return dataSync(b.f)
}

// bareExchange puts new bytes in place of a file as safely as can be without
// waiting for the disk: temporary file, its write-out started, exchange, the
// old file gone.
type bareExchange struct {
	dir  string
	next atomic.Uint64
}

// Exchange makes the subject.
func Exchange(p Params) (measure.Subject, error) {
	dir, err := project(p, "exchange-work")
	return &bareExchange{dir: dir}, err
}

func (b *bareExchange) Name() string { return NameExchange }
func (b *bareExchange) Durable() string {
	return "nothing yet; after a power cut the old file or the new"
}

func (b *bareExchange) Change(_ context.Context, _ int, c corpus.Change) error {
	target := filepath.Join(b.dir, c.Path)
	temp := filepath.Join(filepath.Dir(target), ".exchange-"+strconv.FormatUint(b.next.Add(1), 16))
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(c.Data)
	err = errors.Join(err, writeOut(f), f.Close())
	if err != nil {
		return err
	}
	if err := exchange(temp, target); err != nil {
		return err
	}
	return os.Remove(temp)
}
