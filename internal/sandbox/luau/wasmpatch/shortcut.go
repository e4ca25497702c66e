package wasmpatch

import (
	"errors"
	"fmt"
)

// Shortcut puts the host before a function that the module calls through its
// table, i32 -> i32, a C function of a Lua state. The host gets the state, the
// address of some room on the module's stack and its size, and gives how many
// bytes it put there, which Push makes a string of; below 0 the function itself
// runs.
type Shortcut struct {
	// Function and Push (state, address, size -> nothing) are numbers of
	// functions, Stack that of the global that is the stack's address.
	Function, Push, Stack uint32
	// HostModule and HostName name the imported function.
	HostModule, HostName string
	Room                 uint32 // in bytes, a multiple of 16
}

// Forms of the functions that a shortcut needs.
const (
	unaryForm = "\x01\x7f\x01\x7f"
	hostForm  = "\x03\x7f\x7f\x7f\x01\x7f"
)

// declare appends the shortcut to the section of the functions' types.
func (p *patcher) declare(body []byte) ([]byte, error) {
	r := &reader{data: body}
	n := r.u32()
	at := r.at
	for range n {
		typ := r.u32()
		if r.err != nil {
			return nil, r.err
		}
		if int(typ) >= p.types {
			return nil, errTruncated
		}
		p.functions++
	}
	if p.o.Shortcut == nil {
		return body, nil
	}
	form, ok := p.forms[unaryForm]
	if !ok || p.host < 0 {
		return nil, errors.New("the shortcut's form or host function is not there")
	}
	out := append(appendU32(nil, n+1), body[at:]...)
	return appendU32(out, form), nil
}

// redirect replaces the function by the shortcut in the table.
func (p *patcher) redirect(body []byte) ([]byte, error) {
	if p.o.Shortcut == nil {
		return body, nil
	}
	r := &reader{data: body}
	segments := r.u32()
	out := appendU32(nil, segments)
	found := false
	for range segments {
		from := r.at
		if flags := r.u32(); flags != 0 || r.byte() != opI32Const {
			return nil, errors.New("a table that is not filled plainly")
		}
		r.s33()
		if r.byte() != opEnd {
			return nil, errors.New("a table that is not filled plainly")
		}
		n := r.u32()
		if r.err != nil {
			return nil, r.err
		}
		out = append(out, body[from:r.at]...)
		for range n {
			f := r.u32()
			if f == p.o.Shortcut.Function && r.err == nil {
				f, found = p.functions, true
			}
			out = appendU32(out, f)
			if r.err != nil {
				return nil, r.err
			}
		}
	}
	if !found && r.err == nil {
		return nil, fmt.Errorf("function %d is not in the table", p.o.Shortcut.Function)
	}
	return out, r.err
}

// shortcut is the body of the function that replaces it in the table.
func (p *patcher) shortcut() []byte {
	const state, room, got = 0, 1, 2
	s := p.o.Shortcut
	c := []byte{1, 2, typeI32} // two locals
	op := func(code byte, n uint32) { c = appendU32(append(c, code), n) }
	size := func() { c = appendS32(append(c, opI32Const), int32(s.Room)) }
	release := func() {
		op(opLocalGet, room)
		size()
		c = append(c, opI32Add)
		op(opGlobalSet, s.Stack)
	}
	op(opGlobalGet, s.Stack)
	size()
	c = append(c, opI32Sub)
	op(opLocalTee, room)
	op(opGlobalSet, s.Stack)
	op(opLocalGet, state)
	op(opLocalGet, room)
	size()
	op(opCall, uint32(p.host))
	op(opLocalTee, got)
	c = append(c, opI32Const, 0, opI32LtS, opIf, typeI32)
	release()
	op(opLocalGet, state)
	op(opCall, s.Function)
	c = append(c, opElse)
	op(opLocalGet, state)
	op(opLocalGet, room)
	op(opLocalGet, got)
	op(opCall, s.Push)
	release()
	return append(c, opI32Const, 1, opEnd, opEnd)
}
