package tests

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"umbra/internal/need"
	"umbra/internal/wspath"
	"umbra/tests/harness"
)

// realProject is a repository with a TypeScript part, whose dependencies are
// those of tests/openapi, and a Go part; what tools make of it is ignored.
func realProject(t *testing.T) *project {
	t.Helper()
	files := map[string]string{
		".gitignore":    "node_modules/\n/dist/\n/bin/\n*.tsbuildinfo\n/api.txt\n",
		"tsconfig.json": `{"compilerOptions":{"outDir":"dist","rootDir":"src","incremental":true,"declaration":true,"sourceMap":true,"types":[],"target":"es2022","module":"commonjs"},"include":["src"]}`,
		"go.mod":        "module example.org/storm\n\ngo 1.21\n",
		"main.go":       "package main\n\nimport \"example.org/storm/part\"\n\nfunc main() { println(part.All()) }\n",
		"part/all.go":   "package part\n\nfunc All() int { return F0() + F39() }\n",
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		data, err := os.ReadFile(filepath.Join("openapi", name))
		need.NoError(t, err)
		files[name] = string(data)
	}
	for i := range 40 {
		files[fmt.Sprintf("part/f%d.go", i)] = fmt.Sprintf("package part\n\nfunc F%d() int { return %d }\n", i, i)
	}
	for i := range 120 {
		files[fmt.Sprintf("src/m%d/index.ts", i)] = fmt.Sprintf("export const value%d: number = %d;\nexport function twice%d(): number { return 2 * value%d; }\n", i, i, i, i)
	}
	for i := range 400 {
		files[fmt.Sprintf("docs/%d/page%d.md", i%20, i)] = fmt.Sprintf("# Page %d\n\n%s\n", i, strings.Repeat("words ", i%60))
	}
	p := &project{Server: harness.Start(t, harness.Options{Config: "log: {level: warn}\n"}), dir: t.TempDir()}
	p.fill(t, files)
	return p
}

// branches commits the project as it is, and another branch on which hundreds of
// files are changed, gone, new, renamed, executable or of another kind.
func (w *watched) branches(t *testing.T) {
	t.Helper()
	w.person(t, "init", "-q")
	w.person(t, "add", "-A")
	w.person(t, "commit", "-q", "-m", "first")
	w.person(t, "checkout", "-q", "-b", "other")
	for i := range 400 {
		name := fmt.Sprintf("docs/%d/page%d.md", i%20, i)
		switch i % 4 {
		case 0:
			w.write(t, name, fmt.Sprintf("# Page %d, written anew\n", i))
		case 1:
			w.remove(t, name)
		case 2:
			w.rename(t, name, fmt.Sprintf("docs/%d/renamed%d.md", i%20, i))
		}
	}
	for i := range 60 {
		w.write(t, fmt.Sprintf("src/n%d/index.ts", i), fmt.Sprintf("export const other%d = %q;\n", i, "x"))
	}
	w.remove(t, "docs/3")
	w.write(t, "docs/3", "a file where a folder was\n")
	w.remove(t, "docs/7/page7.md")
	need.NoError(t, os.Symlink("../3", filepath.Join(w.dir, "docs/7/page7.md")))
	need.NoError(t, os.Chmod(filepath.Join(w.dir, "main.go"), 0o755))
	w.person(t, "add", "-A")
	w.person(t, "commit", "-q", "-m", "second")
	w.person(t, "checkout", "-q", "main")
}

// run runs a tool as the person does, in the folder.
func (w *watched) run(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(need.Tool(t, name), args...)
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off", "NPM_CONFIG_UPDATE_NOTIFIER=false")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
}

// storm runs what changes many files while a client writes beside it; then
// history must be the disk without what git ignores.
func (w *watched) storm(t *testing.T, what string, do func()) {
	t.Helper()
	var client sync.WaitGroup
	over := make(chan struct{})
	wrote := 0
	client.Go(func() {
		for {
			text := fmt.Sprintf("%s %d", what, wrote)
			if r := w.Do("PUT", w.k.file("api.txt"), []byte(text)); r.Status != 200 && r.Status != 201 {
				t.Errorf("%s: a write beside it: %d %s", what, r.Status, r.Body)
				return
			}
			wrote++
			select {
			case <-over:
				return
			default:
			}
		}
	})
	func() {
		defer func() { close(over); client.Wait() }() // also where do ends the test
		do()
	}()
	w.holdsWhatGitWould(t, what)
	want := fmt.Sprintf("%s %d", what, wrote-1)
	if got := harness.Git(t, w.k.gitDir(), "show", "refs/umbra/head:api.txt"); got != want {
		t.Errorf("%s: the client's file is %q, written %q", what, got, want)
	}
	if n := harness.Git(t, w.k.gitDir(), "rev-list", "--count", "--grep=^Path: api.txt", "refs/umbra/head"); n == "0" {
		t.Errorf("%s: no write is in history", what)
	}
}

