package rows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"umbra/gitstore"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

const (
	// blamedLines is the size of the file whose lines are asked for; one of blamedEach
	// commits is an edit of it.
	blamedLines, blamedEach = 2000, 50
	blamedFile              = "pkg000/mod00/blamed.txt"
	// blamedWrites is how often the file is written, and its lines asked for again.
	blamedWrites = 30
	// fewVersions and manyVersions of a large file are held against each other; each
	// edits largeEdits lines.
	fewVersions, manyVersions, largeEdits = 4, 16, 50
	// linesPerFile makes the large file ten times as long as the largest project has
	// files.
	linesPerFile = 10
	// The targets: of git's time; for the next answer; of the memory for fewVersions.
	mayFirstBlame = 0.25
	mayNextBlame  = 10 * time.Millisecond
	mayGrow       = 1.25
)

func blameRows(s measure.Scale) []Row {
	files, commits, lines := s.Largest(), s.LongestHistory(), linesPerFile*s.Largest()
	return []Row{{
		Name:  fmt.Sprintf("blame/files=%s,commits=%s", report.Count(files), report.Count(commits)),
		Title: fmt.Sprintf("Who wrote each line of a file with %s commits of its own, of %s in a workspace of %s files", report.Count(commits/blamedEach), report.Count(commits), report.Count(files)),
		About: fmt.Sprintf("GET /workspaces/{id}/blame?path= over HTTP, all ranges of a file of %d lines: the first answer of a server that was started again and has the workspace open, and the next one after the file was written (PUT /tasks/{id}/content, which is not in the figure). "+
			"Next to them `git blame --porcelain` as a process on the same repository, whose upkeep is done; and on a clone of it with a commit graph that has the changed paths (`git commit-graph write --changed-paths`), which umbra does not keep for git.", blamedLines),
		Run: blameRow,
	}, {
		Name:  "blame/lines=" + report.Count(lines),
		Title: fmt.Sprintf("Memory for the lines of a file of %s lines", report.Count(lines)),
		About: fmt.Sprintf("The same request as the first after a start, about a file with %d versions, and with %d; each version edits %d lines. Peak: by how much VmHWM of /proc/PID/status during the request is above what was resident before. Kept: by how much more is resident when the server had time to give memory back. For git its greatest resident size.",
			fewVersions, manyVersions, largeEdits),
		Run: blameMemory,
	}}
}

// blamed is a text that is edited line by line.
type blamed struct {
	rng   *rand.Rand
	lines [][]byte
	made  int
}

func newBlamed(lines int) *blamed {
	b := &blamed{rng: rand.New(rand.NewPCG(1, 2)), lines: make([][]byte, lines)}
	for i := range b.lines {
		b.lines[i] = fmt.Appendf(nil, "\tline %d of the file, as it was first written down", i)
	}
	return b
}

func (b *blamed) text() []byte { return append(bytes.Join(b.lines, []byte("\n")), '\n') }

// edit replaces some lines.
func (b *blamed) edit(lines int) []byte {
	b.made++
	for range lines {
		b.lines[b.rng.IntN(len(b.lines))] = fmt.Appendf(nil, "\tline as of edit %d, %d", b.made, b.rng.Uint32())
	}
	return b.text()
}

// blame asks for all ranges of a file.
func (p *past) blame(ctx context.Context, path string) (time.Duration, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL+"/workspaces/"+p.task.Workspace+"/blame?limit=10000&path="+url.QueryEscape(path), nil)
	if err != nil {
		return 0, nil, err
	}
	return answered(req)
}

// upkeep does what a history that took its time has done.
func (p *past) upkeep(ctx context.Context) error {
	return p.stored(ctx, func(store *gitstore.Store) error {
		return errors.Join(store.Publish(ctx), store.Maintain(ctx))
	})
}

// reopened restarts the server and has it open the workspace.
func (p *past) reopened(ctx context.Context) error {
	if err := p.restart(ctx, false); err != nil {
		return err
	}
	return p.Sync(ctx, p.task.Workspace)
}

func blameRow(ctx context.Context, env *measure.Env, r *report.Result) error {
	files, commits := env.Scale.Largest(), env.Scale.LongestHistory()
	text := newBlamed(blamedLines)
	p, err := newProject(ctx, env, files, map[string][]byte{blamedFile: text.text()})
	if err != nil {
		return err
	}
	others, n := corpus.NewSequence(files, 0, 1, 3), 0
	env.Log("making %d commits", commits)
	err = p.grow(ctx, commits, func() corpus.Change {
		if n++; n%blamedEach == 0 {
			return corpus.Change{Path: blamedFile, Data: text.edit(1)}
		}
		return others.Next()
	})
	if err != nil {
		return err
	}
	if err := errors.Join(p.upkeep(ctx), p.start(ctx)); err != nil {
		return err
	}
	// All files are read: only the server's own bookkeeping is to be left at its stop.
	if err := p.Sync(ctx, p.task.Workspace); err != nil {
		return err
	}
	indexed, err := indexedClone(ctx, env, p.repo)
	if err != nil {
		return err
	}
	const (
		first, next, known = "umbra, first after a start", "umbra, next after a write", "umbra, known"
		plain, graph       = "git blame, a process", "git blame with a graph of changed paths"
	)
	took := make(times)
	ask := func(line string) ([]byte, error) {
		d, answer, err := p.blame(ctx, blamedFile)
		took[line] = append(took[line], d)
		return answer, err
	}
	for range coldReads {
		if err := p.reopened(ctx); err != nil {
			return err
		}
		answer, err := ask(first)
		if err != nil {
			return err
		}
		if err := wholeBlame(answer); err != nil {
			return err
		}
		for line, repo := range map[string]string{plain: p.repo, graph: indexed} {
			d, _, err := gitIn(ctx, repo, "blame", "--porcelain", "refs/heads/shadow", "--", blamedFile)
			if err != nil {
				return err
			}
			took[line] = append(took[line], d)
		}
	}
	subject := p.Changes(p.task)
	for range blamedWrites {
		if err := subject.Change(ctx, 0, corpus.Change{Path: blamedFile, Data: text.edit(1)}); err != nil {
			return err
		}
		if _, err := ask(next); err != nil {
			return err
		}
		if _, err := ask(known); err != nil {
			return err
		}
	}
	r.Columns = timesColumns
	took.line(r, first, next, known, plain, graph)
	ratio := func(line string) float64 { return divided(stats.Of(took[first]).P50, stats.Of(took[line]).P50) }
	r.Note("With a graph of changed paths git takes %s of its time; umbra's first answer is %s of that.", report.Times(divided(stats.Of(took[graph]).P50, stats.Of(took[plain]).P50)), report.Times(ratio(graph)))
	r.Checks = append(r.Checks,
		report.AtMost("first answer ≤ 0.25× `git blame`, p50", ratio(plain), mayFirstBlame, "%.2f×"),
		report.AtMost("the next after a write ≤ 10 ms, p50", millis(took[next]), millis([]time.Duration{mayNextBlame}), "%.2f ms"))
	r.Data = took
	return nil
}

