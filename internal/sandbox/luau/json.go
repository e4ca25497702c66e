package luau

import (
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds how deep a value may be nested.
const maxDepth = 1000

// maxJSON bounds an encoded value, as the memory of the script that made it is
// bounded: a table that holds one thing often is larger outside than inside.
const maxJSON = 64 << 20

// jsonWriter makes JSON of a value in the interpreter's memory.
type jsonWriter struct {
	ctx   context.Context
	m     memory
	out   []byte
	open  []uint32 // tables around the one being written
	count int
}

// appendJSON encodes by the rules of contracts/scripts.md. Errors are *LuaError
// for what the value is, errMemory and errDeadline.
func appendJSON(ctx context.Context, m memory, v value) ([]byte, error) {
	w := &jsonWriter{ctx: ctx, m: m}
	if err := w.write(v); err != nil {
		return nil, err
	}
	return w.out, nil
}

func (w *jsonWriter) write(v value) error {
	if w.count++; w.count%4096 == 0 && w.ctx.Err() != nil {
		return errDeadline
	}
	if len(w.out) > maxJSON {
		return errMemory
	}
	switch v.kind {
	case kindBoolean:
		w.out = strconv.AppendBool(w.out, v.bool())
	case kindNumber:
		w.out = appendNumber(w.out, v.number())
	case kindString:
		w.out = appendString(w.out, w.m.bytes(v))
	case kindTable:
		return w.table(v.pointer())
	default:
		w.out = append(w.out, "null"...)
	}
	return nil
}

func (w *jsonWriter) table(t uint32) error {
	if len(w.open) >= maxDepth {
		return &LuaError{"the value is nested more than 1000 levels deep"}
	}
	// Only long chains are slow to search, and those are few.
	if slices.Contains(w.open, t) {
		return &LuaError{"the value contains itself"}
	}
	w.open = append(w.open, t)
	defer func() { w.open = w.open[:len(w.open)-1] }()
	items, entries := w.content(t)
	if len(items) > 0 {
		for i, v := range items {
			if i == 0 {
				w.out = append(w.out, '[')
			} else {
				w.out = append(w.out, ',')
			}
			if err := w.write(v); err != nil {
				return err
			}
		}
		w.out = append(w.out, ']')
		return nil
	}
	w.out = append(w.out, '{')
	for i, e := range entries {
		if i > 0 {
			w.out = append(w.out, ',')
		}
		w.out = appendString(w.out, []byte(e.key))
		w.out = append(w.out, ':')
		if err := w.write(e.value); err != nil {
			return err
		}
	}
	w.out = append(w.out, '}')
	return nil
}

type entry struct {
	key    string
	number bool
	value  value
}

// content gives a table's items, if its keys are 1 to n, else its entries by
// key. A key that is neither text, number nor boolean has no name and is left
// out; of a number and a text that read alike the text counts.
func (w *jsonWriter) content(t uint32) (items []value, entries []entry) {
	n := 0
	high := 0.0
	list := true
	for k := range w.m.pairs(t) {
		n++
		f := k.number()
		if k.kind != kindNumber || f < 1 || f != math.Trunc(f) {
			list = false
			break
		}
		high = max(high, f)
	}
	if list && n > 0 && high == float64(n) {
		items = make([]value, n)
		for k, v := range w.m.pairs(t) {
			items[int(k.number())-1] = v
		}
		return items, nil
	}
	for k, v := range w.m.pairs(t) {
		switch k.kind {
		case kindString:
			entries = append(entries, entry{key: utf8Text(w.m.bytes(k)), value: v})
		case kindNumber:
			entries = append(entries, entry{key: keyOf(k.number()), number: true, value: v})
		case kindBoolean:
			entries = append(entries, entry{key: strconv.FormatBool(k.bool()), number: true, value: v})
		}
	}
	slices.SortFunc(entries, func(a, b entry) int {
		if c := strings.Compare(a.key, b.key); c != 0 || a.number == b.number {
			return c
		}
		if b.number {
			return -1
		}
		return 1
	})
	return nil, slices.CompactFunc(entries, func(a, b entry) bool { return a.key == b.key })
}

func keyOf(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	return string(appendNumber(nil, f))
}

// appendNumber writes integral numbers as integers, NaN and infinities as null.
func appendNumber(b []byte, f float64) []byte {
	switch {
	case math.IsNaN(f), math.IsInf(f, 0):
		return append(b, "null"...)
	case f == 0:
		return append(b, '0')
	case f == math.Trunc(f) && math.Abs(f) < 1<<63:
		return strconv.AppendInt(b, int64(f), 10)
	case f == math.Trunc(f) && math.Abs(f) < 1e21:
		return strconv.AppendFloat(b, f, 'f', -1, 64)
	}
	return strconv.AppendFloat(b, f, 'g', -1, 64)
}

const hexDigits = "0123456789abcdef"

// appendString writes bytes as a JSON string; what is not UTF-8 becomes U+FFFD.
func appendString(b, s []byte) []byte {
	b = append(b, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= 0x20 && c < utf8.RuneSelf && c != '"' && c != '\\' {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if r, n := utf8.DecodeRune(s[i:]); r != utf8.RuneError || n > 1 {
				i += n
				continue
			}
		}
		b = append(b, s[from:i]...)
		switch {
		case c >= utf8.RuneSelf:
			b = append(b, "\uFFFD"...)
		case c == '"', c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, `\n`...)
		case c == '\r':
			b = append(b, `\r`...)
		case c == '\t':
			b = append(b, `\t`...)
		default:
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		from = i
	}
	b = append(b, s[from:]...)
	return append(b, '"')
}
