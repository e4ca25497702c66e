package wasmpatch

import (
	"errors"
	"fmt"
)

// Constant is a global that nobody sets: each reading of it is its value, and
// what that decides is decided here. A module that was made to be left and
// entered again (Binaryen's Asyncify) asks such a global before and after each
// of its calls; for one that never is left, that is most of its work.
type Constant struct {
	Global uint32
	Value  int32
}

// signature counts what a function takes and gives.
type signature struct{ params, results int }

// operand is a value on the stack of the code that is rewritten. Its code
// stands at [start, end) of what is written, if nothing came between.
type operand struct {
	start, end int
	pure       bool // its code may go, if nobody needs the value
	flag       bool // 0 or 1
	known      bool
	value      int32
}

// frame is one block that is open.
type frame struct {
	height  int
	results int
	op      byte // that opened it
	taken   bool // an if whose condition is true: its other arm goes
	named   bool // some branch leads to its end
	left    bool // its first arm never came to its end
}

// folder rewrites one function's code.
type folder struct {
	p      *patcher
	r      *reader
	out    []byte
	stack  []operand
	frames []frame
}

// fold rewrites a function's body (its locals and its code).
func (p *patcher) fold(body []byte, results int) ([]byte, error) {
	r := &reader{data: body}
	for range r.u32() {
		r.u32()
		r.byte()
		if r.err != nil {
			return nil, r.err
		}
	}
	if r.err != nil {
		return nil, r.err
	}
	f := &folder{p: p, r: r, out: append(make([]byte, 0, len(body)), body[:r.at]...), frames: []frame{{op: opBlock, results: results}}}
	for len(f.frames) > 0 {
		if err := f.step(); err != nil {
			return nil, err
		}
	}
	if r.at != len(body) {
		return nil, errTruncated
	}
	return f.out, nil
}

func (f *folder) top() *frame { return &f.frames[len(f.frames)-1] }

// pop takes the uppermost value; beyond the code's own, where nothing is
// reached, there is any number of them.
func (f *folder) pop() operand {
	if n := len(f.stack); n > f.top().height {
		v := f.stack[n-1]
		f.stack = f.stack[:n-1]
		return v
	}
	return operand{start: -1, end: -1}
}

func (f *folder) push(v operand) { f.stack = append(f.stack, v) }

// last says whether a value's code is the end of what is written.
func (f *folder) last(v operand) bool { return v.start >= 0 && v.end == len(f.out) }

// constant writes a number in the place of what starts at start.
func (f *folder) constant(start int, n int32) {
	f.out = appendS32(append(f.out[:start], opI32Const), n)
	f.push(operand{start: start, end: len(f.out), pure: true, known: true, value: n, flag: n == 0 || n == 1})
}

// step rewrites one instruction.
func (f *folder) step() error {
	from := f.r.at
	op := f.r.byte()
	switch op {
	case opBlock, opLoop, opIf:
		return f.open(op, from)
	case opElse:
		return f.other(false)
	case opEnd:
		return f.close(false)
	case opI32Const:
		n := f.r.s32()
		f.constant(len(f.out), n)
		return f.r.err
	case opGlobalGet:
		g := f.r.u32()
		if c := f.p.o.Constant; c != nil && g == c.Global {
			f.constant(len(f.out), c.Value)
			return f.r.err
		}
		f.r.at = from + 1
	}
	immediate := f.r.at
	if err := f.r.immediates(op); err != nil {
		return err
	}
	code := f.r.data[from:f.r.at]
	switch op {
	case opBrIf:
		if c := f.pop(); c.known && f.last(c) {
			f.out = f.out[:c.start]
			if c.value == 0 {
				return nil
			}
			code = append([]byte{opBr}, f.r.data[immediate:f.r.at]...)
			op = opBr
		}
		f.out = append(f.out, code...)
		f.name((&reader{data: f.r.data, at: immediate}).u32())
		if op == opBr {
			return f.leave()
		}
		return nil
	case opDrop:
		if v := f.pop(); v.pure && f.last(v) {
			f.out = f.out[:v.start]
		} else {
			f.out = append(f.out, code...)
		}
		return nil
	case opSelect:
		f.choose(code)
		return nil
	case opI32Eqz:
		v := f.pop()
		if v.known && f.last(v) {
			f.constant(v.start, truth(v.value == 0))
			return nil
		}
		f.result(code, v.start, v.pure && f.last(v), true)
		return nil
	case opI32Eq, opI32Ne, opI32Or, opI32And:
		f.combine(op, code)
		return nil
	}
	return f.plain(op, code, immediate)
}

// result writes an instruction and pushes its value.
func (f *folder) result(code []byte, start int, pure, flag bool) {
	f.out = append(f.out, code...)
	f.push(operand{start: start, end: len(f.out), pure: pure, flag: flag})
}

