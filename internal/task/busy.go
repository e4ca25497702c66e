package task

// Live returns how many tasks of a workspace are executing or paused.
func (s *Service) Live(workspaceID string) int { return s.index.live(workspaceID) }

// CheckIdle fails with errs.Conflict workspace_busy while a task of a workspace has not
// ended.
func (s *Service) CheckIdle(workspaceID string) error {
	if n := s.Live(workspaceID); n > 0 {
		return errBusy(n)
	}
	return nil
}

// live is Live. In a shared database it is that of a workspace which this process
// owns.
func (x *index) live(workspace string) (n int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for id := range x.byWS[workspace] {
		if p := x.byID[id]; !p.Deleted && !p.Status.Ended() {
			n++
		}
	}
	return n
}

// busy reports to a workspace's manager whether the workspace has a task that is
// executing or paused, so that it is watched on, and whether one is executing.
func (x *index) busy(workspace string) (busy, executing bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	for id := range x.byWS[workspace] {
		if p := x.byID[id]; !p.Deleted && !p.Status.Ended() {
			busy = true
			executing = executing || p.Status == Executing
		}
	}
	return busy, executing
}
