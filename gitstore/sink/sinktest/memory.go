// Package sinktest has a Sink in memory that can fail in every way that a Sink may,
// and the tests that every Sink must pass (Run).
package sinktest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"sync"

	"umbra/gitstore/sink"
)

// Memory is the log of one workspace and its objects. Its methods may be called
// from any goroutine.
type Memory struct {
	// OnCall, if set, is called before each call of a Sink, without a lock, and says
	// how it goes. It may wait, or claim the workspace for another.
	OnCall func(Call) Fault

	mu       sync.Mutex
	epoch    uint64
	calls    int
	manifest []byte // encoded; nil: none
	groups   map[uint64][]byte
	last     uint64
	records  map[string][]byte
	objects  map[string][]byte
	stale    map[string]bool // put too long ago
	dropped  []string
	purged   []string
	puts     int
}

// Call is one call of a Sink.
type Call struct {
	N    int    // from 1
	Op   string // "tail", "append", "put", "swap", "fetch"
	Name string // of the object that is fetched
	// Bytes is how many bytes of it are fetched; -1: all.
	Bytes int64
}

// Fault says how a call goes.
type Fault int

// The faults. A call that a sink of an older epoch makes is fenced in any case.
const (
	None       Fault = iota
	Refused          // nothing is done, and the caller knows
	UnknownNot       // nothing is done, and the caller does not know
	UnknownIs        // it is done, and the caller does not know
	FencedIs         // it is done, then another takes the workspace, and the caller knows the latter
	FencedNot        // another takes the workspace before
	StaleOnce        // append, swap: the objects named for the first time are too old, until put again
	Torn             // fetch: the body ends early
)

// NewMemory makes an empty log.
func NewMemory() *Memory {
	return &Memory{groups: make(map[uint64][]byte), records: make(map[string][]byte), objects: make(map[string][]byte), stale: make(map[string]bool)}
}

// Claim takes the workspace over and returns the new owner's Sink: from now on those
// of before are fenced.
func (m *Memory) Claim() sink.Sink {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.claimLocked()
}

func (m *Memory) claimLocked() *memorySink {
	m.epoch++
	if m.epoch > 1 {
		m.last++
		m.groups[m.last] = nil
	}
	return &memorySink{m: m, epoch: m.epoch}
}

// Clone returns a copy as it is now, without OnCall.
func (m *Memory) Clone() *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{epoch: m.epoch, manifest: m.manifest, groups: maps.Clone(m.groups), last: m.last, records: maps.Clone(m.records),
		objects: maps.Clone(m.objects), stale: maps.Clone(m.stale), dropped: slices.Clone(m.dropped), purged: slices.Clone(m.purged), puts: m.puts}
}

// Calls returns how many calls there were.
func (m *Memory) Calls() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls
}

// Record returns the value of a record.
func (m *Memory) Record(bucket, key string) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.records[bucket+"\x00"+key]
	return v, ok
}

// Manifest returns the manifest, nil if there is none yet.
func (m *Memory) Manifest() *sink.Manifest {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.manifestLocked()
}

func (m *Memory) manifestLocked() *sink.Manifest {
	if m.manifest == nil {
		return nil
	}
	out, err := sink.DecodeManifest(m.manifest)
	if err != nil {
		panic(err)
	}
	return out
}

// Unsealed returns how many groups the log holds, those of claims left out.
func (m *Memory) Unsealed() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, data := range m.groups {
		if len(data) > 0 {
			n++
		}
	}
	return n
}

// Dropped returns the objects that were handed to the sweeper, and of them those of
// purges.
func (m *Memory) Dropped() (all, purged []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.dropped), slices.Clone(m.purged)
}

// Sweep removes what was dropped, and what no group and no manifest names.
func (m *Memory) Sweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	named := make(map[string]bool)
	for _, name := range m.named() {
		named[name] = true
	}
	maps.DeleteFunc(m.objects, func(name string, _ []byte) bool { return !named[name] })
}

// Objects returns the objects by name. The bytes are not to be changed.
func (m *Memory) Objects() map[string][]byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.objects)
}

// Lose removes an object that is named.
func (m *Memory) Lose(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, name)
}

// Damaged describes each object that is named and not there, empty if all is well.
func (m *Memory) Damaged() (out []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range m.named() {
		if m.objects[name] == nil {
			out = append(out, "no object "+name)
		}
	}
	return out
}

// named lists the objects that the manifest and the groups name.
func (m *Memory) named() (out []string) {
	if man := m.manifestLocked(); man != nil {
		out = man.Objects()
	}
	for pos, data := range m.groups {
		g, err := sink.DecodeGroup(pos, data)
		if err != nil {
			panic(err)
		}
		for _, p := range g.Packs {
			out = append(out, p.Name)
		}
	}
	return out
}

// memorySink is a Memory in the hands of one owner.
type memorySink struct {
	m     *Memory
	epoch uint64
}

var errInjected = errors.New("injected")

// begin counts a call, and asks how it goes.
func (s *memorySink) begin(op, name string, bytes int64) Fault {
	m := s.m
	m.mu.Lock()
	m.calls++
	n := m.calls
	m.mu.Unlock()
	if m.OnCall == nil {
		return None
	}
	return m.OnCall(Call{N: n, Op: op, Name: name, Bytes: bytes})
}

