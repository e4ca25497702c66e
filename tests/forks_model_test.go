package tests

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// forkModel does random things to a workspace and its forks, and checks after each what
// must hold whatever was done.
type forkModel struct {
	t     *testing.T
	p     *project
	r     *rand.Rand
	all   []*modelFork // the parent first
	steps []string
	tasks int
	files int
	soak  bool // also what is rare
	layer bool // does the system have layers
	mount bool // may the server mount them at a path

	quiet   sync.Mutex // held while a git command runs, and by gc --now and the deletion of a parent, which by contract may break one
	watched sync.Mutex
	gits    map[string]bool // repositories that exist
}

// watch runs git fsck over all repositories until the returned function is called: they
// are sound at every moment, not only between the steps. Those of a cluster's nodes are copies.
func (m *forkModel) watch(ctx context.Context) (stop func()) {
	if harness.Nodes() > 0 {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			m.watched.Lock()
			dirs := slices.Sorted(maps.Keys(m.gits))
			m.watched.Unlock()
			for _, dir := range dirs {
				cmd := exec.CommandContext(ctx, "git", "fsck", "--strict", "--no-dangling", "--no-progress")
				cmd.Dir = dir
				m.quiet.Lock()
				out, err := cmd.CombinedOutput()
				m.quiet.Unlock()
				m.watched.Lock()
				still := m.gits[dir]
				m.watched.Unlock()
				if err != nil && still && ctx.Err() == nil {
					m.t.Errorf("git fsck in %s: %v\n%s", dir, err, out)
					return
				}
			}
		}
	}()
	return func() { cancel(); <-done }
}

func (m *forkModel) exists(f *modelFork, yes bool) {
	m.watched.Lock()
	defer m.watched.Unlock()
	if yes {
		m.gits[f.git] = true
	} else {
		delete(m.gits, f.git)
	}
}

type modelFork struct {
	id, git, task, kind string
	dir                 string // of a layer at a path
	depth               int
	of                  *modelFork // what it is a fork of
	tree                string     // as of the last look

	names map[string]int // the files that requests made and moved, by their paths
	base  map[string]int // likewise of what it is a fork of, as it began
	other int            // how often another thing than a request changed names
	then  int            // other of what it is a fork of, as it began
}

// renamed notes what a request does to a file: to another path, or away.
func (m *forkModel) renamed(f *modelFork, path, to string) {
	id, ok := f.names[path]
	if !ok {
		m.files++
		id = m.files
	}
	delete(f.names, path)
	if to != "" {
		f.names[to] = id
	}
}

// apart returns a file to which a fork and what it is a fork of gave different names, if all
// they did to names since was done by requests.
func (m *forkModel) apart(f *modelFork) string {
	if f.other > 0 || f.of.other != f.then {
		return ""
	}
	name := func(names map[string]int, id int) string {
		for path, x := range names {
			if x == id {
				return path
			}
		}
		return ""
	}
	for was, id := range f.base {
		here, there := name(f.of.names, id), name(f.names, id)
		if here != "" && there != "" && here != there && here != was && there != was {
			return fmt.Sprintf("%s is %s here and %s there", was, here, there)
		}
	}
	return ""
}

func (m *forkModel) fatalf(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\nafter:\n%s", fmt.Sprintf(format, args...), strings.Join(m.steps, "\n"))
}

func (m *forkModel) note(format string, args ...any) {
	m.steps = append(m.steps, fmt.Sprintf(format, args...))
}

// look returns a workspace's tree as stock git has it.
func (m *forkModel) look(f *modelFork) string {
	m.p.post(m.t, "/workspaces/"+f.id+"/sync", map[string]any{}).want(m.t, 200)
	if harness.Nodes() > 0 { // another one may have it than before
		f.git = m.p.call(m.t, "GET", "/workspaces/"+f.id, nil).want(m.t, 200).str(m.t, "git_dir")
	}
	return harness.Git(m.t, f.git, "rev-parse", "refs/heads/shadow^{tree}")
}

