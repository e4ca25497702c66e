package history

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/lineage"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// TestChainsOfSome threads some entries of random tasks, and compares that with threading
// them by all that the task did, also at paths that no rename connects with theirs.
func TestChainsOfSome(t *testing.T) {
	for seed := range uint64(2_000) {
		task, moves := randomTask(rand.New(rand.NewPCG(seed, 1)))
		pick := rand.New(rand.NewPCG(seed, 2))
		some := slices.DeleteFunc(task.Work(), func(*Entry) bool { return pick.IntN(3) == 0 })
		whole, _ := thread(task.Every(), moves, nil)
		file := make(map[*Entry]*Chain)
		for _, c := range whole {
			for _, e := range c.Entries() {
				file[e] = c
			}
		}
		want, _ := thread(some, moves, func() map[*Entry]*Chain { return file })
		got, _ := task.Chains(some, moves)
		if a, b := shown(want), shown(got); a != b {
			t.Fatalf("seed %d: by all entries\n%s\nby those that are related\n%s", seed, a, b)
		}
	}
}

// TestRelated counts what of a long task is threaded for some of its entries.
func TestRelated(t *testing.T) {
	task := &Task{}
	add := func(path, to string) *Entry {
		n := uint64(len(task.Entries) + 1)
		task.Entries = append(task.Entries, Entry{ChangeEntry: &workspace.ChangeEntry{ID: n, Seq: n, Path: path, NewPath: to}})
		return &task.Entries[n-1]
	}
	for i := range 1_000 {
		add(fmt.Sprint("other", i%100), "")
	}
	add("a", "b")
	add("c", "d")
	e := add("d", "")
	add("e", "f")
	moves := []lineage.Move{{Move: wspath.Move{From: "b", To: "c"}}}
	var got []string
	for _, r := range task.related([]*Entry{e}, moves) {
		got = append(got, r.Path)
	}
	if want := []string{"a", "c", "d"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// randomTask makes a task with edits, renames, deletions and reverts of a few files, and
// renames by others.
func randomTask(r *rand.Rand) (*Task, []lineage.Move) {
	names := []string{"a", "b", "c", "d", "e", "f"}
	name := func() string { return names[r.IntN(len(names))] }
	task := &Task{ID: "t"}
	files := make(map[string]object.ID) // as they are now
	var moves []lineage.Move
	blob := uint64(0)
	content := func() (id object.ID) {
		blob++
		binary.BigEndian.PutUint64(id[:], blob)
		return id
	}
	mode := func(id object.ID) object.Mode {
		if id.IsZero() {
			return 0
		}
		return object.Regular
	}
	for n := uint64(1); n <= 24; n++ {
		from, to := name(), name()
		x := workspace.ChangeEntry{ID: n, Seq: n, Commit: content(), TaskID: "t", Path: from, Before: files[from], Source: message.API}
		switch k := r.IntN(8); {
		case k == 0 && !files[from].IsZero() && files[to].IsZero(): // by others
			moves = append(moves, lineage.Move{Seq: n, Move: wspath.Move{From: wspath.Path(from), To: wspath.Path(to)}})
			files[to], files[from] = files[from], object.Zero
			task.Entries = append(task.Entries, Entry{ChangeEntry: &workspace.ChangeEntry{ID: n, Seq: n, Path: "x", Source: message.Rollback}})
			continue
		case k == 1 && !files[from].IsZero() && from != to:
			x.NewPath, x.After = to, files[from]
		case k == 2 && !files[from].IsZero(): // deleted
		case k <= 4 && len(task.Entries) > 0: // a revert
			was := &task.Entries[r.IntN(len(task.Entries))]
			x.Path, x.Before, x.After, x.Source = was.Path, files[was.Path], was.Before, message.Revert
			x.Reverts = []message.EntryRef{was.Ref}
			was.Undone = true
		default:
			x.After = content()
		}
		x.BeforeMode, x.Mode = mode(x.Before), mode(x.After)
		files[x.Path] = object.Zero
		if x.NewPath != "" {
			files[x.NewPath] = x.After
		} else {
			files[x.Path] = x.After
		}
		task.Entries = append(task.Entries, Entry{ChangeEntry: &x, Ref: message.EntryRef{Task: "t", ID: n}})
	}
	return task, moves
}

// shown writes chains out.
func shown(chains []*Chain) string {
	var out strings.Builder
	for _, c := range chains {
		fmt.Fprintf(&out, "now %s, replaced %t:", c.Now, c.Replaced)
		for _, r := range c.Runs {
			fmt.Fprintf(&out, " %v → %v (%t)", r.Before, r.After, r.Renamed)
			for _, e := range r.Entries {
				fmt.Fprintf(&out, " %d", e.ID)
			}
		}
		out.WriteByte('\n')
	}
	return out.String()
}
