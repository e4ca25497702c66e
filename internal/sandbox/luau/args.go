package luau

import (
	"bytes"
	"encoding/json"
)

// Args are what a script called a function with. They hold while the function
// runs, no longer.
type Args struct {
	s     *script
	table uint32
}

func (a Args) at(i int) value { return a.s.memory().item(a.table, uint32(i+1)) }

// String gives the argument i, from 0, if it is a string: any bytes, a copy.
func (a Args) String(i int) ([]byte, bool) {
	v := a.at(i)
	if v.kind != kindString {
		return nil, false
	}
	return bytes.Clone(a.s.memory().bytes(v)), true
}

// Absent reports whether there is no argument i, or nil.
func (a Args) Absent(i int) bool { return a.at(i).kind == kindNil }

// Table gives the argument i, if it is a table, as JSON. Errors are *LuaError
// and what ends the script.
func (a Args) Table(i int) (json.RawMessage, bool, error) {
	v := a.at(i)
	if v.kind != kindTable {
		return nil, false, nil
	}
	raw, err := appendJSON(a.s.ctx, a.s.memory(), v)
	return raw, true, err
}
