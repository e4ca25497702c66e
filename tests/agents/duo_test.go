package agents

import (
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
)

// table is where two agents and a person meet. Agents' shells overlap as they
// come, or with apart only where the scripts have them meet. A person saves when no shell is open, since a save within the only
// shell's time is that shell's by contract. One at a time edits the common file.
type table struct {
	apart    bool
	mu       sync.Mutex
	changed  *sync.Cond
	holds    map[string]*step // what each agent's open step is
	waiting  map[string]int   // agents that are at a meeting, and which
	shells   int
	common   string // who edits the common file
	commons  []string
	person   bool // a person is saving
	wants    bool // or would like to
	answered int  // steps
	gone     map[string]bool
}

func newTable(apart bool) *table {
	x := &table{apart: apart, holds: map[string]*step{}, waiting: map[string]int{}, gone: map[string]bool{}}
	x.changed = sync.NewCond(&x.mu)
	return x
}

// next waits until the agent may do the step; its last one has ended. The same
// step may be asked for again.
func (x *table) next(agent string, at int, s *step) {
	x.mu.Lock()
	defer x.mu.Unlock()
	defer x.changed.Broadcast()
	if had := x.holds[agent]; had != nil && had != s {
		x.release(agent, had)
	} else if had != nil {
		return
	}
	x.answered++
	if s == nil {
		x.gone[agent] = true
		return
	}
	x.changed.Broadcast()
	if s.meet {
		x.waiting[agent] = at
		x.changed.Broadcast()
		for x.person || !x.met(at) {
			x.changed.Wait()
		}
	}
	for s.shell && !s.meet && (x.person || x.wants || x.apart && x.shells > 0) || s.common && x.common != "" {
		x.changed.Wait()
	}
	if s.shell {
		x.shells++
	}
	if s.common {
		x.common = agent
		x.commons = append(x.commons, agent)
	}
	x.holds[agent] = s
}

// met reports whether both agents came to the meeting, or one has left.
func (x *table) met(at int) bool {
	n := len(x.gone)
	for _, w := range x.waiting {
		if w >= at {
			n++
		}
	}
	return n >= 2
}

func (x *table) release(agent string, s *step) {
	if s.shell {
		x.shells--
	}
	if s.common {
		x.common = ""
	}
	delete(x.holds, agent)
}

// left says that an agent's process has ended.
func (x *table) left(agent string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if s := x.holds[agent]; s != nil {
		x.release(agent, s)
	}
	x.gone[agent] = true
	x.changed.Broadcast()
}

// save calls fn when no shell is open, after the agents' n-th step; false when
// both agents have left before.
func (x *table) save(n int, common bool, fn func()) bool {
	x.mu.Lock()
	for x.answered < n && len(x.gone) < 2 {
		x.changed.Wait()
	}
	if len(x.gone) == 2 {
		x.mu.Unlock()
		return false
	}
	x.wants = true
	for x.shells > 0 || common && x.common != "" {
		x.changed.Wait()
	}
	x.person, x.wants = true, false
	if common {
		x.common = "person"
		x.commons = append(x.commons, "person")
	}
	x.mu.Unlock()
	fn()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.person = false
	if common {
		x.common = ""
	}
	x.changed.Broadcast()
	return true
}

// lines is a file whose lines are far enough from each other for a merge.
func lines(values map[int]string) string {
	var b strings.Builder
	for i := range 90 {
		if v, ok := values[i]; ok {
			b.WriteString(v + "\n")
		} else {
			fmt.Fprintf(&b, "line %d\n", i)
		}
	}
	return b.String()
}

// commonLine is whose line of the common file is where.
var commonLine = map[string]int{"codex": 10, "person": 45, "opencode": 80}

const commonFile = "common.txt"

// writer is how an agent's tools are called.
type writer struct {
	name   string
	shell  func(command string) step
	create func(path, text string) step
	change func(path, old, new string) step
}

