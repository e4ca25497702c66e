package code

import (
	"bytes"
	"encoding/json"
	"strings"
	"unicode/utf8"

	"umbra/internal/errs"
)

// Limits of what a client may save.
const (
	// MaxCode is the largest text that is saved, in bytes of UTF-8 after
	// extraction.
	MaxCode = 10 << 20
	// MaxBatch is how many files one batch may have.
	MaxBatch = 100

	maxID        = 255 // the longest codeId by the API
	maxSaved     = 252 // the longest whose file name, with ".ts", a folder takes
	maxShown     = 100 // characters of a refused value that are shown
	maxAuthor    = 1 << 10
	maxDescribed = 64 << 10
)

// Fault makes the error of a refused request value, with field, value and reason. raw is the value as it was sent, nil
// where it was not.
func Fault(field string, raw json.RawMessage, message, reason string) *errs.Error {
	e := &errs.Error{Kind: errs.Invalid, Code: "validation_failed", Detail: message}
	return e.With("field", field).With("value", shown(raw)).With("reason", reason)
}

func fault(field string, raw json.RawMessage, message string) error {
	return Fault(field, raw, message, message)
}

// shown is the part of a value that an error repeats: a text cut to maxShown characters,
// a number or truth value as it is, anything else as cut JSON.
func shown(raw json.RawMessage) any {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return nil
	}
	switch raw[0] {
	case '"':
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return cut(s)
		}
	case '{', '[':
	default:
		if len(raw) <= maxShown {
			return raw
		}
	}
	return cut(string(raw))
}

func cut(s string) string {
	n := 0
	for i := range s {
		if n == maxShown {
			return s[:i]
		}
		n++
	}
	return s
}

// missing reports whether a member was left out or null.
func missing(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || string(raw) == "null"
}

// text gives the text of a JSON string.
func text(raw json.RawMessage) (string, bool) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}
	var s string
	err := json.Unmarshal(raw, &s)
	return s, err == nil
}

// CheckID judges a codeId as it was sent. prefix is put before the field's name in
// errors ("files[2].").
func CheckID(prefix string, raw json.RawMessage) (string, error) {
	field := prefix + "codeId"
	if missing(raw) {
		return "", fault(field, nil, "codeId is required")
	}
	id, ok := text(raw)
	switch {
	case !ok:
		return "", fault(field, raw, "codeId must be a string")
	case id == "":
		return "", fault(field, raw, "codeId is required")
	case strings.ContainsAny(id, `/\`) || strings.Contains(id, ".."):
		return "", fault(field, raw, "codeId must not contain path separators or parent directory references")
	case !wellFormed(id):
		return "", fault(field, raw, "codeId must contain only alphanumeric characters, hyphens, and underscores")
	case len(id) > maxID:
		return "", fault(field, raw, tooLong)
	case len(id) > maxSaved:
		return "", Fault(field, raw, tooLong, "with the extension .ts the file's name must not exceed 255 bytes: the longest codeId that can be saved has 252 characters")
	}
	return id, nil
}

const tooLong = "codeId must not exceed 255 characters"

func wellFormed(id string) bool {
	for i := range len(id) {
		c := id[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_') {
			return false
		}
	}
	return id != ""
}

// CheckCode judges the text of a program as it was sent and gives what is to be
// saved or run: the content of its one code block, where it is Markdown.
func CheckCode(prefix string, raw json.RawMessage) (string, error) {
	field := prefix + "code"
	if missing(raw) {
		return "", fault(field, nil, "code is required")
	}
	s, ok := text(raw)
	if !ok {
		return "", fault(field, raw, "code must be a string")
	}
	if strings.TrimSpace(s) == "" {
		return "", fault(field, raw, "code must not be empty")
	}
	s = Extract(s)
	if strings.TrimSpace(s) == "" {
		return "", fault(field, raw, "code must not be empty")
	}
	if len(s) > MaxCode {
		return "", TooLarge(len(s))
	}
	return s, nil
}

// TooLarge is the error of a text of actual bytes; 0: unknown.
func TooLarge(actual int) error {
	e := errs.New(errs.TooLarge, "code_too_large", "Code size exceeds maximum allowed size").With("maxSize", MaxCode)
	if actual > 0 {
		e = e.With("actualSize", actual)
	}
	return e
}

// Meta is what a client says of its save; the commit has it.
type Meta struct{ Author, Description string }

// CheckMeta judges "metadata".
func CheckMeta(raw json.RawMessage) (Meta, error) {
	if missing(raw) {
		return Meta{}, nil
	}
	var fields map[string]json.RawMessage
	if json.Unmarshal(raw, &fields) != nil {
		return Meta{}, fault("metadata", raw, "metadata must be an object")
	}
	var m Meta
	for _, f := range []struct {
		name string
		to   *string
		max  int
	}{{"author", &m.Author, maxAuthor}, {"description", &m.Description, maxDescribed}} {
		value := fields[f.name]
		if missing(value) {
			continue
		}
		s, ok := text(value)
		if !ok {
			return Meta{}, fault("metadata."+f.name, value, "metadata."+f.name+" must be a string")
		}
		if len(s) > f.max || !utf8.ValidString(s) {
			return Meta{}, fault("metadata."+f.name, value, "metadata."+f.name+" is too long")
		}
		*f.to = s
	}
	return m, nil
}

// CheckFlag judges an optional truth value.
func CheckFlag(field string, raw json.RawMessage) (bool, error) {
	if missing(raw) {
		return false, nil
	}
	var on bool
	if json.Unmarshal(raw, &on) != nil {
		return false, fault(field, raw, field+" must be a boolean")
	}
	return on, nil
}
