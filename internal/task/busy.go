package task

// busy tells a workspace's manager whether the workspace has a task that is
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
