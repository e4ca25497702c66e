package object

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ErrBadSignature is returned for an identity or a time that git cannot hold.
var ErrBadSignature = errors.New("object: bad signature")

// Signature says who and when. Times are whole seconds from 1970 on; we write
// them in UTC, and read anyone's into UTC.
type Signature struct {
	Name, Email string
	When        time.Time
}

// append adds "<key> <name> <<email>> <seconds> +0000\n". Anything that could
// end the header or be read as another part of it is refused.
func (s Signature) append(b []byte, key string) ([]byte, error) {
	const special = "\n\r\x00<>"
	switch {
	case s.Name == "" || strings.ContainsAny(s.Name, special):
		return nil, fmt.Errorf("%w: name %.64q", ErrBadSignature, s.Name)
	case strings.ContainsAny(s.Email, special):
		return nil, fmt.Errorf("%w: email %.64q", ErrBadSignature, s.Email)
	case s.When.Unix() < 0:
		return nil, fmt.Errorf("%w: time %v", ErrBadSignature, s.When)
	}
	b = append(b, key...)
	b = append(b, ' ')
	b = append(b, s.Name...)
	b = append(b, " <"...)
	b = append(b, s.Email...)
	b = append(b, "> "...)
	b = strconv.AppendInt(b, s.When.Unix(), 10)
	return append(b, " +0000\n"...), nil
}

// parseSignature reads the part after the key. Others' objects may have an
// empty name or another zone; the zone shifts nothing, since git counts seconds.
func parseSignature(line []byte) (Signature, error) {
	bad := func() (Signature, error) {
		return Signature{}, fmt.Errorf("%w: %.128q", ErrBadSignature, line)
	}
	open := bytes.IndexByte(line, '<')
	end := bytes.LastIndexByte(line, '>')
	if open < 0 || end < open {
		return bad()
	}
	name := string(bytes.TrimSuffix(line[:open], []byte{' '}))
	fields := bytes.Fields(line[end+1:])
	if len(fields) != 2 {
		return bad()
	}
	sec, err := strconv.ParseInt(string(fields[0]), 10, 64)
	if err != nil {
		return bad()
	}
	return Signature{Name: name, Email: string(line[open+1 : end]), When: time.Unix(sec, 0).UTC()}, nil
}