// blob returns the version that a tree has at a path.
func (m *forkModel) blob(f *modelFork, tree, path string) string {
	return harness.Git(m.t, f.git, "ls-tree", tree, "--", path)
}

// others checks that an operation on one workspace changed no other.
func (m *forkModel) others(but *modelFork) {
	m.t.Helper()
	for _, f := range m.all {
		if f == but {
			continue
		}
		if now := m.look(f); now != f.tree {
			m.fatalf("%s changed: %s", f.id, harness.Git(m.t, f.git, "diff", "--stat", f.tree, now))
		}
	}
	if but != nil {
		but.tree = m.look(but)
	}
}

func (m *forkModel) begin(f *modelFork) {
	m.tasks++
	f.task = "t" + strconv.Itoa(m.tasks)
	m.p.post(m.t, "/tasks", map[string]any{"task_id": f.task, "workspace": f.id, "goal": "random"}).want(m.t, 201)
}

func (m *forkModel) path() string {
	return []string{"a", "b", "c", "d/x", "d/y", "e/f/z"}[m.r.IntN(6)]
}

func (m *forkModel) text() string {
	var b strings.Builder
	for i := range 30 {
		fmt.Fprintf(&b, "line %d of %d\n", i, m.r.IntN(2))
	}
	return b.String()
}

// change makes a random change by a request.
func (m *forkModel) change(f *modelFork) {
	path, sub := m.path(), "s"+strconv.Itoa(m.r.IntN(3))
	header := []string{"X-Subtask-Id", sub, "X-Actor", "actor-" + sub}
	switch m.r.IntN(5) {
	case 0:
		a := m.p.call(m.t, "DELETE", "/tasks/"+f.task+"/content?path="+path, nil, header...)
		if a.Status/100 == 2 {
			m.renamed(f, path, "")
		}
		m.note("%s: delete %s: %d", f.id, path, a.Status)
	case 1:
		to := m.path()
		dirs := m.r.IntN(4) == 0
		if dirs {
			path, to = []string{"d", "g", "h"}[m.r.IntN(3)], []string{"d", "g", "h"}[m.r.IntN(3)]
		}
		a := m.p.post(m.t, "/tasks/"+f.task+"/move", map[string]any{"from": path, "to": to}, header...)
		if a.Status == 200 && dirs {
			f.other++
		} else if a.Status == 200 && path != to {
			m.renamed(f, path, to)
		}
		m.note("%s: move %s to %s: %d", f.id, path, to, a.Status)
	case 2:
		a := m.p.call(m.t, "PUT", "/tasks/"+f.task+"/content?path="+path, []byte(m.text()), header...)
		if a.Status == 201 {
			m.renamed(f, path, path)
		}
		m.note("%s: write %s: %d", f.id, path, a.Status)
	default: // a few lines of it
		old := m.p.call(m.t, "GET", "/tasks/"+f.task+"/content?path="+path, nil)
		lines := strings.SplitAfter(string(old.Body), "\n")
		if old.Status != 200 || len(lines) < 10 {
			lines = strings.SplitAfter(m.text(), "\n")
		}
		at := m.r.IntN(len(lines) - 2)
		lines[at] = fmt.Sprintf("%s by %s, %d\n", f.id, sub, m.r.IntN(1000))
		a := m.p.call(m.t, "PUT", "/tasks/"+f.task+"/content?path="+path, []byte(strings.Join(lines, "")), header...)
		if a.Status == 201 {
			m.renamed(f, path, path)
		}
		m.note("%s: edit line %d of %s: %d", f.id, at, path, a.Status)
	}
	m.others(f)
}

