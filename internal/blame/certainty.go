package blame

import (
	"strconv"
	"strings"

	"umbra/gitstore/message"
)

// certainty returns how sure it is that a commit's call changed a path, as
// recorded; empty for a change without a call.
func certainty(m *message.Message, path string) string {
	all := m.Trailer(message.KeyCertainty)
	for i := range m.Entries {
		if m.Entries[i].Path != path {
			continue
		}
		for _, v := range m.Trailers(message.KeyCertaintyOf) {
			place, value, _ := strings.Cut(v, " ")
			if n, err := strconv.Atoi(place); err == nil && n == i+1 {
				return value
			}
		}
	}
	return all
}
