package rows

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"umbra/gitstore"
	"umbra/internal/vfs"
	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
	"umbra/tests/bench/peers"
	"umbra/tests/bench/report"
	"umbra/tests/bench/stats"
)

const (
	// warmReads is how often an answer is asked for that is known already;
	// coldReads how often one is asked for after a start.
	warmReads, coldReads = 200, 5
	// inTurn is how often one subject is asked before the other one is.
	inTurn       = 20
	revertFiles  = 100
	revertRounds = 15
	// The targets.
	mayWarm   = 2 * time.Millisecond
	mayRevert = 5 * time.Millisecond
	mayFirst  = time.Second
)

func historyRows(s measure.Scale) []Row {
	commits, most := s.CloneCommits, s.LongestHistory()
	of := "commits=" + report.Count(commits)
	return []Row{{
		Name:  "summary/" + of,
		Title: fmt.Sprintf("Changed-files summary of a task of %s commits", report.Count(commits)),
		About: fmt.Sprintf("GET /tasks/{id}/files over HTTP: when it is cached, and as the first request after a clean restart of the server, opening the workspace included; also without the cache on disk. For comparison `git diff --name-status` of the task's base and head, which counts no lines; and, in turns of %d, the same bytes sent by a bare net/http handler: no server and client can be faster. The client reads into memory of the size in the response's header.", inTurn),
		Run:   summary,
	}, {
		Name:  "diff/" + of,
		Title: fmt.Sprintf("Diff of one file after %s commits", report.Count(commits)),
		About: fmt.Sprintf("GET /tasks/{id}/diff?path= over HTTP, next to `git diff base head -- path` as a process, in turns of %d: of files that were not requested before, and of one again and again, as a viewer does, whose patch is cached. Right after a process has run the first request waits for the server to be woken.", inTurn),
		Run:   diffOne,
	}, {
		Name:  fmt.Sprintf("revert/files=%d", revertFiles),
		Title: fmt.Sprintf("Revert of a subtask of %d files", revertFiles),
		About: fmt.Sprintf("A subtask edits %d files, each by a request, and is reverted by one. For comparison the bare exchange of as many files.", revertFiles),
		Run:   revertSubtask,
	}, {
		Name:  "coldstart/commits=" + report.Count(most),
		Title: fmt.Sprintf("First answer after a start, a task of %s commits", report.Count(most)),
		About: "From the start of the program to the end of the answer to GET /tasks/{id}/files; stopped in order before.",
		Run:   coldStart,
	}}
}

// past is a server with a task that has a history.
type past struct {
	*peers.Server
	env  *measure.Env
	task peers.Task
	repo string
	// changed are the files that the task changed, in no order.
	changed []string
}

// newPast makes a history that leaves files changed.
func newPast(ctx context.Context, env *measure.Env, files, commits int) (*past, error) {
	p, err := newProject(ctx, env, files, nil)
	if err != nil {
		return nil, err
	}
	env.Log("making %d commits", commits)
	if err := p.grow(ctx, commits, corpus.NewSequence(files, 0, 1, 3).Next); err != nil {
		return nil, err
	}
	return p, p.start(ctx)
}

// newProject makes a workspace of some files of the corpus and others, with a task. Its
// server is stopped.
func newProject(ctx context.Context, env *measure.Env, files int, more map[string][]byte) (*past, error) {
	folder, err := env.Dir("past")
	if err != nil {
		return nil, err
	}
	if err := corpus.Write(ctx, folder, files); err != nil {
		return nil, err
	}
	for name, data := range more {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return nil, err
		}
	}
	s, err := peers.NewServer(peers.Params{Ctx: ctx, Env: env, Clients: 1})
	if err != nil {
		return nil, err
	}
	p := &past{Server: s, env: env}
	if p.task, err = s.Open(ctx, folder); err != nil {
		return nil, err
	}
	p.repo = filepath.Join(s.Data, "workspaces", p.task.Workspace, "repo.git")
	return p, s.Stop()
}

// grow commits edits while the server is stopped, and puts the files on disk as they
// came out.
func (p *past) grow(ctx context.Context, commits int, next func() corpus.Change) error {
	last := make(map[string][]byte)
	err := p.stored(ctx, func(store *gitstore.Store) error {
		for range commits {
			c := next()
			if _, err := peers.Record(ctx, store, p.task.ID, c); err != nil {
				return err
			}
			last[c.Path] = c.Data
		}
		return nil
	})
	if err != nil {
		return err
	}
	for name, data := range last {
		if err := os.WriteFile(filepath.Join(p.task.Folder, name), data, 0o644); err != nil {
			return err
		}
		p.changed = append(p.changed, name)
	}
	return nil
}

// stored opens the history while the server is stopped.
func (p *past) stored(ctx context.Context, do func(*gitstore.Store) error) error {
	fs, err := vfs.OS(filepath.Dir(p.repo))
	if err != nil {
		return err
	}
	store, err := gitstore.Open(ctx, gitstore.Options{FS: fs})
	if err != nil {
		return err
	}
	return errors.Join(do(store), store.Close(context.Background()))
}