// rename has a fork and what it is a fork of give a file different names, or the same.
func (m *forkModel) rename(f *modelFork) {
	var both []string // files that have their names of before
	for path, id := range f.base {
		if f.names[path] == id && f.of.names[path] == id {
			both = append(both, path)
		}
	}
	if len(both) == 0 || m.parent(f) != f.of {
		return
	}
	slices.Sort(both)
	path := both[m.r.IntN(len(both))]
	for _, x := range []*modelFork{f.of, f} {
		to := "r" + strconv.Itoa(m.r.IntN(9))
		a := m.p.post(m.t, "/tasks/"+x.task+"/move", map[string]any{"from": path, "to": to})
		if a.Status == 200 && path != to {
			m.renamed(x, path, to)
		}
		m.note("%s: move %s to %s on both sides: %d", x.id, path, to, a.Status)
		m.others(x)
	}
	if apart := m.apart(f); apart != "" {
		for _, verb := range []string{"merge", "rebase"} {
			var dry mergeAnswer
			m.p.post(m.t, "/workspaces/"+f.id+"/"+verb, map[string]any{"dry_run": true}).want(m.t, 200).into(m.t, &dry)
			if len(dry.Conflicts) == 0 {
				m.fatalf("%s, and it is no conflict of a %s", apart, verb)
			}
		}
	}
}

// edit changes a file of the parent's directory, or of a layer at a path, as its user
// does.
func (m *forkModel) edit() {
	f, dir := m.all[0], m.p.dir
	for _, x := range m.all {
		if x.dir != "" && m.r.IntN(3) == 0 {
			f, dir = x, x.dir
		}
	}
	name := filepath.Join(dir, m.path())
	if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() {
		err := os.WriteFile(name, []byte(m.text()), 0o644)
		m.note("%s: user edit of %s: %v", f.id, name, err)
	}
	m.others(f)
}

// mountPoint returns a path for a layer, which is unmounted at the test's end if it is
// still there then.
func (m *forkModel) mountPoint() string {
	dir := filepath.Join(m.t.TempDir(), "mounted")
	m.t.Cleanup(func() {
		if _, err := os.Stat(dir); err == nil {
			_ = exec.Command("umount", "-l", dir).Run()
		}
	})
	return dir
}

func (m *forkModel) fork() {
	of := m.all[m.r.IntN(len(m.all))]
	if len(m.all) > 4 || of.depth > 2 {
		return
	}
	body := map[string]any{"kind": "virtual"}
	dir := ""
	switch n := m.r.IntN(4); {
	case n == 0:
		body = map[string]any{"kind": "copy", "path": filepath.Join(m.t.TempDir(), "copy")}
	case n == 1 && m.layer:
		body = map[string]any{"kind": "layer"}
	case n == 2 && m.mount && (of.kind == "physical" || of.kind == "copy"):
		dir = m.mountPoint()
		body = map[string]any{"kind": "layer", "path": dir}
	}
	made := m.p.forks(m.t, "/workspaces/"+of.id, body)[0]
	f := &modelFork{id: made["id"].(string), git: made["git_dir"].(string), kind: body["kind"].(string), dir: dir, depth: of.depth + 1, of: of, names: maps.Clone(of.names), base: maps.Clone(of.names), then: of.other}
	m.note("%s: fork %s of kind %s", of.id, f.id, f.kind)
	m.p.log(m.t, f.id) // a node of a cluster makes the repository when it opens the fork
	if base := harness.Git(m.t, f.git, "rev-parse", "refs/heads/shadow"); base != made["fork_at"] {
		m.fatalf("git sees %s, not %s", base, made["fork_at"])
	}
	m.begin(f)
	if f.tree = m.look(f); f.tree != of.tree {
		m.fatalf("the fork is not as its parent: %s and %s", f.tree, of.tree)
	}
	m.all = append(m.all, f)
	m.exists(f, true)
	m.others(f)
}

