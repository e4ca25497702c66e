package model

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/history"
	"umbra/internal/vfs"
	"umbra/internal/workspace"
	"umbra/internal/workspace/host"
	"umbra/internal/workspace/wstest"
	"umbra/internal/workspaces"
	"umbra/internal/workspaces/recordstest"
	"umbra/internal/wspath"
)

// failure is a broken rule.
type failure struct {
	rule, detail string
}

func (f *failure) Error() string { return f.rule + ": " + f.detail }

func broken(rule, format string, args ...any) error {
	return &failure{rule, fmt.Sprintf(format, args...)}
}

func ruleOf(err error) string {
	if f, ok := errors.AsType[*failure](err); ok {
		return f.rule
	}
	return "error"
}

// tasks that work in every workspace.
var tasks = []string{"A", "B", "C"}

// rig is one workspace under test, and what is known of it.
type rig struct {
	mem  *vfs.Mem // nil: on a real folder
	top  vfs.FS
	host host.Host
	dir  string // host path of top

	recs  *recordstest.Records
	m     *workspaces.Manager
	w     *workspace.Workspace
	cache *history.Cache
	alone string
	boots int

	disk    wstest.Folder         // as of the last look
	pending []string              // paths that a person changed and no scan has seen
	log     []*change             // all entries of all commits, oldest first
	seen    uint64                // the last commit that was checked
	first   map[string]folder     // what was on disk before a task's first change
	solo    string                // the only task that ever changed anything; "-": there are several
	last    map[string]lastRevert // of each task
	through map[string]bool       // folders that a request of several operations may have passed through
	theirs  map[string]bool       // paths that a person named since the last power cut
	theirof map[string]bool       // bytes that a person put somewhere since then, or replaced, or removed
	fresh   map[string]edited     // what a person did at a path since the last scan
	passed  map[passing]bool      // what was there between two such changes, since the last power cut
	cut     bool                  // bits of files may be lost
	hidden  bool                  // a person put a file that is ignored
	partial bool                  // less than all of a task was taken back, or brought back
	forced  bool                  // a revert took the state before, whatever stood there
}

// change is one entry of the history with its commit's parent.
type change struct {
	workspace.ChangeEntry
	parent object.ID
}

// lastRevert is what a task's last revert found, for the way back.
type lastRevert struct {
	before wstest.Folder
	seq    uint64
	ids    []uint64 // its entries
	moved  bool     // it moved files, which may stand in each other's way one at a time
}

var background = context.Background()

func newRig(inMemory bool, files wstest.Folder) (*rig, error) {
	g := &rig{recs: &recordstest.Records{}, cache: history.NewCache(), first: make(map[string]folder), last: make(map[string]lastRevert), through: make(map[string]bool),
		theirs: make(map[string]bool), theirof: make(map[string]bool), fresh: make(map[string]edited), passed: make(map[passing]bool)}
	if inMemory {
		g.mem = vfs.NewMem(vfs.MemOptions{Umask: 0o022})
		g.top, g.host, g.dir = g.mem, &wstest.MemHost{Top: g.mem, Boot: "0"}, "/"
	} else {
		dir, err := os.MkdirTemp("", "model-")
		if err != nil {
			return nil, err
		}
		g.dir, g.host = dir, host.OS{}
		if g.top, err = vfs.OS(dir); err != nil {
			return nil, err
		}
	}
	for _, d := range []string{"ws", "data"} {
		if err := wstest.MkdirAll(g.top, d); err != nil {
			return nil, err
		}
	}
	for name, t := range files {
		if err := wstest.Write(g.top, "ws/"+name, t); err != nil {
			return nil, err
		}
	}
	if err := g.makePrivate("ws/key"); err != nil {
		return nil, err
	}
	if err := g.open(); err != nil {
		return nil, err
	}
	for _, id := range tasks {
		if _, err := g.w.Store().PutTask(background, message.Info{TaskID: id, Goal: id, Status: "executing"}, object.Zero); err != nil {
			return nil, err
		}
	}
	return g, g.look()
}

// makePrivate takes everybody else's bits from a file, durably.
func (g *rig) makePrivate(name string) error {
	f, err := g.top.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Sync(), f.Close())
}

