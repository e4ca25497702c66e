package agentconf

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"umbra/internal/need"
)

// killed is what a process that is killed leaves: the panic ends Apply where the kill
// would.
type killed struct{}

// wireKilled wires some agents, or takes them out, and is killed before its change n of
// a disk. It reports whether it was.
func wireKilled(t *testing.T, e *Env, path string, names []string, remove bool, n int) (hit bool) {
	t.Helper()
	s := &Store{Path: path, before: func() {
		if n--; n < 0 {
			panic(killed{})
		}
	}}
	defer func() {
		if x := recover(); x != nil {
			if _, ok := x.(killed); !ok {
				panic(x)
			}
			hit = true
		}
	}()
	for _, name := range names {
		list, err := e.Plan(s, name, remove)
		need.NoError(t, err)
		need.NoError(t, e.Apply(s, list, remove))
		for _, c := range list {
			if c.Failed {
				t.Fatalf("%+v", c)
			}
		}
	}
	return false
}

// TestKilledAtEachStep: an init that is killed, and an init --remove that is, are
// finished or undone by the next one. No file but the agents' is left, and what was
// there before comes back byte for byte.
func TestKilledAtEachStep(t *testing.T) {
	names := []string{"claude-code", "opencode"}
	prepare := func(e *Env) {
		put(t, filepath.Join(e.Home, ".claude", "settings.json"), settings)
		put(t, filepath.Join(e.Home, "dotfiles", "claude.json"), `{"x": 1}`)
		need.NoError(t, os.Symlink("dotfiles/claude.json", filepath.Join(e.Home, ".claude.json")))
	}
	whole, wholeStore := newEnv(t)
	prepare(whole)
	wireKilled(t, whole, wholeStore.Path, names, false, 1<<30)
	wired := moved(tree(t, whole.Home), whole.Home)
	type run struct {
		remove  bool
		program string
	}
	for _, c := range []struct {
		name         string
		first, next  []run // the last of first is killed
		wantsTheTree bool  // of before, after next; else that of an init that was not killed
	}{
		{"init, init", []run{{false, "umbra"}}, []run{{false, "umbra"}}, false},
		{"init, remove", []run{{false, "umbra"}}, []run{{true, "umbra"}}, true},
		{"init of another program, remove", []run{{false, "/old/umbra"}, {false, "umbra"}}, []run{{true, "umbra"}}, true},
		{"remove, init, remove", []run{{false, "umbra"}, {true, "umbra"}}, []run{{false, "umbra"}, {true, "umbra"}}, true},
	} {
		stride := 1
		if testing.Short() {
			stride = 4
		}
		for n := 0; ; n += stride {
			e, s := newEnv(t)
			prepare(e)
			before := tree(t, e.Home)
			for i, r := range c.first {
				e.Program = r.program
				at := -1
				if i == len(c.first)-1 {
					at = n
				}
				if at < 0 {
					wireKilled(t, e, s.Path, names, r.remove, 1<<30)
					continue
				}
				if hit := wireKilled(t, e, s.Path, names, r.remove, at); !hit {
					n = -1
				}
			}
			if n < 0 {
				break
			}
			for _, r := range c.next {
				e.Program = r.program
				wireKilled(t, e, s.Path, names, r.remove, 1<<30)
			}
			now := tree(t, e.Home)
			if !c.wantsTheTree {
				// As after an init that was not killed; and taken out, as before.
				if diff := same(wired, moved(now, e.Home)); diff != "" {
					t.Fatalf("%s: killed at %d: %s", c.name, n, diff)
				}
				wireKilled(t, e, s.Path, names, true, 1<<30)
				now = tree(t, e.Home)
			}
			if diff := same(before, now); diff != "" {
				t.Fatalf("%s: killed at %d: not as it was: %s", c.name, n, diff)
			}
			if raw, err := os.ReadFile(s.Path); !errors.Is(err, fs.ErrNotExist) && (err != nil || strings.TrimSpace(string(raw)) != "{}") {
				t.Fatalf("%s: killed at %d: the records are %s, %v", c.name, n, raw, err)
			}
		}
	}
}

