package httpapi

import (
	"context"
	"crypto/sha256"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/internal/access"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/state"
)

func storedBook(t *testing.T) *access.Book {
	t.Helper()
	db, err := state.Open(filepath.Join(t.TempDir(), "state.db"))
	need.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	book, err := access.Open(nil, db)
	need.NoError(t, err)
	return book
}

// A stream, and what a handler makes one, ends when its caller would be let in
// no more; an owner's goes on.
func TestStreamsEndWithWhatLetThemIn(t *testing.T) {
	book := storedBook(t)
	add := func(name string, life time.Duration) string {
		t.Helper()
		token := access.Token{Name: name}
		if life > 0 {
			token.Expires = time.Now().Add(life)
		}
		_, secret, err := book.Add(token, time.Now())
		need.NoError(t, err)
		return secret
	}
	begun := make(chan struct{})
	wait := func(c *gin.Context) error {
		EndInTime(c)
		begun <- struct{}{}
		<-c.Request.Context().Done()
		return nil
	}
	s := newServer(t, Options{Tokens: book, Owner: sumOf("owner")}, Route{Method: "GET", Pattern: "/stream", Handler: wait, Stream: true},
		Route{Method: "GET", Pattern: "/listen", Handler: wait})
	listen := func(target, secret string) <-chan struct{} {
		t.Helper()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.ask("GET", target, "", "Authorization: Bearer "+secret)
		}()
		select {
		case <-begun:
		case <-ended:
			t.Fatal("refused: " + target)
		}
		return ended
	}
	await := func(what string, ended <-chan struct{}) {
		t.Helper()
		select {
		case <-ended:
		case <-time.After(10 * time.Second):
			t.Fatal(what + " goes on")
		}
	}
	anonymous := listen("/stream", "")
	removed := add("removed", 0)
	await("a stream from before tokens were on", anonymous)
	owners := listen("/stream", "owner")
	a, b := listen("/stream", removed), listen("/listen", removed)
	await("one whose token expires", listen("/stream", add("short", 2*time.Second)))
	other := listen("/stream", add("other", 0))
	need.NoError(t, book.Remove("removed"))
	await("one whose token was removed", a)
	await("one that the handler made a stream", b)
	select {
	case <-other:
		t.Error("another token's stream ended")
	case <-owners:
		t.Error("the owner's stream ended")
	default:
	}
	s.Stop()
	await("another's, when the server stops", other)
	await("the owner's, when the server stops", owners)
}

func sumOf(s string) access.Sum { return sha256.Sum256([]byte(s)) }

// Refusals by handlers are logged too; entries that a list leaves out are not.
func TestRefusalsAreLogged(t *testing.T) {
	tokens := access.Fixed(Token{Name: "reader", SHA256: sumOf("r"), Roots: []string{"/srv/a"}}, Token{Name: "late", SHA256: sumOf("l"), Expires: time.Unix(1, 0)})
	hidden := func(c *gin.Context) error {
		CallerOf(c).Sees("/srv/b")
		return errs.New(errs.NotFound, "workspace_not_found", "The workspace does not exist.")
	}
	s := newServer(t, Options{Tokens: tokens, Own: []string{"/srv/a/code"}},
		Route{Method: "GET", Pattern: "/hidden/{id}", Handler: hidden},
		Route{Method: "GET", Pattern: "/list", Handler: func(c *gin.Context) error { CallerOf(c).Sees("/srv/b"); return nil }},
		Route{Method: "GET", Pattern: "/absent", Handler: func(*gin.Context) error { return errs.New(errs.NotFound, "not_found", "") }},
		Route{Method: "POST", Pattern: "/open", Handler: func(c *gin.Context) error { return CallerOf(c).MayOpen("/srv/a/code") }},
		Route{Method: "POST", Pattern: "/write", Handler: NeedWrite},
		Route{Method: "POST", Pattern: "/owner", Handler: NeedWrite, Access: AccessOwner})
	for _, c := range []struct{ method, target, auth, reason, token string }{
		{"GET", "/hidden/x", "r", "outside_roots", "reader"}, {"POST", "/open", "r", "workspace_not_allowed", "reader"}, {"POST", "/write", "r", "read_only_token", "reader"},
		{"POST", "/owner", "r", "owner_only", "reader"}, {"GET", "/list", "l", "token_expired", "late"}, {"GET", "/list", "x", "token_unknown", `""`}, {"GET", "/list", "", "token_missing", `""`},
		{"GET", "/list", "r", "", ""}, {"GET", "/absent", "r", "", ""},
	} {
		before := len(s.log.String())
		s.ask(c.method, c.target, "", "Authorization: Bearer "+c.auth)
		said := s.log.String()[before:]
		if c.reason == "" {
			if strings.Contains(said, "audit=true") {
				t.Errorf("%+v: %s", c, said)
			}
			continue
		}
		if strings.Count(said, "audit=true") != 1 || !strings.Contains(said, "reason="+c.reason) || !strings.Contains(said, "token="+c.token) || !strings.Contains(said, "route=") {
			t.Errorf("%+v: %s", c, said)
		}
	}
}

// A trace's context is the one that handlers have; it gets the answer.
func TestRequestsAreTraced(t *testing.T) {
	type key struct{}
	var codes []string
	opts := Options{Trace: func(r *http.Request, method, route, id string) (context.Context, func(int, string)) {
		return context.WithValue(r.Context(), key{}, "here"), func(status int, code string) {
			codes = append(codes, method+" "+route+" "+code)
		}
	}}
	var found any
	s := newServer(t, opts, Route{Method: "GET", Pattern: "/a/{id}", Handler: func(c *gin.Context) error {
		found = c.Request.Context().Value(key{})
		return errs.New(errs.Conflict, "no", "No.")
	}})
	s.ask("GET", "/a/b", "")
	s.ask("GET", "/none/of/ours", "")
	if found != "here" || strings.Join(codes, ", ") != "GET /a/{id} no, other other not_found" {
		t.Errorf("%v %q", found, codes)
	}
}
