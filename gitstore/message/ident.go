package message

import (
	"encoding/hex"
	"strings"
	"unicode"
)

// The server's own identity, and the domain that no mail is ever sent to
// (RFC 2606).
const (
	ServerName  = "umbra"
	ServerEmail = "umbra@umbra.invalid"
	domain      = "@umbra.invalid"
)

// Committer gives the committer of every commit and the tagger of every tag.
func Committer() (name, email string) { return ServerName, ServerEmail }

// Author gives the author of an actor's commit: a name that git accepts in a
// header whatever the actor is, and "<name>@umbra.invalid". An empty actor is
// the server.
func Author(actor string) (name, email string) {
	name = strings.Map(func(r rune) rune {
		if r == '<' || r == '>' || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(actor, ""))
	name = strings.Join(strings.Fields(name), " ")
	if name == "" {
		return ServerName, ServerEmail
	}
	return name, localPart(name) + domain
}

// localPart makes the part before the "@" (RFC 5321 Dot-string, 64 octets at
// most): letters, digits, "+", "-", "_" and single inner dots stay, anything
// else becomes "-". A name of which no letter or digit is left is encoded by
// its bytes, so that such names do not all become one identity.
func localPart(name string) string {
	const most = 64
	b := make([]byte, 0, len(name))
	any := false
	for _, r := range name {
		switch {
		case r < 0x80 && alnum(byte(r)):
			b = append(b, byte(r))
			any = true
		case r == '+' || r == '_':
			b = append(b, byte(r))
		case r == '.' && len(b) > 0 && b[len(b)-1] != '.':
			b = append(b, '.')
		case len(b) == 0 || b[len(b)-1] != '-':
			b = append(b, '-')
		}
	}
	s := string(b)
	if !any {
		s = "x" + hex.EncodeToString([]byte(name))
	}
	if len(s) > most {
		s = s[:most]
	}
	return strings.Trim(s, ".-")
}
