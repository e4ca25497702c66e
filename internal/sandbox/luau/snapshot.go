package luau

import (
	"bytes"
	"sync"
)

// snapshot is what the prelude makes of a fresh interpreter. Compiling and
// running it takes longer than most scripts do, and it comes to the same each
// time: it is done once, and the next states begin with its memory.
//
// Between two calls the whole state of an interpreter is in its memory; the rest
// (the address of its stack) is as at its start again.
type snapshot struct {
	size  uint32 // of the memory, in bytes
	parts []part // what differs from the memory of a fresh instance

	state, box uint32
	run        string // number of the prelude's function that runs a script
}

// part is some pages of memory.
type part struct {
	at   uint32
	data []byte
}

const (
	pageSize     = 4 << 10
	wasmPage     = 64 << 10
	mostPrepared = 8 // sets of functions; a server has one or two
)

// prepared keeps snapshots, by the names of the caller's functions.
type prepared struct {
	mu   sync.Mutex
	made map[string]*snapshot
}

func (p *prepared) get(names []byte) *snapshot {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made[string(names)]
}

func (p *prepared) put(names []byte, s *snapshot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.made) >= mostPrepared || p.made == nil {
		p.made = map[string]*snapshot{}
	}
	p.made[string(names)] = s
}

// take makes a snapshot of a script whose prelude has run; fresh is the memory
// as it was at the start.
func (s *script) take(fresh []byte) *snapshot {
	m := s.memory()
	snap := &snapshot{size: uint32(len(m)), state: s.state, box: s.box, run: s.main}
	zero := make([]byte, pageSize)
	for at := 0; at < len(m); at += pageSize {
		page, was := m[at:at+pageSize], zero
		if at < len(fresh) {
			was = fresh[at : at+pageSize]
		}
		if bytes.Equal(page, was) {
			continue
		}
		if n := len(snap.parts); n > 0 && int(snap.parts[n-1].at)+len(snap.parts[n-1].data) == at {
			snap.parts[n-1].data = append(snap.parts[n-1].data, page...)
			continue
		}
		snap.parts = append(snap.parts, part{at: uint32(at), data: bytes.Clone(page)})
	}
	return snap
}

// restore begins a script with a snapshot.
func (s *script) restore(snap *snapshot) error {
	if _, err := s.do("emscripten_stack_init"); err != nil {
		return err
	}
	mem := s.mod.Memory()
	if have := mem.Size(); have < snap.size {
		if _, ok := mem.Grow((snap.size - have) / wasmPage); !ok {
			return errMemory
		}
	}
	m := s.memory()
	for _, p := range snap.parts {
		copy(m.span(p.at, uint32(len(p.data))), p.data)
	}
	s.state, s.box, s.boxed, s.main = snap.state, snap.box, true, snap.run
	return nil
}

// ready brings the interpreter to where a script can run.
func (s *script) ready(known *prepared, names []byte) error {
	if snap := known.get(names); snap != nil {
		return s.restore(snap)
	}
	fresh := bytes.Clone(s.memory())
	if err := s.start(); err != nil {
		return err
	}
	known.put(names, s.take(fresh))
	return nil
}
