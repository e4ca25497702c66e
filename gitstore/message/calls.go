package message

import (
	"slices"
	"strings"
)

// The trailers of commits that record what agents did with tools of their own.
// They are in Message.Extra.
const (
	KeyCall         = "Call-Id"
	KeyTool         = "Tool"
	KeyModel        = "Model"
	KeyPrompt       = "Prompt-Id"
	KeyCommandHash  = "Command-Hash"
	KeyCertainty    = "Certainty"       // of all entries that no Certainty-Entry names
	KeyCertaintyOf  = "Certainty-Entry" // "<place from 1> <certainty>": of one entry
	KeyClaimant     = "Claimant"        // a call that may have made the change; several
	KeyClaimantTask = "Claimant-Task"   // "<task>" or "<task> <subtask>" of a Claimant; several
	KeyClaims       = "Claims"          // the shared commit of which the listed entries are this task's
)

// The trailers of commits by which a reviewer takes or leaves hunks of a task, with
// the hunk's id; several. KeyRest says that all that the task had done and that was not
// accepted is rejected, also the lines that no hunk shows: others had deleted them.
// KeyKept has the lines that an accepted hunk adds, so that they stay accepted when others
// delete them: "<hunk> <number of the commit that the lines are of> <ranges> <path>", the
// ranges as "3-5,9-9", or "all"; or "name" or "mode", where that is what was accepted.
const (
	KeyAccepts = "Accepts-Hunk"
	KeyRejects = "Rejects-Hunk"
	KeyRest    = "Rejects-Rest"
	KeyKept    = "Accepts-Lines"
)

// KeyHold is the trailer of a task whose rejections wait until no call of it is open.
const KeyHold = "Hold-Review"

// Holds reports whether a task's further trailers have KeyHold.
func Holds(extra []Trailer) bool {
	return slices.ContainsFunc(extra, func(t Trailer) bool { return t.Key == KeyHold })
}

// KeyPolicy is the trailer of an entry that is against the owner's policy:
// "<rule> <path>", several.
const KeyPolicy = "Policy"

// PolicyTrailer names a rule that the entry of a path is against.
func PolicyTrailer(rule, path string) Trailer {
	return Trailer{Key: KeyPolicy, Value: rule + " " + QuotePath(path)}
}

// Policy returns the rules that entries are against, by their paths; nil for none.
func (m *Message) Policy() map[string][]string {
	var out map[string][]string
	for _, v := range m.Trailers(KeyPolicy) {
		rule, quoted, _ := strings.Cut(v, " ")
		path, ok := Unquote(quoted)
		if !ok || rule == "" {
			continue
		}
		if out == nil {
			out = make(map[string][]string)
		}
		out[path] = append(out[path], rule)
	}
	return out
}

// Trailer returns the value of the first further trailer with a key, "" if
// there is none.
func (m *Message) Trailer(key string) string {
	for _, t := range m.Extra {
		if t.Key == key {
			return t.Value
		}
	}
	return ""
}

// Trailers returns the values of all further trailers with a key.
func (m *Message) Trailers(key string) []string {
	var out []string
	for _, t := range m.Extra {
		if t.Key == key {
			out = append(out, t.Value)
		}
	}
	return out
}
