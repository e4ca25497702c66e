package message

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// The keys of an info tag's trailers that commits do not have.
const (
	keyGoal     = "Goal"
	keyStatus   = "Status"
	keyKind     = "Kind"
	keyPinned   = "Pinned"
	keyBaseWas  = "Base-Was"
	keyMetadata = "Metadata"
	keyCreated  = "Created"
	keyUpdated  = "Updated"
)

// Info is a task's record: the message of the annotated tag
// refs/umbra/tasks/<task>/info.
type Info struct {
	TaskID string
	Goal   string // any text; read back as it was, but for bytes that are no UTF-8
	Status string // "executing", "paused", "completed", "failed", "cancelled"
	Kind   string // "virtual", …; empty for the usual one
	Actor  string // who made the task
	// Created and Updated are in UTC, to the nanosecond; the zero time is not
	// written.
	Created, Updated time.Time
	Pinned           bool
	// BaseWas is the id of the task's base before that part of history was
	// dropped; empty while the base still exists.
	BaseWas        string
	Metadata       json.RawMessage // a JSON value, or empty
	RequestID      string
	IdempotencyKey string // of the request that made the task
	Extra          []Trailer
}

// TagName is the name in the tag object: the ref without "refs/", so that
// git-fsck(1) takes it.
func (in *Info) TagName() string { return "umbra/tasks/" + in.TaskID + "/info" }

// EncodeInfo gives the tag's message: the goal as people read it, then the
// trailers. Where the text alone would not give the goal back (it is cleaned
// as a commit's subject is), a Goal trailer holds it exactly. Metadata that is
// no JSON is recorded as a JSON string of its text.
func EncodeInfo(in *Info) string {
	meta := oneLineJSON(in.Metadata)
	goal := strings.ToValidUTF8(in.Goal, "\uFFFD")
	clean := CleanText(goal)
	title := clean
	if title == "" {
		title = "task " + oneLine(in.TaskID)
	}
	dst := appendGuarded(nil, title)
	dst = append(dst, "\n\n"...)
	dst = text(dst, keyTask, in.TaskID)
	if clean == "" || clean != goal {
		dst = key(dst, keyGoal)
		dst = append(appendValue(dst, goal), '\n')
	}
	dst = text(dst, keyStatus, in.Status)
	dst = text(dst, keyKind, in.Kind)
	dst = text(dst, keyActor, in.Actor)
	dst = appendTime(dst, keyCreated, in.Created)
	dst = appendTime(dst, keyUpdated, in.Updated)
	if in.Pinned {
		dst = text(dst, keyPinned, "true")
	}
	dst = text(dst, keyBaseWas, in.BaseWas)
	// JSON needs no quotes: it begins and ends with no space, and a string's
	// quotes are its own.
	if len(meta) > 0 {
		dst = append(append(key(dst, keyMetadata), meta...), '\n')
	}
	dst = text(dst, keyRequest, in.RequestID)
	dst = text(dst, keyIdempotency, in.IdempotencyKey)
	return string(appendExtra(dst, in.Extra))
}

func appendTime(dst []byte, k string, t time.Time) []byte {
	if t.IsZero() {
		return dst
	}
	return append(t.UTC().AppendFormat(key(dst, k), time.RFC3339Nano), '\n')
}

// ParseInfo reads what EncodeInfo wrote, and keeps unknown trailers in Extra.
// An error wraps ErrMalformed.
func ParseInfo(s string) (*Info, error) {
	body, block := split(s)
	in := &Info{Goal: unguard(body)}
	seen := make(map[string]bool, 12)
	for k, v := range trailers(block) {
		if isKnownKey(k) {
			if seen[k] {
				return nil, fmt.Errorf("%w: %s occurs twice", ErrMalformed, k)
			}
			seen[k] = true
		}
		if err := in.set(k, v); err != nil {
			return nil, err
		}
	}
	if in.TaskID == "" {
		return nil, fmt.Errorf("%w: no %s", ErrMalformed, keyTask)
	}
	return in, nil
}

func (in *Info) set(k, raw string) error {
	if k == keyMetadata {
		if !json.Valid([]byte(raw)) {
			return bad(k, raw)
		}
		in.Metadata = json.RawMessage(raw)
		return nil
	}
	v, ok := Unquote(raw)
	if !ok {
		return bad(k, raw)
	}
	var err error
	switch k {
	case keyTask:
		in.TaskID = v
	case keyGoal:
		in.Goal = v
	case keyStatus:
		in.Status = v
	case keyKind:
		in.Kind = v
	case keyActor:
		in.Actor = v
	case keyCreated:
		in.Created, err = time.Parse(time.RFC3339Nano, v)
	case keyUpdated:
		in.Updated, err = time.Parse(time.RFC3339Nano, v)
	case keyPinned:
		in.Pinned, err = strconv.ParseBool(v)
	case keyBaseWas:
		in.BaseWas = v
	case keyRequest:
		in.RequestID = v
	case keyIdempotency:
		in.IdempotencyKey = v
	default:
		in.Extra = append(in.Extra, Trailer{Key: k, Value: v})
	}
	if err != nil {
		return bad(k, raw)
	}
	return nil
}

// oneLineJSON gives a JSON value on one line, of printable characters: what is
// not can be in strings only, and is escaped there. Numbers keep their
// digits, members their order.
func oneLineJSON(raw json.RawMessage) []byte {
	raw = bytes.TrimSpace(bytes.ToValidUTF8(raw, []byte("\uFFFD")))
	if len(raw) == 0 {
		return nil
	}
	if !json.Valid(raw) {
		raw, _ = json.Marshal(string(raw)) // a string always has a form
	}
	var buf bytes.Buffer
	_ = json.Compact(&buf, raw) // it is valid
	compact := buf.Bytes()
	out := make([]byte, 0, len(compact))
	for len(compact) > 0 {
		r, n := utf8.DecodeRune(compact)
		if r == 0x7f || treacherous(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = append(out, compact[:n]...)
		}
		compact = compact[n:]
	}
	return out
}