// in runs a command in a layer, which sees the fork's files and changes one of them
// while the parent's user does so too.
func (m *forkModel) in(f *modelFork) {
	if f.kind != "layer" {
		return
	}
	path, to := m.path(), m.path()
	list := `git init -q --bare "$T" && GIT_DIR=$T GIT_WORK_TREE=. git add -A -f . && GIT_DIR=$T git write-tree`
	script := "{ " + list + "; }; " + []string{
		fmt.Sprintf("mkdir -p $(dirname %s) && echo 'command %d' > %s || true", path, m.r.IntN(1000), path),
		fmt.Sprintf("rm -rf %s", path),
		fmt.Sprintf("mkdir -p $(dirname %s) && mv %s %s || true", to, path, to),
		fmt.Sprintf("echo 'appended %d' >> %s || true", m.r.IntN(1000), path),
	}[m.r.IntN(4)]
	files := filepath.Join(m.t.TempDir(), "seen")
	script = "T=" + files + "; export T GIT_CONFIG_GLOBAL=/dev/null; " + script
	m.note("%s: in: %s", f.id, script)
	f.other++
	status, out, said := m.p.verb(m.t, "in", f.id, "--", "sh", "-c", script+" 2>&1")
	if status != 0 {
		m.fatalf("%d %s%s", status, out, said)
	}
	if seen, _, _ := strings.Cut(strings.TrimSpace(out), "\n"); seen != f.tree {
		m.fatalf("the command saw\n%s\nnot\n%s: %s%s", harness.Git(m.t, files, "ls-tree", "-r", seen), harness.Git(m.t, f.git, "ls-tree", "-r", f.tree), out, said)
	}
	m.others(f)
}

// retain drops old history and purges a file. Both leave a history that has forks, or is
// one, as it is; without forks the purged bytes are nowhere.
func (m *forkModel) retain() {
	first := m.all[0]
	for _, f := range m.all[1:] {
		if m.soak && !m.linked(f) { // its tasks keep its history no longer
			m.p.call(m.t, "PATCH", "/tasks/"+f.task, map[string]any{"status": "completed"}).want(m.t, 200)
			m.begin(f)
		}
	}
	tip := harness.Git(m.t, first.git, "rev-parse", "refs/heads/shadow")
	m.note("gc, purge and restart")
	if m.linked(first) {
		if _, said := m.p.purge(m.t, 1, first.id, "a"); !strings.Contains(said, "fork") {
			m.fatalf("the purge says %s", said)
		}
		if m.linked(m.all[1]) {
			m.p.purge(m.t, 1, m.all[1].id, "a")
		}
		before := harness.Git(m.t, first.git, "rev-list", "--count", tip)
		if m.r.IntN(3) == 0 {
			m.quiet.Lock()
			m.p.verb(m.t, "gc", "--now")
			m.quiet.Unlock()
		} else { // git is at work meanwhile
			m.p.verb(m.t, "gc")
		}
		if left := harness.Git(m.t, first.git, "rev-list", "--count", tip); left != before {
			m.fatalf("%s commits of a history with forks are left of %s", left, before)
		}
	} else {
		secret := fmt.Sprintf("secret of %d", m.r.Int())
		m.p.call(m.t, "PUT", "/tasks/"+first.task+"/content?path=kept", []byte(secret)).want(m.t, 201)
		m.p.call(m.t, "PUT", "/tasks/"+first.task+"/content?path=kept", []byte("kept\n")).want(m.t, 200)
		m.look(first)
		m.exists(first, false) // its ids change meanwhile
		m.p.purge(m.t, 0, first.id, "kept")
		m.quiet.Lock() // it frees the packs of other workspaces too
		m.p.verb(m.t, "gc", "--now")
		m.quiet.Unlock()
		m.look(first)
		m.exists(first, true)
		if found := m.p.Leaks(secret); len(found) > 0 {
			m.fatalf("the secret is still in %v", found)
		}
		m.p.call(m.t, "DELETE", "/tasks/"+first.task+"/content?path=kept", nil).want(m.t, 200)
		if now := m.look(first); now != first.tree {
			m.fatalf("a purge changed other files: %s", harness.Git(m.t, first.git, "diff", "--stat", first.tree, now))
		}
	}
	m.p.restart()
	m.others(nil)
}

// linked reports whether a workspace shares its history.
func (m *forkModel) linked(f *modelFork) bool {
	return slices.ContainsFunc(m.all, func(x *modelFork) bool { return x == f.of || x.of == f })
}