func (p *past) start(ctx context.Context) (err error) {
	p.Server, err = peers.StartServer(ctx, p.env, p.Data, 1)
	return err
}

// restart stops the server in order and starts it again; forget takes away what
// it keeps for the next start.
func (p *past) restart(ctx context.Context, forget bool) error {
	if err := p.Stop(); err != nil {
		return err
	}
	if forget {
		if err := os.RemoveAll(filepath.Join(filepath.Dir(p.repo), "caches")); err != nil {
			return err
		}
	}
	return p.start(ctx)
}

// ask makes a request of the task and gives what it took and the answer.
func (p *past) ask(ctx context.Context, method, route string, body any) (time.Duration, []byte, error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, p.URL+"/tasks/"+p.task.ID+route, in)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return answered(req)
}

// answered makes a request and returns its time and the answer, read to its end
// into memory of the size in the header.
func answered(req *http.Request) (time.Duration, []byte, error) {
	begin := time.Now()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	answer, err := readSized(res)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s %s: %s: %s", req.Method, req.URL.Path, res.Status, answer)
	}
	return time.Since(begin), answer, err
}

// readSized is io.ReadAll without growing the buffer step by step: of an
// answer of megabytes that takes longer than all the rest.
func readSized(res *http.Response) ([]byte, error) {
	if res.ContentLength < 0 {
		return io.ReadAll(res.Body)
	}
	answer := make([]byte, res.ContentLength)
	_, err := io.ReadFull(res.Body, answer)
	return answer, err
}

// git runs stock git on the task's repository and gives what the process took.
func (p *past) git(ctx context.Context, args ...string) (time.Duration, error) {
	took, _, err := gitIn(ctx, p.repo, args...)
	return took, err
}

// gitIn runs stock git on a repository without its output.
func gitIn(ctx context.Context, repo string, args ...string) (time.Duration, *os.ProcessState, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-C", repo}, args...)...)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_SYSTEM="+os.DevNull)
	cmd.Stdout = io.Discard
	begin := time.Now()
	err := cmd.Run()
	return time.Since(begin), cmd.ProcessState, err
}

func (p *past) ref(name string) string { return "refs/umbra/tasks/" + p.task.ID + "/" + name }

// times gathers what several subjects took, in turns.
type times map[string][]time.Duration

func (t times) line(r *report.Result, names ...string) {
	for _, name := range names {
		sum := stats.Of(t[name])
		r.Line(name, fmt.Sprint(sum.N), report.Millis(sum.P50), report.Millis(sum.Max))
	}
}

var timesColumns = []string{"", "times", "p50 ms", "longest ms"}

const (
	lineWarm = "umbra, known"
	lineCold = "umbra, first after a start"
	lineBare = "umbra, first after a start, nothing kept"
	lineGit  = "git diff --name-status"
)

func summary(ctx context.Context, env *measure.Env, r *report.Result) error {
	p, err := newPast(ctx, env, env.Scale.Middle(), env.Scale.CloneCommits)
	if err != nil {
		return err
	}
	took := make(times)
	one := func(line string) error {
		d, _, err := p.ask(ctx, http.MethodGet, "/files", nil)
		took[line] = append(took[line], d)
		return err
	}
	if err := p.Sync(ctx, p.task.Workspace); err != nil {
		return err
	}
	_, answer, err := p.ask(ctx, http.MethodGet, "/files", nil) // the first reads the history
	if err != nil {
		return err
	}
	bare, err := peers.Bare(peers.Params{Ctx: ctx, Env: env}, answer)
	if err != nil {
		return err
	}
	for range warmReads / inTurn {
		for range inTurn {
			if err := one(lineWarm); err != nil {
				return err
			}
		}
		for range inTurn {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, bare, nil)
			if err != nil {
				return err
			}
			d, _, err := answered(req)
			if err != nil {
				return err
			}
			took[peers.NameBare] = append(took[peers.NameBare], d)
		}
	}
	for range coldReads {
		if err := p.restart(ctx, true); err != nil {
			return err
		}
		if err := one(lineBare); err != nil {
			return err
		}
		if err := p.restart(ctx, false); err != nil {
			return err
		}
		if err := one(lineCold); err != nil {
			return err
		}
		d, err := p.git(ctx, "diff", "--name-status", p.ref("base"), p.ref("head"))
		if err != nil {
			return err
		}
		took[lineGit] = append(took[lineGit], d)
	}
	r.Columns = timesColumns
	took.line(r, lineWarm, peers.NameBare, lineCold, lineBare, lineGit)
	r.Note("The answer has %s bytes: known, it takes %.2f× of what a bare net/http handler in a process of its own takes to send them to the same client.",
		report.Count(len(answer)), divided(stats.Of(took[lineWarm]).P50, stats.Of(took[peers.NameBare]).P50))
	r.Checks = append(r.Checks,
		report.AtMost("known: ≤ 2 ms", millis(took[lineWarm]), float64(mayWarm)/1e6, "%.2f ms"),
		report.AtMost("first after a start: not slower than `git diff --name-status`", divided(stats.Of(took[lineCold]).P50, stats.Of(took[lineGit]).P50), 1, "%.2f×"))
	r.Data = took
	return nil
}

