package peers

import (
	"bytes"
	"errors"
	"fmt"

	"umbra/tests/bench/corpus"
)

// PackedByGit makes a git repository of the project and puts edits of one line
// each into it. look sees its folder before and after, both times after git gc.
func PackedByGit(p Params, edits int, look func(dir string) error) error {
	g, err := repository(p, "gc")
	if err != nil {
		return err
	}
	if _, err := g.run(p.Ctx, nil, "gc", "-q", "--prune=now"); err != nil {
		return err
	}
	if err := look(g.dir); err != nil {
		return err
	}
	var stream bytes.Buffer
	sequence := corpus.NewSequence(p.Files, 0, 1, 3)
	for n := range edits {
		c := sequence.Next()
		commitHead(&stream, "refs/heads/main", "edit "+c.Path)
		if n == 0 {
			fmt.Fprint(&stream, "from refs/heads/main^0\n")
		}
		if err := inline(&stream, c.Path, c.Data); err != nil {
			return err
		}
		fmt.Fprintln(&stream)
	}
	_, err = g.run(p.Ctx, stream.Bytes(), "fast-import", "--quiet")
	if err == nil {
		_, err = g.run(p.Ctx, nil, "gc", "-q", "--prune=now")
	}
	return errors.Join(err, look(g.dir))
}
