// Package access keeps the tokens by which others than the owner get in: those
// of the settings, which are as long as the program runs, and those that the
// owner adds and removes meanwhile, which are in state.db.
//
// Invariants: no secret is kept, only its SHA-256. Tokens are on from the first
// one that was added until the owner turns them off, also while there is none
// left, and also after a restart: that the last one is gone never opens a door.
package access

import (
	"crypto/rand"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Scope says what a token may do.
type Scope uint8

// The scopes, each with all that the ones before it may do.
const (
	Read Scope = iota
	Write
	Exec // runs commands as the server's user
)

// String gives the scope's word in settings and answers.
func (s Scope) String() string {
	switch s {
	case Exec:
		return "exec"
	case Write:
		return "write"
	}
	return "read"
}

// ParseScope reads a scope's word.
func ParseScope(word string) (s Scope, ok bool) {
	switch word {
	case "read":
		return Read, true
	case "write":
		return Write, true
	case "exec":
		return Exec, true
	}
	return Read, false
}

// Sum is the SHA-256 of a secret.
type Sum = [sha256.Size]byte

// Token is one that the server knows: never the secret, only its hash.
type Token struct {
	Name    string
	SHA256  Sum
	Scope   Scope
	Roots   []string  // canonical folders; none: sees everything, opens nothing new
	Expires time.Time // zero: never
	Created time.Time // zero: it is in the settings
}

// Expired reports whether the token's time is over.
func (t *Token) Expired(now time.Time) bool { return !t.Expires.IsZero() && !now.Before(t.Expires) }

// Fixed reports whether the token is in the settings.
func (t *Token) Fixed() bool { return t.Created.IsZero() }

// prefix begins every secret that is made here, so that people and the scanners
// of code hosts know one when they see it.
const prefix = "umbra_"

// newSecret makes a token's secret: the prefix and 210 random bits, as 42
// characters of base32.
func newSecret() string { return prefix + strings.ToLower(rand.Text()+rand.Text()[:16]) }

// ValidName reports whether a token may have a name. It becomes the author of
// commits: 1 to 128 printable characters without < and >, and no space around.
func ValidName(s string) bool {
	if !utf8.ValidString(s) || s == "" || strings.TrimSpace(s) != s || utf8.RuneCountInString(s) > 128 {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return r == '<' || r == '>' || !unicode.IsPrint(r) })
}

// Canonical gives the form in which folders are compared: absolute, with the
// links resolved of what is there already.
func Canonical(folder string) string {
	at := filepath.Clean(folder)
	rest := ""
	for dir := at; ; {
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			return filepath.Join(real, rest)
		}
		if !os.IsNotExist(err) || filepath.Dir(dir) == dir {
			return at
		}
		rest = filepath.Join(filepath.Base(dir), rest)
		dir = filepath.Dir(dir)
	}
}