func millis(list []time.Duration) float64 { return float64(stats.Of(list).P50) / 1e6 }

func diffOne(ctx context.Context, env *measure.Env, r *report.Result) error {
	p, err := newPast(ctx, env, env.Scale.Middle(), env.Scale.CloneCommits)
	if err != nil {
		return err
	}
	if err := p.Sync(ctx, p.task.Workspace); err != nil {
		return err
	}
	const ours, again, theirs = "umbra, another file each time", "umbra, the same file", "git diff, a process"
	took := make(times)
	next := 0
	ask := func(line string, other bool) error {
		for range inTurn {
			if other {
				next++
			}
			d, _, err := p.ask(ctx, http.MethodGet, "/diff?path="+url.QueryEscape(p.changed[next%len(p.changed)]), nil)
			if err != nil {
				return err
			}
			took[line] = append(took[line], d)
		}
		return nil
	}
	if err := ask("discarded", false); err != nil {
		return err // the first reads the history
	}
	for range warmReads / inTurn {
		if err := ask(ours, true); err != nil {
			return err
		}
		if err := ask(again, false); err != nil {
			return err
		}
		for i := range inTurn {
			g, err := p.git(ctx, "diff", p.ref("base"), p.ref("head"), "--", p.changed[(next-i)%len(p.changed)])
			if err != nil {
				return err
			}
			took[theirs] = append(took[theirs], g)
		}
	}
	r.Columns = timesColumns
	took.line(r, ours, again, theirs)
	r.Checks = append(r.Checks,
		report.AtLeast("≥ 10× faster than `git diff`, another file each time", divided(stats.Of(took[theirs]).P50, stats.Of(took[ours]).P50), 10, "%.1f×"),
		report.AtLeast("≥ 10× faster than `git diff`, the same file", divided(stats.Of(took[theirs]).P50, stats.Of(took[again]).P50), 10, "%.1f×"))
	r.Data = took
	return nil
}

func revertSubtask(ctx context.Context, env *measure.Env, r *report.Result) error {
	files := env.Scale.Middle()
	p, err := newPast(ctx, env, files, 1)
	if err != nil {
		return err
	}
	bare, err := peers.Exchange(peers.Params{Ctx: ctx, Env: env, Files: files})
	if err != nil {
		return err
	}
	const ours = "umbra, one revert"
	theirs := fmt.Sprintf("%s, %d times", peers.NameExchange, revertFiles)
	took := make(times)
	for round := range revertRounds {
		sub := fmt.Sprintf("round-%d", round)
		for i := range revertFiles {
			if err := p.Write(ctx, p.task, sub, corpus.Change{Path: corpus.Path(i), Data: corpus.Content(i, uint64(1+round))}); err != nil {
				return err
			}
		}
		begin := time.Now()
		if err := p.Revert(ctx, p.task, sub, revertFiles); err != nil {
			return err
		}
		d := time.Since(begin)
		begin = time.Now()
		for i := range revertFiles {
			if err := bare.Change(ctx, 0, corpus.Change{Path: corpus.Path(i), Data: corpus.Content(i, uint64(1+round))}); err != nil {
				return err
			}
		}
		took[ours], took[theirs] = append(took[ours], d), append(took[theirs], time.Since(begin))
	}
	r.Columns = timesColumns
	took.line(r, ours, theirs)
	r.Checks = append(r.Checks, report.AtMost(fmt.Sprintf("beyond %d bare exchanges: ≤ 5 ms", revertFiles), millis(took[ours])-millis(took[theirs]), float64(mayRevert)/1e6, "%.2f ms"))
	r.Data = took
	return nil
}

func coldStart(ctx context.Context, env *measure.Env, r *report.Result) error {
	p, err := newPast(ctx, env, env.Scale.Middle(), env.Scale.LongestHistory())
	if err != nil {
		return err
	}
	if _, _, err := p.ask(ctx, http.MethodGet, "/files", nil); err != nil {
		return err
	}
	const line = "start and first answer"
	took := make(times)
	for range coldReads {
		if err := p.Stop(); err != nil {
			return err
		}
		begin := time.Now()
		if err := p.start(ctx); err != nil {
			return err
		}
		if _, _, err := p.ask(ctx, http.MethodGet, "/files", nil); err != nil {
			return err
		}
		took[line] = append(took[line], time.Since(begin))
	}
	r.Columns = timesColumns
	took.line(r, line)
	r.Checks = append(r.Checks, report.AtMost("≤ 1 s", stats.Of(took[line]).P50.Seconds(), mayFirst.Seconds(), "%.2f s"))
	r.Data = took
	return nil
}
