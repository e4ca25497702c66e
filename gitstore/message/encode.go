package message

import (
	"strconv"
	"strings"
)

// The keys of a commit message's trailers.
const (
	keyTask        = "Task-Id"
	keySubtask     = "Subtask-Id"
	keyFiles       = "Files"
	keyOperation   = "Operation"
	keyPath        = "Path"
	keyOldPath     = "Old-Path"
	keyAfterHash   = "After-Hash"
	keyPermissions = "Permissions"
	keyRevEntry    = "Reverts-Entry"
	keyReverts     = "Reverts"
	keyActor       = "Actor"
	keySource      = "Source"
	keyReason      = "Reason"
	keyRequest     = "Request-Id"
	keyIdempotency = "Idempotency-Key"
	keyAuthor      = "Author"
	keyDescription = "Description"
	keyChange      = "Change"
	keySeq         = "Seq"
)

// isKnownKey reports whether a key is one of this package's, in any case:
// git does not distinguish it.
func isKnownKey(key string) bool {
	for _, k := range [...]string{keyTask, keySubtask, keyFiles, keyOperation, keyPath, keyOldPath, keyAfterHash,
		keyPermissions, keyRevEntry, keyReverts, keyActor, keySource, keyReason, keyRequest, keyIdempotency,
		keyAuthor, keyDescription, keyChange, keySeq,
		keyGoal, keyStatus, keyKind, keyPinned, keyBaseWas, keyMetadata, keyCreated, keyUpdated} {
		if len(k) == len(key) && strings.EqualFold(k, key) {
			return true
		}
	}
	return false
}

// ValidKey reports whether a key can be a trailer's in Extra: letters, digits
// and "-", beginning with a letter or digit, and none of this package's own.
func ValidKey(key string) bool {
	if key == "" || !alnum(key[0]) || isKnownKey(key) || isMailKey(key) {
		return false
	}
	for i := 1; i < len(key); i++ {
		if !alnum(key[i]) && key[i] != '-' {
			return false
		}
	}
	return true
}

// Encode returns the message's text, as it follows a commit's header:
// UTF-8, ending in a newline. A trailer in Extra whose key is not ValidKey is
// left out. Safe for concurrent use, m is not changed.
func (m *Message) Encode() string {
	return string(m.Append(make([]byte, 0, 512+256*min(len(m.Entries), MaxListed))))
}

// Append appends what Encode gives.
func (m *Message) Append(dst []byte) []byte {
	if text := CleanText(m.Subject); text != "" {
		dst = appendGuarded(dst, text)
		dst = append(dst, "\n\n"...)
	}
	summary := oneLine(m.Summary)
	if summary == "" {
		summary = m.summary()
	}
	dst = appendGuarded(dst, summary)
	dst = append(dst, "\n\n"...)

	dst = text(dst, keyTask, m.TaskID)
	dst = text(dst, keySubtask, m.SubtaskID)
	dst = m.appendEntries(dst)
	for _, id := range m.Reverts {
		dst = text(dst, keyReverts, id.String())
	}
	dst = text(dst, keyActor, m.Actor)
	dst = text(dst, keySource, string(m.Source))
	dst = text(dst, keyReason, m.Reason)
	dst = text(dst, keyRequest, m.RequestID)
	dst = text(dst, keyIdempotency, m.IdempotencyKey)
	dst = text(dst, keyAuthor, m.Author)
	dst = text(dst, keyDescription, m.Description)
	dst = appendExtra(dst, m.Extra)
	dst = number(dst, keyChange, m.Change)
	return number(dst, keySeq, m.Seq)
}

// mustCondense reports whether "Files:" replaces the list of entries.
func (m *Message) mustCondense() bool {
	return m.Condensed || m.Files > 0 || m.Source == Baseline || len(m.Entries) > MaxListed
}

// count is the number of the change set's entries.
func (m *Message) count() int {
	if m.Files > 0 {
		return m.Files
	}
	return len(m.Entries)
}

func (m *Message) appendEntries(dst []byte) []byte {
	condensed := m.mustCondense()
	if condensed {
		dst = key(dst, keyFiles)
		dst = append(strconv.AppendInt(dst, int64(m.count()), 10), '\n')
	}
	for _, r := range m.RevertsEntries {
		dst = appendRef(dst, r)
	}
	if condensed {
		for i := range m.Entries {
			if e := &m.Entries[i]; !e.beyondTrees() {
				for _, r := range e.Reverts {
					dst = appendRef(dst, r)
				}
			}
		}
	}
	for i := range m.Entries {
		if e := &m.Entries[i]; !condensed || e.beyondTrees() {
			dst = e.append(dst)
		}
	}
	return dst
}

func (e *Entry) append(dst []byte) []byte {
	dst = text(dst, keyOperation, string(e.Operation))
	dst = path(dst, keyPath, e.Path)
	if e.OldPath != "" {
		dst = path(dst, keyOldPath, e.OldPath)
	}
	dst = text(dst, keyAfterHash, e.AfterHash)
	dst = text(dst, keyPermissions, e.Permissions)
	for _, r := range e.Reverts {
		dst = appendRef(dst, r)
	}
	return dst
}

func appendRef(dst []byte, r EntryRef) []byte {
	if r.Task != "" {
		return text(dst, keyRevEntry, r.Task+" "+strconv.FormatUint(r.ID, 10))
	}
	name := noTask + " " + strconv.FormatUint(r.ID, 10)
	if r.N != 0 {
		name += "." + strconv.FormatUint(uint64(r.N), 10)
	}
	return text(dst, keyRevEntry, name)
}

// noTask is how a Reverts-Entry writes an EntryRef without a task. No id begins
// with it.
const noTask = "-"

func appendExtra(dst []byte, extra []Trailer) []byte {
	for _, t := range extra {
		if ValidKey(t.Key) {
			dst = key(dst, t.Key)
			dst = append(appendValue(dst, t.Value), '\n')
		}
	}
	return dst
}

func key(dst []byte, k string) []byte {
	dst = append(dst, k...)
	return append(dst, ": "...)
}

// text writes a trailer unless its value is empty.
func text(dst []byte, k, v string) []byte {
	if v == "" {
		return dst
	}
	return append(appendValue(key(dst, k), v), '\n')
}

func path(dst []byte, k, p string) []byte {
	return append(appendPath(key(dst, k), p), '\n')
}

// number writes a trailer unless its value is 0.
func number(dst []byte, k string, v uint64) []byte {
	if v == 0 {
		return dst
	}
	return append(strconv.AppendUint(key(dst, k), v, 10), '\n')
}
