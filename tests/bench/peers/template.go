package peers

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// Templates makes each repository that git's peers start from once. It belongs
// to one Env: its folders go with that.
type Templates struct {
	env  *measure.Env
	made map[[2]int]template
}

type template struct{ dir, head string }

// NewTemplates keeps its repositories in an Env.
func NewTemplates(env *measure.Env) *Templates {
	return &Templates{env: env, made: make(map[[2]int]template)}
}

// get gives the repository of a project with its history, in one pack. Its last
// commit has the files as they are laid out (version 0).
func (t *Templates) get(p Params) (template, error) {
	key := [2]int{p.Files, p.History}
	if made, ok := t.made[key]; ok {
		return made, nil
	}
	p.Env.Log("git repository of %d files and %d commits", p.Files, p.History)
	dir, err := t.env.Dir("template")
	if err != nil {
		return template{}, err
	}
	g, err := initialized(p.Ctx, filepath.Join(dir, "repo.git"))
	if err != nil {
		return template{}, err
	}
	if err := imported(p, g); err != nil {
		return template{}, err
	}
	tree, err := g.run(p.Ctx, nil, "rev-parse", "refs/heads/base^{tree}")
	if err != nil {
		return template{}, err
	}
	head, err := g.run(p.Ctx, []byte("as it was\n"), "commit-tree", tree, "-p", "refs/heads/main")
	if err != nil {
		return template{}, err
	}
	if _, err := g.run(p.Ctx, nil, "update-ref", "refs/heads/main", head); err != nil {
		return template{}, err
	}
	if _, err := g.run(p.Ctx, nil, "repack", "-adq"); err != nil {
		return template{}, err
	}
	t.made[key] = template{g.dir, head}
	return t.made[key], nil
}

// imported feeds the project and its history to git fast-import: refs/heads/base
// is the project, refs/heads/main the history after it.
func imported(p Params, g *gitRepo) error {
	cmd := g.command(p.Ctx, "fast-import", "--quiet")
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	var complaint tail
	cmd.Stderr = &complaint
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriterSize(in, 1<<20)
	err = errors.Join(history(p, w), w.Flush(), in.Close())
	if failed := cmd.Wait(); failed != nil {
		return errors.Join(fmt.Errorf("git fast-import: %w: %s", failed, complaint.String()), err)
	}
	return err
}

func history(p Params, w io.Writer) error {
	commitHead(w, "refs/heads/base", "base")
	for i := range p.Files {
		if err := inline(w, corpus.Path(i), corpus.Content(i, 0)); err != nil {
			return err
		}
	}
	fmt.Fprint(w, "\nreset refs/heads/main\nfrom refs/heads/base\n\n")
	edits := aging(p.Files)
	for range p.History {
		c := edits.Next()
		commitHead(w, "refs/heads/main", "edit "+c.Path)
		if err := inline(w, c.Path, c.Data); err != nil {
			return err
		}
		fmt.Fprintln(w)
		if p.Ctx.Err() != nil {
			return p.Ctx.Err()
		}
	}
	return nil
}

func commitHead(w io.Writer, ref, message string) {
	fmt.Fprintf(w, "commit %s\ncommitter bench <bench@umbra.invalid> 1700000000 +0000\ndata %d\n%s\n", ref, len(message), message)
}

func inline(w io.Writer, path string, data []byte) error {
	_, err := fmt.Fprintf(w, "M 100644 inline %s\ndata %d\n%s\n", path, len(data), data)
	return err
}
