package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"umbra/internal/need"
)

// source is one Go file of the project.
type source struct {
	name    string // relative to the root, slashes
	dir     string
	test    bool
	text    string
	imports []string
	tree    *ast.File
	fset    *token.FileSet
}

// sources reads every Go file below the folder of go.mod.
func sources(t *testing.T) []source {
	t.Helper()
	root, err := os.Getwd()
	need.NoError(t, err)
	for {
		if _, err := os.Stat(filepath.Join(root, "go.mod")); err == nil {
			break
		}
		if filepath.Dir(root) == root {
			t.Fatal("no go.mod above this folder")
		}
		root = filepath.Dir(root)
	}
	var list []source
	err = filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := d.Name()
		if d.IsDir() && name != root && (strings.HasPrefix(base, ".") || base == "node_modules" || base == "testdata" || base == "bin") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(base, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		s := source{name: filepath.ToSlash(rel), test: strings.HasSuffix(base, "_test.go"), text: string(text), fset: token.NewFileSet()}
		s.dir = path.Dir(s.name)
		if s.tree, err = parser.ParseFile(s.fset, s.name, text, parser.ParseComments); err != nil {
			return err
		}
		for _, imp := range s.tree.Imports {
			p, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			s.imports = append(s.imports, p)
		}
		list = append(list, s)
		return nil
	})
	need.NoError(t, err)
	if len(list) == 0 {
		t.Fatal("no Go files")
	}
	return list
}

// in reports whether a folder is one of the prefixes or below one.
func in(dir string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return dir == p || strings.HasPrefix(dir, p+"/") })
}

// leaves import nothing of ours but what stands beside them here.
var leaves = map[string][]string{
	"internal/errs":       nil,
	"internal/vfs":        nil,
	"internal/strictjson": nil,
	"internal/state":      nil,
	"internal/need":       nil,
	"internal/telemetry":  nil,
	"internal/archtest":   nil,
	"internal/wspath":     {"internal/errs"},
	"config":              {"internal/strictjson"},
	"clients/opencode":    nil, // one embedded file
}

// belowGitstore is what of internal the engine may use.
var belowGitstore = []string{"internal/wspath", "internal/errs", "internal/vfs", "internal/telemetry", "internal/clock"}

// assembly are the packages that put the layers together; only they and the
// program import them.
var assembly = []string{"internal/server", "internal/cli", "internal/demo", "internal/fleet", "internal/mcplink"}

// sharedByDialects is what a dialect may import of httpapi.
var sharedByDialects = []string{"httpapi/wire"}

// mayImport tells whether a package may import another of ours, by the layers of
// docs/ARCHITECTURE.md; why is what it breaks.
func mayImport(from, to string) (ok bool, why string) {
	if allowed, isLeaf := leaves[from]; isLeaf {
		return slices.Contains(allowed, to), "a leaf imports nothing of ours"
	}
	switch {
	case in(from, "tests"), in(from, "cmd"):
		return true, ""
	case in(to, "cmd"), in(to, "tests"):
		return false, "nothing imports cmd or tests"
	case in(from, assembly...):
		return true, ""
	case in(to, assembly...):
		return false, "the assembly is for cmd alone"
	case in(to, "config"):
		return false, "only cmd and the assembly import config"
	case in(from, "gitstore"):
		return in(to, append(belowGitstore, "gitstore")...), "gitstore uses only itself and what is below it"
	case from == "internal/agentconf" && to == "clients/opencode":
		return true, ""
	case in(from, "internal"):
		return in(to, "gitstore", "internal"), "internal uses only gitstore and internal"
	case in(from, "watcher"):
		return in(to, "gitstore", "internal"), "watcher is below httpapi"
	case from == "httpapi":
		return in(to, "gitstore", "internal"), "the frame knows no dialect"
	case in(from, sharedByDialects...):
		return to == "httpapi" || in(to, "gitstore", "internal"), "what dialects share knows none of them"
	case in(from, "httpapi"):
		dialect := strings.Join(strings.SplitN(from, "/", 3)[:2], "/")
		return to == "httpapi" || in(to, append(sharedByDialects, dialect)...) || in(to, "gitstore", "internal", "watcher"), "dialects never import each other"
	}
	return false, "the package stands in no layer"
}

func TestLayers(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.imports {
			to, ours := strings.CutPrefix(imp, "umbra/")
			if !ours || to == s.dir || s.test && to == "internal/need" {
				continue
			}
			// Tests may borrow a lower layer's test helpers.
			if strings.HasSuffix(to, "test") && s.test {
				continue
			}
			if ok, why := mayImport(s.dir, to); !ok {
				// A test beside a package may stand on what is above it too.
				beside := strings.HasSuffix(s.tree.Name.Name, "_test") && !in(to, "cmd", "tests")
				if s.test && (beside || mayTest(s.dir, to)) {
					continue
				}
				t.Errorf("%s imports %s: %s", s.name, to, why)
			}
		}
	}
}