func (g *rig) open() error {
	m, err := workspaces.NewManager(workspaces.Options{DataDir: filepath.Join(g.dir, "data"), Host: g.host, Records: g.recs, Foreground: g.mem != nil})
	if err != nil {
		return err
	}
	m.SetAttribute(func(string) string { return g.alone })
	g.m = m
	g.w, _, err = m.Open(background, filepath.Join(g.dir, "ws"), workspaces.OpenOptions{})
	return err
}

func (g *rig) shut() error {
	if g.w == nil {
		return nil
	}
	g.w.Release()
	g.w = nil
	return g.m.Close(background)
}

// remove ends the rig and gives its room back.
func (g *rig) remove() error {
	err := g.shut()
	if g.mem == nil {
		err = errors.Join(err, g.top.Close(), os.RemoveAll(g.dir))
	}
	return err
}

func (g *rig) look() (err error) {
	g.disk, err = wstest.Disk(g.top, "ws")
	return err
}

// run does one step and checks everything after it.
func (g *rig) run(s step) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = broken("panic", "%v", p)
		}
	}()
	switch s.verb {
	case "do":
		err = g.do(s)
	case "disk":
		err = g.person(s)
	case "sync":
		err = g.sync(true)
	case "alone":
		g.alone = s.who
	case "revert":
		err = g.revert(s)
	case "unrevert":
		err = g.unrevert(s.who)
	case "restart", "cold":
		err = g.restart(s.verb == "cold")
	case "crash":
		err = g.crash(s.n)
	}
	if err != nil {
		return err
	}
	return g.check()
}

func opOf(o op) workspace.Op {
	x, r := object.Executable, object.Regular
	w := workspace.Op{Path: wspath.Path(o.path)}
	switch o.verb {
	case "put":
		w.Kind, w.Data = workspace.OpWrite, []byte(o.arg)
	case "line":
		w.Kind, w.Edit = workspace.OpEdit, func(old []byte) ([]byte, error) { return []byte(setLine(string(old), o.n, o.arg)), nil }
	case "del":
		w.Kind, w.Recursive = workspace.OpDelete, true
	case "rmdir":
		w.Kind = workspace.OpDelete
	case "mv":
		w.Kind, w.To, w.Overwrite = workspace.OpRename, wspath.Path(o.arg), true
	case "cp":
		w.Kind, w.To, w.Overwrite = workspace.OpCopy, wspath.Path(o.arg), true
	case "mkdir":
		w.Kind = workspace.OpMkdir
	case "+x":
		w.Kind, w.Mode = workspace.OpChmod, &x
	case "-x":
		w.Kind, w.Mode = workspace.OpChmod, &r
	case "ln":
		w.Kind, w.Target, w.Overwrite = workspace.OpSymlink, o.arg, true
	}
	return w
}

// do is a request of a task.
func (g *rig) do(s step) error {
	want := folderOf(g.disk)
	refusal := want.apply(s.ops)
	if g.first[s.who] == nil {
		g.first[s.who] = folderOf(g.disk)
	}
	req := workspace.Request{By: workspace.By{TaskID: s.who, SubtaskID: s.sub, Actor: "by-" + s.who}}
	for _, o := range s.ops {
		req.Ops = append(req.Ops, opOf(o))
		for _, p := range []string{o.path, o.arg} {
			for d := path.Dir(p); len(s.ops) > 1 && d != "." && d != "/"; d = path.Dir(d) {
				g.through[d] = true
			}
		}
	}
	tip, before := g.w.Store().Tip(), g.disk
	res, err := g.w.Apply(background, req)
	if lerr := g.look(); lerr != nil {
		return lerr
	}
	if err != nil {
		if errs.Is(err, errs.Internal) || errs.CodeOf(err) == "" {
			return broken("internal error", "%v", err)
		}
		// A link in a circle leads nowhere; what a person is about may be in the way.
		if refusal == nil && len(g.pending) == 0 && errs.CodeOf(err) != "link_leads_out" {
			return broken("refused", "%v", err)
		}
		return g.unchanged("a failed request", before, tip)
	}
	if g.solo == "" {
		g.solo = s.who
	} else if g.solo != s.who {
		g.solo = "-"
	}
	for _, o := range s.ops {
		if o.verb == "mv" {
			g.along(o.path, o.arg)
		}
	}
	// A folder's move takes along what history does not know.
	if slices.ContainsFunc(s.ops, func(o op) bool { return o.verb == "mv" && (len(g.pending) > 0 || ignored(o.path) && !ignored(o.arg)) }) {
		g.pending = append(g.pending, everything)
	}
	switch {
	case errors.Is(refusal, errRefused):
		return broken("accepted", "%v", res.Entries)
	case refusal == nil:
		is, must := g.disk, want.plain()
		if len(s.ops) > 1 { // folders on the way to what is gone again at the end are not made
			is, must = is.Files(), must.Files()
		}
		if d := wstest.Differ("on disk", is, "in the model", must); d != "" {
			return broken("request", "%s", d)
		}
	}
	return g.kept(before)
}

