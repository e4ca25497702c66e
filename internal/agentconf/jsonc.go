package agentconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/tailscale/hujson"
)

// errShape means that a file is valid, but has a value of another kind where an
// edit needs an object or an array.
var errShape = errors.New("it has another shape than the agent's documentation says")

// document is a JSON text with comments and trailing commas (JSONC). Edits change
// bytes at one place and leave all others as they are.
type document struct {
	text []byte
	root hujson.Value
	unit string // of indentation
	nl   string
}

// parseDocument parses a file; one without content is an empty object. The text
// is parsed again after each edit: these files are small.
func parseDocument(text []byte) (*document, error) {
	d := &document{text: text, unit: "  ", nl: "\n"}
	if bytes.Contains(text, []byte("\r\n")) {
		d.nl = "\r\n"
	}
	if len(bytes.TrimSpace(bytes.TrimPrefix(text, []byte("\xef\xbb\xbf")))) == 0 {
		d.text = append(bytes.Clone(text), "{}"+d.nl...)
	}
	for line := range bytes.Lines(d.text) {
		rest := bytes.TrimLeft(line, " \t")
		if n := len(line) - len(rest); n > 0 && len(bytes.TrimSpace(rest)) > 0 && rest[0] != '*' {
			d.unit = string(line[:n])
			break
		}
	}
	return d, d.parse()
}

func (d *document) parse() error {
	text := d.text
	if bytes.HasPrefix(text, []byte("\xef\xbb\xbf")) {
		// Same length, so that offsets hold.
		text = append([]byte("   "), text[3:]...)
	}
	root, err := hujson.Parse(text)
	if err != nil {
		return err
	}
	if _, ok := root.Value.(*hujson.Object); !ok {
		return errShape
	}
	d.root = root
	return nil
}

// member returns the value of a member; of several of one name the last, as
// parsers take it.
func member(v *hujson.Value, name string) *hujson.Value {
	o, ok := v.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	var found *hujson.Value
	for i := range o.Members {
		if l, ok := o.Members[i].Name.Value.(hujson.Literal); ok && l.String() == name {
			found = &o.Members[i].Value
		}
	}
	return found
}

// lookup returns the value at a path of member names; nil if there is none.
func (d *document) lookup(path ...string) *hujson.Value {
	v := &d.root
	for _, name := range path {
		if v = member(v, name); v == nil {
			return nil
		}
	}
	return v
}

// plainJSON returns a value's standard form, for comparison.
func plainJSON(v hujson.Value) string {
	c := v.Clone()
	c.Standardize()
	var x any
	if json.Unmarshal(c.Pack(), &x) != nil {
		return ""
	}
	raw, err := json.Marshal(x)
	if err != nil {
		return ""
	}
	return string(raw)
}

func plainGo(v any) (string, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	var x any
	if err := json.Unmarshal(raw, &x); err != nil {
		return "", err
	}
	raw, err = json.Marshal(x)
	return string(raw), err
}

// object makes sure that there is an object at a path.
func (d *document) object(path ...string) error {
	for i := range path {
		v := d.lookup(path[:i+1]...)
		if v == nil {
			if err := d.insert(d.lookup(path[:i]...), path[i], map[string]any{}); err != nil {
				return err
			}
			continue
		}
		if _, ok := v.Value.(*hujson.Object); !ok {
			return fmt.Errorf("%w: %s is not an object", errShape, strings.Join(path[:i+1], "."))
		}
	}
	return nil
}

// set gives a member a value. One that exists is only replaced if ours says so
// of its standard form; else it is left, and left is true.
func (d *document) set(value any, ours func(plain string) bool, path ...string) (left bool, err error) {
	n := len(path) - 1
	if err := d.object(path[:n]...); err != nil {
		return false, err
	}
	want, err := plainGo(value)
	if err != nil {
		return false, err
	}
	v := d.lookup(path...)
	switch {
	case v == nil:
		return false, d.insert(d.lookup(path[:n]...), path[n], value)
	case plainJSON(*v) == want:
		return false, nil
	case !ours(plainJSON(*v)):
		return true, nil
	}
	return false, d.replace(v, value)
}

