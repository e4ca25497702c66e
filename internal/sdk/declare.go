package sdk

import (
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Declarations are Luau type declarations of the table sdk.
func (s *SDK) Declarations() string { return s.declarations }

// declare writes the table sdk: operations, and tables of them.
func declare(functions []function) string {
	var b strings.Builder
	b.WriteString("declare sdk: {\n")
	groups := map[string][]function{}
	for _, f := range functions {
		if len(f.path) > 1 {
			groups[f.path[0]] = append(groups[f.path[0]], f)
			continue
		}
		f.op.declare(&b, "\t")
	}
	for _, name := range slices.Sorted(maps.Keys(groups)) {
		b.WriteString("\t" + name + ": {\n")
		for _, f := range groups[name] {
			f.op.declare(&b, "\t\t")
		}
		b.WriteString("\t},\n")
	}
	b.WriteString("}\n")
	return b.String()
}

func (op *operation) declare(b *strings.Builder, indent string) {
	summary := op.api.mask(strings.TrimSpace(op.summary))
	if summary != "" {
		b.WriteString(indent + "-- " + strings.Join(strings.Fields(summary), " ") + "\n")
	}
	required := false
	fields := map[string]string{}
	add := func(name string, needed bool, s *schema) {
		required = required || needed
		text := typeOf(s, 0)
		if !needed {
			text = optional(text)
		}
		fields[name] = text
	}
	for _, p := range op.params {
		add(p.name, p.required, p.schema)
	}
	if op.body != nil {
		add(bodyArgument, op.body.required, op.body.schema)
	}
	args := ""
	if len(fields) > 0 {
		args = "args: " + table(fields)
		if !required {
			args += "?"
		}
	}
	b.WriteString(indent + op.name + ": (" + args + ") -> " + typeOf(op.result, 0) + ",\n")
}

func optional(text string) string {
	if strings.Contains(text, " | ") {
		text = "(" + text + ")"
	}
	return text + "?"
}

// table writes a table's type, its fields by name.
func table(fields map[string]string) string {
	parts := make([]string, 0, len(fields))
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		key := name
		if !identifier.MatchString(name) {
			key = "[" + strconv.Quote(name) + "]"
		}
		parts = append(parts, key+": "+fields[name])
	}
	return "{ " + strings.Join(parts, ", ") + " }"
}

// maxTypeDepth is how deep a type is spelled out; schemas may be endless.
const maxTypeDepth = 5

// typeOf gives the Luau type of a schema.
func typeOf(s *schema, depth int) string {
	if s == nil || depth > maxTypeDepth {
		return "any"
	}
	if len(s.enum) > 0 {
		var words []string
		for _, e := range s.enum {
			word, ok := e.(string)
			if !ok {
				words = nil
				break
			}
			words = append(words, strconv.Quote(word))
		}
		if len(words) > 0 {
			return strings.Join(words, " | ")
		}
	}
	if len(s.types) == 0 {
		if len(s.properties) > 0 {
			return objectType(s, depth)
		}
		return "any"
	}
	var kinds []string
	null := s.nullable
	for _, t := range s.types {
		switch t {
		case "null":
			null = true
		case "integer", "number":
			kinds = append(kinds, "number")
		case "string", "boolean":
			kinds = append(kinds, t)
		case "array":
			kinds = append(kinds, "{ "+typeOf(s.items, depth+1)+" }")
		case "object":
			kinds = append(kinds, objectType(s, depth))
		default:
			kinds = append(kinds, "any")
		}
	}
	slices.Sort(kinds)
	text := strings.Join(slices.Compact(kinds), " | ")
	if text == "" {
		return "nil"
	}
	if null && text != "any" {
		return optional(text)
	}
	return text
}

func objectType(s *schema, depth int) string {
	if len(s.properties) == 0 {
		return "{ [string]: any }"
	}
	fields := map[string]string{}
	for name, p := range s.properties {
		text := typeOf(p, depth+1)
		if !slices.Contains(s.required, name) && !strings.HasSuffix(text, "?") && text != "any" {
			text = optional(text)
		}
		fields[name] = text
	}
	return table(fields)
}