// parent returns what a fork was made of, if that is still there.
func (m *forkModel) parent(f *modelFork) *modelFork {
	var o struct{ Fork_of string }
	m.p.call(m.t, "GET", "/workspaces/"+f.id, nil).want(m.t, 200).into(m.t, &o)
	for _, x := range m.all {
		if x.id == o.Fork_of {
			return x
		}
	}
	return nil
}

// hunks picks some of the hunks of a fork's task; nil: it has none.
func (m *forkModel) hunks(f *modelFork) (ids []string) {
	for _, h := range m.p.call(m.t, "GET", "/tasks/"+f.task+"/hunks", nil).want(m.t, 200).list(m.t, "hunks") {
		if m.r.IntN(2) == 0 {
			ids = append(ids, h["id"].(string))
		}
	}
	return ids
}

// like returns the body of a dry run of all that a merge's may bring to its target.
func (m *forkModel) like(body map[string]any) map[string]any {
	all := map[string]any{"dry_run": true}
	if body["into"] != nil {
		all["into"] = body["into"]
	}
	return all
}

// merge merges a random part of a fork, or the parent's news into it, and sometimes
// takes it back at once. A fork whose parent was deleted is merged into another workspace.
func (m *forkModel) merge(f *modelFork, rebase bool) {
	into := m.parent(f)
	verb := "merge"
	body := map[string]any{"on_conflict": []string{"refuse", "skip"}[m.r.IntN(2)]}
	if into == nil {
		if into = m.all[m.r.IntN(len(m.all))]; !m.soak || rebase || f.of == nil || into == f {
			return
		}
		body["into"] = into.id
	}
	if rebase {
		verb, into = "rebase", f
	}
	whole := false
	switch n := m.r.IntN(6); {
	case n == 0:
		body["subtasks"] = []string{"s" + strconv.Itoa(m.r.IntN(3))}
	case n == 1:
		body["paths"] = []string{m.path()}
	case n == 2:
		body["tasks"] = []string{f.task}
	case n == 3 && !rebase:
		hunks := m.hunks(f)
		if hunks == nil {
			return
		}
		body["hunks"] = hunks
	default:
		whole = true
	}
	if m.r.IntN(3) == 0 {
		body["as"] = "squash"
	}
	before, apart := into.tree, m.apart(f)
	var dry, done mergeAnswer
	body["dry_run"] = true
	if a := m.p.post(m.t, "/workspaces/"+f.id+"/"+verb, body); a.Status == 410 && body["into"] != nil {
		a.fails(m.t, 410, "history_dropped")
		m.note("%s: %s into %s, whose common history was dropped", f.id, verb, into.id)
		return
	} else {
		a.want(m.t, 200).into(m.t, &dry)
	}
	m.others(nil)
	if dry.History_Dropped && len(dry.Files) > 0 {
		delete(body, "dry_run")
		m.p.post(m.t, "/workspaces/"+f.id+"/"+verb, body).fails(m.t, 410, "history_dropped")
		m.others(nil)
	}
	if whole && apart != "" && len(dry.Conflicts) == 0 && (into == f.of || rebase) {
		m.fatalf("%s, and it is no conflict", apart)
	}
	body["dry_run"], body["plan"] = false, dry.Plan
	a := m.p.post(m.t, "/workspaces/"+f.id+"/"+verb, body)
	m.note("%s: %s %v: %d", f.id, verb, body, a.Status)
	switch a.Status {
	case 200:
		a.into(m.t, &done)
	case 409:
		if !strings.Contains(string(a.Body), "merge_conflict") || len(dry.Conflicts) == 0 || body["on_conflict"] != "refuse" {
			m.fatalf("%s", a.Body)
		}
		m.others(nil) // nothing was changed
		return
	default:
		m.fatalf("%s", a.Body)
	}
	m.others(into)
	into.other++
	merged := into.tree
	for _, c := range dry.Conflicts {
		if c.Reason == "renamed" && m.blob(into, before, c.Here) != m.blob(into, merged, c.Here) {
			m.fatalf("%s, which was left out, is not as it was", c.Here)
		}
	}
	var want []string
	for _, x := range dry.Files {
		want = append(want, x.Path)
	}
	got := strings.Fields(harness.Git(m.t, into.git, "diff", "--name-only", "--no-renames", before, into.tree))
	if slices.Sort(want); !slices.Equal(got, want) {
		m.fatalf("the plan was %v, and it changed %v", want, got)
	}
	if whole && len(done.Conflicts) == 0 {
		var again mergeAnswer
		m.p.post(m.t, "/workspaces/"+f.id+"/"+verb, m.like(body)).want(m.t, 200).into(m.t, &again)
		if len(again.Files) > 0 {
			m.fatalf("merged again it would change %+v", again.Files)
		}
	}
	if len(done.Commits) > 0 && m.r.IntN(3) == 0 {
		a := m.p.post(m.t, "/tasks/"+done.Task_ID+"/revert", map[string]any{})
		m.note("%s: revert of %s: %d", into.id, done.Task_ID, a.Status)
		a.want(m.t, 200)
		m.others(into)
		if into.tree != before {
			m.fatalf("a merge and its revert leave %s", harness.Git(m.t, into.git, "diff", "--stat", before, into.tree))
		}
		if body["hunks"] != nil || done.Reverted > 0 {
			return // they come again by themselves; more comes again
		}
		body["again"] = true
		delete(body, "plan")
		if dry.History_Dropped {
			return
		}
		a = m.p.post(m.t, "/workspaces/"+f.id+"/"+verb, body)
		m.note("%s: %s again: %d", f.id, verb, a.Status)
		a.want(m.t, 200)
		m.others(into)
		if into.tree != merged {
			m.fatalf("merged, reverted and merged again is %s", harness.Git(m.t, into.git, "diff", "--stat", merged, into.tree))
		}
	}
}

