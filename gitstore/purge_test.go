package gitstore

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/refs"
	"umbra/gitstore/storedir"
	"umbra/internal/errs"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

const secret = "hunter2-correct-horse-battery-staple-0xC0FFEE"

// secretHistory makes a history in which the secret comes, changes its name, and
// goes again, by two tasks.
func secretHistory(t testing.TB, s *Store) (blob ID, commits []Committed) {
	t.Helper()
	ctx := t.Context()
	commits = append(commits, baselineOf(t, s, map[string]string{"a": "1\n", "d/b": "2\n", "keep/x": "x\n"}))
	for _, id := range []string{"t1", "t2"} {
		if _, err := s.PutTask(ctx, message.Info{TaskID: id, Goal: "g " + id, Status: "executing"}, ID{}); err != nil {
			t.Fatal(err)
		}
	}
	commits = append(commits, mustPut(t, s, "t1", "d/c", "before\n"))
	commits = append(commits, mustPut(t, s, "t1", "d/secret", secret+"\n"))
	blob = s.NewBlob([]byte(secret + "\n")).ID()
	commits = append(commits, mustPut(t, s, "t2", "a", "3\n"))
	need.NoError(t, s.Publish(ctx))
	c, err := s.Commit(ctx, Draft{Edits: []Edit{{Path: "d/secret", MoveTo: "d/hidden"}}, Entries: 1, Message: message.Message{TaskID: "t2", Source: message.API,
		Entries: []message.Entry{{Operation: message.Rename, Path: "d/hidden", OldPath: "d/secret", AfterHash: s.NewBlob([]byte(secret + "\n")).AfterHash()}}}})
	need.NoError(t, err)
	commits = append(commits, c)
	if _, err := s.PutTask(ctx, message.Info{TaskID: "t3", Goal: "late", Status: "executing"}, ID{}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutTask(ctx, message.Info{TaskID: "t3", Goal: "later", Status: "paused"}, ID{}); err != nil {
		t.Fatal(err)
	}
	c, err = s.Commit(ctx, Draft{Edits: []Edit{{Path: "d/hidden"}}, Entries: 1, Message: message.Message{TaskID: "t3", Source: message.Revert,
		Reverts: []ID{c.Commit}, Entries: []message.Entry{{Operation: message.Delete, Path: "d/hidden"}}}})
	need.NoError(t, err)
	commits = append(commits, c, mustPut(t, s, "t3", "a", "4\n"))
	return blob, commits
}

func purgeOf(ctx context.Context, s *Store, opt PurgeOptions) (Purged, error) {
	p, err := s.BeginPurge(ctx, opt)
	if err != nil {
		return Purged{}, err
	}
	return p.Finish(ctx)
}

// checkPurged holds a store against the history of before.
func checkPurged(t testing.TB, s *Store, blob ID, commits []Committed) {
	t.Helper()
	ctx := t.Context()
	if s.HasBlob(blob) {
		t.Error("the blob is still there")
	}
	if rep, err := s.Verify(ctx, nil); err != nil || len(rep.Problems) > 0 {
		t.Errorf("verify: %v %v", rep.Problems, err)
	}
	for i, old := range commits {
		seq := uint64(i + 1)
		id, err := s.CommitAt(ctx, seq)
		need.NoError(t, err)
		c, err := s.ReadCommit(ctx, id)
		if err != nil || c.Seq != seq {
			t.Fatalf("commit %d: %v %v", seq, c, err)
		}
		if seq <= 2 {
			if id != old.Commit {
				t.Errorf("commit %d changed its id", seq)
			}
			continue
		}
		_, err = s.ReadCommit(ctx, old.Commit)
		var e *errs.Error
		if !errs.Is(err, errs.Gone) || errs.CodeOf(err) != "history_rewritten" {
			t.Errorf("old commit %d: %v", seq, err)
		} else if e, _ = err.(*errs.Error); e.Fields["moved_to"] != id.String() {
			t.Errorf("old commit %d moved to %v, it is %s", seq, e.Fields["moved_to"], id)
		}
		snap, err := s.SnapshotOf(ctx, id)
		need.NoError(t, err)
		err = snap.Walk(wspath.Root, func(e Entry) error {
			data, err := s.ReadBlob(ctx, e.ID, 1<<20)
			if want := e.Path == "d/secret" || e.Path == "d/hidden"; err == nil && want != (string(data) == "purged\n") {
				t.Errorf("commit %d: %s has %q", seq, e.Path, data)
			}
			return err
		})
		need.NoError(t, err)
		for _, e := range c.Message.Entries {
			if purged := e.Path == "d/secret" || e.Path == "d/hidden" && e.AfterHash != ""; purged != (e.AfterHash == message.Purged) {
				t.Errorf("commit %d: %s has After-Hash %q", seq, e.Path, e.AfterHash)
			}
		}
		if seq == 6 {
			if want, _ := s.CommitAt(ctx, 5); len(c.Message.Reverts) != 1 || c.Message.Reverts[0] != want {
				t.Errorf("Reverts names %v, want %s", c.Message.Reverts, want)
			}
		}
	}
	for _, want := range []struct {
		id         string
		base, head uint64
	}{{"t1", 1, 3}, {"t2", 1, 5}, {"t3", 5, 7}} {
		task, ok := s.Task(want.id)
		base, _ := s.CommitAt(ctx, want.base)
		head, _ := s.CommitAt(ctx, want.head)
		if !ok || task.Base != base || task.Head != head {
			t.Errorf("task %s: %+v, want %s..%s", want.id, task, base, head)
		}
	}
}

func TestPurge(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{})
	blob, commits := secretHistory(t, s)
	if len(need.Leaks(t, dir, secret)) == 0 {
		t.Fatal("the search does not find what is there")
	}
	purged, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{blob}})
	need.NoError(t, err)
	if purged.Commits != 5 || purged.Touched != 3 || purged.First != 3 {
		t.Errorf("reported %+v", purged)
	}
	checkPurged(t, s, blob, commits)
	if found := need.Leaks(t, dir, secret); len(found) > 0 {
		t.Errorf("left on disk: %v", found)
	}
	fsck(t, dir)
	if out := git(t, dir, "log", "--format=%s", "refs/heads/shadow"); strings.Count(out, "\n") != len(commits) {
		t.Errorf("git log: %s", out)
	}
	// The same again after a start, and writing goes on.
	mustPut(t, s, "", "a", "5\n")
	closeStore(t, s)
	s = openAt(t, dir, Options{})
	checkPurged(t, s, blob, commits)
	if _, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{blob}}); !errs.Is(err, errs.NotFound) {
		t.Errorf("purging it again: %v", err)
	}
	// A second purge: ids lead on through both maps.
	second := s.NewBlob([]byte("before\n")).ID()
	if _, err := s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "d/c"}}, Message: message.Message{Source: message.API}}); err != nil {
		t.Fatal(err)
	}
	if _, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{second}}); err != nil {
		t.Fatal(err)
	}
	_, now, ok, err := s.Moved(commits[6].Commit.String()[:12])
	if want, _ := s.CommitAt(t.Context(), 7); err != nil || !ok || now != want {
		t.Errorf("moved to %s %v %v, want %s", now, ok, err, want)
	}
	fsck(t, dir)
	closeStore(t, s)
}