// mayTest lets a test use what is not above its own package.
func mayTest(from, to string) bool {
	rank := func(dir string) int {
		switch {
		case in(dir, belowGitstore...):
			return 0
		case in(dir, "gitstore"):
			return 1
		case in(dir, "internal"):
			return 2
		case in(dir, "config", "watcher"):
			return 3
		case dir == "httpapi":
			return 4
		}
		return 5
	}
	return rank(to) < rank(from)
}

// owners are the packages that alone may use a library.
var owners = map[string][]string{
	"github.com/gin-gonic/gin":               {"httpapi"},
	"github.com/spf13/viper":                 {"config"},
	"github.com/spf13/pflag":                 {"config", "cmd", "internal/cli", "internal/flagtext"},
	"github.com/spf13/cobra":                 {"cmd", "internal/cli", "internal/demo", "internal/fleet", "internal/mcplink"},
	"github.com/fsnotify/fsnotify":           {"watcher"},
	"github.com/go-git/go-git":               {"gitstore", "httpapi/gitsmart", "internal/person", "internal/policy"},
	"go.etcd.io/bbolt":                       {"internal/state"},
	"github.com/aws":                         {"internal/blob"},
	"github.com/modelcontextprotocol/go-sdk": {"httpapi/mcp"},
	"github.com/prometheus":                  {"httpapi/metrics"},
	"go.opentelemetry.io":                    {"httpapi/tracing"},
	"github.com/jackc/pgx":                   {"internal/cluster"},
}

func TestLibrariesStayWhereTheyBelong(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || in(s.dir, "tests") {
			continue
		}
		for _, imp := range s.imports {
			for lib, dirs := range owners {
				if in(imp, lib) && !in(s.dir, dirs...) {
					t.Errorf("%s imports %s, which belongs to %s", s.name, imp, strings.Join(dirs, ", "))
				}
			}
			if imp == "testing" || imp == "umbra/internal/need" {
				if !strings.HasSuffix(s.dir, "test") && s.dir != "internal/need" {
					t.Errorf("%s imports %s into the program", s.name, imp)
				}
			}
		}
	}
}

// long are the files above 700 lines, each with its reason.
var long = map[string]string{}

func TestFilesAreShort(t *testing.T) {
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.name] = true
		if n := strings.Count(s.text, "\n"); n > 700 && long[s.name] == "" {
			t.Errorf("%s has %d lines: split it, or list it here with its reason", s.name, n)
		}
	}
	for name := range long {
		if !seen[name] {
			t.Errorf("%s is listed as long and is not there", name)
		}
	}
}

func TestPackagesSayWhatTheyAreFor(t *testing.T) {
	documented, dirs := map[string]bool{}, map[string]string{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		dirs[s.dir] = s.name
		if doc := s.tree.Doc; doc != nil && len(doc.Text()) > 40 {
			documented[s.dir] = true
		}
	}
	for dir := range dirs {
		if !documented[dir] {
			t.Errorf("package %s has no comment that says what it is for", dir)
		}
	}
}

// TestHabits finds what is left undone, and calls that do not belong where they
// stand.
func TestHabits(t *testing.T) {
	unfinished := regexp.MustCompile(`\b(` + `TO` + `DO|FIX` + `ME|X` + `XX|not imple` + `mented)\b`)
	for _, s := range sources(t) {
		if loc := unfinished.FindStringIndex(s.text); loc != nil {
			t.Errorf("%s:%d: something is left undone", s.name, 1+strings.Count(s.text[:loc[0]], "\n"))
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			sel, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if _, service := sel.X.(*ast.SelectorExpr); service && in(s.dir, "httpapi") && s.dir != "httpapi" && s.dir != "httpapi/metrics" && len(call.Args) > 0 {
				if arg, ok := call.Args[0].(*ast.Ident); ok && arg.Name == "c" {
					t.Errorf("%s: a service gets the request's context (c.Request.Context()), not gin's, which is reused", s.fset.Position(call.Pos()))
				}
			}
			owner, _ := sel.X.(*ast.Ident)
			if owner == nil {
				return true
			}
			at := s.fset.Position(call.Pos())
			switch name := owner.Name + "." + sel.Sel.Name; {
			case name == "time.Sleep" && s.test:
				t.Errorf("%s: a test that sleeps: await an event or fake the clock", at)
			case slices.Contains([]string{"t.Skip", "t.Skipf", "t.SkipNow", "b.Skip", "b.Skipf", "tb.Skip"}, name) && s.dir != "internal/need":
				t.Errorf("%s: a test that leaves itself out: use internal/need, which never does under CI", at)
			case name == "os.Exit" && s.name != "cmd/umbra/main.go" && s.name != "deploy/dist/main.go" && s.dir != "internal/hook/early" && s.dir != "internal/layer/enter" && !s.test && !in(s.dir, "tests"):
				t.Errorf("%s: only main ends the program", at)
			case (name == "fmt.Print" || name == "fmt.Println" || name == "fmt.Printf") && !in(s.dir, "tests"):
				t.Errorf("%s: standard output belongs to the verbs", at)
			}
			return true
		})
	}
}