// along notes that what a person named is at another path after a move: a power cut
// may bring it back there.
func (g *rig) along(from, to string) {
	for p := range maps.Clone(g.theirs) {
		if within(p, from) {
			g.theirs[to+p[len(from):]] = true
		}
	}
	for x := range maps.Clone(g.passed) {
		if within(x.path, from) {
			g.passed[passing{to + x.path[len(from):], x.mode, x.data}] = true
		}
	}
}

// unchanged holds after a request that failed, or only told: the same files, to
// the inode and time, and nothing in history but what a person did.
func (g *rig) unchanged(what string, before wstest.Folder, tip gitstore.Tip) error {
	if d := wstest.Differ("after", g.disk, "before", before); d != "" {
		return broken("unchanged", "%s changed the disk:\n%s", what, d)
	}
	for p, t := range before {
		if is := g.disk[p]; t.Mode != object.Dir && (is.Info.Ino != t.Info.Ino || is.Info.MtimeNs != t.Info.MtimeNs || is.Info.Mode != t.Info.Mode) {
			return broken("unchanged", "%s made %q another file", what, p)
		}
	}
	return g.onlyExternal(what, tip)
}

// onlyExternal checks that nothing was committed since a tip but what people did.
func (g *rig) onlyExternal(what string, tip gitstore.Tip) error {
	st := g.w.Store()
	for seq := tip.Seq + 1; seq <= st.Tip().Seq; seq++ {
		id, err := st.CommitAt(background, seq)
		if err != nil {
			return err
		}
		c, err := st.ReadCommit(background, id)
		if err != nil {
			return err
		}
		// A revert records what is ignored at a place that it needs, which no
		// scan does.
		hidden := !slices.ContainsFunc(c.Message.Entries, func(e message.Entry) bool { return !ignored(e.Path) })
		if c.Message.Source != message.External || len(g.pending) == 0 && !hidden {
			return broken("unchanged", "%s committed %q", what, c.Message.Summary)
		}
	}
	return nil
}

// kept checks that what a request replaced or removed is in history.
func (g *rig) kept(before wstest.Folder) error {
	for p, t := range before {
		if t.Mode == object.Dir || g.disk[p].Data == t.Data {
			continue
		}
		if !g.w.Store().HasBlob(object.Hash(object.Blob, []byte(t.Data))) && !g.stands(t) {
			return broken("lost", "%q (%.40q) is in no history", p, t.Data)
		}
	}
	return nil
}

// stands reports whether a content is on disk somewhere: a folder's move takes
// along what is in no history.
func (g *rig) stands(t wstest.Thing) bool {
	for _, is := range g.disk {
		if is.Same(t) {
			return true
		}
	}
	return false
}

