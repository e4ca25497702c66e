// Package wasmpatch rewrites a WebAssembly module so that a host can bound
// what it does: its memory gets other limits, and each of its loops counts
// down, and calls the host each time the count has run out.
//
// The host's function is one that the module imports already, so that no
// function changes its number. Between two calls of it no loop runs for long,
// so a host that checks the clock there, and panics, ends any loop; and a
// scheduler that cannot interrupt compiled code gets its turn.
//
// It knows the binary format of WebAssembly 1.0
// with sign extension, saturating conversion, bulk memory and references
// (https://webassembly.github.io/spec/core/binary/); anything else is an error.
package wasmpatch

import (
	"bytes"
	"errors"
	"fmt"
)

// Options say what to change.
type Options struct {
	// MinPages and MaxPages are the memory's new limits, 64 KiB each.
	MinPages, MaxPages uint32
	// TickModule and TickName name the imported function, () -> (), that each
	// loop calls once in Every rounds.
	TickModule, TickName string
	Every                int32
	Shortcut             *Shortcut // optional
}

// Sections of a module, by their ids.
const (
	sectionCustom   = 0
	sectionType     = 1
	sectionImport   = 2
	sectionFunction = 3
	sectionMemory   = 5
	sectionGlobal   = 6
	sectionElement  = 9
	sectionCode     = 10
)

var magic = []byte{0, 'a', 's', 'm', 1, 0, 0, 0}

// Patch gives the module with the changes. It fails where the module is not
// what it must be: one memory of its own, the imported function, at least one
// global of its own.
func Patch(module []byte, o Options) ([]byte, error) {
	if !bytes.HasPrefix(module, magic) {
		return nil, errors.New("not a WebAssembly 1.0 module")
	}
	if o.Every <= 0 || o.MinPages > o.MaxPages || o.MaxPages > 1<<16 {
		return nil, errors.New("bad options")
	}
	p := &patcher{o: o, tick: -1, host: -1, forms: map[string]uint32{}}
	out := bytes.NewBuffer(append([]byte(nil), magic...))
	r := &reader{data: module, at: len(magic)}
	for r.at < len(r.data) {
		id := r.byte()
		body := r.take(int(r.u32()))
		if r.err != nil {
			return nil, r.err
		}
		next, err := p.section(id, body)
		if err != nil {
			return nil, fmt.Errorf("section %d: %w", id, err)
		}
		out.WriteByte(id)
		out.Write(appendU32(nil, uint32(len(next))))
		out.Write(next)
	}
	if !p.memory || !p.code {
		return nil, errors.New("the module has no memory or no code")
	}
	return out.Bytes(), nil
}

type patcher struct {
	o            Options
	empty        []uint32          // types that are () -> ()
	forms        map[string]uint32 // types by their bytes
	tick         int64             // function index of the host's function
	host         int64             // that of the shortcut's
	imported     int64             // functions
	types        int               // how many there are
	functions    uint32            // how many there are, imported ones included
	globals      uint32            // how many are imported, then all
	fuel         uint32            // index of the new global
	memory, code bool
}

func (p *patcher) section(id byte, body []byte) ([]byte, error) {
	switch id {
	case sectionType:
		return body, p.readTypes(body)
	case sectionImport:
		return body, p.imports(body)
	case sectionFunction:
		return p.declare(body)
	case sectionElement:
		return p.redirect(body)
	case sectionMemory:
		return p.memories(body)
	case sectionGlobal:
		return p.addGlobal(body)
	case sectionCode:
		return p.bodies(body)
	case sectionCustom:
		return body, nil
	}
	return body, nil
}

func (p *patcher) readTypes(body []byte) error {
	r := &reader{data: body}
	for i := range r.u32() {
		if form := r.byte(); form != 0x60 && r.err == nil {
			return fmt.Errorf("type %d has the form %#x", i, form)
		}
		from := r.at
		params := r.u32()
		r.take(int(params))
		results := r.u32()
		r.take(int(results))
		if r.err != nil {
			return r.err
		}
		p.forms[string(body[from:r.at])] = i
		p.types++
		if params == 0 && results == 0 {
			p.empty = append(p.empty, i)
		}
	}
	return r.err
}