// wholeBlame reports whether an answer is of all lines.
func wholeBlame(answer []byte) error {
	var a struct {
		Lines  int
		Ranges []struct{ End int }
		Next   *string
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return err
	}
	if a.Next != nil || len(a.Ranges) == 0 || a.Ranges[len(a.Ranges)-1].End != a.Lines {
		return fmt.Errorf("an answer of %d ranges is not of all %d lines", len(a.Ranges), a.Lines)
	}
	return nil
}

// indexedClone gives a repository with the same objects, and a commit graph that knows
// which paths each commit changed.
func indexedClone(ctx context.Context, env *measure.Env, repo string) (string, error) {
	dir, err := env.Dir("indexed")
	if err != nil {
		return "", err
	}
	if _, _, err := gitIn(ctx, dir, "clone", "--quiet", "--bare", "--shared", "--single-branch", "--branch", "shadow", repo, "."); err != nil {
		return "", fmt.Errorf("git clone: %w", err)
	}
	if _, _, err := gitIn(ctx, dir, "commit-graph", "write", "--reachable", "--changed-paths"); err != nil {
		return "", fmt.Errorf("git commit-graph: %w", err)
	}
	return dir, nil
}

// blameUse is what one answer takes, in bytes.
type blameUse struct{ Peak, Kept, Git int64 }

func blameMemory(ctx context.Context, env *measure.Env, r *report.Result) error {
	const name = "large.txt"
	text := newBlamed(linesPerFile * env.Scale.Largest())
	p, err := newProject(ctx, env, idleFiles, map[string][]byte{name: text.text()})
	if err != nil {
		return err
	}
	used := make(map[int]blameUse)
	r.Columns = []string{"", "peak MB", "kept MB", "peak ÷ the file's size", "git blame MB"}
	made, size := 0, 0
	for _, versions := range []int{fewVersions, manyVersions} {
		err := p.grow(ctx, versions-made, func() corpus.Change {
			data := text.edit(largeEdits)
			size = len(data)
			return corpus.Change{Path: name, Data: data}
		})
		if err != nil {
			return err
		}
		made = versions
		if err := errors.Join(p.upkeep(ctx), p.start(ctx)); err != nil {
			return err
		}
		use, err := p.blameUse(ctx, name)
		if err != nil {
			return err
		}
		used[versions] = use
		r.Line(fmt.Sprintf("%d versions of %s MB", versions, report.Number(float64(size)/1e6, "")), report.Number(float64(use.Peak)/1e6, ""), report.Number(float64(use.Kept)/1e6, ""),
			report.Times(float64(use.Peak)/float64(size)), report.Number(float64(use.Git)/1e6, ""))
		if err := p.Stop(); err != nil {
			return err
		}
	}
	r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("bounded by the file's size: %d versions take ≤ 1.25× the peak of %d", manyVersions, fewVersions),
		float64(used[manyVersions].Peak)/float64(used[fewVersions].Peak), mayGrow, "%.2f×"))
	r.Data = used
	return nil
}

// blameUse measures the memory of the first answer about a file.
func (p *past) blameUse(ctx context.Context, path string) (use blameUse, err error) {
	if err := p.Sync(ctx, p.task.Workspace); err != nil {
		return use, err
	}
	before, err := settled(ctx, p.env, p.Server)
	if err != nil {
		return use, err
	}
	if err := p.ResetPeak(); err != nil {
		return use, err
	}
	_, answer, err := p.blame(ctx, path)
	if err == nil {
		err = wholeBlame(answer)
	}
	if err != nil {
		return use, err
	}
	peak, err := p.Peak()
	if err != nil {
		return use, err
	}
	after, err := settled(ctx, p.env, p.Server)
	if err != nil {
		return use, err
	}
	use.Peak, use.Kept = peak-before.Resident, max(0, after.Resident-before.Resident)
	_, state, err := gitIn(ctx, p.repo, "blame", "--porcelain", "refs/heads/shadow", "--", path)
	if err != nil {
		return use, err
	}
	if u, ok := state.SysUsage().(*syscall.Rusage); ok {
		use.Git = u.Maxrss << 10
	}
	return use, nil
}