// carry has a new fork rename a directory to which its parent adds a file meanwhile: a merge
// moves that along, and a revert of it moves it back.
func (m *forkModel) carry() {
	of := m.all[m.r.IntN(len(m.all))]
	if of.depth > 2 {
		return
	}
	m.tasks++
	of.other++
	id, dir, to := fmt.Sprintf("t%d", m.tasks), fmt.Sprintf("w%d", m.tasks), fmt.Sprintf("v%d", m.tasks)
	m.p.call(m.t, "PUT", "/tasks/"+of.task+"/content?path="+dir+"/x", []byte("x\n")).want(m.t, 201)
	fork := m.p.forks(m.t, "/workspaces/"+of.id, map[string]any{"kind": "virtual"})[0]["id"].(string)
	m.p.post(m.t, "/tasks", map[string]any{"task_id": id, "workspace": fork, "goal": "rename"}).want(m.t, 201)
	m.p.post(m.t, "/tasks/"+id+"/move", map[string]any{"from": dir, "to": to}).want(m.t, 200)
	m.p.call(m.t, "PUT", "/tasks/"+of.task+"/content?path="+dir+"/new", []byte("new\n")).want(m.t, 201)
	before := m.look(of)
	done := m.p.merge(m.t, fork, map[string]any{"as": []string{"replay", "squash"}[m.r.IntN(2)]})
	m.note("%s: merge of %s, which renamed %s to %s", of.id, fork, dir, to)
	if now := m.look(of); m.blob(of, now, to+"/x") == "" || m.blob(of, now, to+"/new") == "" || m.blob(of, now, dir) != "" {
		m.fatalf("%s/new did not move along: %s", dir, harness.Git(m.t, of.git, "diff", "--stat", before, now))
	}
	if m.r.IntN(2) == 0 {
		m.p.post(m.t, "/tasks/"+done.Task_ID+"/revert", map[string]any{}).want(m.t, 200)
		m.note("%s: revert of %s", of.id, done.Task_ID)
		if now := m.look(of); now != before {
			m.fatalf("a merge and its revert leave %s", harness.Git(m.t, of.git, "diff", "--stat", before, now))
		}
	}
	m.p.call(m.t, "PATCH", "/tasks/"+id, map[string]any{"status": "completed"}).want(m.t, 200)
	m.p.call(m.t, "DELETE", "/workspaces/"+fork+"?force=true", nil).want(m.t, 204)
	m.others(of)
}

