// Package strictjson reads JSON from strangers (RFC 8259) where encoding/json
// is too kind: it refuses duplicate names at any depth, bytes that are not
// UTF-8, lone surrogates, anything after the value and nesting without end,
// and takes a struct's field by its exact name only. Unmarshal skips unknown
// names, after their values were checked as strictly as the rest; Strict
// refuses them.
//
// A struct's fields are named by `json:"name"` tags. null leaves the target as
// it is (a pointer, slice, map or interface becomes nil), but is of the wrong type for a
// field with the tag `null:"refused"`: one that narrows what a request is about, where a
// client's missing value would widen it.
package strictjson

import (
	"encoding"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
)

// MaxDepth bounds the nesting of arrays and objects.
const MaxDepth = 128

// SyntaxError says where the text stops being JSON, or good JSON.
type SyntaxError struct {
	Offset int // bytes from the start
	Reason string
}

// Error gives the reason and the place.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
}

// TypeError says that a value has not the type of its field.
type TypeError struct {
	Field string // "operations[3].path", empty for the top
	Want  string // "a string", "an integer" …
}

// Error names the field and what it takes.
func (e *TypeError) Error() string {
	if e.Field == "" {
		return "the body must be " + e.Want
	}
	return e.Field + " must be " + e.Want
}

// Unmarshal reads the one value in data into what dst points to. The whole
// text is checked even where a type is wrong: a *SyntaxError wins over a
// *TypeError. After an error dst may be partly filled.
func Unmarshal(data []byte, dst any) error { return unmarshal(data, dst, false) }

func unmarshal(data []byte, dst any, strict bool) error {
	target := reflect.ValueOf(dst)
	if target.Kind() != reflect.Pointer || target.IsNil() {
		return fmt.Errorf("strictjson: %T is no pointer to fill", dst)
	}
	d := decoder{data: data, strict: strict}
	d.space()
	if err := d.value(target.Elem(), path{}); err != nil {
		return err
	}
	d.space()
	if d.pos < len(d.data) {
		return d.syntax("unexpected text after the value")
	}
	if d.unknown != nil {
		return d.unknown
	}
	if d.wrong != nil {
		return d.wrong
	}
	return nil
}

type decoder struct {
	data  []byte
	pos   int
	depth int
	wrong *TypeError // the first wrong type

	strict  bool
	unknown *UnknownError // the first unknown name
}

// path is where a value is, built into a string only for an error.
type path struct {
	parent *path
	name   string
	index  int
}

func (p *path) String() string {
	if p.parent == nil {
		return ""
	}
	up := p.parent.String()
	switch {
	case p.name == "":
		return up + "[" + strconv.Itoa(p.index) + "]"
	case up == "":
		return p.name
	}
	return up + "." + p.name
}

func (d *decoder) syntax(reason string, args ...any) error {
	return &SyntaxError{Offset: d.pos, Reason: fmt.Sprintf(reason, args...)}
}

func (d *decoder) mistyped(at *path, want string) {
	if d.wrong == nil {
		d.wrong = &TypeError{Field: at.String(), Want: want}
	}
}

func (d *decoder) space() {
	for d.pos < len(d.data) {
		switch d.data[d.pos] {
		case ' ', '\t', '\r', '\n':
			d.pos++
		default:
			return
		}
	}
}

func (d *decoder) peek() byte {
	if d.pos < len(d.data) {
		return d.data[d.pos]
	}
	return 0
}

// value reads one value into target; an invalid target (the zero
// reflect.Value) only checks it.
func (d *decoder) value(target reflect.Value, at path) error {
	start := d.pos
	if target.IsValid() {
		if d.peek() == 'n' {
			if err := d.word("null"); err != nil {
				return err
			}
			switch target.Kind() {
			case reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
				target.SetZero()
			}
			return nil
		}
		if target.Type() == rawMessage {
			if err := d.value(reflect.Value{}, at); err != nil {
				return err
			}
			target.SetBytes(append([]byte(nil), d.data[start:d.pos]...))
			return nil
		}
		if target.Kind() == reflect.Pointer {
			if target.IsNil() {
				target.Set(reflect.New(target.Type().Elem()))
			}
			return d.value(target.Elem(), at)
		}
	}
	switch c := d.peek(); {
	case c == '{':
		return d.object(target, at)
	case c == '[':
		return d.array(target, at)
	case c == '"':
		return d.text(target, &at)
	case c == '-' || c >= '0' && c <= '9':
		return d.number(target, &at)
	case c == 't':
		return d.boolean("true", true, target, &at)
	case c == 'f':
		return d.boolean("false", false, target, &at)
	case c == 'n':
		return d.word("null")
	case d.pos >= len(d.data):
		return d.syntax("the text ends too early")
	}
	return d.syntax("unexpected character")
}

var (
	rawMessage = reflect.TypeFor[json.RawMessage]()
	jsonNumber = reflect.TypeFor[json.Number]()
)

func (d *decoder) word(w string) error {
	if !strings.HasPrefix(string(d.data[d.pos:min(len(d.data), d.pos+len(w))]), w) {
		return d.syntax("unexpected character")
	}
	d.pos += len(w)
	return nil
}

func (d *decoder) boolean(w string, b bool, target reflect.Value, at *path) error {
	if err := d.word(w); err != nil {
		return err
	}
	switch {
	case !target.IsValid():
	case target.Kind() == reflect.Bool:
		target.SetBool(b)
	case isAny(target):
		target.Set(reflect.ValueOf(b))
	default:
		d.mistyped(at, wanted(target))
	}
	return nil
}

