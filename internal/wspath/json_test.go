package wspath_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

func TestJSON(t *testing.T) {
	cases := []struct {
		p              wspath.Path
		text, encoding string
	}{
		{"a/b", "a/b", ""},
		{"100%", "100%", ""},
		{"é/\u200c", "é/\u200c", ""},
		{"a\xffb", "a%FFb", "percent"},
		{"100%\xc3", "100%25%C3", "percent"},
		{"é\xe2\x82", "é%E2%82", "percent"},
		{"\ufffd\xff", "\ufffd%FF", "percent"},
	}
	for _, c := range cases {
		text, enc := c.p.JSON()
		if text != c.text || enc != c.encoding {
			t.Errorf("%q.JSON() = %q, %q", c.p, text, enc)
		}
		if back, err := wspath.FromJSON(text, enc); err != nil || back != c.p {
			t.Errorf("FromJSON(%q, %q) = %q, %v", text, enc, back, err)
		}
	}
}

func TestFromJSONRefuses(t *testing.T) {
	cases := []struct{ text, encoding, code string }{
		{"a", "base64", "invalid_path_encoding"},
		{"a%", "percent", "bad_path"},
		{"a%4", "percent", "bad_path"},
		{"a%zz", "percent", "bad_path"},
		{"%2e%2e/a", "percent", "bad_path"},
		{"%2Egit/config", "percent", "bad_path"},
		{"a%00", "percent", "bad_path"},
		{"/a", "", "bad_path"},
	}
	for _, c := range cases {
		if got, err := wspath.FromJSON(c.text, c.encoding); errs.CodeOf(err) != c.code || err == nil {
			t.Errorf("FromJSON(%q, %q) = %q, %v; want %s", c.text, c.encoding, got, err, c.code)
		}
	}
	if got, err := wspath.FromJSON("%61%2fb", "percent"); got != "a/b" || err != nil {
		t.Errorf("lower-case digits: %q, %v", got, err)
	}
}

// A parsed path stays inside, stays what it is when parsed again, keeps to the
// canonical form, and comes back from JSON as the same bytes.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", ".", "a/b", "a/../..", "/a/", "./a//b/.", ".git", "a\xff%", "..\x00", strings.Repeat("a/", 30)} {
		for o := range uint8(8) {
			f.Add(s, o)
		}
	}
	f.Fuzz(func(t *testing.T, s string, o uint8) {
		p, err := wspath.Parse(s, wspath.Option(o))
		if err != nil {
			if !errs.Is(err, errs.BadPath) || p != "" {
				t.Fatalf("%q: %q, %v", s, p, err)
			}
			return
		}
		if p == "" || p.IsRoot() && wspath.Option(o)&wspath.AllowRoot == 0 {
			t.Fatalf("%q gives the root unasked", s)
		}
		for _, name := range p.Components() {
			if err := wspath.CheckName(name); err != nil {
				t.Fatalf("%q gives %q: %v", s, p, err)
			}
		}
		if again, err := wspath.Parse(string(p), wspath.AllowRoot); err != nil || again != p {
			t.Fatalf("%q gives %q, which gives %q, %v", s, p, again, err)
		}
		text, enc := p.JSON()
		if !utf8.ValidString(text) {
			t.Fatalf("%q is no UTF-8 in JSON: %q", p, text)
		}
		wire, err := json.Marshal(text)
		need.NoError(t, err)
		var sent string
		need.NoError(t, json.Unmarshal(wire, &sent))
		if back, err := wspath.FromJSON(sent, enc, wspath.AllowRoot); err != nil || back != p {
			t.Fatalf("%q comes back as %q, %v", p, back, err)
		}
		at := p
		for up := range p.Ancestors() {
			if !at.IsUnder(up) || at.Dir() != up || up.Join(at.Base()) != at {
				t.Fatalf("%q is not in %q", at, up)
			}
			at = up
		}
	})
}
