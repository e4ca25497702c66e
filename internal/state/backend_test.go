package state_test

import (
	"path/filepath"
	"testing"

	"umbra/internal/need"
	"umbra/internal/state"
	"umbra/internal/state/statetest"
)

func TestBolt(t *testing.T) {
	statetest.Conform(t, func(t *testing.T) state.Backend {
		db, err := state.Open(filepath.Join(t.TempDir(), "state.db"))
		need.NoError(t, err)
		t.Cleanup(func() {
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		})
		return db.Backend()
	})
}

func TestMemory(t *testing.T) {
	statetest.Conform(t, func(*testing.T) state.Backend { return state.NewMemory().Backend() })
}