// change runs a change of the log by its fault: do is called with the lock held.
func (s *memorySink) change(f Fault, fresh []string, do func() error) error {
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if f == FencedNot {
		m.claimLocked()
	}
	if m.epoch != s.epoch {
		return sink.Fenced(true, nil)
	}
	switch f {
	case Refused:
		return sink.Unavailable("unreachable", errInjected)
	case UnknownNot:
		return sink.Unknown(errInjected)
	case StaleOnce:
		for _, name := range fresh {
			m.stale[name] = true
		}
	}
	for _, name := range fresh {
		if m.stale[name] {
			return sink.Stale(name)
		}
		if m.objects[name] == nil {
			return sink.Missing(name)
		}
	}
	if err := do(); err != nil {
		return err
	}
	switch f {
	case UnknownIs:
		return sink.Unknown(errInjected)
	case FencedIs:
		m.claimLocked()
		return sink.Fenced(false, nil)
	}
	return nil
}

func (s *memorySink) Tail(ctx context.Context) (*sink.Tail, error) {
	f := s.begin("tail", "", 0)
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if f == FencedNot || f == FencedIs {
		m.claimLocked()
	}
	if m.epoch != s.epoch {
		return nil, sink.Fenced(true, nil)
	}
	if f != None {
		return nil, sink.Unavailable("unreachable", errInjected)
	}
	t := &sink.Tail{Manifest: m.manifestLocked()}
	for _, pos := range slices.Sorted(maps.Keys(m.groups)) {
		g, err := sink.DecodeGroup(pos, bytes.Clone(m.groups[pos]))
		if err != nil {
			return nil, err
		}
		t.Groups = append(t.Groups, g)
	}
	return t, ctx.Err()
}

func (s *memorySink) Append(g *sink.Group) error {
	f := s.begin("append", "", 0)
	data := g.AppendTo(nil)
	var fresh []string
	for _, p := range g.Packs {
		fresh = append(fresh, p.Name)
	}
	m := s.m
	return s.change(f, fresh, func() error {
		if g.Pos != m.last+1 {
			panic(fmt.Sprintf("group at position %d after %d", g.Pos, m.last))
		}
		m.last, m.groups[g.Pos] = g.Pos, data
		for _, r := range g.Records {
			key := r.Bucket + "\x00" + string(r.Key)
			if r.Value == nil {
				delete(m.records, key)
			} else {
				m.records[key] = bytes.Clone(r.Value)
			}
		}
		return nil
	})
}

func (s *memorySink) Put(ctx context.Context, r io.ReaderAt, size int64) (string, error) {
	f := s.begin("put", "", 0)
	data := make([]byte, size)
	if n, err := r.ReadAt(data, 0); int64(n) < size {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	m := s.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if f == FencedNot || f == FencedIs {
		m.claimLocked()
	}
	if m.epoch != s.epoch {
		return "", sink.Fenced(true, nil)
	}
	if f == Refused || f == UnknownNot {
		return "", sink.BlobsUnavailable(errInjected)
	}
	m.puts++
	name := fmt.Sprintf("%d-%d", s.epoch, m.puts)
	m.objects[name] = data
	if f == UnknownIs {
		return "", sink.BlobsUnavailable(errInjected)
	}
	return name, nil
}

func (s *memorySink) Swap(ctx context.Context, sw *sink.Switch) error {
	f := s.begin("swap", "", 0)
	m := s.m
	data := sw.Manifest.Encode()
	m.mu.Lock()
	old := m.manifestLocked()
	known := make(map[string]bool)
	for _, name := range m.named() {
		known[name] = true
	}
	m.mu.Unlock()
	var fresh []string
	for _, name := range sw.Manifest.Objects() {
		if !known[name] {
			fresh = append(fresh, name)
		}
	}
	return s.change(f, fresh, func() error {
		version := uint64(0)
		if old != nil {
			version = old.Version
		}
		switch sw.Manifest.Version {
		case version:
			if !bytes.Equal(data, m.manifest) {
				panic("another switch with the version of the last")
			}
			return nil
		case version + 1:
		default:
			panic(fmt.Sprintf("version %d after %d", sw.Manifest.Version, version))
		}
		if sw.Manifest.Base > m.last {
			panic(fmt.Sprintf("base %d, the log ends at %d", sw.Manifest.Base, m.last))
		}
		m.manifest = data
		maps.DeleteFunc(m.groups, func(pos uint64, _ []byte) bool { return pos <= sw.Manifest.Base })
		m.dropped = append(m.dropped, sw.Drop...)
		if sw.Purge {
			m.purged = append(m.purged, sw.Drop...)
		}
		return nil
	})
}

func (s *memorySink) Fetch(ctx context.Context, name string, off, n int64) (io.ReadCloser, error) {
	f := s.begin("fetch", name, n)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if f != None && f != Torn {
		return nil, sink.BlobsUnavailable(errInjected)
	}
	s.m.mu.Lock()
	defer s.m.mu.Unlock()
	data, ok := s.m.objects[name]
	if !ok {
		return nil, sink.Missing(name)
	}
	rest := data[min(max(off, 0), int64(len(data))):]
	if n < 0 {
		n = int64(len(rest))
	}
	short := int64(len(rest)) < n
	rest = rest[:min(n, int64(len(rest)))]
	if f == Torn && len(rest) > 0 {
		rest, short = rest[:len(rest)/2], true
	}
	if short {
		return io.NopCloser(io.MultiReader(bytes.NewReader(rest), failing{})), nil
	}
	return io.NopCloser(bytes.NewReader(rest)), nil
}

// failing is the end of a body that came short.
type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
