package model

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"

	"umbra/gitstore/diff"
	"umbra/internal/history"
	"umbra/internal/vfs"
	"umbra/internal/workspace/wstest"
)

// checkWithGit has stock git judge: every diff applies and gives the after
// side, and the repository is sound.
func (g *rig) checkWithGit() error {
	dir, err := os.MkdirTemp("", "model-git-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := g.checkDiffs(dir); err != nil {
		return err
	}
	if g.mem != nil {
		return nil
	}
	repo := g.w.GitDir()
	if err := g.shut(); err != nil {
		return err
	}
	cmd := exec.Command("git", "--git-dir", repo, "fsck", "--strict", "--full", "--no-dangling")
	if out, err := cmd.CombinedOutput(); err != nil || len(bytes.TrimSpace(out)) > 0 {
		return broken("fsck", "%v\n%s", err, out)
	}
	return nil
}

// checkDiffs applies the diffs of all tasks' summaries at once, each file in a
// folder of its own.
func (g *rig) checkDiffs(dir string) error {
	top, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	defer top.Close()
	var patch []byte
	n, want := 0, make(wstest.Folder)
	add := func(old, now diff.File) error {
		at := strconv.Itoa(n) + "/"
		n++
		old.Path, now.Path = at+old.Path, at+now.Path
		p, err := diff.Format(old, now, diff.Options{})
		if err != nil {
			return err
		}
		patch = append(patch, p.Text...)
		if now.Mode != 0 {
			want[now.Path] = wstest.Thing{Mode: now.Mode, Data: string(now.Data)}
		}
		if old.Mode == 0 {
			return nil
		}
		return wstest.Write(top, "w/"+old.Path, wstest.Thing{Mode: old.Mode, Data: string(old.Data)})
	}
	if err := wstest.MkdirAll(top, "w"); err != nil {
		return err
	}
	for _, id := range tasks {
		sum, err := g.cache.Summary(background, g.w, id)
		if err != nil {
			return err
		}
		for i := range sum.Files {
			old, now, err := sum.Files[i].Sides(background, g.w.Store(), 1<<30)
			if err != nil {
				return err
			}
			if err := add(old, now); err != nil {
				return err
			}
		}
		if err := g.between(id, add); err != nil {
			return err
		}
		if err := g.checkWhole(filepath.Join(dir, id), id, sum); err != nil {
			return err
		}
	}
	if len(patch) > 0 {
		cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
		cmd.Dir, cmd.Stdin = filepath.Join(dir, "w"), bytes.NewReader(patch)
		if out, err := cmd.CombinedOutput(); err != nil {
			return broken("diff", "%v\n%s\n%s", err, out, patch)
		}
	}
	got, err := wstest.Disk(top, "w")
	if err != nil {
		return err
	}
	if d := wstest.Differ("by git apply", got.Files(), "after", want); d != "" {
		return broken("diff", "%s\n%s", d, patch)
	}
	return nil
}

// between gives the sides of a task's files from its base to the tip.
func (g *rig) between(id string, add func(old, now diff.File) error) error {
	t, err := g.cache.Task(background, g.w, id)
	if err != nil {
		return err
	}
	pairs, _, err := g.cache.Between(background, g.w, id, t.Base, g.w.Store().Tip().Commit, "")
	if err != nil {
		return err
	}
	for _, p := range pairs {
		old, now, err := p.Sides(background, g.w.Store(), 1<<30)
		if err != nil {
			return err
		}
		if err := add(old, now); err != nil {
			return err
		}
	}
	return nil
}

// checkWhole applies all of a task's diff, as it is answered, to the tree
// without the task: that gives the tip. It can be told where the task was alone
// at its files.
func (g *rig) checkWhole(dir, id string, sum *history.Summary) error {
	t, err := g.cache.Task(background, g.w, id)
	if err != nil || slices.ContainsFunc(t.Entries, func(e history.Entry) bool { return e.IsRevert() }) {
		return err
	}
	base, _, alone, err := g.without(id)
	if err != nil || !alone || len(sum.Files) == 0 {
		return err
	}
	want, err := g.tip()
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	top, err := vfs.OS(dir)
	if err != nil {
		return err
	}
	defer top.Close()
	for p, x := range base {
		if err := wstest.Write(top, "w/"+p, x); err != nil {
			return err
		}
	}
	var series diff.Series
	for i := range sum.Files {
		old, now, err := sum.Files[i].Sides(background, g.w.Store(), 1<<30)
		if err != nil {
			return err
		}
		p, err := diff.Format(old, now, diff.Options{})
		if err != nil {
			return err
		}
		series.Add(p)
	}
	patch := series.Bytes()
	cmd := exec.Command("git", "apply", "--whitespace=nowarn", "-")
	cmd.Dir, cmd.Stdin = filepath.Join(dir, "w"), bytes.NewReader(patch)
	if out, err := cmd.CombinedOutput(); err != nil {
		return broken("whole diff", "%v\n%s\n%s", err, out, patch)
	}
	got, err := wstest.Disk(top, "w")
	if err != nil {
		return err
	}
	if d := wstest.Differ("by git apply", got.Files(), "in history", want); d != "" {
		return broken("whole diff", "%s\n%s", d, patch)
	}
	return nil
}
