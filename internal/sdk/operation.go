package sdk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"umbra/internal/sandbox/luau"
)

// operation is one of an API's.
type operation struct {
	api     *api
	name    string
	method  string
	path    string
	summary string
	params  []param
	body    *body
	result  *schema // of the first JSON answer, nil: unknown
}

type param struct {
	name, in string
	required bool
	style    string
	explode  bool
	schema   *schema
}

type body struct {
	required bool
	media    string
	schema   *schema
}

// Names of the argument that is a request's body, and of parameters' places.
const (
	bodyArgument = "body"
	inPath       = "path"
	inQuery      = "query"
	inHeader     = "header"
)

// reserved headers are the request's own, or would lead it elsewhere.
var reserved = []string{"Host", "Content-Length", "Content-Type", "Accept", "Authorization", "Connection", "Transfer-Encoding", "Upgrade", "Te", "Trailer",
	"Proxy-Authorization", "Proxy-Connection", "Keep-Alive"}

func (op *operation) describe(o definition) error {
	at := map[string]int{}
	for _, p := range slices.Concat(o.shared, o.own) {
		if p.in != inPath && p.in != inQuery && p.in != inHeader {
			continue
		}
		if p.in == inHeader && slices.Contains(reserved, http.CanonicalHeaderKey(p.name)) {
			continue
		}
		if p.in == inHeader && !headerName.MatchString(p.name) {
			return fmt.Errorf("parameter %q is not a header's name", p.name)
		}
		if i, again := at[p.in+" "+p.name]; again {
			op.params[i] = p
			continue
		}
		at[p.in+" "+p.name] = len(op.params)
		op.params = append(op.params, p)
	}
	for rest := op.path; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			break
		}
		name, behind, ok := strings.Cut(after, "}")
		if !ok {
			return fmt.Errorf("the path's braces do not match")
		}
		if _, known := at[inPath+" "+name]; !known {
			at[inPath+" "+name] = len(op.params)
			op.params = append(op.params, param{name: name, in: inPath, required: true})
		}
		rest = behind
	}
	if o.body != nil {
		op.body = bodyOf(o.body)
	}
	op.result = resultOf(o)
	return nil
}

// bodyOf chooses JSON where the API takes it.
func bodyOf(b *content) *body {
	out := &body{required: b.required, media: "application/json"}
	names := slices.Sorted(maps.Keys(b.schemas))
	if len(names) > 0 {
		out.media = names[0]
	}
	for _, name := range names {
		if isJSON(name) {
			out.media = name
			break
		}
	}
	out.schema = b.schemas[out.media]
	return out
}

func resultOf(o definition) *schema {
	for _, status := range []string{"200", "201", "202", "2XX", "default"} {
		if answer := o.responses[status]; answer != nil {
			for _, name := range slices.Sorted(maps.Keys(answer.schemas)) {
				if isJSON(name) && answer.schemas[name] != nil {
					return answer.schemas[name]
				}
			}
		}
	}
	return nil
}

func isJSON(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && (media == "application/json" || strings.HasSuffix(media, "+json"))
}

func raise(format string, args ...any) error {
	return &luau.LuaError{Message: fmt.Sprintf(format, args...)}
}

// request makes the HTTP request of a call, or says what is wrong with its
// arguments.
func (op *operation) request(args map[string]json.RawMessage) (*http.Request, error) {
	known := map[string]bool{bodyArgument: op.body != nil}
	path, query, header := op.path, url.Values{}, http.Header{}
	for _, p := range op.params {
		known[p.name] = true
		raw, given := args[p.name]
		if !given || string(raw) == "null" {
			if p.required {
				return nil, raise("missing argument '%s' for %s", p.name, op.name)
			}
			continue
		}
		raw, err := op.check(p.name, raw, p.schema)
		if err != nil {
			return nil, err
		}
		switch p.in {
		case inPath:
			text := p.simple(raw)
			if text == "" || text == "." || text == ".." {
				return nil, raise("argument '%s' of %s cannot be part of a path: %q", p.name, op.name, text)
			}
			path = strings.ReplaceAll(path, "{"+p.name+"}", escapePath(text))
		case inQuery:
			p.query(query, raw)
		case inHeader:
			text := p.simple(raw)
			if strings.ContainsFunc(text, func(r rune) bool { return r < 0x20 && r != '\t' || r == 0x7f }) {
				return nil, raise("argument '%s' of %s cannot be part of a header", p.name, op.name)
			}
			header.Set(p.name, text)
		}
	}
	for name := range args {
		if !known[name] {
			return nil, raise("unknown argument '%s' for %s", name, op.name)
		}
	}
	content, media, err := op.content(args[bodyArgument])
	if err != nil {
		return nil, err
	}
	return op.assemble(path, query, header, content, media)
}