// person changes the disk behind the server's back. What cannot be done is not.
func (g *rig) person(s step) error {
	want := folderOf(g.disk)
	for _, o := range s.ops {
		if want.one(o) != nil {
			continue
		}
		for p, t := range g.disk { // the bits of what a person removes are not known afterwards
			g.cut = g.cut || (within(p, o.path) || o.arg != "" && within(p, o.arg)) && strings.HasPrefix(t.Data, "secret")
		}
		if err := g.byHand(o); err != nil {
			return fmt.Errorf("disk: %v: %w", o, err)
		}
		g.pending = append(g.pending, o.path)
		g.theirs[o.path] = true
		if o.verb == "mv" {
			g.pending = append(g.pending, o.arg)
			g.theirs[o.arg] = true
		}
		before := g.disk
		if err := g.look(); err != nil {
			return err
		}
		for p, c := range g.fresh {
			if !g.disk[p].Same(c.now) {
				g.passed[passing{p, c.now.Mode, c.now.Data}] = true
			}
		}
		for p, t := range g.disk {
			if was, there := before[p]; t.Mode != object.Dir && !t.Same(was) {
				from := p
				if o.verb == "mv" && within(p, o.arg) {
					from = o.path + p[len(o.arg):]
				}
				mode := before[from].Mode
				if c, ok := g.fresh[from]; ok {
					mode = c.mode
				}
				g.fresh[p] = edited{t, mode}
				if from != p { // with the bits of before, which a change of names may outlive
					g.passed[passing{p, mode, t.Data}] = true
				}
				g.hidden = g.hidden || ignored(p)
				g.theirof[t.Data] = true
				if there {
					g.theirof[was.Data] = true
				}
			}
		}
		for p, t := range before {
			if _, there := g.disk[p]; !there && t.Mode != object.Dir {
				g.theirof[t.Data] = true
			}
		}
		want = folderOf(g.disk)
	}
	g.solo = "-"
	return nil
}

func (g *rig) byHand(o op) error {
	name := "ws/" + o.path
	switch o.verb {
	case "put", "line":
		t := g.disk[o.path]
		if t.Mode == 0 {
			t.Mode = object.Regular
		}
		if t.Data = o.arg; o.verb == "line" {
			t.Data = setLine(g.disk[o.path].Data, o.n, o.arg)
		}
		return wstest.Write(g.top, name, t)
	case "del", "rmdir":
		return vfs.RemoveAll(g.top, name)
	case "mv":
		to := "ws/" + o.arg
		if err := wstest.MkdirAll(g.top, path.Dir(to)); err != nil {
			return err
		}
		return g.top.Rename(name, to)
	case "mkdir":
		return wstest.MkdirAll(g.top, name)
	case "+x":
		return g.top.Chmod(name, g.disk[o.path].Info.Mode.Perm()|0o100)
	case "-x":
		return g.top.Chmod(name, g.disk[o.path].Info.Mode.Perm()&^0o111)
	case "ln":
		if err := vfs.RemoveAll(g.top, name); err != nil {
			return err
		}
		return wstest.Write(g.top, name, wstest.Thing{Mode: object.Symlink, Data: o.arg})
	}
	return nil
}

func (g *rig) sync(attribute bool) error {
	before := g.disk
	if _, err := g.w.Sync(background, workspace.SyncOptions{Attribute: attribute}); err != nil {
		return err
	}
	g.pending = nil
	clear(g.fresh)
	if err := g.look(); err != nil {
		return err
	}
	if d := wstest.Differ("after", g.disk, "before", before); d != "" {
		return broken("sync", "changed the disk:\n%s", d)
	}
	return nil
}

func (g *rig) restart(cold bool) error {
	before := g.disk
	if err := g.shut(); err != nil {
		return err
	}
	if cold {
		g.cache = history.NewCache()
	}
	if err := g.open(); err != nil {
		return err
	}
	if err := g.look(); err != nil {
		return err
	}
	if d := wstest.Differ("after", g.disk, "before", before); d != "" {
		return broken("restart", "changed the disk:\n%s", d)
	}
	return g.sync(false)
}

