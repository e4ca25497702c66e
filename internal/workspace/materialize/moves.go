package materialize

import (
	"umbra/internal/errs"
	"umbra/internal/moves"
	"umbra/internal/workspace/disk"
	"umbra/internal/workspace/plan"
	"umbra/internal/wspath"
)

// RecordMoves makes durable which directories the steps rename (package moves).
func (m *Materializer) RecordMoves(seq uint64) error {
	r := moves.Record{Seq: seq}
	for i := range m.P.Steps {
		s := &m.P.Steps[i]
		if !s.Dir || s.Kind != plan.StepMove && s.Kind != plan.StepSwap {
			continue
		}
		x := moves.Step{Swap: s.Kind == plan.StepSwap, Ino: s.Expect.Info.Ino, From: s.Path, To: s.To}
		if x.Swap {
			x.Other = s.Target.Info.Ino
		}
		r.Steps = append(r.Steps, x)
	}
	if len(r.Steps) == 0 || seq == 0 {
		return nil
	}
	m.moves = r.Steps
	m.Rec.Progress.Renaming()
	return errs.Wrap(moves.Write(m.Disk.Files, r), "")
}

// syncMoves makes the renames of directories durable, or that they are undone.
func (m *Materializer) syncMoves() error {
	done := make(map[wspath.Path]bool)
	for _, s := range m.moves {
		for _, dir := range []wspath.Path{s.From.Dir(), s.To.Dir()} {
			if done[dir] {
				continue
			}
			done[dir] = true
			if err := m.Disk.FS.SyncDir(string(dir)); err != nil && !disk.IsAbsent(err) {
				return errs.Wrap(err, string(dir))
			}
		}
	}
	return nil
}
