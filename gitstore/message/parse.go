package message

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"umbra/gitstore/object"
)

// ErrMalformed is in the chain of an error about umbra's trailers that are not as
// Encode writes them.
var ErrMalformed = errors.New("message: malformed trailers")

// Parse reads a commit's message. Trailers with other keys go to Extra. A
// message that is none of the server's (its last paragraph holds no Source
// trailer) comes back whole in Subject, with Source empty and no error. An
// error wraps ErrMalformed. Parse never panics, whatever the text.
func Parse(s string) (*Message, error) {
	body, block := split(s)
	m := &Message{}
	if !hasKey(block, keySource) {
		m.Subject = strings.TrimRight(s, "\n")
		return m, nil
	}
	m.Subject, m.Summary = splitSummary(body)
	seen := make(map[string]bool, 12)
	for k, v := range trailers(block) {
		if !repeats(k) && isKnownKey(k) {
			if seen[k] {
				return nil, fmt.Errorf("%w: %s occurs twice", ErrMalformed, k)
			}
			seen[k] = true
		}
		if err := m.set(k, v); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// repeats reports whether a key may occur more than once.
func repeats(k string) bool {
	switch k {
	case keyOperation, keyPath, keyOldPath, keyAfterHash, keyPermissions, keyRevEntry, keyReverts:
		return true
	}
	return false
}

func (m *Message) set(k, raw string) error {
	v, ok := Unquote(raw)
	if !ok {
		return bad(k, raw)
	}
	var err error
	switch k {
	case keyTask:
		m.TaskID = v
	case keySubtask:
		m.SubtaskID = v
	case keyActor:
		m.Actor = v
	case keySource:
		if m.Source = Source(v); !m.Source.Valid() {
			return bad(k, raw)
		}
	case keyReason:
		m.Reason = v
	case keyRequest:
		m.RequestID = v
	case keyIdempotency:
		m.IdempotencyKey = v
	case keyAuthor:
		m.Author = v
	case keyDescription:
		m.Description = v
	case keyFiles:
		m.Condensed = true
		if m.Files, err = strconv.Atoi(v); err != nil || m.Files < 0 {
			return bad(k, raw)
		}
	case keyChange:
		if m.Change, err = strconv.ParseUint(v, 10, 64); err != nil {
			return bad(k, raw)
		}
	case keySeq:
		if m.Seq, err = strconv.ParseUint(v, 10, 64); err != nil {
			return bad(k, raw)
		}
	case keyReverts:
		id, err := object.ParseID(v)
		if err != nil {
			return bad(k, raw)
		}
		m.Reverts = append(m.Reverts, id)
	case keyRevEntry:
		r, ok := parseRef(v)
		if !ok {
			return bad(k, raw)
		}
		if n := len(m.Entries); n > 0 {
			m.Entries[n-1].Reverts = append(m.Entries[n-1].Reverts, r)
		} else {
			m.RevertsEntries = append(m.RevertsEntries, r)
		}
	case keyOperation:
		op := Operation(v)
		if !op.Valid() {
			return bad(k, raw)
		}
		m.Entries = append(m.Entries, Entry{Operation: op})
	case keyPath, keyOldPath, keyAfterHash, keyPermissions:
		return m.setEntry(k, v)
	default:
		m.Extra = append(m.Extra, Trailer{Key: k, Value: v})
	}
	return nil
}

// setEntry sets a field of the entry whose group is being read.
func (m *Message) setEntry(k, v string) error {
	if len(m.Entries) == 0 {
		return fmt.Errorf("%w: %s before %s", ErrMalformed, k, keyOperation)
	}
	e := &m.Entries[len(m.Entries)-1]
	field := &e.Path
	switch k {
	case keyOldPath:
		field = &e.OldPath
	case keyAfterHash:
		field = &e.AfterHash
	case keyPermissions:
		field = &e.Permissions
	}
	if *field != "" {
		return fmt.Errorf("%w: %s occurs twice in an entry", ErrMalformed, k)
	}
	*field = v
	return nil
}

func parseRef(v string) (EntryRef, bool) {
	task, num, ok := strings.Cut(v, " ")
	place := ""
	if task == noTask {
		var placed bool
		if num, place, placed = strings.Cut(num, "."); placed && (place == "" || place[0] < '1' || place[0] > '9') {
			return EntryRef{}, false
		}
	}
	id, err := strconv.ParseUint(num, 10, 64)
	if !ok || err != nil {
		return EntryRef{}, false
	}
	if task == noTask {
		n := uint64(0)
		if place != "" {
			n, err = strconv.ParseUint(place, 10, 32)
		}
		return EntryRef{ID: id, N: uint32(n)}, err == nil
	}
	return EntryRef{Task: task, ID: id}, ValidTaskID(task)
}

func bad(k, v string) error {
	if len(v) > 80 {
		v = v[:80]
	}
	return fmt.Errorf("%w: %s: %q", ErrMalformed, k, v)
}

// splitSummary takes the server's own line off the text before the trailers.
func splitSummary(body string) (subject, summary string) {
	if i := strings.LastIndex(body, "\n\n"); i >= 0 {
		return unguard(body[:i]), unguard(body[i+2:])
	}
	return "", unguard(body)
}
