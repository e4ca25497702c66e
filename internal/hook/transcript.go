package hook

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"syscall"
)

// transcriptTail is how much of a transcript's end is read, in bytes.
const transcriptTail = 1 << 20

// answered reports which of the calls have a result in the end of Codex's
// transcript (a rollout file: a JSON document a line). A file that cannot be
// read has none.
func answered(path string, calls []string) map[string]bool {
	if path == "" || len(calls) == 0 {
		return nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // a FIFO must not block
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	from := max(info.Size()-transcriptTail, 0)
	tail, err := io.ReadAll(io.NewSectionReader(f, from, transcriptTail))
	if err != nil {
		return nil
	}
	var found map[string]bool
	for line := range bytes.Lines(tail) {
		for _, id := range calls {
			if !bytes.Contains(line, []byte(id)) {
				continue
			}
			var item struct {
				Type    text `json:"type"`
				Payload struct {
					Type text `json:"type"`
					Call text `json:"call_id"`
				} `json:"payload"`
			}
			if json.Unmarshal(line, &item) == nil && item.Type == "response_item" && strings.HasSuffix(string(item.Payload.Type), "_call_output") && string(item.Payload.Call) == id {
				if found == nil {
					found = make(map[string]bool)
				}
				found[id] = true
			}
		}
	}
	return found
}
