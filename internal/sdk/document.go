package sdk

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// The parts of an OpenAPI document that the package uses. In the map content of a body
// or an answer the schema of a media type may be nil.
type (
	openAPI struct {
		servers    []string // addresses, their variables filled in
		operations []definition
	}
	definition struct {
		path, method, id, summary string
		shared, own               []param // of the path, and of the operation
		body                      *content
		responses                 map[string]*content // by status
	}
	content struct {
		required bool
		schemas  map[string]*schema // by media type
	}
	schema struct {
		types      []string
		enum       []any
		nullable   bool
		properties map[string]*schema
		required   []string
		items      *schema
	}
)

// object is a JSON object. It is never copied: its address is what it is known by.
type object = map[string]any

// part is a value in one of the files.
type part struct {
	file  string
	value any
}

// reader reads a document and the files that its references lead to, each once. It
// reaches no network. err is the first error.
type reader struct {
	root    string
	files   map[string]any
	schemas map[uintptr]*schema // by the address of their object
	err     error
}

// maxReferences is how many references may lead to one another.
const maxReferences = 100

// document reads an OpenAPI document.
func document(name string) (*openAPI, error) {
	r := &reader{root: filepath.ToSlash(name), files: map[string]any{}, schemas: map[uintptr]*schema{}}
	root, err := r.open(r.root)
	if err != nil {
		return nil, err
	}
	o, _ := root.(object)
	if version, _ := o["openapi"].(string); !strings.HasPrefix(version, "3.") {
		return nil, errors.New("not an OpenAPI 3 document")
	}
	doc := r.openAPI(part{r.root, o})
	return doc, r.err
}

// open reads a file: JSON, or else YAML.
func (r *reader) open(name string) (value any, err error) {
	if value, ok := r.files[name]; ok {
		return value, nil
	}
	data, err := os.ReadFile(filepath.FromSlash(name))
	if err != nil {
		return nil, err
	}
	if json.Unmarshal(data, &value) != nil {
		value = nil
		if err := yaml.Unmarshal(data, &value); err != nil {
			return nil, fmt.Errorf("neither JSON nor YAML: %w", err)
		}
		value = likeJSON(value)
	}
	r.files[name] = value
	return value, nil
}

// likeJSON makes texts of YAML's dates, and of keys that are numbers, such as statuses.
func likeJSON(value any) any {
	switch v := value.(type) {
	case time.Time:
		return strings.TrimSuffix(v.Format(time.RFC3339Nano), "T00:00:00Z")
	case object:
		for key, field := range v {
			v[key] = likeJSON(field)
		}
	case map[any]any:
		o := make(object, len(v))
		for key, field := range v {
			o[fmt.Sprint(key)] = likeJSON(field)
		}
		return o
	case []any:
		for i, item := range v {
			v[i] = likeJSON(item)
		}
	}
	return value
}

// fail records an error in a file, if it is the first.
func (r *reader) fail(file, format string, args ...any) {
	if r.err != nil {
		return
	}
	if r.err = fmt.Errorf(format, args...); file != r.root {
		r.err = fmt.Errorf("%s: %w", file, r.err)
	}
}

// resolve follows a value's references; the zero part after an error.
func (r *reader) resolve(p part) part {
	for range maxReferences {
		o, _ := p.value.(object)
		ref, ok := o["$ref"].(string)
		if !ok {
			return p
		}
		next, err := r.find(p.file, ref)
		if err != nil {
			r.fail(p.file, "reference %q: %w", ref, err)
			return part{}
		}
		p = next
	}
	r.fail(p.file, "more than %d references lead to one another", maxReferences)
	return part{}
}

// find returns what a reference in a file leads to.
func (r *reader) find(file, ref string) (part, error) {
	u, err := url.Parse(ref)
	if err != nil {
		return part{}, errors.New("not a URL")
	}
	if u.Scheme != "" && u.Scheme != "file" || u.Host != "" {
		return part{}, errors.New("a reference leads out to the network")
	}
	name := u.Path
	switch {
	case name == "":
		name = file
	case !path.IsAbs(name):
		name = path.Join(path.Dir(file), name)
	}
	value, err := r.open(name)
	if err != nil {
		return part{}, err
	}
	found, err := r.at(part{name, value}, u.Fragment)
	if err != nil && u.Path == "" && file != r.root { // a file that is a piece of the document
		if in, again := r.at(part{r.root, r.files[r.root]}, u.Fragment); again == nil {
			return in, nil
		}
	}
	return found, err
}

// at returns the value at a JSON pointer (RFC 6901), through references.
func (r *reader) at(p part, pointer string) (part, error) {
	if pointer == "" {
		return p, nil
	}
	if pointer[0] != '/' {
		return part{}, errors.New("only a path that begins with #/ is understood")
	}
	for key := range strings.SplitSeq(pointer[1:], "/") {
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		if o, ok := p.value.(object); ok && o[key] == nil {
			p = r.resolve(p)
		}
		var next any
		switch v := p.value.(type) {
		case object:
			next = v[key]
		case []any:
			if i, err := strconv.Atoi(key); err == nil && i >= 0 && i < len(v) {
				next = v[i]
			}
		}
		if next == nil {
			return part{}, fmt.Errorf("%q not found", key)
		}
		p.value = next
	}
	return p, nil
}

