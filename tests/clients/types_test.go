package clients

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// wireTypes are the schemas that the clients' types are generated from; what
// they refer to is generated too.
var wireTypes = []string{"TaskObject", "TaskEntry", "TaskSummary", "TaskWritten", "TaskFileEntry", "TaskListing", "TaskMatch"}

// schema is the part of JSON Schema that our document uses.
type schema struct {
	Ref        string             `json:"$ref"`
	Type       any                `json:"type"`
	Enum       []any              `json:"enum"`
	Properties map[string]*schema `json:"properties"`
	Required   []string           `json:"required"`
	Items      *schema            `json:"items"`
	AllOf      []*schema          `json:"allOf"`
	Additional any                `json:"additionalProperties"`
}

func (s *schema) kinds() []string {
	switch t := s.Type.(type) {
	case string:
		return []string{t}
	case []any:
		var out []string
		for _, k := range t {
			out = append(out, k.(string))
		}
		return out
	}
	return nil
}

func refName(ref string) string { return ref[strings.LastIndexByte(ref, '/')+1:] }

// refs calls fn with each schema that one refers to.
func (s *schema) refs(fn func(name string)) {
	if s == nil {
		return
	}
	if s.Ref != "" {
		fn(refName(s.Ref))
	}
	s.Items.refs(fn)
	for _, p := range s.Properties {
		p.refs(fn)
	}
	for _, p := range s.AllOf {
		p.refs(fn)
	}
}

// typescript is a schema as a TypeScript type.
func (s *schema) typescript() string {
	switch {
	case s == nil:
		return "unknown"
	case s.Ref != "":
		return refName(s.Ref)
	case len(s.AllOf) > 0:
		var parts []string
		for _, p := range s.AllOf {
			parts = append(parts, p.typescript())
		}
		return strings.Join(parts, " & ")
	case len(s.Enum) > 0:
		var parts []string
		for _, v := range s.Enum {
			raw, _ := json.Marshal(v)
			parts = append(parts, string(raw))
		}
		return strings.Join(parts, " | ")
	}
	var parts []string
	for _, k := range s.kinds() {
		switch k {
		case "integer", "number":
			parts = append(parts, "number")
		case "array":
			parts = append(parts, "("+s.Items.typescript()+")[]")
		case "object":
			if len(s.Properties) == 0 {
				parts = append(parts, "Record<string, unknown>")
				continue
			}
			var fields []string
			for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
				fields = append(fields, name+s.optional(name)+": "+s.Properties[name].typescript())
			}
			parts = append(parts, "{ "+strings.Join(fields, "; ")+" }")
		default:
			parts = append(parts, k)
		}
	}
	if len(parts) == 0 {
		return "unknown"
	}
	return strings.Join(parts, " | ")
}

func (s *schema) optional(name string) string {
	if slices.Contains(s.Required, name) {
		return ""
	}
	return "?"
}

// python is a schema as a Python annotation.
func (s *schema) python(all map[string]*schema) string {
	switch {
	case s == nil:
		return "Any"
	case s.Ref != "":
		to := all[refName(s.Ref)]
		if len(to.Properties) > 0 {
			return refName(s.Ref)
		}
		return to.python(all)
	case len(s.AllOf) > 0:
		return "dict[str, Any]"
	}
	var parts []string
	for _, k := range s.kinds() {
		switch k {
		case "string":
			parts = append(parts, "str")
		case "integer":
			parts = append(parts, "int")
		case "number":
			parts = append(parts, "float")
		case "boolean":
			parts = append(parts, "bool")
		case "array":
			parts = append(parts, "list["+s.Items.python(all)+"]")
		case "object":
			parts = append(parts, "dict[str, Any]")
		case "null":
			parts = append(parts, "None")
		}
	}
	if len(parts) == 0 {
		return "Any"
	}
	return strings.Join(parts, " | ")
}

