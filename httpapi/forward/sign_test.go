package forward

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"

	"umbra/internal/need"
)

func TestSignature(t *testing.T) {
	key := []byte("cluster's key")
	r := httptest.NewRequest("PUT", "http://h/a%2Fb?q=1", nil)
	need.NoError(t, sign(key, r, r.RequestURI, claims{Node: "n1", Sender: "s", Number: 7, Token: "t"}))
	signed := r.Header.Get(signature)
	if c, ok := verify(key, r); !ok || c.Node != "n1" || c.Token != "t" || r.Header.Get(signature) != "" {
		t.Errorf("%+v %v", c, ok)
	}
	for what, change := range map[string]func(){
		"method": func() { r.Method = "POST" },
		"target": func() { r.RequestURI = "/a/b?q=1" },
		"host":   func() { r.Host = "other" },
		"claims": func() { r.Header.Set(signature, "e30"+signed[strings.Index(signed, "."):]) },
		"cut":    func() { r.Header.Set(signature, signed[:len(signed)-2]) },
		"twice":  func() { r.Header.Add(signature, signed) },
		"none":   func() { r.Header.Set(signature, "") },
	} {
		r = httptest.NewRequest("PUT", "http://h/a%2Fb?q=1", nil)
		r.Header.Set(signature, signed)
		change()
		if _, ok := verify(key, r); ok {
			t.Errorf("%s: valid", what)
		}
		if r.Header.Get(signature) != "" {
			t.Errorf("%s: the header is left", what)
		}
	}
	r.Header.Set(signature, signed)
	if _, ok := verify([]byte("another"), r); ok {
		t.Error("another key")
	}
}

func TestReplays(t *testing.T) {
	var p replays
	for _, c := range []struct {
		n  uint64
		ok bool
	}{{1, true}, {1, false}, {5, true}, {3, true}, {3, false}, {5, false}, {4, true}, {window + 3, true}, {3, false}, {4, false}, {6, true}, {5, false},
		{10 * window, true}, {9 * window, false}, {9*window + 1, true}, {9*window + 1, false}, {10 * window, false}} {
		if got := p.use("a", c.n); got != c.ok {
			t.Errorf("%d: %v", c.n, got)
		}
	}
	if !p.use("b", 1) {
		t.Error("another sender's number")
	}
	for i := range maxSenders {
		p.use("a", uint64(20*window+i))
		p.use("s"+strconv.Itoa(i), 1)
	}
	if len(p.senders) > maxSenders || p.use("a", 20*window) {
		t.Error("the one that sends was forgotten")
	}
}
