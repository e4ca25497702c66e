package replay

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"umbra/gitstore/cache"
	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/gitstore/pack"
	"umbra/internal/gitcmd"
	"umbra/internal/vfs"
)

// source is a task's history in a repository of our own.
type source struct {
	dir   string // the bare repository
	fs    vfs.FS
	packs []*pack.Pack
	base  object.ID
	head  object.ID
}

// ErrNoTask is returned where a repository knows nothing of the task.
var ErrNoTask = errors.New("the history holds no such task")

// origin is where a history is, and what of it is wanted.
type origin struct {
	from  string // URL, repository or bundle
	task  string // empty: the whole workspace's history
	token string // for a URL: sent as password
	infos bool   // the records of all tasks, too
}

// fetch copies a history into a repository in temp.
func fetch(ctx context.Context, o origin, temp string) (*source, error) {
	dir := filepath.Join(temp, "history.git")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	git := func(args ...string) error {
		cmd, err := gitcmd.Command(ctx, dir, args...)
		if err != nil {
			return err
		}
		gitcmd.AllowTransports(cmd) // the repository is ours, and so is its config
		return gitcmd.Run(cmd)
	}
	if err := git("init", "-q", "--bare", "."); err != nil {
		return nil, err
	}
	if o.token != "" {
		if err := writeToken(dir, o.token); err != nil {
			return nil, err
		}
	}
	from := o.from
	if !strings.Contains(from, "://") {
		if abs, err := filepath.Abs(from); err == nil {
			if _, err := os.Stat(abs); err == nil {
				from = abs
			}
		}
	}
	prefix := "refs/umbra/tasks/" + o.task + "/"
	spec := "+" + prefix + "*:" + prefix + "*"
	if o.task == "" {
		spec = "+" + shadowRef + ":" + shadowRef
	}
	specs := []string{spec}
	if o.task == "" && o.infos {
		specs = append(specs, "+refs/umbra/tasks/*/info:refs/umbra/tasks/*/info")
	}
	// Every pack stays one, and every object is checked on the way in.
	opts := []string{"-c", "protocol.allow=always", "-c", "fetch.unpackLimit=1", "-c", "transfer.unpackLimit=1", "-c", "fetch.fsckObjects=true"}
	opts = append(opts, "fetch", "-q", "--no-tags", "--update-shallow", "--no-write-fetch-head", from)
	err := git(append(opts, specs...)...)
	if err != nil {
		return nil, fmt.Errorf("the history cannot be fetched: %w", err)
	}
	s := &source{dir: dir}
	if o.task == "" {
		if s.head, err = s.ref(ctx, shadowRef); err == nil {
			s.base, err = s.first(ctx)
		}
	} else if s.base, err = s.ref(ctx, prefix+"base"); err == nil {
		s.head, err = s.ref(ctx, prefix+"head")
	}
	if err != nil {
		return nil, err
	}
	return s, s.open()
}

// shadowRef is a workspace's whole history.
const shadowRef = "refs/heads/shadow"

// writeToken has git send the token, from a file that only the caller reads: on
// a command line anybody would see it.
func writeToken(dir, token string) error {
	f, err := os.OpenFile(filepath.Join(dir, "config"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	basic := base64.StdEncoding.EncodeToString([]byte("umbra:" + token))
	_, err = fmt.Fprintf(f, "[http]\n\textraHeader = Authorization: Basic %s\n", basic)
	return errors.Join(err, f.Close())
}

// first gives the oldest commit that there is.
func (s *source) first(ctx context.Context) (object.ID, error) {
	cmd, err := gitcmd.Command(ctx, s.dir, "rev-list", "--max-parents=0", "--first-parent", shadowRef)
	if err != nil {
		return object.Zero, err
	}
	out, err := cmd.Output()
	if err != nil {
		return object.Zero, err
	}
	return object.ParseID(strings.TrimSpace(string(out)))
}

func (s *source) ref(ctx context.Context, name string) (object.ID, error) {
	cmd, err := gitcmd.Command(ctx, s.dir, "rev-parse", "--verify", "-q", name+"^{commit}")
	if err != nil {
		return object.Zero, err
	}
	out, err := cmd.Output()
	if err != nil {
		return object.Zero, ErrNoTask
	}
	return object.ParseID(strings.TrimSpace(string(out)))
}

// open opens the packs that the fetch made.
func (s *source) open() error {
	var err error
	if s.fs, err = vfs.OS(filepath.Join(s.dir, "objects", "pack")); err != nil {
		return err
	}
	names, err := s.fs.ReadDir(".")
	if err != nil {
		return err
	}
	bases := cache.NewBudget(64 << 20)
	for _, e := range names {
		base, ok := strings.CutSuffix(e.Name, ".pack")
		if !ok {
			continue
		}
		p, err := pack.Open(s.fs, e.Name, base+".idx", pack.Options{Verify: true, Cache: bases})
		if err != nil {
			return err
		}
		s.packs = append(s.packs, p)
	}
	return nil
}

func (s *source) close() {
	for _, p := range s.packs {
		p.Close()
	}
	if s.fs != nil {
		s.fs.Close()
	}
}

// get reads an object; its bytes are those of its id.
func (s *source) get(id object.ID, want object.Kind) ([]byte, error) {
	for _, p := range s.packs {
		kind, data, err := p.Get(id)
		if errors.Is(err, pack.ErrNotFound) {
			continue
		}
		if err == nil && kind != want {
			err = fmt.Errorf("object %s is a %s, not a %s", id, kind, want)
		}
		return data, err
	}
	return nil, fmt.Errorf("%s %s is missing", want, id)
}

func (s *source) tree(id object.ID) (*object.TreeData, error) {
	if id.IsZero() || id == object.EmptyTree {
		return object.NewTree(nil)
	}
	data, err := s.get(id, object.Tree)
	if err != nil {
		return nil, err
	}
	return object.NewTree(data)
}

// commit is one recorded commit.
type commit struct {
	id     object.ID
	parent object.ID
	tree   object.ID
	when   time.Time
	author object.Signature
	text   string
	msg    *message.Message
}

func (s *source) commit(id object.ID) (*commit, error) {
	data, err := s.get(id, object.Commit)
	if err != nil {
		return nil, err
	}
	c, err := object.ParseCommit(data)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", id, err)
	}
	if len(c.Parents) > 1 {
		return nil, fmt.Errorf("commit %s has %d parents: the history is not linear", id, len(c.Parents))
	}
	m, err := message.Parse(c.Message)
	if err != nil {
		return nil, fmt.Errorf("commit %s: %w", id, err)
	}
	out := &commit{id: id, tree: c.Tree, when: c.Committer.When, author: c.Author, text: c.Message, msg: m}
	if len(c.Parents) == 1 {
		out.parent = c.Parents[0]
	}
	return out, nil
}

// head is what of a commit is written again.
func (c *commit) head() written { return written{author: c.author, when: c.when, text: c.text} }

// commits gives the history from the base (not included) to the head, oldest
// first.
func (s *source) commits(ctx context.Context) ([]*commit, error) {
	var out []*commit
	for id := s.head; id != s.base; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		c, err := s.commit(id)
		if err != nil {
			return nil, err
		}
		if c.parent.IsZero() {
			return nil, fmt.Errorf("the task's head does not descend from its base %s", s.base)
		}
		out = append(out, c)
		id = c.parent
	}
	for i, j := 0, len(out)-1; i < j; i, j = i+1, j-1 {
		out[i], out[j] = out[j], out[i]
	}
	return out, nil
}