// crash cuts the power of a machine in memory. What was answered is there.
func (g *rig) crash(seed uint64) error {
	if g.mem == nil || len(g.pending) > 0 {
		return nil
	}
	before, err := g.tip()
	if err != nil {
		return err
	}
	r := rand.New(rand.NewPCG(seed, 1))
	modes := []vfs.CrashMode{vfs.CrashRandom, vfs.CrashNothing, vfs.CrashSyncedOnly, vfs.CrashNamesOnly}
	mode := modes[r.IntN(len(modes))]
	mem := g.mem.CrashClone(vfs.CrashOptions{Mode: mode, Rand: r})
	ignored := maps.Clone(g.disk)
	unseen := make(map[string]bool, len(g.theirof)) // of what a person put somewhere, what is in no history
	for data := range g.theirof {
		unseen[data] = !g.w.Store().HasBlob(object.Hash(object.Blob, []byte(data)))
	}
	known := make(map[string]bool) // the bytes that tasks wrote or found
	for _, e := range g.log {
		for _, id := range []object.ID{e.Before, e.After} {
			if id.IsZero() {
				continue
			}
			data, err := g.w.Store().ReadBlob(background, id, 1<<30)
			if err != nil {
				return err
			}
			known[string(data)] = true
		}
	}
	if err := g.shut(); err != nil {
		return err
	}
	if mode != vfs.CrashNothing {
		g.boots++
		g.cut = true
	}
	g.mem, g.top, g.host = mem, mem, &wstest.MemHost{Top: mem, Boot: fmt.Sprint(g.boots)}
	g.cache = history.NewCache()
	if err := g.open(); err != nil {
		return broken("crash", "%v: %v", mode, err)
	}
	if err := g.look(); err != nil {
		return err
	}
	after, err := g.tip()
	if err != nil {
		return err
	}
	if mode != vfs.CrashNothing {
		for p, t := range before {
			if !g.w.Store().HasBlob(object.Hash(object.Blob, []byte(t.Data))) {
				return broken("crash", "%v: %q (%.60q) is in no history any more", mode, p, t.Data)
			}
		}
		g.half(before, after, unseen, known)
		clear(g.theirs)
		clear(g.theirof)
		clear(g.passed)
	}
	if d := wstest.Differ("after", after, "before", before); d != "" {
		return broken("crash", "%v: history is another:\n%s", mode, d)
	}
	for p, t := range ignored {
		// A person's file that history never saw is the person's to sync.
		if _, tracked := before[p]; !tracked && t.Mode != object.Dir && mode == vfs.CrashNothing && !g.disk[p].Same(t) {
			return broken("crash", "%v: %q is lost", mode, p)
		}
	}
	return nil
}

// edited is what a person made of a path, and the mode that it had at the last scan.
type edited struct {
	now  wstest.Thing
	mode object.Mode
}

// passing is a file at a place that a person let it pass through.
type passing struct {
	path string
	mode object.Mode
	data string
}

// half leaves out what a power cut left of a user's changes that were not
// synced: a file at a place that it only passed through, torn if no checkpoint had synced
// it, or bytes that were there before and that no scan ever saw. They are on disk and
// were recorded as the user's, but for ignored names. All that was in history still is.
func (g *rig) half(before, after wstest.Folder, unseen, known map[string]bool) {
	named := func(p string) bool {
		for q := range g.theirs {
			if within(p, q) {
				return true
			}
		}
		return false
	}
	there := maps.Clone(after)
	for p, t := range there {
		was, ok := before[p]
		if !named(p) || !g.disk[p].Same(t) || ok && was.Same(t) {
			continue
		}
		// In a folder that a person moved also what a task had removed from it.
		new, theirs := unseen[t.Data]
		if theirs && new || !ok && (theirs || known[t.Data] || torn(before, p, t)) || g.passed[passing{p, t.Mode, t.Data}] {
			delete(after, p)
			delete(before, p)
		}
	}
	// What is gone went back to where the person had it from, or what no history
	// has stands in its way.
	for p, t := range before {
		if _, ok := after[p]; ok || !named(p) {
			continue
		}
		back, blocked := false, false
		for q, is := range there {
			back = back || is.Same(t) && !before[q].Same(t) && named(q)
		}
		for q, is := range g.disk {
			back = back || ignored(q) && is.Same(t) && named(q)
			blocked = blocked || is.Mode != object.Dir && (within(q, p) || within(p, q))
		}
		if back || blocked {
			delete(before, p)
		}
	}
}

// torn reports whether a file may be what a power failure left of one of that name elsewhere.
func torn(before wstest.Folder, p string, t wstest.Thing) bool {
	for q, was := range before {
		if q != p && path.Base(q) == path.Base(p) && was.Mode == t.Mode && len(t.Data) <= len(was.Data) {
			return true
		}
	}
	return false
}

func (g *rig) tip() (wstest.Folder, error) {
	return wstest.Tree(background, g.w.Store(), g.w.Store().Snapshot())
}

// ignored is what the .gitignore of every workspace here hides.
func ignored(p string) bool { return strings.HasSuffix(p, ".log") || strings.Contains(p, ".log/") }

// everything as a pending path: a folder's move took along what a person did.
const everything = ""

// within reports whether one path is the other or lies under it.
func within(p, dir string) bool {
	return dir == everything || p == dir || strings.HasPrefix(p, dir+"/")
}

func overlap(a, b string) bool { return within(a, b) || within(b, a) }