func truth(b bool) int32 {
	if b {
		return 1
	}
	return 0
}

// combine folds an operation of two numbers.
func (f *folder) combine(op byte, code []byte) {
	b, a := f.pop(), f.pop()
	together := f.last(b) && a.start >= 0 && a.end == b.start
	if !together {
		f.result(code, -1, false, op == opI32Eq || op == opI32Ne)
		return
	}
	if a.known && b.known {
		n := a.value
		switch op {
		case opI32Eq:
			n = truth(a.value == b.value)
		case opI32Ne:
			n = truth(a.value != b.value)
		case opI32Or:
			n |= b.value
		case opI32And:
			n &= b.value
		}
		f.constant(a.start, n)
		return
	}
	if op == opI32Or || op == opI32And {
		other, known := a, b
		if a.known {
			other, known = b, a
		}
		// Neutral is the number that leaves a flag as it is.
		neutral := int32(0)
		if op == opI32And {
			neutral = 1
		}
		switch {
		case known.known && known.value == neutral && (other.flag || op == opI32Or):
			f.cut(known.start, known.end)
			other.start, other.end = a.start, len(f.out)
			f.push(other)
			return
		case known.known && other.pure && (op == opI32And && known.value == 0 || op == opI32Or && known.value == 1 && other.flag):
			f.constant(a.start, known.value)
			return
		}
	}
	flag := op == opI32Eq || op == opI32Ne || a.flag && b.flag
	f.result(code, a.start, a.pure && b.pure, flag)
}

func (f *folder) cut(from, to int) { f.out = append(f.out[:from], f.out[to:]...) }

// choose folds a select.
func (f *folder) choose(code []byte) {
	c, b, a := f.pop(), f.pop(), f.pop()
	together := f.last(c) && b.start >= 0 && b.end == c.start && a.start >= 0 && a.end == b.start
	switch {
	case together && c.known && c.value != 0 && b.pure:
		f.out = f.out[:b.start]
		f.push(a)
	case together && c.known && c.value == 0 && a.pure:
		f.out = f.out[:c.start]
		f.cut(a.start, b.start)
		b.start, b.end = a.start, len(f.out)
		f.push(b)
	default:
		start := -1
		if together {
			start = a.start
		}
		f.result(code, start, together && a.pure && b.pure && c.pure, a.flag && b.flag)
	}
}

// open begins a block. An if that is decided becomes a block, or goes.
func (f *folder) open(op byte, from int) error {
	at := f.r.at
	kind := f.r.s33()
	if f.r.err != nil {
		return f.r.err
	}
	if kind >= 0 {
		return errors.New("a block of several values")
	}
	results := 1
	if kind == blockVoid {
		results = 0
	}
	code, immediate := f.r.data[from:f.r.at], f.r.data[at:f.r.at]
	next := frame{op: op, results: results}
	if op == opIf {
		if c := f.pop(); c.known && f.last(c) {
			f.out = f.out[:c.start]
			if c.value == 0 {
				hasElse, err := f.skip()
				if err != nil || !hasElse {
					return err
				}
			} else {
				next.taken = true
			}
			next.op = opBlock
			code = append([]byte{opBlock}, immediate...)
		}
	}
	next.height = len(f.stack)
	f.out = append(f.out, code...)
	f.frames = append(f.frames, next)
	return nil
}

// skip reads over the rest of an arm, and says whether another follows.
func (f *folder) skip() (hasElse bool, err error) {
	for depth := 0; ; {
		op := f.r.byte()
		if err := f.r.immediates(op); err != nil {
			return false, err
		}
		if f.r.err != nil {
			return false, f.r.err
		}
		switch op {
		case opBlock, opLoop, opIf:
			depth++
		case opElse:
			if depth == 0 {
				return true, nil
			}
		case opEnd:
			if depth == 0 {
				return false, nil
			}
			depth--
		}
	}
}

// other begins an if's second arm.
func (f *folder) other(left bool) error {
	t := f.top()
	f.stack = f.stack[:t.height]
	if !t.taken {
		t.left, t.op = left, opElse
		f.out = append(f.out, opElse)
		return f.r.err
	}
	if hasElse, err := f.skip(); err != nil || hasElse {
		return errors.Join(err, errTruncated)
	}
	return f.close(left)
}

// close ends a block; left says that its own end is never reached.
func (f *folder) close(left bool) error {
	t := *f.top()
	f.frames = f.frames[:len(f.frames)-1]
	f.stack = f.stack[:t.height]
	f.out = append(f.out, opEnd)
	if len(f.frames) == 0 {
		return f.r.err
	}
	for range t.results {
		f.push(operand{start: -1, end: -1})
	}
	switch t.op {
	case opIf:
		left = false
	case opElse:
		left = left && t.left && !t.named
	case opBlock:
		left = left && !t.named
	}
	if left {
		f.out = append(f.out, opUnreachable)
		return f.leave()
	}
	return f.r.err
}

