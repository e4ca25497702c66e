package state

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"sync"
	"time"
)

// Answer is what a request with an idempotency key was answered.
type Answer struct {
	Fingerprint [sha256.Size]byte `json:"fingerprint"` // of the whole request
	// Status is 0 where the request was done and its answer is to be made from that; with
	// a Body, where it was begun: that is its note.
	Status int                 `json:"status"`
	Header map[string][]string `json:"header"`
	Body   []byte              `json:"body"`
	At     time.Time           `json:"at"`
}

const (
	answersBucket = "answers"         // key → Answer
	answersByTime = "answers_by_time" // time and key → nothing, to drop the old ones
	answerLife    = 24 * time.Hour
	flushEvery    = 200 * time.Millisecond
	pruneEvery    = 10 * time.Minute
	maxPending    = 32 << 20 // bytes that wait for the store
	pruneAtOnce   = 10_000
)

// Answers keeps the answers to idempotency keys for a day.
//
// An answer must outlive a kill before it goes out, and bbolt's two fsyncs are
// too dear for that: so it is appended to a log first (which a kill leaves in
// the kernel's memory), and moved into the store with others a moment later. A
// power cut may lose the last of them; who cannot bear that asks for durable.
// The log is emptied when the store has all that it holds.
//
// In a shared store each answer is written at once, so that each process has it.
type Answers struct {
	db  *DB
	now func() time.Time

	mu      sync.Mutex
	log     *os.File // nil in a shared store
	size    int64    // of the log's good part
	pending map[[sha256.Size]byte]Answer
	waiting int // bytes of what is pending

	flushing sync.Mutex // one moves what is pending

	stop chan struct{}
	done chan struct{}
}

// OpenAnswers opens the answers of a store; what a log of before holds is taken
// into it.
func OpenAnswers(db *DB, logPath string) (*Answers, error) {
	if db.Shared() {
		a := &Answers{db: db, now: time.Now, stop: make(chan struct{}), done: make(chan struct{})}
		go a.run()
		return a, nil
	}
	f, err := os.OpenFile(logPath, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state: %w", err)
	}
	a := &Answers{db: db, now: time.Now, log: f, pending: map[[sha256.Size]byte]Answer{}, stop: make(chan struct{}), done: make(chan struct{})}
	if err := errors.Join(a.readLog(), a.flush(), a.prune()); err != nil {
		f.Close()
		return nil, err
	}
	go a.run()
	return a, nil
}

// run moves what is pending into the store, and drops what is old.
func (a *Answers) run() {
	defer close(a.done)
	flush, prune := time.NewTicker(flushEvery), time.NewTicker(pruneEvery)
	defer flush.Stop()
	defer prune.Stop()
	for {
		select {
		case <-a.stop:
			return
		case <-flush.C:
			_ = a.flush() // the log still has them; the next time tries again
		case <-prune.C:
			_ = a.prune() // old answers are not given anyway
		}
	}
}

// Close stores what is pending.
func (a *Answers) Close() error {
	close(a.stop)
	<-a.done
	if a.log == nil {
		return nil
	}
	err := a.flush()
	return errors.Join(err, a.log.Close())
}

// Answer gives what is kept for a key and is not older than a day.
func (a *Answers) Answer(key [sha256.Size]byte) (Answer, bool, error) {
	a.mu.Lock()
	ans, ok := a.pending[key]
	a.mu.Unlock()
	if !ok {
		var err error
		if ok, err = a.db.Get(answersBucket, string(key[:]), &ans); err != nil {
			return Answer{}, false, err
		}
	}
	if age := a.now().Sub(ans.At); !ok || age >= answerLife {
		return Answer{}, false, nil
	}
	return ans, true, nil
}

// BeginKey is DB.BeginKey.
func (a *Answers) BeginKey(hash string, key, fingerprint [sha256.Size]byte, at time.Time) (end func()) {
	return a.db.BeginKey(hash, key, fingerprint, at)
}

// KeepAnswer keeps an answer: over a kill when it returns, and, if durable is
// asked for, over a power cut.
func (a *Answers) KeepAnswer(key [sha256.Size]byte, ans Answer, durable bool) error {
	if a.log == nil {
		return a.db.Update(func(tx *Tx) error { return tx.putAnswer(key, ans) })
	}
	rec, err := encodeRecord(key, ans)
	if err != nil {
		return err
	}
	if a.append(key, ans, rec) && (!durable || a.log.Sync() == nil) {
		return nil
	}
	return a.db.Update(func(tx *Tx) error { return tx.putAnswer(key, ans) })
}

// append puts an answer at the log's end. It does not where the store is far
// behind, or the log fails; what the log then may hold of the record is written
// over by the next one.
func (a *Answers) append(key [sha256.Size]byte, ans Answer, rec []byte) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting > maxPending {
		return false
	}
	if _, err := a.log.WriteAt(rec, a.size); err != nil {
		return false
	}
	a.size += int64(len(rec))
	a.waiting += len(rec)
	a.pending[key] = ans
	return true
}