// moved gives the paths of a tree as if its home was elsewhere.
func moved(m map[string]string, home string) map[string]string {
	out := map[string]string{}
	for path, text := range m {
		out[strings.Replace(path, home, "", 1)] = strings.ReplaceAll(text, home, "")
	}
	return out
}

// TestTwoAtOnce: several init at once are one, and what was there before is given back.
func TestTwoAtOnce(t *testing.T) {
	e, s := newEnv(t)
	put(t, filepath.Join(e.Home, ".claude", "settings.json"), settings)
	before := tree(t, e.Home)
	for _, remove := range []bool{false, true} {
		var group sync.WaitGroup
		errs := make(chan error, 100)
		for range 8 {
			group.Go(func() {
				own := &Store{Path: s.Path}
				for _, name := range Names() {
					list, err := e.Plan(own, name, remove)
					if err == nil {
						err = e.Apply(own, list, remove)
					}
					if err != nil {
						errs <- err
					}
					for _, c := range list {
						if c.Failed {
							errs <- fmt.Errorf("%s: %s", c.Path, c.Reason)
						}
					}
				}
			})
		}
		group.Wait()
		close(errs)
		for err := range errs {
			t.Error(err)
		}
		for _, name := range Names() {
			if e.Wired(name) == remove {
				t.Errorf("%s: wired is %v", name, !remove)
			}
		}
	}
	if diff := same(before, tree(t, e.Home)); diff != "" {
		t.Error(diff)
	}
}

// TestChangedMeanwhile: what the agent writes after the plan, or while the new file is
// written, is not lost.
func TestChangedMeanwhile(t *testing.T) {
	for n := range 12 {
		e, s := newEnv(t)
		path := filepath.Join(e.Home, ".claude", "settings.json")
		put(t, path, settings)
		list, err := e.Plan(s, "claude-code", false)
		need.NoError(t, err)
		const agents = `{"written": "by the agent"}`
		steps := n
		s.before = func() {
			if steps--; steps == -1 {
				put(t, path, agents)
			}
		}
		need.NoError(t, e.Apply(s, list[:1], false))
		raw, err := os.ReadFile(path)
		if err != nil || steps < 0 && list[0].Failed && string(raw) != agents {
			t.Errorf("%d: %s, %v", n, raw, err)
		}
		// Up to the exchange the write is found; one after that is of the new file.
		if list[0].Failed != (n < 9) {
			t.Errorf("%d: %+v", n, list[0].Reason)
		}
		if n >= 9 && n <= 10 && string(raw) != agents {
			t.Errorf("%d: %s", n, raw)
		}
		left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
		if err != nil || len(left) > 0 {
			t.Errorf("%d: %v, %v", n, left, err)
		}
	}
}

// TestKilledAfterAStrayWrite: a process that is killed with what the agent wrote in its
// temporary file gives it back.
func TestKilledAfterAStrayWrite(t *testing.T) {
	for _, remove := range []bool{false, true} {
		for n := range 12 {
			e, s := newEnv(t)
			path := filepath.Join(e.Home, ".claude.json")
			if remove {
				wire(t, e, s, false)
			} else {
				put(t, path, settings)
			}
			list, err := e.Plan(s, "claude-code", remove)
			need.NoError(t, err)
			const agents = `{"written": "by the agent"}`
			steps, wrote := n, 8
			if remove {
				wrote = 5
			}
			s.before = func() {
				if wrote--; wrote == -1 { // just before the exchange
					put(t, path, agents)
				}
				if steps--; steps < 0 {
					panic(killed{})
				}
			}
			func() {
				defer func() { _ = recover() }()
				if err := e.Apply(s, list[1:], remove); err != nil {
					t.Error(err)
				}
			}()
			s.before = nil
			wire(t, e, s, true)
			raw, err := os.ReadFile(path)
			if wrote < 0 && (err != nil || string(raw) != agents) {
				t.Errorf("remove %v, killed at %d: %s, %v", remove, n, raw, err)
			}
		}
	}
}

