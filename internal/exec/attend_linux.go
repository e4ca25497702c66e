package exec

import (
	"context"
	"os"
	"time"

	"umbra/internal/layer"
)

// attendEvery is how often it is checked whether a layer's client is alive.
const attendEvery = 200 * time.Millisecond

// attend ends what the command of a layer left running if its client is killed, which
// would do it otherwise. The layer stays.
func (s *Service) attend(id string) {
	s.others.Go(func() {
		begin, cancel := context.WithTimeout(s.ended, beginWithin)
		defer cancel()
		gone := func() bool {
			_, err := os.Lstat(s.path(id, metaFile))
			return err != nil || s.cleaner.has(id)
		}
		held := func() bool { return locked(s.path(id, lockFile)) }
		// A client may begin and be killed between two checks. The kernel makes this
		// directory when it mounts the overlay, and the client has the lock before.
		mounted := func() bool {
			_, err := os.Lstat(s.path(id, "work", "work"))
			return err == nil
		}
		if await(begin, attendEvery, func() bool { return gone() || held() || mounted() }) != nil ||
			await(s.ended, attendEvery, func() bool { return gone() || !held() }) != nil || gone() {
			return
		}
		if err := layer.EndOrphans(s.path(id, "upper")); err != nil && !gone() {
			s.o.Log.Warn("what a command left running is not ended", "layer", id, "error", err)
		}
	})
}
