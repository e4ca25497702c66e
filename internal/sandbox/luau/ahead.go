package luau

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/experimental"
)

// Making a state takes longer than a short script runs: the instance, the copy of
// what the prelude left, and the first touch of each page of its memory. The next
// one is made while a script runs, and an old one's memory goes back after its
// answer. A state serves one script, also one that was made ahead.

const (
	// mostAhead is how many states wait.
	mostAhead = 2
	// mostWarm bounds how much of a waiting state's memory is there already, in
	// bytes.
	mostWarm = 8 << 20
	// restAfter is how long states wait after the last script.
	restAfter = 30 * time.Second
	// mostEnding bounds how many states are freed concurrently with their answers.
	mostEnding = 4
)

// ahead is the states that wait, and the background work.
type ahead struct {
	mu      sync.Mutex
	states  []*script // the oldest first
	making  bool
	warm    uint32 // the memory that the last script ended with, 0 if it took none
	ending  int
	closed  bool
	rest    *time.Timer
	working sync.WaitGroup
}

// begin gives a script whose state can run a program.
func (e *Engine) begin(ctx context.Context, p Program) (*script, error) {
	r, code, err := e.load(ctx)
	if err != nil {
		return nil, err
	}
	if p.MaxLog <= 0 {
		p.MaxLog = maxLog
	}
	names := namesOf(p.Functions)
	s := e.take(names)
	if s == nil {
		s = &script{}
		s.serveFor(ctx, p)
		if err := s.instantiate(r, code); err != nil {
			return nil, err
		}
		if err := s.ready(&e.prepared, names); err != nil {
			return s, err
		}
	}
	s.serveFor(ctx, p)
	s.began = s.mod.Memory().Size()
	e.makeAhead(r, code, names)
	return s, nil
}

// take gives a state that waits, made for these functions; nil if there is none.
func (e *Engine) take(names []byte) *script {
	a := &e.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range a.states {
		if string(s.madeFor) == string(names) {
			a.states = append(a.states[:i], a.states[i+1:]...)
			return s
		}
	}
	return nil
}

// makeAhead makes the next state in the background; nothing if one is being made,
// or there is nothing yet to begin it with.
func (e *Engine) makeAhead(r wazero.Runtime, code wazero.CompiledModule, names []byte) {
	snap := e.prepared.get(names)
	if snap == nil {
		return
	}
	a := &e.ahead
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.closed || a.making {
		return
	}
	if a.rest == nil {
		a.rest = time.AfterFunc(restAfter, a.drop)
	} else {
		a.rest.Reset(restAfter)
	}
	a.making = true
	warm := int(min(a.warm, mostWarm))
	a.working.Go(func() {
		s := &script{madeFor: names}
		s.serveFor(context.Background(), Program{})
		err := s.instantiate(r, code)
		if err == nil {
			if err = s.restore(snap); err == nil {
				s.room.warm(warm)
			}
		}
		a.mu.Lock()
		a.making = false
		var old *script
		switch {
		case err != nil || a.closed:
			old = s // the next script makes its own, and reports what is wrong
		case len(a.states) == mostAhead:
			old = a.states[0]
			a.states = append(a.states[:0], a.states[1:]...)
			fallthrough
		default:
			a.states = append(a.states, s)
		}
		a.mu.Unlock()
		old.close()
	})
}

// end frees a script's memory, mostly in the background.
func (e *Engine) end(s *script) {
	a := &e.ahead
	size := s.mod.Memory().Size()
	a.mu.Lock()
	// The next script is taken to be like this one.
	if a.warm = 0; size > s.began {
		a.warm = size
	}
	beside := !a.closed && a.ending < mostEnding
	if beside {
		a.ending++
		a.working.Go(func() {
			s.close()
			a.mu.Lock()
			a.ending--
			a.mu.Unlock()
		})
	}
	a.mu.Unlock()
	if !beside {
		s.close()
	}
}

// close ends the background work, and frees the states that wait.
func (a *ahead) close() {
	a.mu.Lock()
	a.closed = true
	if a.rest != nil {
		a.rest.Stop()
	}
	a.mu.Unlock()
	a.working.Wait()
	a.drop()
}

// drop gives back the states that wait.
func (a *ahead) drop() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.states {
		s.close()
	}
	a.states = nil
}

// serveFor makes the state one program's.
func (s *script) serveFor(ctx context.Context, p Program) {
	s.p, s.ctx = p, ctx
	s.call = context.WithValue(ctx, scriptKey{}, s)
}

// instantiate makes the instance.
func (s *script) instantiate(r wazero.Runtime, code wazero.CompiledModule) error {
	s.room = &room{}
	ctx := s.call
	if a := s.room.allocator(); a != nil {
		ctx = experimental.WithMemoryAllocator(ctx, a)
	}
	mod, err := r.InstantiateModule(ctx, code, wazero.NewModuleConfig().WithName("").WithStartFunctions())
	if err != nil {
		return fmt.Errorf("luau: %w", err)
	}
	s.mod = mod
	return nil
}

// close gives the instance's memory back.
func (s *script) close() {
	if s != nil && s.mod != nil {
		_ = s.mod.Close(context.Background()) // it closes nothing but memory
	}
}
