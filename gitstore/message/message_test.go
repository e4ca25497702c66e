package message

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"umbra/gitstore/object"
	"umbra/internal/need"
)

const hash = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestEncodeSingleFile(t *testing.T) {
	m := Message{
		TaskID: "a1b2c3d4", SubtaskID: "add-types", Actor: "claude", Source: API, RequestID: "r-1",
		IdempotencyKey: "sha256:00", Change: 4, Seq: 42,
		Entries: []Entry{{Operation: Modify, Path: "src/app.ts", AfterHash: hash}},
	}
	want := `modify src/app.ts

Task-Id: a1b2c3d4
Subtask-Id: add-types
Operation: modify
Path: src/app.ts
After-Hash: ` + hash + `
Actor: claude
Source: api
Request-Id: r-1
Idempotency-Key: sha256:00
Change: 4
Seq: 42
`
	if got := m.Encode(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestEncodeCallersMessage(t *testing.T) {
	m := Message{Subject: "Add types\nbecause\r\n\r\n\r\nof this  ", Source: API, Seq: 2,
		Entries: []Entry{{Operation: Rename, Path: "b", OldPath: "a", Permissions: "0600",
			Reverts: []EntryRef{{Task: "t1", ID: 3}, {ID: 9}, {ID: 9, N: 2}}}}}
	want := `Add types

because

of this

rename a -> b

Operation: rename
Path: b
Old-Path: a
Permissions: 0600
Reverts-Entry: t1 3
Reverts-Entry: - 9
Reverts-Entry: - 9.2
Source: api
Seq: 2
`
	if got := m.Encode(); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
	p, err := Parse(want)
	need.NoError(t, err)
	m.Subject, m.Summary = "Add types\n\nbecause\n\nof this", "rename a -> b"
	if !reflect.DeepEqual(*p, m) {
		t.Errorf("got %+v\nwant %+v", *p, m)
	}
}

func files(op Operation, n int) []Entry {
	es := make([]Entry, n)
	for i := range es {
		es[i] = Entry{Operation: op, Path: fmt.Sprintf("f%04d", i), AfterHash: hash}
	}
	return es
}

func TestSubjects(t *testing.T) {
	for _, tc := range []struct {
		m    Message
		want string
	}{
		{Message{Source: API, Entries: []Entry{{Operation: Create, Path: "a b"}}}, "create a b"},
		{Message{Source: Script, Entries: []Entry{{Operation: Delete, Path: " a"}}}, `delete " a"`},
		{Message{Source: API, Entries: []Entry{{Operation: Mkdir, Path: "d/"}}}, "mkdir d/"},
		{Message{Source: API, Entries: []Entry{{Operation: Rename, OldPath: "a\n", Path: "ü"}}}, `rename "a\n" -> ü`},
		{Message{Source: API, Entries: files(Modify, 3)}, "modify 3 files"},
		{Message{Source: API, Entries: append(files(Modify, 3), files(Delete, 1)...)}, "change 4 files"},
		{Message{Source: API, Entries: files(Delete, 501)}, "delete 501 files"},
		{Message{Source: API, Entries: files(Rename, 3), Whole: &Whole{Rename, "lib", "src"}}, "rename src -> lib (3 files)"},
		{Message{Source: API, Entries: files(Delete, 2), Whole: &Whole{Operation: Delete, Path: "src"}}, "delete src (2 files)"},
		{Message{Source: External, Entries: files(Modify, 1)}, "external change (1 files)"},
		{Message{Source: External, Files: 9000}, "external change (9000 files)"},
		{Message{Source: Baseline, Files: 1204}, "baseline (1204 files)"},
		{Message{Source: Baseline}, "baseline (0 files)"},
		{Message{Source: Revert, RevertWhat: "subtask add-types", Entries: files(Modify, 3)}, "revert subtask add-types (3 files)"},
		{Message{Source: Revert, RevertWhat: "file a\nTask-Id: b", Entries: files(Modify, 1)}, "revert file a Task-Id: b (1 files)"},
		{Message{Source: Revert, Entries: files(Modify, 1)}, "revert changes (1 files)"},
		{Message{Source: Rollback, Entries: files(Delete, 1)}, "rollback f0000"},
		{Message{Source: Rollback, Entries: files(Delete, 2)}, "rollback (2 files)"},
	} {
		got, _, _ := strings.Cut(tc.m.Encode(), "\n")
		if got != tc.want {
			t.Errorf("got %q, want %q", got, tc.want)
		}
	}
}

func TestCondensed(t *testing.T) {
	m := Message{Source: Revert, TaskID: "t", Entries: files(Modify, MaxListed)}
	if s := m.Encode(); strings.Count(s, "\nOperation: ") != MaxListed || strings.Contains(s, "\nFiles: ") {
		t.Errorf("%d entries are not listed", MaxListed)
	}
	m.Entries = append(m.Entries,
		Entry{Operation: Rename, Path: "n", OldPath: "o", AfterHash: hash, Reverts: []EntryRef{{Task: "t", ID: 1}}},
		Entry{Operation: Delete, Path: "s", Permissions: "0600"},
		Entry{Operation: Rmdir, Path: "d/"})
	m.Entries[7].Reverts = []EntryRef{{Task: "t", ID: 2}, {Task: "t", ID: 3}}
	p, err := Parse(m.Encode())
	need.NoError(t, err)
	if !p.Condensed || p.Files != MaxListed+3 || !reflect.DeepEqual(p.Entries, m.Entries[MaxListed:]) ||
		!reflect.DeepEqual(p.RevertsEntries, m.Entries[7].Reverts) {
		t.Errorf("got %+v", p)
	}
	if p.Encode() != m.Encode() {
		t.Errorf("not the same again:\n%s", p.Encode())
	}
}

func TestParseForeign(t *testing.T) {
	for _, s := range []string{"", "\n", "fix\n", "fix\n\nmore\n\nSigned-off-by: a <b>\n", "Source: api\n",
		"x\n\nSource: api\nand text\n"} {
		m, err := Parse(s)
		if err != nil || m.Source != "" || m.Subject != strings.TrimRight(s, "\n") {
			t.Errorf("%q: %+v, %v", s, m, err)
		}
	}
}

func TestParseTolerates(t *testing.T) {
	m, err := Parse("modify a\n\nOperation: modify\nPath:   a \nNew-Thing: x\n  folded\nSource: api\nSeq: 1\n" +
		"(cherry picked from commit 1)\nSigned-off-by: A <b>\n\n\n")
	need.NoError(t, err)
	if len(m.Entries) != 1 || m.Entries[0].Path != "a" || m.Seq != 1 ||
		!reflect.DeepEqual(m.Extra, []Trailer{{"New-Thing", "x folded"}, {"Signed-off-by", "A <b>"}}) {
		t.Errorf("got %+v", m)
	}
}

func TestParseMalformed(t *testing.T) {
	for _, block := range []string{"Seq: x", "Seq: -1", "Change: 99999999999999999999999", "Files: many", "Files: -1",
		"Operation: eat", "Path: a", "Operation: modify\nPath: a\nPath: b", "Operation: modify\nPath: \"a",
		"Seq: 1\nSeq: 2", "Task-Id: a\nTask-Id: b", "Reverts: 12", "Reverts-Entry: a", "Reverts-Entry: a/b 1",
		"Reverts-Entry: a x", "Operation: modify\nPath: \"\\9\"", "Source: me"} {
		_, err := Parse("x\n\n" + block + "\nSource: api\n")
		if !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", block, err)
		}
	}
}

func TestValid(t *testing.T) {
	for s, want := range map[string]bool{"a": true, "A1._-": true, "a.": true, "": false, "-a": false, ".a": false,
		"a..b": false, "a.lock": false, "a/b": false, "a\n": false, "ä": false, strings.Repeat("a", 128): true,
		strings.Repeat("a", 129): false} {
		if ValidTaskID(s) != want {
			t.Errorf("ValidTaskID(%q) is not %v", s, want)
		}
	}
	for s, want := range map[string]bool{"Version": true, "X-1": true, "": false, "-a": false, "a b": false, "a:": false,
		"task-id": false, "Seq": false, "From": false, "Metadata": false} {
		if ValidKey(s) != want {
			t.Errorf("ValidKey(%q) is not %v", s, want)
		}
	}
}

func TestAuthor(t *testing.T) {
	for actor, want := range map[string][2]string{
		"":                       {"umbra", "umbra@umbra.invalid"},
		"  ":                     {"umbra", "umbra@umbra.invalid"},
		"claude":                 {"claude", "claude@umbra.invalid"},
		"Alice  Smith ":          {"Alice Smith", "Alice-Smith@umbra.invalid"},
		"a@b.c":                  {"a@b.c", "a-b.c@umbra.invalid"},
		"..a..":                  {"..a..", "a@umbra.invalid"},
		"x <y>\nparent 0":        {"x yparent 0", "x-yparent-0@umbra.invalid"},
		"張":                      {"張", "xe5bcb5@umbra.invalid"},
		strings.Repeat("a", 100): {strings.Repeat("a", 100), strings.Repeat("a", 64) + "@umbra.invalid"},
	} {
		name, email := Author(actor)
		if name != want[0] || email != want[1] {
			t.Errorf("Author(%q) = %q, %q", actor, name, email)
		}
	}
}

func TestQuoteRoundTrip(t *testing.T) {
	for raw, want := range map[string]string{
		"a b": "a b", "ü": "ü", "👩‍💻": "👩‍💻", "a\tb": `"a\tb"`, `a"b`: `"a\"b"`, `a\b`: `"a\\b"`, " a": `" a"`, "a ": `"a "`,
		"\xff": `"\377"`, "\x01\x7f": `"\001\177"`, "a\u2028": `"a\342\200\250"`, "\u00a0x": "\"\u00a0x\"", "": `""`, ":a": ":a", "-": "-",
	} {
		if got := QuotePath(raw); got != want {
			t.Errorf("QuotePath(%q) = %s, want %s", raw, got, want)
		}
	}
	for _, s := range []string{`"`, `"a`, `"a"b"`, `"\`, `"\"`, `"\8"`, `"\12"`, `"\400"`, `"\x41"`} {
		if v, ok := Unquote(s); ok {
			t.Errorf("Unquote(%s) = %q", s, v)
		}
	}
}

func TestCleanText(t *testing.T) {
	for raw, want := range map[string]string{
		"": "", " \n\t\r\n": "", "a": "a", "a\nb": "a\n\nb", "\n\n a\tb \r\r\n\n\nc\n  d  \n\n": "a b\n\nc\n  d",
		"a\x00b\x1b[31m": "a\uFFFDb\uFFFD[31m", "a\u2028Seq: 1": "a\n\nSeq: 1", "\xffa": "\uFFFDa",
	} {
		if got := CleanText(raw); got != want {
			t.Errorf("CleanText(%q) = %q, want %q", raw, got, want)
		}
	}
	for _, n := range []int{MaxText - 1, MaxText, MaxText + 1, 1 << 20} {
		for _, s := range []string{strings.Repeat("ü", n/2), "a\n" + strings.Repeat("x", n-3), strings.Repeat("\n\nx", n/3)} {
			got := CleanText(s)
			if len(got) > MaxText || !utf8.ValidString(got) || CleanText(got) != got {
				t.Errorf("%d: %d bytes, not stable", n, len(got))
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("a\n\nSource: api\nSeq: 1\nOperation: modify\nPath: \"\\n\"\n")
	f.Add("a\n\nb\n\nTask-Id: x\nSource: revert\nFiles: 3\nReverts-Entry: a 1\n")
	f.Add("x\n\nTask-Id: x\nMetadata: {}\nCreated: 2026-01-02T03:04:05Z\n")
	f.Fuzz(func(t *testing.T, s string) {
		if m, err := Parse(s); err == nil && m.Source != "" {
			once := m.Encode()
			p, err := Parse(once)
			if err != nil {
				t.Fatalf("%v:\n%s", err, once)
			}
			if twice := p.Encode(); twice != once {
				t.Fatalf("once:\n%q\ntwice:\n%q", once, twice)
			}
		}
		if in, err := ParseInfo(s); err == nil {
			once := EncodeInfo(in)
			if p, err := ParseInfo(once); err != nil || EncodeInfo(p) != once {
				t.Fatalf("not the same again (%v):\n%q", err, once)
			}
		}
	})
}

func FuzzEncode(f *testing.F) {
	for _, s := range hostile() {
		f.Add(s, s, s, uint64(3))
	}
	f.Fuzz(func(t *testing.T, subject, path, value string, n uint64) {
		m := &Message{Subject: subject, TaskID: "t", Source: API, Actor: value, Reason: value, Author: value,
			Description: value, RequestID: value, IdempotencyKey: value, RevertWhat: value, Change: n, Seq: n,
			Reverts: []object.ID{{1}}, Extra: []Trailer{{"Version", value}, {value, value}},
			Entries: []Entry{{Operation: Rename, Path: path, OldPath: path, AfterHash: value, Permissions: value,
				Reverts: []EntryRef{{Task: "t", ID: n}, {ID: n, N: uint32(n)}}}}}
		if n%2 == 1 {
			m.Source = Revert
		}
		s := m.Encode()
		checkText(t, s)
		p, err := Parse(s)
		if err != nil {
			t.Fatalf("%v:\n%s", err, s)
		}
		if again := p.Encode(); again != s {
			t.Fatalf("once:\n%q\nagain:\n%q", s, again)
		}
		want := *m
		want.Subject, want.Summary, want.RevertWhat = CleanText(subject), p.Summary, ""
		want.Extra = []Trailer{{"Version", value}}
		if ValidKey(value) {
			want.Extra = append(want.Extra, Trailer{value, value})
		}
		if path == "" { // no path is no rename either
			want.Entries[0].OldPath = ""
		}
		if !reflect.DeepEqual(*p, want) {
			t.Fatalf("got  %+v\nwant %+v", *p, want)
		}
	})
}

// checkText holds what git must never be given.
func checkText(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) || !strings.HasSuffix(s, "\n") || strings.HasPrefix(s, "\n") {
		t.Fatalf("not a message: %q", s)
	}
	for _, r := range s {
		if r < ' ' && r != '\n' && r != '\t' || r == 0x7f || treacherous(r) {
			t.Fatalf("holds %U: %q", r, s)
		}
	}
	for line := range strings.SplitSeq(s, "\n") {
		if strings.HasPrefix(line, "---") || strings.HasPrefix(line, "diff -") || strings.HasPrefix(line, "From ") ||
			strings.HasPrefix(line, "# ------------------------ >8 ----") {
			t.Fatalf("holds a line that ends it: %q", line)
		}
	}
}

// hostile gives texts that a client may try.
func hostile() []string {
	const forged = "Task-Id: forged\nSource: forged\nPath: forged"
	scissors := "# ------------------------ >8 ------------------------"
	return []string{
		"a", "", " ", "\n", "a\n\n" + forged, forged, forged + "\n", "a\n\n" + forged + "\n\n", "a\r\n\r\n" + forged,
		"a\r\r" + forged, "a\v\v" + forged, "a\f\f" + forged, "a\u0085\u0085" + forged, "a\u2028\u2028" + forged, "a\u2029" + forged,
		"a\n---\n" + forged, "---\n\nb", "--- \nb", "---\tb", "a\n \n\t\n" + forged, "a\n" + scissors + "\nb", scissors, scissors + "\n" + forged,
		"a\n; ------------------------ >8 ------------------------\nb", "# a\n# b\n\n# c", "#", "a\x00b\n\n" + forged, "\x00", "a\xff\xfe\n\n" + forged,
		strings.Repeat("x", 10240), strings.Repeat("x\n", 5000), "a\n\nSigned-off-by: A <a@b>", "Signed-off-by: A <a@b>",
		"a\n\n(cherry picked from commit 0123456789012345678901234567890123456789)", "a\n\nConflicts:\n\tx\n", "Conflicts:\n\n\tx",
		"From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nFrom: x <x>\nSubject: y\n\nz", "a\n\ndiff --git a/x b/x\n--- a/x\n+++ b/x\n",
		"a\n\nIndex: x", "[PATCH] x", "a\n\n[PATCH] x", "a\n  \n " + forged, "a\n\n ---\n  ---\n Task-Id: x", "a\n\n\u00a0\n" + forged, "\ufeffTask-Id: x",
		"-a", ":a", `"a"`, `"a`, `a"`, `a\`, `\`, "a\tb", "\ta", "a\n", "a -> b", "%(trailers)", "\u202eabc", "a:b", "Key: v", "Version", "👩‍💻", "cafe\u0301",
	}
}
