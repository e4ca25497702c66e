package object

import (
	"errors"
	"fmt"
	"strings"
)

// ErrBadTag is returned for bytes that are no annotated tag, and for a TagData
// that cannot be one.
var ErrBadTag = errors.New("object: bad tag")

// TagData is what an annotated tag says.
type TagData struct {
	Object  ID
	Kind    Kind   // of the object
	Name    string // as under refs/tags/
	Tagger  Signature
	Message string // raw bytes, taken as they are
}

// Encode gives the tag's bytes (git-mktag(1)). It refuses what
// CommitData.Encode refuses, and names that no ref could have.
func (t *TagData) Encode() ([]byte, error) {
	switch {
	case t.Object.IsZero():
		return nil, fmt.Errorf("%w: no object", ErrBadTag)
	case t.Kind < Commit || t.Kind > Tag:
		return nil, fmt.Errorf("%w: %v", ErrBadTag, t.Kind)
	case !validTagName(t.Name):
		return nil, fmt.Errorf("%w: name %.64q", ErrBadTag, t.Name)
	case strings.IndexByte(t.Message, 0) >= 0:
		return nil, fmt.Errorf("%w: NUL in the message", ErrBadTag)
	}
	b := make([]byte, 0, 160+len(t.Name)+len(t.Message))
	b = appendHeader(b, "object", t.Object.String())
	b = appendHeader(b, "type", t.Kind.String())
	b = appendHeader(b, "tag", t.Name)
	b, err := t.Tagger.append(b, "tagger")
	if err != nil {
		return nil, err
	}
	b = append(b, '\n')
	return append(b, t.Message...), nil
}

// ParseTag reads an annotated tag. Very old ones have no tagger.
func ParseTag(data []byte) (*TagData, error) {
	h := headers{rest: data}
	t := &TagData{}
	var err error
	if t.Object, err = h.id("object"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadTag, err)
	}
	kind, _ := h.next("type")
	for k := Commit; k <= Tag; k++ {
		if k.String() == string(kind) {
			t.Kind = k
		}
	}
	name, ok := h.next("tag")
	if t.Kind == 0 || !ok {
		return nil, fmt.Errorf("%w: %w", ErrBadTag, errHeader)
	}
	t.Name = string(name)
	if line, ok := h.next("tagger"); ok {
		if t.Tagger, err = parseSignature(line); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadTag, err)
		}
	}
	if t.Message, err = h.message(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadTag, err)
	}
	return t, nil
}

// validTagName holds a name to git-check-ref-format(1).
func validTagName(name string) bool {
	if name == "" || name == "@" || name[0] == '-' || strings.HasSuffix(name, ".") ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") || strings.ContainsAny(name, " ~^:?*[\\\x7f") {
		return false
	}
	for i := range len(name) {
		if name[i] < ' ' {
			return false
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