// add makes sure that an array has an element. One that is ours is replaced if it
// differs; one that has ours among others is left.
func (d *document) add(element any, ours, has func(plain string) bool, path ...string) error {
	n := len(path) - 1
	if err := d.object(path[:n]...); err != nil {
		return err
	}
	v := d.lookup(path...)
	if v == nil {
		return d.insert(d.lookup(path[:n]...), path[n], []any{element})
	}
	list, ok := v.Value.(*hujson.Array)
	if !ok {
		return fmt.Errorf("%w: %s is not an array", errShape, strings.Join(path, "."))
	}
	want, err := plainGo(element)
	if err != nil {
		return err
	}
	for i := range list.Elements {
		switch have := plainJSON(list.Elements[i]); {
		case have == want:
			return nil
		case ours(have):
			return d.replace(&list.Elements[i], element)
		case has(have):
			return nil
		}
	}
	return d.insert(v, "", element)
}

// format writes a value with the document's indentation.
func (d *document) format(v any, indent string) (string, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent(indent, d.unit)
	if err := e.Encode(v); err != nil {
		return "", err
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), "\n"), "\n", d.nl), nil
}

// indentAt returns the white space with which the line of an offset begins.
func (d *document) indentAt(offset int) string {
	start := bytes.LastIndexByte(d.text[:offset], '\n') + 1
	line := d.text[start:offset]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

func (d *document) splice(from, to int, text string) error {
	old := d.text
	d.text = append(append(append([]byte(nil), old[:from]...), text...), old[to:]...)
	if err := d.parse(); err != nil {
		d.text = old
		return err
	}
	return nil
}

func (d *document) replace(v *hujson.Value, value any) error {
	text, err := d.format(value, d.indentAt(v.StartOffset))
	if err != nil {
		return err
	}
	return d.splice(v.StartOffset, v.EndOffset, text)
}

// insert appends a member (or, with an empty name, an element) to a composite.
func (d *document) insert(into *hujson.Value, name string, value any) error {
	if into == nil {
		return errShape
	}
	lastEnd, firstStart := 0, 0
	switch c := into.Value.(type) {
	case *hujson.Object:
		if n := len(c.Members); n > 0 {
			lastEnd, firstStart = c.Members[n-1].Value.EndOffset, c.Members[0].Name.StartOffset
		}
	case *hujson.Array:
		if n := len(c.Elements); n > 0 {
			lastEnd, firstStart = c.Elements[n-1].EndOffset, c.Elements[0].StartOffset
		}
	default:
		return errShape
	}
	closing := into.EndOffset - 1
	// After the last comment or value.
	at := len(bytes.TrimRight(d.text[:closing], " \t\r\n"))
	outer := d.indentAt(into.StartOffset)
	inner := outer + d.unit
	oneLine := lastEnd > 0 && !bytes.ContainsRune(d.text[into.StartOffset:closing], '\n')
	if lastEnd > 0 && !oneLine && bytes.ContainsRune(d.text[into.StartOffset:firstStart], '\n') {
		inner = d.indentAt(firstStart)
	}
	text, err := d.format(value, inner)
	if err != nil {
		return err
	}
	if name != "" {
		key, err := d.format(name, "")
		if err != nil {
			return err
		}
		text = key + ": " + text
	}
	if oneLine {
		if d.commaAfter(lastEnd, closing) {
			return d.splice(at, at, " "+text)
		}
		return d.splice(lastEnd, lastEnd, ", "+text)
	}
	text = d.nl + inner + text
	if !bytes.ContainsRune(d.text[at:closing], '\n') {
		text += d.nl + outer
	}
	switch {
	case lastEnd == 0:
		return d.splice(at, at, text)
	case d.commaAfter(lastEnd, closing):
		return d.splice(at, at, text)
	}
	return d.splice(lastEnd, at, ","+string(d.text[lastEnd:at])+text)
}

// commaAfter reports whether the last value has a comma after it.
func (d *document) commaAfter(from, to int) bool { return d.comma(from, to) >= 0 }

// comma returns the offset of the first comma between two values that is in no
// comment; -1 if there is none.
func (d *document) comma(from, to int) int {
	for i := from; i < to; i++ {
		switch c := d.text[i]; {
		case c == ',':
			return i
		case c == '/' && i+1 < to && d.text[i+1] == '/':
			for i < to && d.text[i] != '\n' {
				i++
			}
		case c == '/' && i+1 < to && d.text[i+1] == '*':
			end := bytes.Index(d.text[i+2:to], []byte("*/"))
			if end < 0 {
				return -1
			}
			i += end + 3
		}
	}
	return -1
}

// span is where an item of a composite is.
type span struct{ start, end int }

// cut removes one item of a composite, with one comma and the line that it had to
// itself. Comments stay, whatever they are about.
func (d *document) cut(v *hujson.Value, items []span, i int) error {
	from, to := items[i].start, items[i].end
	closing := v.EndOffset - 1
	comma := d.comma(to, closing)
	if comma >= 0 && len(bytes.TrimSpace(d.text[to:comma])) == 0 {
		to, comma = comma+1, -1
	} else if i > 0 {
		comma = d.comma(items[i-1].end, from)
	}
	const blank = " \t"
	left := len(bytes.TrimRight(d.text[:from], blank))
	rest := bytes.TrimLeft(d.text[to:], blank)
	lineEnds := bytes.HasPrefix(rest, []byte("\n")) || bytes.HasPrefix(rest, []byte("\r\n"))
	switch {
	case lineEnds && bytes.HasSuffix(d.text[:left], []byte("\r\n")):
		from, to = left-2, len(d.text)-len(rest)
	case lineEnds && bytes.HasSuffix(d.text[:left], []byte("\n")):
		from, to = left-1, len(d.text)-len(rest)
	case i > 0:
		from = left
	default:
		to = len(d.text) - len(rest)
	}
	text := string(d.text[:from])
	if comma >= 0 && comma < from {
		text = text[:comma] + text[comma+1:]
	}
	inside := len(text) // where what follows the item begins
	text += string(d.text[to:])
	if comma >= to {
		at := inside + comma - to
		text = text[:at] + text[at+1:]
	}
	if open, end := v.StartOffset+1, len(text)-(len(d.text)-closing); len(items) == 1 && strings.TrimSpace(text[open:end]) == "" {
		text = text[:open] + text[end:]
	}
	return d.splice(0, len(d.text), text)
}

// remove takes out the member at a path.
func (d *document) remove(path ...string) error {
	n := len(path) - 1
	parent := d.lookup(path[:n]...)
	if parent == nil {
		return nil
	}
	o, ok := parent.Value.(*hujson.Object)
	if !ok {
		return nil
	}
	items := make([]span, len(o.Members))
	at := -1
	for i, m := range o.Members {
		items[i] = span{m.Name.StartOffset, m.Value.EndOffset}
		if l, ok := m.Name.Value.(hujson.Literal); ok && l.String() == path[n] {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	return d.cut(parent, items, at)
}

// removeElements takes out the elements that are ours, and what is empty then.
func (d *document) removeElements(ours func(plain string) bool, path ...string) error {
	for {
		v := d.lookup(path...)
		if v == nil {
			return nil
		}
		list, ok := v.Value.(*hujson.Array)
		if !ok {
			return nil
		}
		items := make([]span, len(list.Elements))
		at := -1
		for i := range list.Elements {
			items[i] = span{list.Elements[i].StartOffset, list.Elements[i].EndOffset}
			if at < 0 && ours(plainJSON(list.Elements[i])) {
				at = i
			}
		}
		if at < 0 {
			return nil
		}
		if len(items) == 1 {
			if err := d.remove(path...); err != nil {
				return err
			}
			return d.removeIfEmpty(path[:len(path)-1]...)
		}
		if err := d.cut(v, items, at); err != nil {
			return err
		}
	}
}

func (d *document) removeIfEmpty(path ...string) error {
	if len(path) == 0 {
		return nil
	}
	if v := d.lookup(path...); v != nil {
		if o, ok := v.Value.(*hujson.Object); ok && len(o.Members) == 0 {
			return d.remove(path...)
		}
	}
	return nil
}