// name notes that a branch leads to the end of a block around.
func (f *folder) name(label uint32) {
	if int(label) < len(f.frames) {
		f.frames[len(f.frames)-1-int(label)].named = true
	}
}

// leave reads over what is never reached, to the end of the arm.
func (f *folder) leave() error {
	hasElse, err := f.skip()
	if err != nil {
		return err
	}
	if hasElse {
		return f.other(true)
	}
	return f.close(true)
}

// plain writes an instruction as it is.
func (f *folder) plain(op byte, code []byte, immediate int) error {
	takes, gives, pure, err := f.p.effect(op, &reader{data: f.r.data, at: immediate})
	if err != nil {
		return err
	}
	start := len(f.out)
	for range takes {
		v := f.pop()
		// The operands' codes must follow each other, for the whole to be one.
		if v.end != start || v.start < 0 {
			start, pure = -1, false
		} else {
			start = v.start
		}
		pure = pure && v.pure
	}
	f.out = append(f.out, code...)
	for range gives {
		f.push(operand{start: start, end: len(f.out), pure: pure, flag: op > opI32Eqz && op <= opF64Ge})
	}
	switch op {
	case opBr, opBrTable:
		labels := &reader{data: f.r.data, at: immediate}
		n := uint32(0)
		if op == opBrTable {
			n = labels.u32()
		}
		for range n + 1 {
			f.name(labels.u32())
		}
		return f.leave()
	case opUnreachable, opReturn:
		return f.leave()
	}
	return nil
}

// effect tells how many values an instruction takes and gives, and whether it
// does nothing else and cannot fail.
func (p *patcher) effect(op byte, r *reader) (takes, gives int, pure bool, err error) {
	switch {
	case op == opUnreachable, op == opNop, op == opBr:
	case op == opBrTable, op == opLocalSet, op == opGlobalSet:
		takes = 1
	case op == opReturn: // what it takes is not used here
	case op == opCall:
		n := r.u32()
		if int(n) >= len(p.functions) {
			return 0, 0, false, fmt.Errorf("a call of function %d", n)
		}
		s := p.signatures[p.functions[n]]
		takes, gives = s.params, s.results
	case op == opCallIndir:
		n := r.u32()
		if int(n) >= len(p.signatures) {
			return 0, 0, false, fmt.Errorf("a call of type %d", n)
		}
		takes, gives = p.signatures[n].params+1, p.signatures[n].results
	case op == opLocalGet, op == opGlobalGet, op >= opI32Const && op <= opF64Const, op == opMemorySize, op == opRefNull, op == opRefFunc:
		gives, pure = 1, true
	case op == opLocalTee, op >= opLoadFirst && op < opStoreFirst, op == opMemoryGrow, op == opTableGet:
		takes, gives = 1, 1
	case op >= opStoreFirst && op <= opStoreLast, op == opTableSet:
		takes = 2
	case op == opSelectTyped:
		takes, gives = 3, 1
	case op == opPrefixFC:
		takes, gives, err = effectFC(r.u32())
	case op >= opI32Eqz && op <= opSignExtLast:
		takes, gives = 1, 1
		if binary(op) {
			takes = 2
		}
		pure = op <= opF64Ge || op >= opI32Add && op <= opI32Mul || op >= opI32And && op <= opI32Rotr
	case op == opRefIsNull:
		takes, gives = 1, 1
	default:
		err = fmt.Errorf("unknown instruction %#x", op)
	}
	return takes, gives, pure, err
}

// binary tells the numeric instructions of two operands from those of one.
func binary(op byte) bool {
	for _, r := range [...][2]byte{{0x46, 0x4f}, {0x51, 0x66}, {0x6a, 0x78}, {0x7c, 0x8a}, {0x92, 0x98}, {0xa0, 0xa6}} {
		if op >= r[0] && op <= r[1] {
			return true
		}
	}
	return false
}

func effectFC(sub uint32) (takes, gives int, err error) {
	switch {
	case sub <= 7:
		return 1, 1, nil
	case sub == 8, sub == 10, sub == 11, sub == 12, sub == 14, sub == 17:
		return 3, 0, nil
	case sub == 9, sub == 13:
		return 0, 0, nil
	case sub == 15:
		return 2, 1, nil
	case sub == 16:
		return 0, 1, nil
	}
	return 0, 0, fmt.Errorf("unknown instruction 0xfc %d", sub)
}