// Flush moves what is pending into the store: what was answered before is there
// when it returns.
func (a *Answers) Flush() error { return a.flush() }

func (a *Answers) flush() error {
	a.flushing.Lock()
	defer a.flushing.Unlock()
	a.mu.Lock()
	batch := make(map[[sha256.Size]byte]Answer, len(a.pending))
	maps.Copy(batch, a.pending)
	taken := a.waiting
	a.mu.Unlock()
	if len(batch) == 0 {
		return nil
	}
	err := a.db.Update(func(tx *Tx) error {
		for k, v := range batch {
			if err := tx.putAnswer(k, v); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for k, v := range batch {
		if a.pending[k].At.Equal(v.At) {
			delete(a.pending, k)
		}
	}
	a.waiting -= taken
	if len(a.pending) == 0 {
		a.waiting, a.size = 0, 0
		return a.log.Truncate(0)
	}
	return nil
}

func (tx *Tx) putAnswer(key [sha256.Size]byte, ans Answer) error {
	if err := tx.b.Put(answersByTime, timeOf(ans.At, key), []byte{}); err != nil {
		return err
	}
	return tx.Put(answersBucket, string(key[:]), ans)
}

// Forget drops the answers for which named holds, and reports how many. What they
// held may stay in free pages of the file until these are used again.
func (a *Answers) Forget(named func(*Answer) bool) (n int, err error) {
	if err := a.flush(); err != nil {
		return 0, err
	}
	err = a.db.Update(func(tx *Tx) error {
		var gone []string
		err := tx.ForEach(answersBucket, "", func(key string, raw []byte) (bool, error) {
			var ans Answer
			if json.Unmarshal(raw, &ans) == nil && named(&ans) {
				gone = append(gone, key)
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		n = len(gone)
		for _, key := range gone {
			if err := tx.Delete(answersBucket, key); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// prune drops what is older than a day.
func (a *Answers) prune() error {
	oldest := a.now().Add(-answerLife)
	return a.db.Update(func(tx *Tx) error {
		var old []string
		err := tx.ForEach(answersByTime, "", func(entry string, _ []byte) (bool, error) {
			if len(entry) == 8+sha256.Size && int64(binary.BigEndian.Uint64([]byte(entry[:8]))) > oldest.UnixNano() {
				return false, nil
			}
			old = append(old, entry)
			return len(old) < pruneAtOnce, nil
		})
		if err != nil {
			return err
		}
		for _, entry := range old {
			if err := tx.dropAnswer(entry, oldest); err != nil {
				return err
			}
		}
		return nil
	})
}

// dropAnswer drops an entry of the times, and its answer unless the key was
// used again since.
func (tx *Tx) dropAnswer(entry string, oldest time.Time) error {
	if len(entry) == 8+sha256.Size {
		raw, found, err := tx.b.Get(answersBucket, entry[8:])
		if err != nil {
			return err
		}
		var ans Answer
		if found && json.Unmarshal(raw, &ans) == nil && !ans.At.After(oldest) {
			if err := tx.Delete(answersBucket, entry[8:]); err != nil {
				return err
			}
		}
	}
	return tx.Delete(answersByTime, entry)
}

// A record of the log: length and CRC-32C of what follows, the key, the answer
// as JSON.
const recordHead = 8

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

func encodeRecord(key [sha256.Size]byte, ans Answer) ([]byte, error) {
	raw, err := json.Marshal(ans)
	if err != nil {
		return nil, err
	}
	rec := make([]byte, recordHead, recordHead+len(key)+len(raw))
	rec = append(append(rec, key[:]...), raw...)
	binary.LittleEndian.PutUint32(rec, uint32(len(rec)-recordHead))
	binary.LittleEndian.PutUint32(rec[4:], castagnoli(rec[recordHead:]))
	return rec, nil
}

// readLog takes the log's records up to the first that is not whole: a kill or
// a cut may have torn the last.
func (a *Answers) readLog() error {
	data, err := io.ReadAll(a.log)
	if err != nil {
		return err
	}
	for len(data) >= recordHead {
		n := int(binary.LittleEndian.Uint32(data))
		if n < sha256.Size || n > len(data)-recordHead {
			break
		}
		body := data[recordHead : recordHead+n]
		if castagnoli(body) != binary.LittleEndian.Uint32(data[4:]) {
			break
		}
		var ans Answer
		if json.Unmarshal(body[sha256.Size:], &ans) != nil {
			break
		}
		a.pending[[sha256.Size]byte(body[:sha256.Size])] = ans
		a.size += int64(recordHead + n)
		data = data[recordHead+n:]
	}
	a.waiting = int(a.size)
	return nil
}