func (p *patcher) imports(body []byte) error {
	r := &reader{data: body}
	for range r.u32() {
		module := string(r.take(int(r.u32())))
		name := string(r.take(int(r.u32())))
		switch kind := r.byte(); kind {
		case 0:
			typ := r.u32()
			if r.err == nil && int(typ) >= p.types {
				return errTruncated
			}
			if module == p.o.TickModule && name == p.o.TickName {
				for _, e := range p.empty {
					if e == typ {
						p.tick = p.imported
					}
				}
			}
			if s := p.o.Shortcut; s != nil && module == s.HostModule && name == s.HostName {
				if form, ok := p.forms[hostForm]; ok && form == typ {
					p.host = p.imported
				}
			}
			p.imported++
			p.functions++
		case 1:
			r.byte()
			r.limits()
		case 2:
			return errors.New("the memory is imported")
		case 3:
			r.byte()
			r.byte()
			p.globals++
		default:
			if r.err == nil {
				return fmt.Errorf("an import of kind %d", kind)
			}
		}
		if r.err != nil {
			return r.err
		}
	}
	if p.tick < 0 {
		return fmt.Errorf("%s.%s is not imported as a function without parameters", p.o.TickModule, p.o.TickName)
	}
	return r.err
}

func (p *patcher) memories(body []byte) ([]byte, error) {
	if len(body) == 0 || body[0] != 1 {
		return nil, errors.New("not one memory")
	}
	p.memory = true
	out := []byte{1, 1}
	out = appendU32(out, p.o.MinPages)
	return appendU32(out, p.o.MaxPages), nil
}

// addGlobal appends a mutable i32, the count that the loops share.
func (p *patcher) addGlobal(body []byte) ([]byte, error) {
	r := &reader{data: body}
	n := r.u32()
	if r.err != nil {
		return nil, r.err
	}
	p.fuel = p.globals + n
	out := appendU32(nil, n+1)
	out = append(out, body[r.at:]...)
	out = append(out, typeI32, 1, opI32Const)
	out = appendS32(out, p.o.Every)
	return append(out, opEnd), nil
}

func (p *patcher) bodies(body []byte) ([]byte, error) {
	if p.tick < 0 || p.fuel == 0 {
		return nil, errors.New("code before imports or globals")
	}
	p.code = true
	countdown := p.countdown()
	r := &reader{data: body}
	n := r.u32()
	if r.err == nil && p.imported+int64(n) != int64(p.functions) {
		return nil, errors.New("as many functions as types of functions there must be")
	}
	added := uint32(0)
	if p.o.Shortcut != nil {
		added = 1
	}
	out := appendU32(nil, n+added)
	for i := range n {
		f := r.take(int(r.u32()))
		if r.err != nil {
			return nil, r.err
		}
		f, err := instrument(f, countdown)
		if err != nil {
			return nil, fmt.Errorf("function %d: %w", i, err)
		}
		out = appendU32(out, uint32(len(f)))
		out = append(out, f...)
	}
	if added > 0 {
		f := p.shortcut()
		out = append(appendU32(out, uint32(len(f))), f...)
	}
	return out, nil
}

// countdown is the code at the head of each loop.
func (p *patcher) countdown() []byte {
	var c []byte
	global := func(op byte) {
		c = append(c, op)
		c = appendU32(c, p.fuel)
	}
	global(opGlobalGet)
	c = append(c, opI32Const, 1, opI32Sub)
	global(opGlobalSet)
	global(opGlobalGet)
	c = append(c, opI32Eqz, opIf, blockEmpty, opCall)
	c = appendU32(c, uint32(p.tick))
	c = append(c, opI32Const)
	c = appendS32(c, p.o.Every)
	global(opGlobalSet)
	return append(c, opEnd)
}
