package blame

import (
	"context"

	"umbra/internal/project"
	"umbra/internal/workspace"
)

// projectLines are the commits of the project's own git that wrote the lines of a
// baseline version. Nil: not asked.
type projectLines struct{ lines []project.Line }

// size is the memory that they take, about, in bytes.
func (p *projectLines) size() int64 {
	if p == nil {
		return 0
	}
	return int64(len(p.lines)) * 128
}

// findProject asks the project's own git who wrote a baseline version. It has no
// lines where the workspace is in no project, or its git does not have that version.
func findProject(ctx context.Context, w *workspace.Workspace, v *version) *projectLines {
	if w.Root() == "" {
		return &projectLines{}
	}
	repo, name := project.For(w.Root(), v.path)
	return &projectLines{repo.Blame(ctx, project.Version{Path: name, Blob: v.blob})}
}

// split cuts a range where another commit of the project's begins.
func (p *projectLines) split(r Range, run []segment) []Range {
	if len(p.lines) == 0 {
		return []Range{r}
	}
	var out []Range
	line := r.Start
	for _, s := range run {
		for k := range int(s.n) {
			origin := int(s.line) + k
			if origin >= len(p.lines) {
				return []Range{r}
			}
			c := &p.lines[origin]
			if n := len(out) - 1; n >= 0 && out[n].Project.Commit == c.Commit {
				last := &out[n]
				last.End = line
				o := &last.Origins[len(last.Origins)-1]
				if o.Line+o.Lines == origin+1 {
					o.Lines++
				} else {
					last.Origins = append(last.Origins, Place{Start: line, Line: origin + 1, Lines: 1})
				}
			} else {
				next := r
				next.Start, next.End, next.OriginLine, next.Project = line, line, origin+1, c
				next.Origins = []Place{{Start: line, Line: origin + 1, Lines: 1}}
				out = append(out, next)
			}
			line++
		}
	}
	for i := range out {
		if len(out[i].Origins) == 1 {
			out[i].Origins = nil
		}
	}
	return out
}
