package archtest

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"umbra/internal/need"
)

var updateEnglish = flag.Bool("update-english", false, "lower the allowances in testdata/english.txt to what is found")

// listed are the words that the project's texts avoid; each has a standard term
// that says the same.
var listed = regexp.MustCompile(`(?im)\b(?:tells?|told)\b` +
	`|\bst(?:ands?|ood)\b` +
	`|\b(?:somebody|nobody|whoever)\b` +
	`|\banew\b|\bbeside\b|\b(?:goes|went) away\b|\bcomes home\b|\bput away\b|\blook(?:ed|s) at\b` +
	`|\bwho (?:asks|holds|waits|knows)\b|\bin its way\b|\bof (?:ours|theirs)\b|\ba person's\b|\bwants\b|\bby and by\b|\blets go\b` +
	`|(?:^|[.!?] )What (?:is|was|has|comes|stands)\b`)

// folder is listed too, but in the web UI, and in Go where it is not a word of a text.
var folder = regexp.MustCompile(`(?i)\bfolders?\b`)

// TestEnglish counts the listed words in comments, texts and documents. The
// allowance of a file, or of a package's files, may only fall; without one there may
// be none. The one that is left is for the system account "nobody".
func TestEnglish(t *testing.T) {
	const file = "testdata/english.txt"
	allowed := readAllowances(t, file)
	found := map[string]int{}
	where := map[string][]string{}
	codeSpan := regexp.MustCompile("`[^`\n]*`")
	for _, name := range textFiles(t) {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			continue // removed, and not yet so in the index
		}
		words := listed
		key := name
		var parts []piece
		switch path.Ext(name) {
		case ".go":
			key = path.Dir(name)
			parts = proseOf(text)
		case ".md": // names of fields, trailers and flags
			parts = []piece{{line: 1, text: codeSpan.ReplaceAllString(string(text), "")}}
		default:
			parts = []piece{{line: 1, text: string(text)}}
		}
		for _, p := range parts {
			hits := words.FindAllStringIndex(p.text, -1)
			isText := path.Ext(name) != ".go" || p.literal && strings.Contains(p.text, " ") && !strings.Contains(p.text, `json:"`)
			if isText && !strings.HasPrefix(name, "httpapi/ui/") {
				hits = append(hits, folder.FindAllStringIndex(p.text, -1)...)
			}
			found[key] += len(hits)
			for _, h := range hits {
				where[key] = append(where[key], fmt.Sprintf("%s:%d: %q", name, p.line+strings.Count(p.text[:h[0]], "\n"), p.text[h[0]:h[1]]))
			}
		}
	}
	if *updateEnglish {
		writeAllowances(t, file, allowed, found)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if n := found[key]; n > allowed[key] {
			t.Errorf("%s has %d of the words that this project's texts avoid, and may have %d:\n\t%s", key, n, allowed[key], strings.Join(where[key], "\n\t"))
		}
	}
}

// piece is a text and the line that it begins at.
type piece struct {
	line    int
	text    string
	literal bool // a string literal of Go
}

// firstWord is the first word of a comment's text.
var firstWord = regexp.MustCompile(`^//\s*(\w+)\b`)

// proseOf returns the comments and string literals of a Go file. The name of a
// declaration at the start of its doc comment is left out.
func proseOf(src []byte) []piece {
	var out []piece
	names := map[string]bool{}
	var s scanner.Scanner
	files := token.NewFileSet()
	s.Init(files.AddFile("", files.Base(), len(src)), src, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			for i, p := range out {
				if m := firstWord.FindStringSubmatchIndex(p.text); m != nil && names[p.text[m[2]:m[3]]] {
					out[i].text = p.text[m[3]:]
				}
			}
			return out
		case token.IDENT:
			names[text] = true
		case token.COMMENT, token.STRING:
			out = append(out, piece{files.Position(pos).Line, text, tok == token.STRING})
		}
	}
}

// textFiles lists the files of the repository whose texts are checked: no tests,
// no test data, no change log.
func textFiles(t *testing.T) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), need.Tool(t, "git"), "ls-files", "-z", "README.md", "docs/*.md", "*.go", "httpapi/*.yaml", "httpapi/ui/web/src")
	cmd.Dir = "../.."
	raw, err := cmd.Output()
	if err != nil {
		need.Missing(t, "not a git checkout")
	}
	var out []string
	for name := range bytes.SplitSeq(raw, []byte{0}) {
		n := string(name)
		if n == "" || strings.Contains(n, "testdata/") || strings.HasSuffix(n, "_test.go") || strings.HasPrefix(n, "tests/") || strings.HasSuffix(n, ".svg") || n == "internal/archtest/english_test.go" {
			continue
		}
		out = append(out, n)
	}
	return out
}

func readAllowances(t *testing.T, file string) map[string]int {
	t.Helper()
	f, err := os.Open(file)
	need.NoError(t, err)
	defer f.Close()
	out := map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		name, number, _ := strings.Cut(lines.Text(), " ")
		if out[name], err = strconv.Atoi(number); err != nil {
			t.Fatalf("%s: %q: %v", file, lines.Text(), err)
		}
	}
	return out
}

// writeAllowances lowers the allowances; a name that has none yet gets what is found.
func writeAllowances(t *testing.T, file string, allowed, found map[string]int) {
	t.Helper()
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(found)) {
		n := found[key]
		if old, ok := allowed[key]; ok {
			n = min(n, old)
		}
		if n > 0 {
			fmt.Fprintf(&b, "%s %d\n", key, n)
		}
	}
	need.NoError(t, os.WriteFile(file, []byte(b.String()), 0o644))
}
