package exec

import (
	"path/filepath"

	"umbra/gitstore/diff"
	"umbra/gitstore/object"
	"umbra/internal/errs"
	"umbra/internal/workspace"
)

// patch is the text of a change, for a dry run.
type patch struct{ old, new diff.File }

// diffs reads what a dry run shows.
func (n *planner) diffs(all []workspace.Op) error {
	for _, op := range all {
		p := string(op.Path)
		v, err := at(n.tip, p)
		if err != nil {
			return err
		}
		x := patch{diff.File{Path: p}, diff.File{Path: p}}
		if v.Mode != 0 && v.Mode != object.Dir {
			x.old.Mode, x.old.ID = v.Mode, v.ID
			if x.old.Data, err = n.w.Store().ReadBlob(n.ctx, v.ID, maxMerged); err != nil {
				return err
			}
		}
		switch op.Kind {
		case workspace.OpRename:
			x.new = x.old
			x.new.Path = string(op.To)
		case workspace.OpWrite:
			x.new.Mode, x.new.Data = *op.Mode, op.Data
			if op.Data == nil {
				x.new.Data, err = readFile(filepath.Join(n.upper, p))
			}
		case workspace.OpChmod:
			x.new = x.old
			x.new.Mode = *op.Mode
		case workspace.OpSymlink:
			x.new.Mode, x.new.Data = object.Symlink, []byte(op.Target)
		case workspace.OpDelete:
		default:
			continue
		}
		if err != nil {
			return errs.Wrap(err, p)
		}
		n.p.patches = append(n.p.patches, x)
	}
	return nil
}