func (m *forkModel) drop(f *modelFork) {
	if f == m.all[0] {
		return
	}
	m.p.call(m.t, "PATCH", "/tasks/"+f.task, map[string]any{"status": "completed"})
	m.exists(f, false)
	m.quiet.Lock() // git reads where a fork borrows objects once, when it starts
	a := m.p.call(m.t, "DELETE", "/workspaces/"+f.id+"?force=true", nil)
	m.quiet.Unlock()
	m.note("%s: delete: %d", f.id, a.Status)
	a.want(m.t, 204)
	m.exists(f, false)
	m.all = slices.DeleteFunc(m.all, func(x *modelFork) bool { return x == f })
	m.others(nil)
}

// sound checks the repositories, and a clone of a fork.
func (m *forkModel) sound() {
	for _, f := range m.all {
		m.look(f)
		harness.Git(m.t, f.git, "fsck", "--strict", "--no-dangling")
	}
	f := m.all[m.r.IntN(len(m.all))]
	clone := filepath.Join(m.t.TempDir(), "clone")
	harness.Git(m.t, m.p.dir, "clone", "-q", "--no-checkout", m.p.URL+"/git/"+f.id+".git", clone)
	if got := harness.Git(m.t, clone, "rev-parse", "HEAD^{tree}"); got != f.tree {
		m.fatalf("a clone of %s has %s, not %s", f.id, got, f.tree)
	}
	harness.Git(m.t, clone, "fsck", "--strict", "--no-dangling")
}

func (m *forkModel) step() {
	f := m.all[m.r.IntN(len(m.all))]
	switch n := m.r.IntN(31); {
	case n < 10:
		m.change(f)
	case n < 12:
		m.edit()
	case n < 15:
		m.fork()
	case n < 19:
		m.merge(f, false)
	case n < 21:
		m.merge(f, true)
	case n < 22:
		m.drop(f)
	case n < 23:
		m.retain()
	case n < 26:
		m.in(f)
	case n < 28:
		m.rename(f)
	case n < 30:
		m.carry()
	default:
		m.sound()
	}
}

// TestForkModel repeats a run with UMBRA_SEED; UMBRA_SOAK makes it long.
func TestForkModel(t *testing.T) {
	need.Tool(t, "git")
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("UMBRA_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("UMBRA_SEED=%d", seed)
	rounds, steps := 2, 25
	if os.Getenv("UMBRA_SOAK") != "" {
		rounds, steps = 100, 60
	}
	for round := range rounds {
		p := retained(t, atOnce)
		p.fill(t, map[string]string{"a": "a\n", "d/x": "x\n", "e/f/z": "z\n"})
		first := p.task(t)
		m := &forkModel{t: t, p: p, r: rand.New(rand.NewPCG(seed, uint64(round))), gits: map[string]bool{}, files: 3, soak: rounds > 2}
		f := &modelFork{id: first.str("workspace_id"), git: first.gitDir(), task: first.ID, kind: "physical", names: map[string]int{"a": 1, "d/x": 2, "e/f/z": 3}}
		f.tree = m.look(f)
		m.all = []*modelFork{f}
		m.exists(f, true)
		if made := p.post(t, "/workspaces/"+f.id+"/forks", map[string]any{"kind": "layer"}); made.Status == 201 {
			m.layer = true
			p.call(t, "DELETE", "/workspaces/"+made.list(t, "forks")[0]["id"].(string), nil).want(t, 204)
		}
		if made := p.post(t, "/workspaces/"+f.id+"/forks", map[string]any{"kind": "layer", "path": m.mountPoint()}); made.Status == 201 {
			m.mount = true
			p.call(t, "DELETE", "/workspaces/"+made.list(t, "forks")[0]["id"].(string), nil).want(t, 204)
		}
		stop := m.watch(t.Context())
		for range steps {
			m.step()
		}
		stop()
		m.sound()
		p.Stop()
	}
}
