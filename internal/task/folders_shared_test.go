package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"umbra/gitstore/object"
	"umbra/gitstore/sink"
	"umbra/internal/areas"
	"umbra/internal/errs"
	"umbra/internal/state"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// memObjects are objects in memory.
type memObjects struct {
	mu      sync.Mutex
	has     map[string][]byte
	dropped []string
}

func (o *memObjects) Put(_ context.Context, key string, body io.ReaderAt, size int64) error {
	data, err := io.ReadAll(io.NewSectionReader(body, 0, size))
	o.mu.Lock()
	defer o.mu.Unlock()
	o.has[key] = data
	return err
}

func (o *memObjects) Get(_ context.Context, key string) (io.ReadCloser, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	data, ok := o.has[key]
	if !ok {
		return nil, sink.BlobsUnavailable(nil)
	}
	return io.NopCloser(bytes.NewReader(data)), nil
}

func (o *memObjects) Drop(_ context.Context, keys []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, key := range keys {
		delete(o.has, key)
	}
	o.dropped = append(o.dropped, keys...)
	return nil
}

func inScratch(o workspace.Op) areas.Op { return areas.Op{Area: areas.Scratch, Op: o} }

// do applies operations to a task's folders at one server.
func (p *pair) do(s *Service, id string, also func() error, ops ...areas.Op) error {
	p.t.Helper()
	f, release, err := s.Folders(id)
	if err != nil {
		return err
	}
	defer release()
	_, err = f.Apply(context.Background(), ops, also)
	return err
}

func (p *pair) put(s *Service, id, name, content string, mode object.Mode) error {
	p.t.Helper()
	f, release, err := s.Folders(id)
	if err != nil {
		return err
	}
	defer release()
	_, err = f.Apply(context.Background(), []areas.Op{inScratch(workspace.Op{Kind: workspace.OpWrite, Path: wspath.Path(name), Data: []byte(content), Mode: &mode})}, nil)
	return err
}

// files are what a server says is in a task's scratch.
func (p *pair) files(s *Service, id string) string {
	p.t.Helper()
	f, release, err := s.Folders(id)
	p.check(err)
	defer release()
	list, err := f.List(context.Background(), areas.Scratch)
	p.check(err)
	var out []string
	for _, x := range list {
		h, _, err := f.Open(context.Background(), areas.Path{Area: areas.Scratch, Path: x.Path})
		p.check(err)
		data, err := io.ReadAll(h)
		p.check(errors.Join(err, h.Close()))
		out = append(out, fmt.Sprintf("%s %o %d %.5s %d", x.Path, x.Mode, x.Size, data, x.Mtime.UnixNano()))
	}
	return strings.Join(out, "\n")
}

// The folders of a task are at each server that owns its workspace after another.
func TestSharedFolders(t *testing.T) {
	p := newPair(t)
	p.create(p.one, func(o *CreateOptions) { o.ID = "a" })
	large := strings.Repeat("large", (256<<10)/5+1)
	p.check(p.put(p.one, "a", "d/small", "small", object.Regular))
	p.check(p.put(p.one, "a", "run", "run", object.Executable))
	p.check(p.put(p.one, "a", "large", large, object.Regular))
	p.check(p.put(p.one, "a", "large2", large, object.Regular))
	f, release, err := p.one.Folders("a")
	p.check(err)
	_, err = f.Apply(context.Background(), []areas.Op{inScratch(workspace.Op{Kind: workspace.OpMkdir, Path: "empty"})}, nil)
	p.check(err)
	release()
	if len(p.objects.has) != 1 {
		t.Errorf("%d objects", len(p.objects.has))
	}
	for i, s := range []*Service{p.two, p.one, p.two} {
		before := p.one
		if s == p.one {
			before = p.two
		}
		want := p.files(before, "a")
		p.owns(s)
		if got := p.files(s, "a"); got != want || strings.Count(got, "\n") != 3 {
			t.Fatalf("%s\nnot\n%s", got, want)
		}
		f, release, err := s.Folders("a")
		p.check(err)
		if info, err := f.Stat(areas.Path{Area: areas.Scratch, Path: "empty"}); err != nil || !info.IsDir() {
			t.Errorf("the empty folder: %v", err)
		}
		release()
		if i < 2 { // the last one before is not notified
			before.Lost(p.w.ID())
		}
		p.check(p.put(s, "a", "d/small", fmt.Sprint("by ", p.last), object.Regular))
	}
	// The owner before, which does not know, changes nothing and has to be asked no more.
	p.epochs[p.one] = 3
	if err := p.put(p.one, "a", "late", "late", object.Regular); !errors.Is(err, sink.ErrRefused) && errs.KindOf(err) != errs.Unavailable {
		t.Errorf("a deposed owner's write: %v", err)
	}
	p.epochs[p.one] = 0
	p.one.Lost(p.w.ID())
	// What fails is taken back everywhere.
	want := p.files(p.two, "a")
	fails := errors.New("also")
	if err := p.do(p.two, "a", func() error { return fails }, inScratch(workspace.Op{Kind: workspace.OpDelete, Path: "run"})); !errors.Is(err, fails) {
		t.Errorf("%v", err)
	}
	p.check(p.do(p.two, "a", nil, inScratch(workspace.Op{Kind: workspace.OpRename, Path: "large", To: "d/large"})))
	p.check(p.do(p.two, "a", nil, inScratch(workspace.Op{Kind: workspace.OpDelete, Path: "large2"})))
	if len(p.objects.dropped) != 0 {
		t.Error("an object was dropped that has a name")
	}
	p.owns(p.one)
	if got := p.files(p.one, "a"); got == want || !strings.Contains(got, "run") || !strings.Contains(got, "d/large") || strings.Contains(got, "large2") || strings.Contains(got, "late") {
		t.Errorf("%s", got)
	}
	p.check(p.do(p.one, "a", nil, inScratch(workspace.Op{Kind: workspace.OpDelete, Path: "d", Recursive: true})))
	if len(p.objects.dropped) != 1 || len(p.objects.has) != 0 {
		t.Errorf("dropped: %v", p.objects.dropped)
	}
	p.check(p.put(p.one, "a", "large", large, object.Regular))
	// With the task all goes.
	r, err := p.one.Get(context.Background(), "a", nil)
	p.check(err)
	p.check(p.set(p.one, r, Completed))
	p.check(p.one.Delete(context.Background(), r, ""))
	r.Release()
	for _, bucket := range []string{"area_files", "area_data", "area_objects"} {
		p.check(p.db.View(func(tx *state.Tx) error {
			return tx.ForEach(bucket, "", func(key string, _ []byte) (bool, error) {
				t.Errorf("%s has %q", bucket, key)
				return true, nil
			})
		}))
	}
	if len(p.objects.has) != 0 {
		t.Error("an object stays")
	}
}
