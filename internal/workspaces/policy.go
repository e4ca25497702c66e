package workspaces

import (
	"umbra/internal/policy"
	"umbra/internal/workspaces/place"
)

// rules are those of a workspace, and of what it is a fork of.
func (m *Manager) rules(r Record) *policy.Rules {
	dirs, ids := []string{r.Place()}, []string{r.ID}
	for f := r.Fork; f != nil; {
		of, _ := m.Record(f.Of)
		dirs, ids, f = append(dirs, of.Place()), append(ids, f.Of), of.Fork
	}
	rules := m.opt.Policy.Of(dirs, ids)
	if rules != nil && r.Place() != "" && place.FoldsCase(r.Place()) {
		rules = rules.Folding()
	}
	return rules
}
