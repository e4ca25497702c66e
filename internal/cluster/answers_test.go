package cluster

import (
	"testing"
	"time"

	"umbra/internal/cluster/clustertest"
	"umbra/internal/need"
	"umbra/internal/state"
)

// TestAnswersOfOneKey: an answer is replaced by one of the same request, and by any where it
// does not count any more.
func TestAnswersOfOneKey(t *testing.T) {
	p := clustertest.Start(t, clustertest.Options{Standby: true})
	db := state.New(records(t, open(t, p.A.Database(t), "n1")))
	a, err := state.OpenAnswers(db, "")
	need.NoError(t, err)
	defer func() { need.NoError(t, a.Close()) }()
	now := time.Now()
	key := [32]byte{1, ']'}
	for i, step := range []struct {
		request byte
		status  int
		at      time.Time
		kept    bool
	}{
		{1, 0, now, true}, {1, 200, now, true}, {2, 200, now, false}, {1, 201, now, true},
		{1, 202, now.Add(-23 * time.Hour), true}, {2, 200, now, false},
		{1, 0, time.Unix(0, 0), true}, {2, 203, now.Add(-25 * time.Hour), true}, {3, 204, now, true},
	} {
		ans := state.Answer{Fingerprint: [32]byte{step.request}, Status: step.status, Header: map[string][]string{"X": {`"at":"]`}}, Body: []byte{'"', ']'}, At: step.at}
		need.NoError(t, a.KeepAnswer(key, ans, true))
		var is state.Answer
		found, err := db.Get("answers", string(key[:]), &is)
		if need.NoError(t, err); !found || (is.Fingerprint == ans.Fingerprint && is.Status == step.status && is.At.Equal(step.at)) != step.kept {
			t.Errorf("step %d: %+v", i, is)
		}
	}
}
