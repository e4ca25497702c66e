package object

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// ErrBadCommit is returned for bytes that are no commit, and for a CommitData
// that cannot be one.
var ErrBadCommit = errors.New("object: bad commit")

// CommitData is what a commit says.
type CommitData struct {
	Tree              ID
	Parents           []ID
	Author, Committer Signature
	Message           string // raw bytes, taken as they are
}

// Encode gives the commit's bytes (git-commit-tree(1)). It refuses identities
// with a line end, NUL, "<" or ">", a message with NUL, and missing ids.
func (c *CommitData) Encode() ([]byte, error) {
	if c.Tree.IsZero() {
		return nil, fmt.Errorf("%w: no tree", ErrBadCommit)
	}
	if strings.IndexByte(c.Message, 0) >= 0 {
		return nil, fmt.Errorf("%w: NUL in the message", ErrBadCommit)
	}
	b := make([]byte, 0, 46+48*len(c.Parents)+2*96+len(c.Message))
	b = appendHeader(b, "tree", c.Tree.String())
	for _, p := range c.Parents {
		if p.IsZero() {
			return nil, fmt.Errorf("%w: a parent without id", ErrBadCommit)
		}
		b = appendHeader(b, "parent", p.String())
	}
	b, err := c.Author.append(b, "author")
	if err != nil {
		return nil, err
	}
	if b, err = c.Committer.append(b, "committer"); err != nil {
		return nil, err
	}
	b = append(b, '\n')
	return append(b, c.Message...), nil
}

// ParseCommit reads a commit. Headers that we do not write (encoding, gpgsig,
// mergetag) are passed over.
func ParseCommit(data []byte) (*CommitData, error) {
	h := headers{rest: data}
	c := &CommitData{}
	var err error
	if c.Tree, err = h.id("tree"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCommit, err)
	}
	for {
		line, ok := h.next("parent")
		if !ok {
			break
		}
		id, err := ParseID(string(line))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrBadCommit, err)
		}
		c.Parents = append(c.Parents, id)
	}
	if c.Author, err = h.signature("author"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCommit, err)
	}
	if c.Committer, err = h.signature("committer"); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCommit, err)
	}
	if c.Message, err = h.message(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrBadCommit, err)
	}
	return c, nil
}

func appendHeader(b []byte, key, value string) []byte {
	b = append(b, key...)
	b = append(b, ' ')
	b = append(b, value...)
	return append(b, '\n')
}

// headers reads "key value" lines from the front of a commit or tag.
type headers struct{ rest []byte }

var errHeader = errors.New("missing or malformed header")

// next takes the next line if it has this key.
func (h *headers) next(key string) ([]byte, bool) {
	line, rest, ok := bytes.Cut(h.rest, []byte{'\n'})
	if !ok || len(line) <= len(key) || string(line[:len(key)]) != key || line[len(key)] != ' ' {
		return nil, false
	}
	h.rest = rest
	return line[len(key)+1:], true
}

func (h *headers) id(key string) (ID, error) {
	line, ok := h.next(key)
	if !ok {
		return Zero, fmt.Errorf("%w: %s", errHeader, key)
	}
	return ParseID(string(line))
}

func (h *headers) signature(key string) (Signature, error) {
	line, ok := h.next(key)
	if !ok {
		return Signature{}, fmt.Errorf("%w: %s", errHeader, key)
	}
	return parseSignature(line)
}

// message skips the other headers, up to the empty line, and gives the rest.
func (h *headers) message() (string, error) {
	for {
		line, rest, ok := bytes.Cut(h.rest, []byte{'\n'})
		if !ok {
			// git takes an object that ends with its headers.
			if len(h.rest) == 0 {
				return "", nil
			}
			return "", errHeader
		}
		h.rest = rest
		if len(line) == 0 {
			return string(rest), nil
		}
	}
}