// assemble puts the parts on the API's own address, whatever they are.
func (op *operation) assemble(path string, query url.Values, header http.Header, content []byte, media string) (*http.Request, error) {
	u := *op.api.base
	escaped := strings.TrimSuffix(u.EscapedPath(), "/") + "/" + strings.TrimLeft(path, "/")
	plain, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, raise("the path of %s is malformed", op.name)
	}
	u.Path, u.RawPath, u.RawQuery = plain, escaped, query.Encode()
	req, err := http.NewRequest(op.method, "http://invalid/", bytes.NewReader(content))
	if err != nil {
		return nil, raise("%s cannot be called", op.name)
	}
	if content == nil {
		req.Body, req.GetBody, req.ContentLength = nil, nil, 0
	}
	req.URL, req.Host = &u, u.Host
	req.Header = header
	req.Header.Set("Accept", "application/json, */*;q=0.5")
	req.Header.Set("User-Agent", "umbra")
	if media != "" {
		req.Header.Set("Content-Type", media)
	}
	// The owner's headers come last: no argument takes their place.
	for name, values := range op.api.headers {
		if name == "Host" {
			continue
		}
		req.Header[name] = values
	}
	return req, nil
}

// content makes the request's body; nil for none.
func (op *operation) content(raw json.RawMessage) ([]byte, string, error) {
	if op.body == nil {
		return nil, "", nil
	}
	if raw == nil || string(raw) == "null" {
		if op.body.required {
			return nil, "", raise("missing argument '%s' for %s", bodyArgument, op.name)
		}
		return nil, "", nil
	}
	raw, err := op.check(bodyArgument, raw, op.body.schema)
	if err != nil {
		return nil, "", err
	}
	if isJSON(op.body.media) {
		return raw, op.body.media, nil
	}
	if raw[0] == '"' {
		return []byte(scalar(raw)), op.body.media, nil
	}
	if op.body.media == "application/x-www-form-urlencoded" && raw[0] == '{' {
		form := url.Values{}
		param{explode: true}.query(form, raw)
		return []byte(form.Encode()), op.body.media, nil
	}
	return nil, "", raise("argument '%s' of %s must be a string", bodyArgument, op.name)
}

// check holds a value against its schema's type. An empty table is an array
// where one is wanted.
func (op *operation) check(name string, raw json.RawMessage, s *schema) (json.RawMessage, error) {
	if s == nil || len(s.types) == 0 {
		return raw, nil
	}
	if slices.Contains(s.types, "array") && string(raw) == "{}" && !slices.Contains(s.types, "object") {
		return json.RawMessage("[]"), nil
	}
	have := "number"
	switch raw[0] {
	case '"':
		have = "string"
	case 't', 'f':
		have = "boolean"
	case '[':
		have = "array"
	case '{':
		have = "object"
	}
	if slices.Contains(s.types, have) || have == "number" && slices.Contains(s.types, "integer") && !bytes.ContainsAny(raw, ".eE") {
		return raw, nil
	}
	// A table whose keys are 1 to n is an object all the same, if one is wanted.
	if have == "array" && slices.Contains(s.types, "object") {
		return raw, nil
	}
	return nil, raise("argument '%s' of %s must be %s, got %s", name, op.name, strings.Join(s.types, " or "), have)
}

// escapePath escapes all that is not a letter, digit or one of -_~., and a dot
// at the beginning too: what an argument says is one segment, and never one
// that a server resolves.
func escapePath(text string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '~' || c == '.' && i > 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// scalar is a value as an address has it: strings without quotes.
func scalar(raw json.RawMessage) string {
	if len(raw) > 0 && raw[0] == '"' {
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}
	}
	return string(raw)
}

// simple is a value as paths and headers have it: items joined by commas.
func (p param) simple(raw json.RawMessage) string {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil {
		return scalar(raw)
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = scalar(item)
	}
	return strings.Join(texts, ",")
}

// query adds a value as the parameter's style says: form, or deepObject.
func (p param) query(q url.Values, raw json.RawMessage) {
	var items []json.RawMessage
	var fields map[string]json.RawMessage
	switch {
	case raw[0] == '[' && json.Unmarshal(raw, &items) == nil:
		if !p.explode {
			q.Add(p.name, p.simple(raw))
			return
		}
		for _, item := range items {
			q.Add(p.name, scalar(item))
		}
	case raw[0] == '{' && json.Unmarshal(raw, &fields) == nil:
		for key, v := range fields {
			if p.style == "deepObject" {
				key = p.name + "[" + key + "]"
			}
			q.Add(key, scalar(v))
		}
	default:
		q.Add(p.name, scalar(raw))
	}
}

// maxErrorBody is how much of an answer an error has.
const maxErrorBody = 300

// failed is the error of an answer's status, with the start of its body.
func (op *operation) failed(status int, answer []byte) error {
	text := op.api.mask(strings.ToValidUTF8(string(answer), "\uFFFD"))
	if r := []rune(text); len(r) > maxErrorBody {
		text = string(r[:maxErrorBody]) + "…"
	}
	return raise("HTTP %s from %s: %s", strconv.Itoa(status), op.name, text)
}

// mask takes the owner's headers out of a text.
func (a *api) mask(text string) string {
	for _, secret := range a.secrets {
		text = strings.ReplaceAll(text, secret, "***")
	}
	return text
}
