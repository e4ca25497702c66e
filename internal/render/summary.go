package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"umbra/internal/client"
	"umbra/internal/term"
)

// Within reports whether a path is a folder or lies in it; the root holds all.
func Within(p, dir string) bool {
	return dir == "" || p == dir || strings.HasPrefix(p, dir+"/")
}

// Under gives the files at or under a path, by either name.
func Under(files []client.SummaryFile, p string) []client.SummaryFile {
	var out []client.SummaryFile
	for _, f := range files {
		if Within(f.Path, p) || f.From != "" && Within(f.From, p) {
			out = append(out, f)
		}
	}
	return out
}

// Narrow leaves in a summary what is at or under a path.
func Narrow(raw []byte, p string) ([]byte, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	filter := func(list string, wanted func(json.RawMessage) bool) {
		var items []json.RawMessage
		if json.Unmarshal(all[list], &items) != nil {
			return
		}
		kept := []json.RawMessage{}
		for _, item := range items {
			if wanted(item) {
				kept = append(kept, item)
			}
		}
		all[list], _ = json.Marshal(kept) // raw JSON, which is valid
	}
	// The lists hold encoded names; the files have their encoding.
	names := map[string]bool{}
	filter("files", func(item json.RawMessage) bool {
		var f client.SummaryFile
		var wire struct {
			Path string `json:"path"`
		}
		if json.Unmarshal(item, &f) != nil || json.Unmarshal(item, &wire) != nil || len(Under([]client.SummaryFile{f}, p)) == 0 {
			return false
		}
		names[wire.Path] = true
		return true
	})
	for _, list := range []string{"created", "modified", "deleted"} {
		filter(list, func(item json.RawMessage) bool {
			var name string
			return json.Unmarshal(item, &name) == nil && names[name]
		})
	}
	filter("renamed", func(item json.RawMessage) bool {
		var r struct {
			To string `json:"to"`
		}
		return json.Unmarshal(item, &r) == nil && names[r.To]
	})
	return json.Marshal(all)
}

// letters are git's (git-diff(1), --name-status).
var letters = map[string]struct {
	letter string
	style  term.Style
}{
	"created":  {"A", term.Added},
	"modified": {"M", term.Plain},
	"deleted":  {"D", term.Removed},
	"renamed":  {"R", term.Frag},
}

// Summary prints the net changes of files, as git diff --name-status does.
func Summary(o *term.Output, files []client.SummaryFile) {
	width := 0
	for _, f := range files {
		width = max(width, len([]rune(fileName(f))))
	}
	added, removed := 0, 0
	for _, f := range files {
		l := letters[f.Status]
		if l.letter == "" {
			l.letter = "?"
		}
		counts := o.Paint(term.Added, fmt.Sprintf("+%d", f.Additions)) + " " + o.Paint(term.Removed, fmt.Sprintf("-%d", f.Deletions))
		if f.Binary {
			counts = "binary"
		}
		name := fileName(f)
		o.Printf("%s  %s%s  %s", o.Paint(l.style, l.letter), name, strings.Repeat(" ", width-len([]rune(name))), counts)
		if f.Mixed {
			o.Printf("  mixed")
		}
		if len(f.Subtasks) > 0 {
			o.Printf("  %s", o.Paint(term.Dim, strings.Join(f.Subtasks, ", ")))
		}
		o.Printf("\n")
		added += f.Additions
		removed += f.Deletions
	}
	if len(files) == 0 {
		o.Printf("no files changed\n")
		return
	}
	o.Printf("%s changed, %d added and %d removed\n", Count(len(files), "file", "files"), added, removed)
}

func fileName(f client.SummaryFile) string {
	if f.From != "" {
		return moved(f.From, f.Path)
	}
	return term.Name(f.Path)
}

// Count is "1 file", "2 files".
func Count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