func TestReadOnlyFiles(t *testing.T) {
	e, s := newEnv(t)
	path := filepath.Join(e.Home, ".claude", "settings.json")
	put(t, path, settings)
	need.NoError(t, os.Chmod(path, 0o444))
	list := wire(t, e, s, false)
	if list[0].Action != "left" || list[0].Reason != "it is read-only" || !list[0].Failed {
		t.Errorf("%+v", list[0])
	}
	if raw, err := os.ReadFile(path); err != nil || string(raw) != settings {
		t.Errorf("%s, %v", raw, err)
	}
}

// TestCommentsStay: what others wrote next to umbra's part stays when that is taken out.
func TestCommentsStay(t *testing.T) {
	const ours = `{"hooks": [{"command": "umbra hook claude-code"}]}`
	f := find("claude-code").files(&Env{Home: "/h", Project: "/p", Program: "umbra"})[0]
	for in, want := range map[string]string{
		"[1, // first\n OURS // after\n]":               "[1 // first\n // after\n]",
		"[\n // why\n OURS, // umbra\n // mine\n 1\n]":  "[\n // why\n // umbra\n // mine\n 1\n]",
		"[1, /* a, b */ OURS]":                          "[1 /* a, b */]",
		"[OURS, 1]":                                     "[1]",
		"[OURS /* a */, 1]":                             "[/* a */ 1]",
		"[\n  1,\n  OURS,\n  2\n]":                      "[\n  1,\n  2\n]",
		"[\r\n  1,\r\n  OURS\r\n]":                      "[\r\n  1\r\n]",
		"[1, // c\n OURS]":                              "[1 // c\n]",
		"[1, // c\n OURS,]":                             "[1, // c\n]",
		`[1, {"command": "my-umbra hook claude-code"}]`: `[1, {"command": "my-umbra hook claude-code"}]`,
	} {
		doc := func(list string) string {
			return `{"a": 1, "hooks": {"Stop": ` + strings.ReplaceAll(list, "OURS", ours) + "}}"
		}
		out, _, err := f.edit([]byte(doc(in)), true)
		if err != nil || string(out) != doc(want) {
			t.Errorf("%q: %v\n%s\nwant\n%s", in, err, out, doc(want))
		}
	}
}

// TestTOMLKeysOfOthers: a key that would come to another table with umbra's cut out has
// the file left.
func TestTOMLKeysOfOthers(t *testing.T) {
	f := find("codex").files(&Env{Home: "/h", Project: "/p", CodexHome: "/c", Program: "umbra"})[1]
	const table = "[mcp_servers.umbra]\ncommand = \"/old/umbra\"\nargs = [\"mcp\", \"--mount\", \"/project=.\"]\n"
	for _, c := range []struct {
		text string
		left bool
	}{
		{"[mcp_servers.b]\ncommand = \"b\"\n\n" + table + "\nenv = {A = \"1\"}\n", true},
		{table + "# mine\nstartup_timeout_sec = 3\n[b]\n", true},
		{table + "[mcp_servers.umbra.env]\nA = \"1\"\n", true},
		{"a = \"\"\"\n" + table + "\"\"\"\n" + table, true}, // the one in a text is no table
		{"a = inf\nb = nan\n" + table + "[c]\nd = 1979-05-27T07:32:00Z\n", false},
	} {
		for _, remove := range []bool{false, true} {
			out, _, err := f.edit([]byte(c.text), remove)
			if (err != nil) != c.left || !c.left && strings.Contains(string(out), "/old/") {
				t.Errorf("remove %v, %q: %v\n%s", remove, c.text, err, out)
			}
		}
	}
}

// TestOpencodeConfigs: of opencode's two files the one that an earlier init used is
// cleaned, also where the other one is the one in use now.
func TestOpencodeConfigs(t *testing.T) {
	e, s := newEnv(t)
	dir := filepath.Join(e.ConfigHome, "opencode")
	put(t, filepath.Join(dir, "opencode.jsonc"), "{}\n")
	wire(t, e, s, false)
	put(t, filepath.Join(dir, "opencode.json"), "{\"mine\": 1}\n")
	wire(t, e, s, true)
	for name, want := range map[string]string{"opencode.jsonc": "{}\n", "opencode.json": "{\"mine\": 1}\n"} {
		if raw, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(raw) != want {
			t.Errorf("%s: %q, %v", name, raw, err)
		}
	}
}