func TestPurgeOfTheTipIsRefused(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{})
	baselineOf(t, s, map[string]string{"a": secret})
	blob := s.NewBlob([]byte(secret)).ID()
	p, err := s.BeginPurge(t.Context(), PurgeOptions{Blobs: []ID{blob}})
	if err != nil || !p.OnTip() {
		t.Fatalf("%v %v", p, err)
	}
	if _, err := p.Finish(t.Context()); errs.CodeOf(err) != "purge_on_tip" {
		t.Errorf("finish: %v", err)
	}
	mustPut(t, s, "", "b", "goes on\n")
	closeStore(t, s)
	fsck(t, dir)
	if names, _ := filepath.Glob(filepath.Join(dir, "journal", "tmp-*")); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// TestPurgeWhatPeopleHave has copies of the secret wherever a person's git may
// leave some.
func TestPurgeWhatPeopleHave(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{Foreground: true})
	blob, commits := secretHistory(t, s)
	need.NoError(t, s.Publish(t.Context()))
	git(t, dir, "config", "user.email", "p@example.com")
	git(t, dir, "config", "user.name", "person")
	id := func(seq int) string { return commits[seq-1].Commit.String() }
	git(t, dir, "repack", "-adb", "--no-write-bitmap-index")
	git(t, dir, "update-ref", "refs/foreign/1", id(4))
	git(t, dir, "update-ref", "refs/heads/harmless", id(2))
	loose := strings.TrimSpace(git(t, dir, "commit-tree", "-m", "mine", "-p", id(2), id(2)+"^{tree}"))
	git(t, dir, "update-ref", "refs/heads/mine", loose)
	bad := strings.TrimSpace(git(t, dir, "commit-tree", "-m", "theirs", "-p", id(3), id(3)+"^{tree}"))
	git(t, dir, "update-ref", "refs/heads/theirs", bad)
	kept := strings.TrimSpace(git(t, dir, "commit-tree", "-m", "a layer's", id(3)+"^{tree}"))
	git(t, dir, "update-ref", "refs/umbra/conflicts/c1", kept)
	git(t, dir, "repack", "-a") // theirs in a pack, with what they share
	git(t, dir, "-c", "core.logAllRefUpdates=always", "update-ref", "-m", "x", "refs/heads/logged", id(2))
	git(t, dir, "-c", "core.logAllRefUpdates=always", "update-ref", "-m", "x", "refs/heads/logged", id(5))
	git(t, dir, "-c", "core.logAllRefUpdates=always", "update-ref", "-m", "x", "refs/heads/logged", id(1))
	git(t, dir, "commit-graph", "write", "--reachable")
	git(t, dir, "multi-pack-index", "write")
	work := filepath.Join(testDir(t), "w")
	git(t, dir, "worktree", "add", "--detach", work, id(4))
	for name, text := range map[string]string{"objects/pack/tmp_pack_x": secret, "objects/tmp_obj_x": secret, "../journal/torn-1": secret, "../damaged/pack": secret} {
		full := filepath.Join(dir, storedir.Repo, name)
		need.NoError(t, os.MkdirAll(filepath.Dir(full), 0o700))
		need.NoError(t, os.WriteFile(full, []byte(text), 0o600))
	}
	_, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{blob}})
	if errs.CodeOf(err) != "purge_held" {
		t.Fatalf("without force: %v", err)
	}
	held := fmt.Sprint(err.(*errs.Error).Fields["held"])
	for _, want := range []string{"{ref refs/heads/theirs}", "{worktree w}", "{reflog logs/refs/heads/logged}"} {
		if !strings.Contains(held, want) {
			t.Errorf("%s is not named in %s", want, held)
		}
	}
	if strings.Contains(held, "harmless") || strings.Contains(held, "mine") || strings.Contains(held, "foreign") || strings.Contains(held, "conflicts") {
		t.Errorf("harmless ones are named in %s", held)
	}
	fsck(t, dir, "--no-dangling")
	purged, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{blob}, Force: true})
	need.NoError(t, err)
	if len(purged.Foreign) != 2 || len(purged.Dropped) < 3 {
		t.Errorf("reported %+v", purged)
	}
	checkPurged(t, s, blob, commits)
	fsck(t, dir)
	if found := need.Leaks(t, dir, secret); len(found) > 0 {
		t.Errorf("left on disk: %v", found)
	}
	if out := git(t, dir, "rev-parse", "refs/heads/mine", "refs/heads/harmless", "refs/heads/logged"); out != loose+"\n"+id(2)+"\n"+id(1)+"\n" {
		t.Errorf("people's own refs: %s", out)
	}
	if out := git(t, dir, "for-each-ref", "refs/foreign", "refs/umbra/conflicts", "refs/heads/theirs"); out != "" {
		t.Errorf("not dropped: %s", out)
	}
	closeStore(t, s)
	fsck(t, dir)
}

