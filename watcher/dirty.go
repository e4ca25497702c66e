package watcher

import (
	"slices"
	"strings"
	"time"

	"umbra/internal/wspath"
)

// pending is what was not yet reported to a workspace.
type pending struct {
	folders map[wspath.Path]map[string]struct{} // changed names by folder; nil: the whole folder
	count   int                                 // names in folders
	lost    Reason
	rules   bool
	gone    bool
	// When the first and the last of it came.
	first, last time.Time
	hold        time.Time // nothing is reported before
}

// keepNames is how many names of a folder are kept when there are too many in
// all.
const keepNames = 16

// mark notes a dirty path. Above the limits the folder is noted instead.
func (p *pending) mark(path wspath.Path, o Options) {
	if p.gone {
		return
	}
	if path.IsRoot() {
		p.all()
		return
	}
	if p.folders == nil {
		p.folders = make(map[wspath.Path]map[string]struct{})
	}
	dir := path.Dir()
	if names, ok := p.folders[wspath.Root]; ok && names == nil {
		return
	}
	names, known := p.folders[dir]
	if known && names == nil {
		return
	}
	if names == nil {
		names = make(map[string]struct{})
		p.folders[dir] = names
	}
	base := path.Base()
	if _, ok := names[base]; ok {
		return
	}
	names[base] = struct{}{}
	p.count++
	if len(names) > o.FolderNames {
		p.whole(dir)
	}
	if p.count+len(p.folders) <= o.MaxNames {
		return
	}
	for dir, names := range p.folders {
		if len(names) > keepNames {
			p.whole(dir)
		}
	}
	if p.count+len(p.folders) > o.MaxNames/2 {
		p.all()
	}
}

func (p *pending) whole(dir wspath.Path) {
	p.count -= len(p.folders[dir])
	p.folders[dir] = nil
}

func (p *pending) all() {
	p.folders, p.count = map[wspath.Path]map[string]struct{}{wspath.Root: nil}, 0
}

// paths gives what is dirty, sorted, without what is below another.
func (p *pending) paths() []wspath.Path {
	set := make(map[wspath.Path]struct{}, p.count)
	for dir, names := range p.folders {
		if names == nil {
			set[dir] = struct{}{}
		}
		for name := range names {
			set[dir.Join(name)] = struct{}{}
		}
	}
	list := make([]wspath.Path, 0, len(set))
next:
	for path := range set {
		for up := range path.Ancestors() {
			if _, ok := set[up]; ok {
				continue next
			}
		}
		// Events' strings are long and would be kept for a name.
		list = append(list, wspath.Path(strings.Clone(string(path))))
	}
	slices.Sort(list)
	return list
}