func isAny(v reflect.Value) bool { return v.Kind() == reflect.Interface && v.NumMethod() == 0 }

func (d *decoder) enter() error {
	d.pos++
	if d.depth++; d.depth > MaxDepth {
		return d.syntax("nested deeper than %d levels", MaxDepth)
	}
	return nil
}

func (d *decoder) object(target reflect.Value, at path) error {
	if err := d.enter(); err != nil {
		return err
	}
	var fields map[string][]int
	var entries reflect.Value // the map to fill
	var generic map[string]any
	switch {
	case !target.IsValid():
	case target.Kind() == reflect.Struct:
		fields = fieldsOf(target.Type())
	case target.Kind() == reflect.Map && target.Type().Key().Kind() == reflect.String:
		entries = reflect.MakeMap(target.Type())
	case isAny(target):
		generic = map[string]any{}
	default:
		d.mistyped(&at, wanted(target))
		target = reflect.Value{}
	}
	seen := map[string]struct{}{}
	d.space()
	for first := true; ; first = false {
		if d.peek() == '}' && first {
			break
		}
		if d.peek() != '"' {
			return d.syntax("a name in quotes is expected")
		}
		nameAt := d.pos
		name, err := d.str()
		if err != nil {
			return err
		}
		if _, dup := seen[name]; dup {
			d.pos = nameAt
			return d.syntax("the name %q occurs twice", name)
		}
		seen[name] = struct{}{}
		d.space()
		if d.peek() != ':' {
			return d.syntax("a colon is expected")
		}
		d.pos++
		d.space()
		here := path{parent: &at, name: name}
		switch {
		case fields != nil:
			var field reflect.Value
			if i, ok := fields[name]; ok {
				field = target.FieldByIndex(i)
				if d.peek() == 'n' && target.Type().FieldByIndex(i).Tag.Get("null") == "refused" {
					d.mistyped(&here, wanted(field))
				}
			} else {
				d.unknownName(&here, fields)
			}
			err = d.value(field, here)
		case entries.IsValid():
			value := reflect.New(entries.Type().Elem()).Elem()
			if err = d.value(value, here); err == nil {
				entries.SetMapIndex(reflect.ValueOf(name).Convert(entries.Type().Key()), value)
			}
		case generic != nil:
			var value any
			if err = d.value(reflect.ValueOf(&value).Elem(), here); err == nil {
				generic[name] = value
			}
		default:
			err = d.value(reflect.Value{}, here)
		}
		if err != nil {
			return err
		}
		d.space()
		if d.peek() != ',' {
			break
		}
		d.pos++
		d.space()
	}
	if d.peek() != '}' {
		return d.syntax("a comma or } is expected")
	}
	d.pos++
	d.depth--
	switch {
	case entries.IsValid():
		target.Set(entries)
	case generic != nil:
		target.Set(reflect.ValueOf(generic))
	}
	return nil
}

// Bounded is implemented by slice types of which one element more than MaxItems is
// decoded; elements after that are checked and dropped.
type Bounded interface{ MaxItems() int }

func (d *decoder) array(target reflect.Value, at path) error {
	if err := d.enter(); err != nil {
		return err
	}
	var list reflect.Value // the slice to fill
	most := math.MaxInt
	switch {
	case !target.IsValid():
	case target.Kind() == reflect.Slice:
		list = reflect.MakeSlice(target.Type(), 0, 0)
		if b, ok := list.Interface().(Bounded); ok {
			most = b.MaxItems()
		}
	case isAny(target):
		list = reflect.ValueOf([]any{})
	default:
		d.mistyped(&at, wanted(target))
		target = reflect.Value{}
	}
	d.space()
	for i := 0; ; i++ {
		if d.peek() == ']' && i == 0 {
			break
		}
		here := path{parent: &at, index: i}
		var item reflect.Value
		keep := list.IsValid() && i <= most
		if keep {
			item = reflect.New(list.Type().Elem()).Elem()
		}
		if err := d.value(item, here); err != nil {
			return err
		}
		if keep {
			list = reflect.Append(list, item)
		}
		d.space()
		if d.peek() != ',' {
			break
		}
		d.pos++
		d.space()
	}
	if d.peek() != ']' {
		return d.syntax("a comma or ] is expected")
	}
	d.pos++
	d.depth--
	if list.IsValid() {
		target.Set(list)
	}
	return nil
}

// wanted describes what a target takes.
func wanted(v reflect.Value) string {
	switch {
	case v.Kind() == reflect.Pointer:
		return wanted(reflect.Zero(v.Type().Elem()))
	case v.Type() == jsonNumber, v.CanFloat():
		return "a number"
	case v.CanInt(), v.CanUint():
		return "an integer"
	}
	switch v.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice:
		return "an array"
	case reflect.Struct:
		if reflect.PointerTo(v.Type()).Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
			return "a string"
		}
	}
	return "an object"
}

// fieldsOf maps the JSON names of a struct's fields to their indexes. The fields
// of an embedded struct without a name of its own are the outer one's.
func fieldsOf(t reflect.Type) map[string][]int {
	m := make(map[string][]int, t.NumField())
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct {
			for inner, at := range fieldsOf(f.Type) {
				m[inner] = append([]int{i}, at...)
			}
			continue
		}
		if !f.IsExported() {
			continue
		}
		switch name {
		case "-":
			continue
		case "":
			name = f.Name
		}
		m[name] = []int{i}
	}
	return m
}
