package luau

import (
	"encoding/binary"
	"math"
)

// How this build of the interpreter (32-bit, Luau's lobject.h) lays out values.
// A value is 16 bytes: 8 of content, 4 more for vectors, 4 for the kind. A
// string is its length and bytes, a table an array of values and 2^n nodes, a
// node a value, a key's content, and a word with the key's kind in its low
// four bits.
const (
	valueSize = 16
	valueKind = 12

	stringLen  = 16
	stringData = 20

	tableSafe  = 5 // globals are what they were when the chunk was loaded
	tableLog2  = 6 // of the number of nodes
	tableCount = 8 // length of the array
	tableMeta  = 16
	tableArray = 20
	tableNodes = 24

	nodeSize    = 32
	nodeKey     = 16
	nodeKeyKind = 28

	bufferLen  = 4
	bufferData = 8

	stateTop    = 8  // behind the last argument
	stateBase   = 12 // first argument of the C function that runs
	stateGlobal = 16
)

// Kinds of values.
const (
	kindNil = iota
	kindBoolean
	kindLightUserdata
	kindNumber
	kindVector
	kindString
	kindTable
	kindFunction
	kindUserdata
	kindThread
	kindBuffer
)

// memory is the interpreter's memory as it is now. A pointer that leads out of it
// reads as nil: a broken interpreter harms no other script.
type memory []byte

func (m memory) u32(at uint32) uint32 {
	if uint64(at)+4 > uint64(len(m)) {
		return 0
	}
	return binary.LittleEndian.Uint32(m[at:])
}

func (m memory) byte(at uint32) byte {
	if uint64(at) >= uint64(len(m)) {
		return 0
	}
	return m[at]
}

func (m memory) span(at, n uint32) []byte {
	if uint64(at)+uint64(n) > uint64(len(m)) {
		return nil
	}
	return m[at : uint64(at)+uint64(n) : uint64(at)+uint64(n)]
}

// value is one value, its content as it lies in memory.
type value struct {
	kind    uint32
	content uint64
}

func (m memory) value(at uint32) value {
	b := m.span(at, valueSize)
	if b == nil {
		return value{}
	}
	return value{kind: binary.LittleEndian.Uint32(b[valueKind:]), content: binary.LittleEndian.Uint64(b)}
}

func (v value) number() float64 { return math.Float64frombits(v.content) }
func (v value) pointer() uint32 { return uint32(v.content) }
func (v value) bool() bool      { return uint32(v.content) != 0 }

// bytes gives a string's bytes, in the interpreter's memory.
func (m memory) bytes(v value) []byte {
	p := v.pointer()
	return m.span(p+stringData, m.u32(p+stringLen))
}

// buffer gives a buffer's bytes, in the interpreter's memory.
func (m memory) buffer(v value) []byte {
	p := v.pointer()
	return m.span(p+bufferData, m.u32(p+bufferLen))
}

// item gives the element i, from 1, of a table's array part.
func (m memory) item(table uint32, i uint32) value {
	if i == 0 || i > m.u32(table+tableCount) {
		return value{}
	}
	return m.value(m.u32(table+tableArray) + (i-1)*valueSize)
}

// setNumber writes a number into a table's array part; no value there refers to
// anything, so the collector need not know.
func (m memory) setNumber(table uint32, i uint32, n float64) {
	if i == 0 || i > m.u32(table+tableCount) {
		return
	}
	b := m.span(m.u32(table+tableArray)+(i-1)*valueSize, valueSize)
	if b == nil {
		return
	}
	binary.LittleEndian.PutUint64(b, math.Float64bits(n))
	binary.LittleEndian.PutUint32(b[valueKind:], kindNumber)
}

// pairs gives a table's entries as they lie, without metamethods.
func (m memory) pairs(table uint32) func(func(k, v value) bool) {
	return func(yield func(k, v value) bool) {
		array := m.u32(table + tableArray)
		for i := range m.u32(table + tableCount) {
			v := m.value(array + i*valueSize)
			if v.kind != kindNil && !yield(value{kind: kindNumber, content: math.Float64bits(float64(i + 1))}, v) {
				return
			}
		}
		log2 := m.byte(table + tableLog2)
		if log2 > 26 {
			return
		}
		nodes := m.u32(table + tableNodes)
		for i := range uint32(1) << log2 {
			at := nodes + i*nodeSize
			v := m.value(at)
			if v.kind == kindNil {
				continue
			}
			b := m.span(at+nodeKey, nodeSize-nodeKey)
			if b == nil {
				return
			}
			k := value{kind: m.u32(at+nodeKeyKind) & 15, content: binary.LittleEndian.Uint64(b)}
			if !yield(k, v) {
				return
			}
		}
	}
}

// tuneCollector makes the garbage collector keep pace with large strings. As it
// is built it does a kilobyte's worth of work for each allocation, however
// large that was: a loop that appends to a long string would leave hundreds of
// megabytes behind before one round is done. Its three settings are next to
// each other in the state that all coroutines share (goal and step in percent,
// step size in bytes); false if they are not found.
func (m memory) tuneCollector(state uint32) bool {
	const searched, stepMul, stepSize = 1024, 200, 1 << 20
	global := m.u32(state + stateGlobal)
	for at := global; at < global+searched; at += 4 {
		if m.u32(at) == 200 && m.u32(at+4) == 200 && m.u32(at+8) == 1024 {
			binary.LittleEndian.PutUint32(m[at+4:], stepMul)
			binary.LittleEndian.PutUint32(m[at+8:], stepSize)
			return true
		}
	}
	return false
}