// TestPurgeBesideHistory: what could not be merged of a command's layer is in no
// history, and goes as well.
func TestPurgeBesideHistory(t *testing.T) {
	for _, packed := range []bool{false, true} {
		dir := testDir(t)
		s := openAt(t, dir, Options{Foreground: true})
		baselineOf(t, s, map[string]string{"a": "1\n"})
		mustPut(t, s, "", "a", "2\n")
		need.NoError(t, s.Publish(t.Context()))
		git(t, dir, "config", "user.email", "p@example.com")
		git(t, dir, "config", "user.name", "person")
		file := filepath.Join(testDir(t), "f")
		need.NoError(t, os.WriteFile(file, []byte(secret), 0o600))
		blob := strings.TrimSpace(git(t, dir, "hash-object", "-w", file))
		git(t, dir, "update-index", "--add", "--cacheinfo", "100644,"+blob+",f")
		tree := strings.TrimSpace(git(t, dir, "write-tree"))
		git(t, dir, "update-ref", "refs/umbra/conflicts/c1", strings.TrimSpace(git(t, dir, "commit-tree", "-m", "a layer's", tree)))
		need.NoError(t, os.Remove(filepath.Join(dir, storedir.Repo, "index")))
		if packed {
			git(t, dir, "repack", "-ad")
		}
		id, err := object.ParseID(blob)
		need.NoError(t, err)
		if purged, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{object.Hash(object.Blob, []byte("never"))}}); errs.CodeOf(err) != "blob_not_found" {
			t.Fatalf("%+v, %v", purged, err)
		}
		tip := s.Tip()
		purged, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{id}})
		if err != nil || len(purged.Foreign) != 1 || purged.Commits != 0 {
			t.Fatalf("packed %v: %+v, %v", packed, purged, err)
		}
		if s.Tip() != tip {
			t.Errorf("the tip moved: %v, %v", s.Tip(), tip)
		}
		mustPut(t, s, "", "a", "3\n")
		closeStore(t, s)
		fsck(t, dir)
		if found := need.Leaks(t, dir, secret); len(found) > 0 {
			t.Errorf("packed %v: left on disk: %v", packed, found)
		}
		s = openAt(t, dir, Options{Foreground: true})
		if s.Tip().Seq != tip.Seq+1 || len(s.Warnings()) > 0 {
			t.Errorf("after a start: %v, %q", s.Tip(), s.Warnings())
		}
		if out := git(t, dir, "for-each-ref", "refs/umbra/conflicts"); out != "" {
			t.Errorf("not dropped: %s", out)
		}
		closeStore(t, s)
	}
}