// field returns a field of an object as the type that it must have, or the zero value.
func field[T any](r *reader, p part, name string) (out T) {
	o, ok := p.value.(object)
	if !ok && p.value != nil {
		r.fail(p.file, "something with %s must be an object", name)
	}
	if v := o[name]; v != nil {
		if out, ok = v.(T); !ok {
			kinds := map[reflect.Kind]string{reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "a list", reflect.Map: "an object"}
			r.fail(p.file, "%s must be %s", name, kinds[reflect.TypeFor[T]().Kind()])
		}
	}
	return out
}

// each calls fn for the fields of the object in a field of a resolved part, by name, but
// not for those that are null.
func (r *reader) each(p part, name string, fn func(name string, p part)) {
	fields := field[object](r, p, name)
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if fields[key] != nil {
			fn(key, r.resolve(part{p.file, fields[key]}))
		}
	}
}

func (r *reader) openAPI(root part) *openAPI {
	doc := &openAPI{}
	for _, s := range field[[]any](r, root, "servers") {
		s := part{root.file, s}
		address := field[string](r, s, "url")
		r.each(s, "variables", func(name string, v part) {
			address = strings.ReplaceAll(address, "{"+name+"}", field[string](r, v, "default"))
		})
		doc.servers = append(doc.servers, address)
	}
	methods := []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodPatch, http.MethodPost, http.MethodPut, http.MethodTrace}
	r.each(root, "paths", func(name string, item part) {
		if strings.HasPrefix(name, "x-") {
			return
		}
		shared := r.parameters(item)
		for _, method := range methods {
			if o := field[object](r, item, strings.ToLower(method)); o != nil {
				d := r.definition(part{item.file, o})
				d.path, d.method, d.shared = name, method, shared
				doc.operations = append(doc.operations, d)
			}
		}
	})
	return doc
}

func (r *reader) definition(o part) definition {
	out := definition{id: field[string](r, o, "operationId"), summary: field[string](r, o, "summary"), own: r.parameters(o), responses: map[string]*content{}}
	if description := field[string](r, o, "description"); out.summary == "" {
		out.summary, _, _ = strings.Cut(description, "\n")
	}
	if body := field[object](r, o, "requestBody"); body != nil {
		out.body = r.content(r.resolve(part{o.file, body}))
	}
	r.each(o, "responses", func(status string, p part) { out.responses[status] = r.content(p) })
	return out
}

func (r *reader) parameters(of part) (out []param) {
	for _, value := range field[[]any](r, of, "parameters") {
		p := r.resolve(part{of.file, value})
		next := param{name: field[string](r, p, "name"), in: field[string](r, p, "in"), style: field[string](r, p, "style"), required: field[bool](r, p, "required")}
		next.required = next.required || next.in == inPath
		next.explode = next.in == inQuery && (next.style == "" || next.style == "form")
		if o, _ := p.value.(object); o != nil {
			if o["explode"] != nil {
				next.explode = field[bool](r, p, "explode")
			}
			next.schema = r.schema(part{p.file, o["schema"]})
		}
		out = append(out, next)
	}
	return out
}

// content reads a body or an answer.
func (r *reader) content(p part) *content {
	out := &content{required: field[bool](r, p, "required"), schemas: map[string]*schema{}}
	r.each(p, "content", func(media string, m part) {
		out.schemas[media] = r.schema(part{m.file, field[any](r, m, "schema")})
	})
	return out
}

// schema returns a schema, which may contain itself; nil where there is none.
func (r *reader) schema(p part) *schema {
	p = r.resolve(p)
	o, ok := p.value.(object)
	if _, anything := p.value.(bool); anything {
		return &schema{}
	}
	if !ok {
		if p.value != nil {
			r.fail(p.file, "a schema must be an object")
		}
		return nil
	}
	at := reflect.ValueOf(o).Pointer()
	if known := r.schemas[at]; known != nil {
		return known
	}
	s := &schema{nullable: field[bool](r, p, "nullable"), enum: field[[]any](r, p, "enum"), properties: map[string]*schema{}}
	r.schemas[at] = s
	if text, ok := o["type"].(string); ok {
		s.types = []string{text}
	} else {
		s.types = r.texts(p, "type")
	}
	s.required = r.texts(p, "required")
	s.items = r.schema(part{p.file, o["items"]})
	r.each(p, "properties", func(name string, property part) { s.properties[name] = r.schema(property) })
	return s
}

func (r *reader) texts(p part, name string) (out []string) {
	for _, item := range field[[]any](r, p, name) {
		text, ok := item.(string)
		if !ok {
			r.fail(p.file, "%s must be a list of strings", name)
		}
		out = append(out, text)
	}
	return out
}
