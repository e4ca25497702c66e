package httpapi

import (
	"crypto/sha256"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/access"
)

// The owner's secret opens everything where tokens are on, and is no token
// where there is none.
func TestOwner(t *testing.T) {
	sum := func(s string) [32]byte { return sha256.Sum256([]byte(s)) }
	var seen Caller
	var tags Tags
	see := func(c *gin.Context) error { seen, tags = CallerOf(c), TagsOf(c); return nil }
	route := Route{Method: "POST", Pattern: "/w", Handler: see, Access: AccessWrite, Changes: true}
	tokens := access.Fixed([]Token{{Name: "reader", SHA256: sum("r")}, {Name: "late", SHA256: sum("l"), Expires: time.Unix(1, 0)}}...)

	s := newServer(t, Options{Tokens: tokens, Owner: sum("o"), Hosted: true, Roots: []string{"/srv"}}, route)
	if rec := s.ask("POST", "/w", "", "Authorization: Bearer o", "X-Actor: me"); rec.Code != 200 {
		t.Fatal(rec.Code, rec.Body)
	}
	if seen.Token != "" || seen.Scope != ScopeWrite || !seen.Sees("/any") || !seen.Sees("") || seen.MayOpen("/any") != nil {
		t.Errorf("the owner is %+v", seen)
	}
	if tags.Actor != "me" {
		t.Errorf("the owner signs as %q", tags.Actor)
	}
	for auth, want := range map[string]int{"Bearer r": 403, "Bearer l": 401, "Bearer O": 401, "Basic o": 401, "": 401} {
		if rec := s.ask("POST", "/w", "", "Authorization: "+auth); rec.Code != want {
			t.Errorf("%q: %d, want %d", auth, rec.Code, want)
		}
	}
	// Without a secret none is one, the empty one least of all.
	s = newServer(t, Options{Tokens: tokens}, route)
	for _, auth := range []string{"Bearer o", "Bearer", "Bearer ", ""} {
		if rec := s.ask("POST", "/w", "", "Authorization: "+auth); rec.Code != 401 {
			t.Errorf("%q: %d", auth, rec.Code)
		}
	}
}
