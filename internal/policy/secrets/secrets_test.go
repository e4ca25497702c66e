package secrets

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/zricethezav/gitleaks/v8/detect"
	"pgregory.net/rapid"

	"umbra/internal/need"
)

func detector(t testing.TB) *Detector {
	d, err := Default()
	need.NoError(t, err)
	return d
}

func names(list []Finding) []string {
	var out []string
	for _, f := range list {
		out = append(out, f.Rule+" "+f.secret)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func theirs(d *detect.Detector, path, text string) []string {
	var out []string
	//lint:ignore SA1019 version 8 has no other that takes a text
	for _, f := range d.Detect(detect.Fragment{Raw: text, FilePath: path}) {
		secret := f.Secret
		if f.StartLine == 0 && f.Line == "" && strings.HasPrefix(f.Match, "file detected") {
			secret = ""
		}
		out = append(out, f.RuleID+" "+secret)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func gitleaks(t *testing.T) *detect.Detector {
	g, err := detect.NewDetectorDefaultConfig()
	need.NoError(t, err)
	g.IgnoreGitleaksAllow = true
	return g
}

func same(t *testing.T, d *Detector, g *detect.Detector, path, text string) int {
	t.Helper()
	got, want := names(d.Scan(path, []byte(text))), theirs(g, path, text)
	if !slices.Equal(got, want) {
		t.Errorf("%s: %q\ngot  %q\nwant %q", path, text[:min(len(text), 500)], got, want)
	}
	return len(want)
}

// TestCorpus holds that what is found in gitleaks' own examples, of secrets and of
// what is none, is what its detector finds.
func TestCorpus(t *testing.T) {
	d, g := detector(t), gitleaks(t)
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/zricethezav/gitleaks/v8").Output()
	need.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "cmd/generate/config/rules/*.go"))
	if err != nil || len(files) < 100 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	found, texts := 0, 0
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		need.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			lit, ok := n.(*ast.BasicLit)
			if !ok || lit.Kind != token.STRING {
				return true
			}
			text, err := strconv.Unquote(lit.Value)
			need.NoError(t, err)
			texts++
			for _, path := range []string{"", "x.yaml", "main.tf", "nuget.config", "x.php"} {
				found += same(t, d, g, path, text)
			}
			return true
		})
	}
	if found < 500 {
		t.Errorf("only %d secrets in %d texts", found, texts)
	}
}

// TestRandom holds the same for what each rule's expression makes, in lines of a
// real file.
func TestRandom(t *testing.T) {
	d, g := detector(t), gitleaks(t)
	around, err := os.ReadFile("secrets.go")
	need.NoError(t, err)
	lines := strings.SplitAfter(string(around), "\n")
	found := 0
	for i, r := range d.rules {
		if r.Regex == nil {
			continue
		}
		gen := rapid.StringMatching(r.Regex.String())
		for n := range 4 {
			rnd := rand.New(rand.NewPCG(uint64(i), uint64(n)))
			at := rnd.IntN(len(lines) - 12)
			text := strings.Join(lines[at:at+6], "") + "x := " + folds.Replace(gen.Example(n)) + "\n" + strings.Join(lines[at+6:at+12], "")
			path := "x.go"
			if r.Path != nil {
				path = rapid.StringMatching(r.Path.String()).Example(n)
			}
			found += same(t, d, g, path, text)
			if n == 0 { // on a line that is longer than what is looked at first
				text = strings.Replace(text, "x := ", strings.Repeat("abc = 1; ", 300), 1)
				same(t, d, g, path, strings.TrimSuffix(text, "\n")+strings.Repeat(" ;d = 2", 800)+"\n")
			}
		}
	}
	if found < 200 {
		t.Errorf("only %d secrets", found)
	}
}

// TestLong holds that a secret is found that is longer than what of a rule is looked at
// first.
func TestLong(t *testing.T) {
	d, g := detector(t), gitleaks(t)
	for _, n := range []int{20, 60, 100, 1000} {
		lines := strings.Repeat("MIIEpAIBAAKCAQEAx7Vn3fG9hT2kLqWzRbYcUe0sJpXdMv8nCi5oAtFg6BhEwSyZ\n", n)
		if same(t, d, g, "x.pem", "-----BEGIN RSA PRIVATE KEY-----\n"+lines+"-----END RSA PRIVATE KEY-----\n") != 1 {
			t.Errorf("a key of %d lines is not found", n)
		}
		if same(t, d, g, "x.go", "const apiKey = \"q8Zr"+strings.ReplaceAll(lines, "\n", "")+"\"\n") != 1 {
			t.Errorf("a word of %d bytes is not found", len(lines))
		}
		if same(t, d, g, "x.sh", "curl "+strings.Repeat("--data a=b ", 8*n)+"-H 'Authorization: Bearer q8ZrTx7Vn3fG9hT2kLqWzRbYcUe0sJ' https://example.com\n") != 1 {
			t.Errorf("a header behind %d arguments is not found", 8*n)
		}
	}
}

// TestReader holds that a secret anywhere in a large file is found, with its line.
func TestReader(t *testing.T) {
	d := detector(t)
	line := strings.Repeat("nothing of interest ", 4) + "\n"
	for _, at := range []int{0, chunk - 30, chunk, chunk + overlap - 7, 3*chunk - 11} {
		n := at / len(line)
		text := strings.Repeat(line, n) + "aws_key = \"AKIAY3T2ZQ7WJMH5RKPD\"\n" + strings.Repeat(line, 3*chunk/len(line)-n)
		got, err := d.ScanReader("a.txt", strings.NewReader(text))
		if err != nil || len(got) != 1 || got[0].Rule != "aws-access-token" || got[0].Line != n+1 {
			t.Errorf("at %d (line %d): %+v %v", at, n+1, got, err)
		}
	}
	if got := d.Scan("a.png", []byte("AKIAY3T2ZQ7WJMH5RKPD")); len(got) != 0 || !d.Differ("a.png", "a.env") || d.Differ("a.txt", "b.txt") {
		t.Errorf("%v", got)
	}
	if got := d.Scan("a.go", []byte("sny\u212a_token = \"eb131a13-8112-bf2b-13f1-bd0250dcc21c\"\n")); len(got) != 1 {
		t.Errorf("a letter that is like another: %v", got)
	}
	if got := d.Scan("a.go", []byte("k := \"AKIAY3T2ZQ7WJMH5RKPD\" // gitleaks:allow\n")); len(got) != 1 {
		t.Errorf("a comment lets a secret through: %v", got)
	}
}

func BenchmarkScan(b *testing.B) {
	d := detector(b)
	files, _ := filepath.Glob("../../*/*.go")
	var texts [][]byte
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil && len(text) >= 10_000 {
			texts = append(texts, text[:10_000])
		}
	}
	for i := 0; b.Loop(); i++ {
		d.Scan("x.go", texts[i%len(texts)])
	}
}
