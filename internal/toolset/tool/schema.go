package tool

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"

	"umbra/internal/strictjson"
	"umbra/internal/toolset/mount"
)

// Type is the type of an argument.
type Type string

// The types, each with a name that every model API knows: scalars, and lists of
// objects whose fields are scalars.
const (
	String  Type = "string"
	Integer Type = "integer"
	Boolean Type = "boolean"
	List    Type = "array"
)

// maxItems bounds a List.
const maxItems = 1000

// Param is one argument.
type Param struct {
	Name        string
	Type        Type
	Description string
	Required    bool
	NotEmpty    bool    // of a String
	Min, Max    int64   // of an Integer, both inclusive; Max 0: none
	Fields      []Param // of a List's objects
}

// schema is a Param as JSON Schema (2020-12) has it.
type schema struct {
	Type        Type   `json:"type"`
	Description string `json:"description"`
	Minimum     *int64 `json:"minimum,omitempty"`
	Maximum     *int64 `json:"maximum,omitempty"`
	MinLength   int    `json:"minLength,omitempty"`
	MinItems    int    `json:"minItems,omitempty"`
	MaxItems    int    `json:"maxItems,omitempty"`

	Items json.RawMessage `json:"items,omitempty"`
}

func (p *Param) schema() schema {
	s := schema{Type: p.Type, Description: p.Description}
	if p.Type == Integer {
		s.Minimum = &p.Min
		if p.Max > 0 {
			s.Maximum = &p.Max
		}
	}
	if p.Type == List {
		s.MinItems, s.MaxItems, s.Items = 1, maxItems, object(p.Fields)
	} else if p.NotEmpty {
		s.MinLength = 1
	}
	return s
}

// Schema is the arguments of a tool as JSON Schema, properties in the order of
// the parameters.
func (t *Tool) Schema() json.RawMessage { return object(t.Params) }

// object is the schema of an object with these fields.
func object(params []Param) json.RawMessage {
	out := []byte(`{"type":"object","properties":{`)
	required := []string{}
	for i := range params {
		p := &params[i]
		name, _ := json.Marshal(p.Name)
		body, _ := json.Marshal(p.schema())
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, name...), ':'), body...)
		if p.Required {
			required = append(required, p.Name)
		}
	}
	out = append(out, '}')
	if len(required) > 0 {
		list, _ := json.Marshal(required)
		out = append(append(out, `,"required":`...), list...)
	}
	return append(out, `,"additionalProperties":false}`...)
}

// Args are a call's arguments, checked.
type Args map[string]any

// Has reports whether an argument was given.
func (a Args) Has(name string) bool { _, ok := a[name]; return ok }

// Str gives a String, "" if it was not given.
func (a Args) Str(name string) string { s, _ := a[name].(string); return s }

// Bool gives a Boolean, false if it was not given.
func (a Args) Bool(name string) bool { b, _ := a[name].(bool); return b }

// List gives a List's objects, nil if it was not given.
func (a Args) List(name string) []Args { l, _ := a[name].([]Args); return l }

// Int gives an Integer, or what it is by default.
func (a Args) Int(name string, byDefault int64) int64 {
	if n, ok := a[name].(int64); ok {
		return n
	}
	return byDefault
}

func invalid(format string, args ...any) error {
	return mount.Message("Invalid arguments: " + fmt.Sprintf(format, args...))
}

// Parse reads a call's arguments against the schema. null and nothing at all
// represent none. Errors are Messages that name the field.
func (t *Tool) Parse(raw json.RawMessage) (Args, error) {
	fields := map[string]json.RawMessage{}
	if len(raw) > 0 {
		if err := strictjson.Unmarshal(raw, &fields); err != nil {
			return nil, invalid("they must be one JSON object")
		}
	}
	return parse(t.Params, fields, "", " of "+t.Name)
}

// parse reads an object's fields; in is put before a field's name in messages.
func parse(params []Param, fields map[string]json.RawMessage, in, of string) (Args, error) {
	args := Args{}
	for i := range params {
		p := params[i]
		value, given := fields[p.Name]
		delete(fields, p.Name)
		// Models send null for what they leave out.
		if !given || len(value) == 0 || string(value) == "null" {
			if p.Required {
				return nil, invalid("%s is required", in+p.Name)
			}
			continue
		}
		name := p.Name
		p.Name = in + name
		v, err := p.parse(value)
		if err != nil {
			return nil, err
		}
		args[name] = v
	}
	if len(fields) > 0 {
		return nil, invalid("%s is not an argument%s", in+mount.Show(slices.Sorted(maps.Keys(fields))[0]), of)
	}
	return args, nil
}

func (p *Param) parse(raw json.RawMessage) (any, error) {
	switch p.Type {
	case String:
		var s string
		if strictjson.Unmarshal(raw, &s) != nil || raw[0] != '"' {
			return nil, invalid("%s must be a string", p.Name)
		}
		if p.NotEmpty && s == "" {
			return nil, invalid("%s must not be empty", p.Name)
		}
		return s, nil
	case Boolean:
		var b bool
		if strictjson.Unmarshal(raw, &b) != nil {
			return nil, invalid("%s must be true or false", p.Name)
		}
		return b, nil
	case List:
		return p.parseList(raw)
	}
	n, ok := integer(raw)
	switch {
	case !ok:
		return nil, invalid("%s must be an integer", p.Name)
	case n < p.Min:
		return nil, invalid("%s must be at least %d", p.Name, p.Min)
	case p.Max > 0 && n > p.Max:
		return nil, invalid("%s must be at most %d", p.Name, p.Max)
	}
	return n, nil
}

func (p *Param) parseList(raw json.RawMessage) (any, error) {
	var items []json.RawMessage
	if strictjson.Unmarshal(raw, &items) != nil || raw[0] != '[' {
		return nil, invalid("%s must be a list", p.Name)
	}
	if len(items) == 0 || len(items) > maxItems {
		return nil, invalid("%s must have 1 to %d elements", p.Name, maxItems)
	}
	out := make([]Args, len(items))
	for i, item := range items {
		at := fmt.Sprintf("%s[%d]", p.Name, i)
		var fields map[string]json.RawMessage
		if strictjson.Unmarshal(item, &fields) != nil || item[0] != '{' {
			return nil, invalid("%s must be an object", at)
		}
		args, err := parse(p.Fields, fields, at+".", "")
		if err != nil {
			return nil, err
		}
		out[i] = args
	}
	return out, nil
}

// integer takes 3 and 3.0, which JSON Schema holds for the same.
func integer(raw json.RawMessage) (int64, bool) {
	var n int64
	if json.Unmarshal(raw, &n) == nil {
		return n, true
	}
	var f float64
	if json.Unmarshal(raw, &f) != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