// holdsWhatGitWould compares the tip with the files that the person's git tracks
// or does not ignore, byte for byte, and the watches with their folders. The
// client's own file is ignored, and recorded since it came through the server.
func (w *watched) holdsWhatGitWould(t *testing.T, when string) {
	t.Helper()
	tree := w.tree(t)
	var names []string
	folders := map[string]bool{".": true}
	for name := range strings.SplitSeq(w.person(t, "ls-files", "-z", "-c", "-o", "--exclude-standard"), "\x00") {
		if _, err := os.Lstat(filepath.Join(w.dir, name)); name == "" || err != nil {
			continue
		}
		names = append(names, name)
		for dir := filepath.Dir(name); dir != "."; dir = filepath.Dir(dir) {
			folders[dir] = true
		}
	}
	names = append(names, "api.txt")
	slices.Sort(names)
	names = slices.Compact(names)
	blobs := w.blobsOf(t, names)
	for _, name := range names {
		id, listed := tree[name]
		delete(tree, name)
		if !listed {
			t.Errorf("%s: %s is not in history", when, name)
		} else if id != blobs[name] {
			t.Errorf("%s: %s is %s in history, %s on disk", when, name, id, blobs[name])
		}
	}
	for name := range tree {
		t.Errorf("%s: %s is in history, and ignored or gone", when, name)
	}
	if v := w.call(t, "POST", w.ws+"/verify", nil).want(t, 200).obj(t); v["disk"] != "same" || testJSON(v["problems"]) != "[]" {
		t.Errorf("%s: %v", when, v)
	}
	// Empty folders are watched too, and that of git's info/exclude.
	err := filepath.WalkDir(w.dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		switch rel, _ := filepath.Rel(w.dir, name); rel {
		case ".git", "node_modules", "dist", "bin":
			return fs.SkipDir
		default:
			folders[rel] = true
			return nil
		}
	})
	need.NoError(t, err)
	if n := scrape(t, w.Server)["umbra_watches"]; n < 20 || n > float64(len(folders)+2) {
		t.Errorf("%s: %v watches for %d folders", when, n, len(folders))
	}
}

// blobsOf gives what git makes of the bytes on disk.
func (w *watched) blobsOf(t *testing.T, names []string) map[string]string {
	t.Helper()
	blobs := make(map[string]string, len(names))
	var files []string
	for _, name := range names {
		if target, err := os.Readlink(filepath.Join(w.dir, name)); err == nil {
			blobs[name] = harness.GitInput(t, w.dir, target, "hash-object", "--no-filters", "--stdin")
		} else {
			files = append(files, name)
		}
	}
	ids := harness.GitInput(t, w.dir, strings.Join(files, "\n")+"\n", "hash-object", "--no-filters", "--stdin-paths")
	for i, id := range strings.Fields(ids) {
		blobs[files[i]] = id
	}
	return blobs
}

// What people's tools do to a folder: packages are installed, branches checked
// out, programs compiled.
func TestStormsOfRealTools(t *testing.T) {
	t.Parallel()
	need.Long(t, "npm, tsc and go build")
	need.Tool(t, "npm")
	need.Tool(t, "go")
	p := realProject(t)
	w := watch(t, p)
	w.storm(t, "commits", func() { w.branches(t) })
	w.storm(t, "npm ci", func() {
		w.run(t, "npm", "ci", "--prefer-offline", "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
	})
	if entries, err := os.ReadDir(filepath.Join(w.dir, "node_modules", "typescript", "lib")); err != nil || len(entries) < 50 {
		t.Fatalf("nothing was installed: %v", err)
	}
	w.storm(t, "tsc", func() { w.run(t, "node", "node_modules/typescript/bin/tsc") })
	w.storm(t, "go build", func() { w.run(t, "go", "build", "-o", "bin/storm", ".") })
	for _, built := range []string{"dist/m5/index.js", "dist/m5/index.d.ts", "bin/storm"} {
		if _, err := os.Stat(filepath.Join(w.dir, built)); err != nil {
			t.Errorf("nothing was built: %v", err)
		}
	}
	w.storm(t, "checkout", func() { w.person(t, "checkout", "-q", "other") })
	w.storm(t, "checkouts in a row", func() {
		for range 4 {
			w.person(t, "checkout", "-q", "main")
			w.person(t, "checkout", "-q", "other")
		}
		w.person(t, "checkout", "-q", "main")
	})
	w.storm(t, "clean", func() { w.person(t, "clean", "-q", "-d", "-f", "-x", "-e", "api.txt") })
	// At no time was anything recorded that a rule ignores.
	seen := harness.Git(t, w.k.gitDir(), "log", "--format=", "--name-only", "-z", "refs/umbra/head")
	for name := range strings.SplitSeq(seen, "\x00") {
		first, _, _ := strings.Cut(name, "/")
		if slices.Contains([]string{"node_modules", "dist", "bin", ".git"}, first) || strings.HasSuffix(name, ".tsbuildinfo") || wspath.IsTemp(filepath.Base(name)) {
			t.Errorf("%s was recorded", name)
		}
	}
	w.k.fsck(t)
}
