package peers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// Forks makes forks of a workspace; body is that of POST /workspaces/{id}/forks. It
// returns their ids.
func (s *Server) Forks(ctx context.Context, workspace string, body map[string]any) ([]string, error) {
	var made struct {
		Forks []struct {
			ID string `json:"id"`
		} `json:"forks"`
	}
	var ids []string
	err := s.post(ctx, "/workspaces/"+workspace+"/forks", body, &made, http.StatusCreated)
	for _, f := range made.Forks {
		ids = append(ids, f.ID)
	}
	return ids, err
}

// DropFork deletes a fork with what it has.
func (s *Server) DropFork(ctx context.Context, id string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodDelete, s.URL+"/workspaces/"+id+"?force=true", nil)
	if err != nil {
		return err
	}
	return expect(s.client, req, nil, http.StatusNoContent)
}

// In runs a command in a fork's layer, as umbra in does.
func (s *Server) In(ctx context.Context, fork string, argv ...string) error {
	return quietly(exec.CommandContext(ctx, s.env.Umbra, append([]string{"in", "--data-dir", s.Data, fork, "--"}, argv...)...))
}

// The names of the forkers that targets compare.
const (
	NameForkVirtual  = "umbra, virtual"
	NameForkLayer    = "umbra, layer"
	NameForkLayerIn  = "umbra, layer, with a command in it"
	NameForkCopy     = "umbra, copy"
	NameForkWorktree = "`git worktree add`"
	NameForkCp       = "`cp -a`"
	NameForkReflink  = "`cp -a --reflink=always`"
)

// Forker makes a fork of a project in its own way, and takes it away. Fork returns how
// long making it took; errors.ErrUnsupported where the disk has no reflinks.
type Forker struct {
	Name, Has string // Has: what the fork has
	Fork      func(ctx context.Context, n int) (time.Duration, error)
}

// Forkers lists all for a project that is a workspace of a server, and a git checkout.
func Forkers(s *Server, t Task) []Forker {
	umbra := func(body map[string]any, in bool) func(context.Context, int) (time.Duration, error) {
		return func(ctx context.Context, n int) (took time.Duration, err error) {
			own := map[string]any{"kind": body["kind"]}
			if body["kind"] == "copy" {
				own["path"] = fmt.Sprintf("%s-copy%d", t.Folder, n)
			}
			start := time.Now()
			ids, err := s.Forks(ctx, t.Workspace, own)
			if err == nil && in {
				err = s.In(ctx, ids[0], "true")
			}
			took = time.Since(start)
			for _, id := range ids {
				if derr := s.DropFork(ctx, id); err == nil {
					err = derr
				}
			}
			return took, err
		}
	}
	run := func(argv func(to string) []string, clear func(ctx context.Context, to string) error) func(context.Context, int) (time.Duration, error) {
		return func(ctx context.Context, n int) (time.Duration, error) {
			to := fmt.Sprintf("%s-peer%d", t.Folder, n)
			args := argv(to)
			start := time.Now()
			err := quietly(exec.CommandContext(ctx, args[0], args[1:]...))
			took := time.Since(start)
			if cerr := clear(ctx, to); err == nil {
				err = cerr
			}
			return took, err
		}
	}
	remove := func(_ context.Context, to string) error { return os.RemoveAll(to) }
	return []Forker{
		{NameForkVirtual, "tracked files, in git alone", umbra(map[string]any{"kind": "virtual"}, false)},
		{NameForkLayer, "all files, for commands in it", umbra(map[string]any{"kind": "layer"}, false)},
		{NameForkLayerIn, "all files, for the command", umbra(map[string]any{"kind": "layer"}, true)},
		{NameForkCopy, "all files in a directory, durable", umbra(map[string]any{"kind": "copy"}, false)},
		{NameForkWorktree, "tracked files in a directory", run(func(to string) []string {
			return []string{"git", "-C", t.Folder, "worktree", "add", "--quiet", "--detach", to}
		}, func(ctx context.Context, to string) error {
			return quietly(exec.CommandContext(ctx, "git", "-C", t.Folder, "worktree", "remove", "--force", to))
		})},
		{NameForkCp, "all files in a directory", run(func(to string) []string { return []string{"cp", "-a", t.Folder, to} }, remove)},
		{NameForkReflink, "all files in a directory", run(func(to string) []string { return []string{"cp", "-a", "--reflink=always", t.Folder, to} }, remove)},
	}
}

// Reflinks reports whether a directory's file system shares blocks between files.
func Reflinks(ctx context.Context, dir string) bool {
	probe := filepath.Join(dir, "reflink-probe")
	if os.WriteFile(probe, []byte("x"), 0o600) != nil {
		return false
	}
	defer os.Remove(probe)
	defer os.Remove(probe + "2")
	return quietly(exec.CommandContext(ctx, "cp", "--reflink=always", probe, probe+"2")) == nil
}

func quietly(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %.300s", cmd.Args[0], err, out)
	}
	return nil
}