// generate writes the clients' types from a document.
func generate(t *testing.T, document []byte) (typescript, python string) {
	t.Helper()
	var doc struct {
		Components struct {
			Schemas map[string]*schema `json:"schemas"`
		} `json:"components"`
	}
	need.NoError(t, json.Unmarshal(document, &doc))
	all := doc.Components.Schemas
	wanted := map[string]bool{}
	var want func(name string)
	want = func(name string) {
		if wanted[name] {
			return
		}
		if all[name] == nil {
			t.Fatalf("the document has no schema %s", name)
		}
		wanted[name] = true
		all[name].refs(want)
	}
	for _, name := range wireTypes {
		want(name)
	}
	var ts, py strings.Builder
	ts.WriteString("// Generated from openapi.json by tests/clients (UMBRA_UPDATE=1). Do not edit.\n")
	py.WriteString("# Generated from openapi.json by tests/clients (UMBRA_UPDATE=1). Do not edit.\n" +
		"from __future__ import annotations\n\nfrom dataclasses import dataclass, field\nfrom typing import Any\n")
	for _, name := range slices.Sorted(maps.Keys(wanted)) {
		s := all[name]
		if len(s.Properties) == 0 {
			fmt.Fprintf(&ts, "\nexport type %s = %s;\n", name, s.typescript())
			continue
		}
		fmt.Fprintf(&ts, "\nexport interface %s {\n", name)
		fmt.Fprintf(&py, "\n\n@dataclass\nclass %s:\n", name)
		for _, p := range slices.Sorted(maps.Keys(s.Properties)) {
			fmt.Fprintf(&ts, "  %s%s: %s;\n", p, s.optional(p), s.Properties[p].typescript())
			kind := s.Properties[p].python(all)
			if !strings.Contains(kind, "None") {
				kind += " | None"
			}
			fmt.Fprintf(&py, "    %s: %s = None\n", p, kind)
		}
		ts.WriteString("}\n")
		py.WriteString("    extra: dict[str, Any] = field(default_factory=dict)\n")
	}
	return ts.String(), py.String()
}

var block = regexp.MustCompile(`(?m)^(?:export interface|export type|class) (\w+)`)

// members maps each type of a generated file to its lines.
func members(text string) map[string][]string {
	out := map[string][]string{}
	name := ""
	for line := range strings.SplitSeq(text, "\n") {
		if m := block.FindStringSubmatch(line); m != nil {
			name = m[1]
		}
		if name != "" && strings.HasPrefix(line, "  ") {
			out[name] = append(out[name], line)
		}
	}
	return out
}

// TestTypes holds the clients' types to the server's document. A field that the
// document has and a client does not know yet is allowed, as adding one to an
// answer always is; one that is gone or has another type is an error.
func TestTypes(t *testing.T) {
	s := harness.Start(t, harness.Options{})
	res, err := s.Client.Get(s.URL + "/openapi.json")
	need.NoError(t, err)
	defer res.Body.Close()
	document, err := io.ReadAll(res.Body)
	need.NoError(t, err)
	ts, py := generate(t, document)
	for name, want := range map[string]string{"../../clients/typescript/src/wire.ts": ts, "../../clients/python/umbra/wire.py": py} {
		if os.Getenv("UMBRA_UPDATE") != "" {
			need.NoError(t, os.WriteFile(name, []byte(want), 0o644))
			continue
		}
		have, err := os.ReadFile(name)
		need.NoError(t, err)
		now := members(want)
		for kind, lines := range members(string(have)) {
			for _, line := range lines {
				if !slices.Contains(now[kind], line) && !grown(line, now[kind]) {
					t.Errorf("%s: %s has%s, and the document does not; run UMBRA_UPDATE=1 go test ./tests/clients", name, kind, line)
				}
			}
		}
		if string(have) != want {
			t.Logf("%s: the document has more; run UMBRA_UPDATE=1 go test ./tests/clients", name)
		}
	}
}

// grown reports whether a field is there with a type that has the old one's
// words and more: a new value of an enumeration, a new field of an object.
func grown(line string, now []string) bool {
	word := regexp.MustCompile(`[\w"]+`)
	name := word.FindString(line)
	for _, other := range now {
		if word.FindString(other) != name {
			continue
		}
		have := word.FindAllString(other, -1)
		for _, w := range word.FindAllString(line, -1) {
			if !slices.Contains(have, w) {
				return false
			}
		}
		return true
	}
	return false
}