// TestPurgeWhileALockIsHeld: history is rewritten at once, and the bytes go as
// soon as they can.
func TestPurgeWhileALockIsHeld(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{Foreground: true})
	blob, commits := secretHistory(t, s)
	lock := filepath.Join(dir, storedir.Repo, refs.ShadowRef+".lock")
	need.NoError(t, s.Publish(t.Context()))
	p, err := s.BeginPurge(t.Context(), PurgeOptions{Blobs: []ID{blob}})
	need.NoError(t, err)
	held, err := os.Create(lock)
	need.NoError(t, err)
	defer held.Close()
	soon, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := p.Finish(soon); errs.CodeOf(err) != "ref_locked" {
		t.Fatalf("finish: %v", err)
	}
	mustPut(t, s, "", "a", "5\n")
	if id, err := s.CommitAt(t.Context(), 7); err != nil || id == commits[6].Commit {
		t.Errorf("history is not rewritten: %s %v", id, err)
	}
	need.NoError(t, os.Remove(lock))
	need.NoError(t, s.Publish(t.Context()))
	checkPurged(t, s, blob, commits)
	if found := need.Leaks(t, dir, secret); len(found) > 0 {
		t.Errorf("left on disk: %v", found)
	}
	fsck(t, dir)
	closeStore(t, s)
}

// TestPurgeLargeContent: a content that has a pack of its own, one of them where
// HEAD is a person's branch.
func TestPurgeLargeContent(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{Foreground: true, InlineBlob: 2 << 10})
	baselineOf(t, s, map[string]string{"a": "1\n"})
	large := strings.Repeat(secret+"\n", 1000)
	b, err := s.StreamBlob(t.Context(), newReader(large), int64(len(large)))
	need.NoError(t, err)
	c, err := s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "large", Mode: object.Executable, Blob: b}}, Message: message.Message{Source: message.API}})
	need.NoError(t, err)
	mustPut(t, s, "", "large", "small\n")
	need.NoError(t, s.Publish(t.Context()))
	git(t, dir, "update-ref", "refs/heads/theirs", c.Commit.String())
	git(t, dir, "symbolic-ref", "HEAD", "refs/heads/theirs")
	if _, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{b.ID()}}); errs.CodeOf(err) != "purge_held" {
		t.Errorf("without force: %v", err)
	}
	if _, err := purgeOf(t.Context(), s, PurgeOptions{Blobs: []ID{b.ID()}, Force: true}); err != nil {
		t.Fatal(err)
	}
	if found := need.Leaks(t, dir, secret); len(found) > 0 {
		t.Errorf("left on disk: %v", found)
	}
	fsck(t, dir)
	if out := git(t, dir, "ls-tree", "HEAD~1", "large"); !strings.HasPrefix(out, "100755 blob "+PurgedBlob().String()) {
		t.Errorf("the tree has %s", out)
	}
	// What was prepared before it is refused after it, and not half committed.
	_, err = s.Commit(t.Context(), Draft{Edits: []Edit{{Path: "again", Mode: object.Regular, Blob: KnownBlob(b.ID())}}, Message: message.Message{Source: message.API}})
	if errs.CodeOf(err) != "history_rewritten" {
		t.Errorf("a draft of before: %v", err)
	}
	closeStore(t, s)
	fsck(t, dir)
}