func writers(dir string) []writer {
	return []writer{
		{"codex", func(command string) step {
			return step{shell: true, calls: []toolCall{{name: "exec_command", args: map[string]any{"cmd": command, "yield_time_ms": 30000}}}}
		}, func(path, text string) step {
			return patch("*** Add File: " + path + "\n+" + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n+") + "\n")
		}, func(path, old, new string) step {
			return patch("*** Update File: " + path + "\n@@\n-" + old + "\n+" + new + "\n")
		}},
		{"opencode", func(command string) step {
			return shell("bash", "command", command)
		}, func(path, text string) step {
			return tool("write", map[string]any{"filePath": dir + "/" + path, "content": text})
		}, func(path, old, new string) step {
			return tool("edit", map[string]any{"filePath": dir + "/" + path, "oldString": old + "\n", "newString": new + "\n"})
		}},
	}
}

const unformatted, formatted = "package p\nvar  x   = 1\n", "package p\n\nvar x = 1\n"

// turns is an agent's script of n steps: edits by tools, patches and shells, of
// files of its own and of the common file. Every tenth step is a meeting. It also
// returns what the agent's own files are in the end.
func (w *writer) turns(n int, gofmt string, base map[string]string) (script []step, files map[string]string) {
	files = map[string]string{}
	dir := w.name + "/"
	for name, text := range base {
		if strings.HasPrefix(name, dir) {
			files[name] = text
		}
	}
	mine := "line " + fmt.Sprint(commonLine[w.name])
	add := func(s step) { script = append(script, s) }
	for round := 0; len(script) < n; round++ {
		name := func(kind string) string { return fmt.Sprintf("%s%s%d.txt", dir, kind, round) }
		kept := dir + "kept.txt"
		add(w.create(name("made"), "made\nby a tool\n"))
		add(w.shell(fmt.Sprintf("sed -i 's/^round .*/round %d/' %s; echo %d > %s", round, kept, round, name("shell"))))
		files[kept], files[name("shell")] = fmt.Sprintf("round %d\nkept\n", round), fmt.Sprintf("%d\n", round)
		add(w.change(name("made"), "by a tool", "changed by a tool"))
		add(w.shell(fmt.Sprintf("mkdir -p %ssub; mv %s %ssub/moved%d.txt", dir, name("made"), dir, round)))
		files[fmt.Sprintf("%ssub/moved%d.txt", dir, round)] = "made\nchanged by a tool\n"
		next := fmt.Sprintf("%s was here in round %d", w.name, round)
		s := w.change(commonFile, mine, next)
		mine, s.common = next, true
		add(s)
		source := fmt.Sprintf("%sp%d.go", dir, round)
		add(w.create(source, unformatted))
		add(w.shell(gofmt + " -w " + source))
		files[source] = formatted
		// What a checkout takes back is as the project's commit has it; what a clean removes is
		// in none.
		add(w.shell(fmt.Sprintf("echo gone > %[1]s; git clean -fdq -- %[2]s; until git checkout -q -- %[1]s 2>/dev/null; do sleep 0.05; done", dir+"checked.txt", name("shell"))))
		delete(files, name("shell"))
		add(w.change(kept, "not there", "x"))
		// Both write while both are open, and wait for each other before and after.
		meet := w.shell(fmt.Sprintf(`touch "$SYNC/%[1]s-%[2]d"
until [ -e "$SYNC/codex-%[2]d" ] && [ -e "$SYNC/opencode-%[2]d" ]; do sleep 0.02; done
echo %[2]d > %[3]s
touch "$SYNC/%[1]s-%[2]d-done"
until [ -e "$SYNC/codex-%[2]d-done" ] && [ -e "$SYNC/opencode-%[2]d-done" ]; do sleep 0.02; done`, w.name, round, name("meet")))
		meet.meet = true
		add(meet)
		files[name("meet")] = fmt.Sprintf("%d\n", round)
	}
	return script, files
}

// TestTwoAgents: Codex and opencode work in one directory, and a person too.
// Their shells overlap at every tenth step alone, and only that is shared.
func TestTwoAgents(t *testing.T) { twoAgents(t, 30, true, 5*time.Minute) }

// TestTwoAgentsOverlap is the same with shells that overlap as they come.
func TestTwoAgentsOverlap(t *testing.T) { twoAgents(t, 30, false, 5*time.Minute) }

// TestTwoAgentsLong is that for 1,000 steps, or as many as UMBRA_AGENT_STEPS says: an hour
// on processors that others use too.
func TestTwoAgentsLong(t *testing.T) {
	need.Soak(t, "1,000 steps of two agents")
	n := 1000
	if s := os.Getenv("UMBRA_AGENT_STEPS"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	twoAgents(t, n, false, 90*time.Minute)
}

// twoAgents runs both for n steps. A hook that gets no answer in time lets its
// agent work on and the call is not recorded: then the run says nothing, and is
// made again, three times at most.
func twoAgents(t *testing.T, n int, apart bool, limit time.Duration) {
	for attempt := 1; ; attempt++ {
		late := false
		ok := t.Run(fmt.Sprintf("attempt %d", attempt), func(t *testing.T) { late = runTwoAgents(t, n, apart, limit) })
		if !late || !ok {
			return
		}
		if attempt == 3 {
			t.Fatal("hooks had no answer in time in each of three runs")
		}
	}
}

// runTwoAgents is one run. late says that it cannot be judged.
func runTwoAgents(t *testing.T, n int, apart bool, limit time.Duration) (late bool) {
	gofmt := need.Tool(t, "gofmt") // an agent's shell may have another PATH
	base := map[string]string{commonFile: lines(nil), "person/notes.txt": "notes\n"}
	for _, w := range writers("") {
		base[w.name+"/kept.txt"], base[w.name+"/checked.txt"] = "round -\nkept\n", "as committed\n"
	}
	s := newScene(t, base, "codex", "opencode")
	own := map[string]map[string]string{}
	scripts := map[string]map[string][]step{}
	all := writers(s.dir)
	for _, w := range all {
		script, files := w.turns(n, gofmt, base)
		scripts[w.name], own[w.name] = map[string][]step{"main": script}, files
	}
	place := newTable(apart)
	m := newModel(t, scripts, place.next)
	s.settings(t, m)
	s.wire(t, "codex", "opencode")

	var agents, person sync.WaitGroup
	for _, w := range all {
		agents.Go(func() {
			defer place.left(w.name)
			if status, out := s.start(t, m, w.name, limit); status != 0 {
				t.Errorf("%s: status %d:\n%s", w.name, status, out)
			}
		})
	}
	saved := map[string]string{"person/notes.txt": "notes\n"}
	commonNow := ""
	person.Go(func() {
		for i := 0; ; i++ {
			ok := place.save(3*(i+1), i%3 == 2, func() {
				if i%3 == 2 { // an editor's save: the whole file, with the others' lines as they are
					commonNow = fmt.Sprintf("a person was here %d", i)
					raw, err := os.ReadFile(s.dir + "/" + commonFile)
					if err != nil {
						t.Error(err)
						return
					}
					list := strings.Split(string(raw), "\n")
					list[commonLine["person"]] = commonNow
					s.put(t, commonFile, strings.Join(list, "\n"))
					return
				}
				name := fmt.Sprintf("person/note%d.txt", i%7)
				saved[name] = fmt.Sprintf("note %d\n", i)
				s.put(t, name, saved[name])
			})
			if !ok {
				return
			}
		}
	})
	agents.Wait()
	person.Wait()

	raw, err := os.ReadFile(s.DataDir + "/hooks.log")
	if err == nil && strings.Contains(string(raw), "no answer within 2 s") {
		t.Logf("the machine is too slow:\n%s", raw)
		return true
	} else if err == nil {
		t.Errorf("the hooks failed:\n%s", raw)
	}
	// What is on disk is what was meant: no agent lost work to another.
	after := s.files(t)
	want := maps.Clone(saved)
	last := map[int]string{commonLine["person"]: commonNow}
	for _, w := range all {
		maps.Copy(want, own[w.name])
		last[commonLine[w.name]] = fmt.Sprintf("%s was here in round %d", w.name, (n-1)/10)
	}
	want[commonFile] = lines(last)
	for _, name := range slices.Sorted(maps.Keys(joined(after, want))) {
		if after[name] != want[name] {
			t.Errorf("%s is %q, and not %q as the scripts say", name, after[name], want[name])
		}
	}

	h := s.attribution(t, place.commons)
	for _, w := range all {
		s.undoSession(t, h, w.name, base, after)
	}
	if apart && !h.meetingsAlone() {
		t.Errorf("only one shell was open, and shared are %q", slices.Sorted(maps.Keys(h.shared)))
	}
	return false
}

// attribution checks whose each change is.
func (s *scene) attribution(t *testing.T, commons []string) *duo {
	t.Helper()
	s.Do("POST", "/workspaces/"+s.anyWorkspace(t)+"/sync", nil).Expect(200)
	calls := s.calls(t)
	h := &duo{calls: calls, shared: map[string]bool{}, session: map[string]string{}}
	agentOf := map[string]string{} // by task
	for _, c := range calls {
		agentOf[c.TaskID] = c.Agent
		if c.Status != "ok" && c.Status != "failed" && c.Status != "cancelled" {
			t.Errorf("%s %s is %s", c.Agent, c.ID, c.Status)
		}
	}
	for _, agent := range []string{"codex", "opencode"} {
		h.session[agent] = session(t, calls, agent)
	}
	var commonBy []string
	meetings := 0
	for _, e := range s.log(t) {
		owner := "person"
		if e.TaskID != nil {
			owner = agentOf[*e.TaskID]
		}
		switch e.Source {
		case "baseline":
			continue
		case "shared":
			h.sharedOf(t, e)
			if strings.Contains(e.Path, "/meet") {
				meetings++
			}
			continue
		case "call", "external":
			if (e.Source == "call") != (owner != "person") {
				t.Errorf("%q is of source %s and of %s", e.paths(), e.Source, owner)
			}
		default:
			t.Errorf("%q is of source %s", e.paths(), e.Source)
		}
		for _, p := range e.paths() {
			switch dir := path.Dir(p); {
			case p == commonFile:
				commonBy = append(commonBy, owner)
				if owner != "person" && e.certainty() != "declared" && e.certainty() != "exact" {
					t.Errorf("%s of %s is %s", p, owner, e.certainty())
				}
			case strings.Contains(p, "/meet"):
				t.Errorf("%s is %s's alone (%s), and both had a shell open", p, owner, e.certainty())
			case strings.Split(dir, "/")[0] != owner:
				t.Errorf("%s (%s, %s) was given to %s", p, e.Operation, e.certainty(), owner)
			}
		}
	}
	if !slices.Equal(commonBy, commons) {
		t.Errorf("%s was changed by %q, and recorded as changed by %q", commonFile, commons, commonBy)
	}
	if meetings == 0 {
		t.Error("nothing of the meetings is shared")
	}
	t.Logf("%d calls, %d paths shared, %d changes of the common file", len(calls), len(h.shared), len(commonBy))
	return h
}

func (s *scene) anyWorkspace(t *testing.T) string {
	t.Helper()
	s.calls(t)
	if s.ws == "" {
		t.Fatal("no agent had a call")
	}
	return s.ws
}

// duo is what history says of the two agents.
type duo struct {
	calls   map[string]call
	shared  map[string]bool   // paths with a shared change
	session map[string]string // by agent
}

// meetingsAlone reports whether nothing else is shared than what was written at
// meetings. Then an undo has no conflict.
func (h *duo) meetingsAlone() bool {
	for name := range h.shared {
		if !strings.Contains(name, "/meet") {
			return false
		}
	}
	return true
}

// sharedOf checks a shared change: each claimant is a shell, and overlapped
// with all others in time.
func (h *duo) sharedOf(t *testing.T, e entry) {
	t.Helper()
	for _, p := range e.paths() {
		h.shared[p] = true
	}
	if len(e.Claimants) < 2 {
		t.Errorf("%q is shared by %q", e.paths(), e.Claimants)
	}
	for i, id := range e.Claimants {
		a, ok := h.calls[id]
		if !ok || a.OnlyPaths {
			t.Errorf("%q is shared by %s, %+v", e.paths(), id, a)
		}
		for _, other := range e.Claimants[:i] {
			if b := h.calls[other]; b.Ended == nil || a.Ended == nil || b.Ended.Before(a.Begun) || a.Ended.Before(b.Begun) {
				t.Errorf("%q is shared by %s and %s, which did not overlap", e.paths(), id, other)
			}
		}
	}
}

// undoSession undoes all that an agent did, and takes that back.
func (s *scene) undoSession(t *testing.T, h *duo, agent string, base, before map[string]string) {
	t.Helper()
	status, out := s.try(t, "umbra", "undo", "--session", h.session[agent], "--turns", "1000", "--yes")
	if status != 0 && status != 1 {
		t.Fatalf("undo of %s: status %d: %s", agent, status, out)
	}
	now := s.files(t)
	other := map[string]string{"codex": "opencode", "opencode": "codex"}[agent]
	for _, who := range []string{other, "person"} {
		if a, b := under(now, who), under(before, who); a != b {
			t.Errorf("undo of %s changed what is %s's:\n%s\nwant\n%s", agent, who, a, b)
		}
	}
	wantCommon := strings.Split(before[commonFile], "\n")
	if n := commonLine[agent]; status == 0 {
		wantCommon[n] = fmt.Sprintf("line %d", n)
	}
	if got := now[commonFile]; got != strings.Join(wantCommon, "\n") {
		t.Errorf("undo of %s: %s is\n%s", agent, commonFile, got)
	}
	if status == 0 {
		for name := range before {
			if strings.HasPrefix(name, agent+"/") && !h.shared[name] && now[name] != base[name] {
				t.Errorf("undo of %s left %s: %q", agent, name, now[name])
			}
		}
	} else if h.meetingsAlone() {
		t.Errorf("undo of %s: status %d: %s", agent, status, out)
	}
	if status, out := s.try(t, "umbra", "redo", "--yes"); status != 0 || !maps.Equal(s.files(t), before) {
		t.Errorf("redo of %s: status %d: %s\n%s\nwant\n%s", agent, status, out, describe(s.files(t)), describe(before))
	}
}

// joined has the names of both.
func joined(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	maps.Copy(out, b)
	return out
}

// under lists the files of one owner.
func under(files map[string]string, who string) string {
	out := map[string]string{}
	for name, data := range files {
		if strings.HasPrefix(name, who+"/") {
			out[name] = data
		}
	}
	return describe(out)
}
