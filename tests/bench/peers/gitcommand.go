package peers

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"umbra/tests/bench/corpus"
)

// gitRepo is a repository and, perhaps, its working tree, worked on by git's
// programs. No setting of the machine's or the user's holds.
type gitRepo struct {
	dir, work string
	settings  []string // -c
}

func (g *gitRepo) command(ctx context.Context, args ...string) *exec.Cmd {
	var all []string
	for _, s := range g.settings {
		all = append(all, "-c", s)
	}
	cmd := exec.CommandContext(ctx, "git", append(all, args...)...)
	cmd.Env = append(os.Environ(), "GIT_DIR="+g.dir, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=bench", "GIT_AUTHOR_EMAIL=bench@umbra.invalid",
		"GIT_COMMITTER_NAME=bench", "GIT_COMMITTER_EMAIL=bench@umbra.invalid", "GIT_TERMINAL_PROMPT=0")
	if g.work != "" {
		cmd.Dir = g.work
		cmd.Env = append(cmd.Env, "GIT_WORK_TREE="+g.work)
	}
	return cmd
}

// run runs git and gives its output without the end of the line.
func (g *gitRepo) run(ctx context.Context, stdin []byte, args ...string) (string, error) {
	cmd := g.command(ctx, args...)
	if stdin != nil {
		cmd.Stdin = bytes.NewReader(stdin)
	}
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(complaint.Bytes()))
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// initialized makes an empty repository. Its own maintenance is off, which
// favors it: none of it falls into a measured change.
func initialized(ctx context.Context, dir string) (*gitRepo, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, fmt.Errorf("git: %w", ErrMissing)
	}
	g := &gitRepo{dir: dir}
	if _, err := g.run(ctx, nil, "init", "-q", "--bare", "-b", "main", dir); err != nil {
		return nil, err
	}
	for _, s := range [][2]string{{"gc.auto", "0"}, {"maintenance.auto", "false"}} {
		if _, err := g.run(ctx, nil, "config", s[0], s[1]); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// GitVersion returns which git takes part.
func GitVersion(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "version").Output()
	if err != nil {
		return "no git"
	}
	return strings.TrimSpace(string(out))
}

// checkedOut gives a working tree with the project's files to a repository,
// whose index then knows every file.
func checkedOut(p Params, g *gitRepo, name string) error {
	dir, err := project(p, name)
	if err != nil {
		return err
	}
	g.work = dir
	if _, err := g.run(p.Ctx, nil, "config", "core.bare", "false"); err != nil {
		return err
	}
	if _, err := g.run(p.Ctx, nil, "read-tree", "HEAD"); err != nil {
		return err
	}
	_, err = g.run(p.Ctx, nil, "update-index", "-q", "--refresh")
	return err
}

// repository gives a copy of the template with the project and its history.
func repository(p Params, name string) (*gitRepo, error) {
	template, err := p.Templates.get(p)
	if err != nil {
		return nil, err
	}
	parent, err := p.Env.Dir(name)
	if err != nil {
		return nil, err
	}
	g, err := initialized(p.Ctx, filepath.Join(parent, "repo.git"))
	if err != nil {
		return nil, err
	}
	packs, err := filepath.Glob(filepath.Join(template.dir, "objects/pack/*"))
	if err != nil {
		return nil, err
	}
	for _, f := range packs {
		// Packs are never written to.
		if err := os.Link(f, filepath.Join(g.dir, "objects/pack", filepath.Base(f))); err != nil {
			return nil, err
		}
	}
	_, err = g.run(p.Ctx, nil, "update-ref", "refs/heads/main", template.head)
	return g, err
}

// aging is what the history before a measurement is made of: edits by one
// client, of other versions than those measured.
func aging(files int) *corpus.Sequence { return corpus.NewSequence(files, 0, 1, 1) }
