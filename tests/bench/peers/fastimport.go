package peers

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// NameFastImport is the subject's name.
const NameFastImport = "`git fast-import`, checkpoint at each commit"

// fastImport keeps one git fast-import running and has it show each commit.
type fastImport struct {
	repo    *gitRepo
	in      *bufio.Writer
	out     *bufio.Reader
	stderr  *tail
	started bool
}

// FastImport makes the subject.
func FastImport(p Params) (measure.Subject, error) {
	repo, err := repository(p, "fastimport")
	if err != nil {
		return nil, err
	}
	cmd := repo.command(context.Background(), "fast-import", "--quiet")
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	f := &fastImport{repo: repo, in: bufio.NewWriterSize(in, 1<<16), out: bufio.NewReader(out), stderr: new(tail)}
	cmd.Stderr = f.stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	var once sync.Once
	p.Env.Defer("git fast-import", func() (err error) {
		once.Do(func() {
			in.Close()
			err = cmd.Wait()
		})
		return err
	})
	return f, nil
}

func (f *fastImport) Name() string { return NameFastImport }
func (f *fastImport) Durable() string {
	return "nothing: so few objects are unpacked loose, and neither they nor the ref are synced"
}
func (f *fastImport) OneAtATime() {}

func (f *fastImport) Change(_ context.Context, _ int, c corpus.Change) error {
	commitHead(f.in, "refs/heads/main", "edit "+c.Path)
	if !f.started {
		f.started = true
		io.WriteString(f.in, "from refs/heads/main^0\n")
	}
	if err := inline(f.in, c.Path, c.Data); err != nil {
		return err
	}
	io.WriteString(f.in, "\ncheckpoint\n\nprogress shown\n\n")
	if err := f.in.Flush(); err != nil {
		return fmt.Errorf("git fast-import: %w: %s", err, f.stderr.String())
	}
	for {
		line, err := f.out.ReadString('\n')
		if err != nil {
			return fmt.Errorf("git fast-import: %w: %s", err, f.stderr.String())
		}
		if strings.HasPrefix(line, "progress shown") {
			return nil
		}
	}
}
