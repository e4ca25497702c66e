package agentconf

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// madeBy marks files that are written as a whole.
const madeBy = "Made by `umbra init`"

// edit returns a file's content with umbra's part, or without it.
func (f *file) edit(text []byte, remove bool) ([]byte, string, error) {
	switch f.kind {
	case ownFile:
		if text != nil && !bytes.Contains(text, []byte(madeBy)) {
			if remove {
				return text, "", nil
			}
			return nil, "", errors.New("it is another file of this name")
		}
		if remove {
			return nil, "", nil
		}
		return []byte(f.text), "", nil
	case tomlFile:
		return f.editTOML(text, remove)
	}
	if remove && text == nil {
		return nil, "", nil
	}
	d, err := parseDocument(text)
	if err != nil {
		return nil, "", err
	}
	if remove {
		return f.strip(d, text)
	}
	note := ""
	if text == nil {
		for _, p := range f.first {
			if _, err := d.set(p.value, func(string) bool { return false }, p.name); err != nil {
				return nil, "", err
			}
		}
	}
	if f.hook != nil {
		for _, event := range f.hook.events {
			has := func(plain string) bool { return hasHook(f.hook.agent, plain) }
			if err := d.add(f.hook.element(event), oursHook(f.hook.agent), has, "hooks", event); err != nil {
				return nil, "", err
			}
		}
	}
	if f.member != nil {
		left, err := d.set(f.value, oursMCP, f.member...)
		if err != nil {
			return nil, "", err
		}
		if left {
			note = "it has another entry named umbra, which is left"
		}
	}
	return d.text, note, nil
}

func (f *file) strip(d *document, text []byte) ([]byte, string, error) {
	if f.hook != nil {
		for _, event := range f.hook.events {
			if err := d.removeElements(oursHook(f.hook.agent), "hooks", event); err != nil {
				return nil, "", err
			}
		}
	}
	if f.member != nil {
		if v := d.lookup(f.member...); v != nil && oursMCP(plainJSON(*v)) {
			if err := d.remove(f.member...); err != nil {
				return nil, "", err
			}
			if err := d.removeIfEmpty(f.member[:len(f.member)-1]...); err != nil {
				return nil, "", err
			}
		}
	}
	if len(bytes.TrimSpace(text)) == 0 {
		return text, "", nil
	}
	return d.text, "", nil
}

// editTOML appends a table, or cuts it out. The values of all others are compared
// before and after.
func (f *file) editTOML(text []byte, remove bool) ([]byte, string, error) {
	have, others, err := f.table(text)
	if err != nil {
		return nil, "", err
	}
	want := ""
	if !remove {
		if want, err = plainGo(f.value); err != nil {
			return nil, "", err
		}
	}
	switch {
	case have == want:
		return text, "", nil
	case have != "" && !oursMCP(have):
		if remove {
			return text, "", nil
		}
		return text, "it has another entry named umbra, which is left", nil
	}
	header := "[" + strings.Join(f.member, ".") + "]"
	out, cut := cutTable(text, header)
	if have != "" && !cut {
		return nil, "", errShape
	}
	if !remove {
		s, ok := f.value.(server)
		if !ok {
			return nil, "", errShape
		}
		nl := "\n"
		if bytes.Contains(text, []byte("\r\n")) {
			nl = "\r\n"
		}
		var b strings.Builder
		if len(out) > 0 && out[len(out)-1] != '\n' {
			b.WriteString(nl)
		}
		if len(out) > 0 {
			b.WriteString(nl)
		}
		args := make([]string, len(s.Args))
		for i, a := range s.Args {
			args[i] = tomlString(a)
		}
		b.WriteString(header + nl + "command = " + tomlString(s.Command) + nl + "args = [" + strings.Join(args, ", ") + "]" + nl)
		out = append(bytes.Clone(out), b.String()...)
	}
	now, rest, err := f.table(out)
	if err != nil {
		return nil, "", fmt.Errorf("%w: %w", errShape, err)
	}
	if now != want || rest != others {
		return nil, "", fmt.Errorf("%w: %s has more than umbra made", errShape, header)
	}
	return out, "", nil
}

// table returns the standard forms of the member of a TOML text, empty if there is
// none, and of everything else.
func (f *file) table(text []byte) (have, others string, err error) {
	var all map[string]any
	if err := toml.Unmarshal(text, &all); err != nil {
		return "", "", err
	}
	if servers, _ := all[f.member[0]].(map[string]any); servers != nil {
		if entry, ok := servers[f.member[1]]; ok {
			if have, err = plainTOML(entry); err != nil {
				return "", "", err
			}
			delete(servers, f.member[1])
		}
		if len(servers) == 0 {
			delete(all, f.member[0])
		}
	}
	others, err = plainTOML(all)
	return have, others, err
}

// plainTOML is plainGo for what a TOML file holds: JSON has no infinity and no NaN.
func plainTOML(v any) (string, error) {
	var texts func(v any) any
	texts = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			out := make(map[string]any, len(v))
			for name, inner := range v {
				out[name] = texts(inner)
			}
			return out
		case []any:
			out := make([]any, len(v))
			for i, inner := range v {
				out[i] = texts(inner)
			}
			return out
		case string:
			return v
		}
		return fmt.Sprintf("%T %v", v, v)
	}
	return plainGo(texts(v))
}

// tomlString is a basic string of TOML; JSON's escapes are TOML's too.
func tomlString(s string) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if e.Encode(s) != nil {
		return `""`
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// cutTable removes the lines of a table, with the empty line before it, up to the
// next table or a comment.
func cutTable(text []byte, header string) (out []byte, found bool) {
	in := false
	for line := range bytes.Lines(text) {
		word := string(bytes.TrimSpace(line))
		switch {
		case word == header && !found:
			in, found = true, true
			if bytes.HasSuffix(out, []byte("\n\n")) {
				out = out[:len(out)-1]
			} else if bytes.HasSuffix(out, []byte("\n\r\n")) {
				out = out[:len(out)-2]
			}
			continue
		case in && (strings.HasPrefix(word, "[") || strings.HasPrefix(word, "#") || word == ""):
			in = false
		}
		if !in {
			out = append(out, line...)
		}
	}
	return out, found
}
