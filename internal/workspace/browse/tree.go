package browse

import (
	"context"
	"io/fs"
	"slices"
	"strings"

	"umbra/internal/ignore"
	"umbra/internal/vfs"
	"umbra/internal/wspath"
)

// Node is one file, folder or link of a tree.
type Node struct {
	Path wspath.Path // below the folder as it was asked for
	Type fs.FileMode // type bits
	// Within says that a folder lies within the depth; Children are then what
	// it holds, sorted by name bytewise.
	Within   bool
	Children []*Node
}

// Tree reads what is under a folder down to a depth (1: what is directly in
// it), straight from the disk, level by level, until there are max nodes: then
// truncated is true. It shows what List shows, and checks no file.
func (r *Reader) Tree(ctx context.Context, p wspath.Path, depth, max int, o ListOptions) (root *Node, truncated bool, err error) {
	l, q, err := r.lister(ctx, p, o)
	if err != nil {
		return nil, false, err
	}
	root = &Node{Path: p, Type: fs.ModeDir, Within: true}
	level := []pending{{node: root, at: q}}
	n := 1
	for d := 0; d < depth && len(level) > 0; d++ {
		var next []pending
		for _, f := range level {
			f.node.Within = true
			if truncated {
				continue
			}
			children, err := l.children(f, d)
			if err != nil {
				return nil, false, err
			}
			if n+len(children) > max {
				children, truncated = children[:max-n], true
			}
			n += len(children)
			for _, c := range children {
				f.node.Children = append(f.node.Children, c.node)
				if c.node.Type.IsDir() {
					next = append(next, c)
				}
			}
		}
		level = next
	}
	return root, truncated, nil
}

// pending is a folder that is still to be read.
type pending struct {
	node  *Node
	at    wspath.Path
	above *ignore.Dir // the rules of the folder it is in
}

func (l *lister) children(f pending, depth int) ([]pending, error) {
	entries, err := l.names(f.at, depth)
	if err != nil {
		return nil, err
	}
	rules, err := l.rulesOf(f.at, f.above, entries)
	if err != nil {
		return nil, err
	}
	shown := l.visible(f.at, rules, entries)
	slices.SortFunc(shown, func(a, b vfs.DirEntry) int { return strings.Compare(a.Name, b.Name) })
	out := make([]pending, len(shown))
	for i, e := range shown {
		out[i] = pending{node: &Node{Path: f.node.Path.Join(e.Name), Type: e.Type}, at: f.at.Join(e.Name), above: rules}
	}
	return out, nil
}
