package notes

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// GitAIRef is the notes ref of the Git AI Standard (section 1.1).
const GitAIRef = "refs/notes/ai"

const gitAIVersion = "authorship/3.0.0"

type gitAIMetadata struct {
	Version  string                  `json:"schema_version"`
	Base     string                  `json:"base_commit_sha"`
	Prompts  struct{}                `json:"prompts"` // of the older form of keys: none
	Sessions map[string]gitAISession `json:"sessions,omitempty"`
}

type gitAISession struct {
	Agent gitAIAgent `json:"agent_id"`
}

type gitAIAgent struct {
	Tool  string `json:"tool"`
	ID    string `json:"id"`
	Model string `json:"model"`
}

// GitAI returns a commit's authorship log. Lines of no task are left out, which
// the standard calls untracked. A file whose name has a line break or is not UTF-8
// is left out, too: the format is read line by line, as UTF-8.
func GitAI(c *Commit) ([]byte, error) {
	meta := gitAIMetadata{Version: gitAIVersion, Base: c.ID, Sessions: make(map[string]gitAISession)}
	var b strings.Builder
	for i := range c.Files {
		f := &c.Files[i]
		if strings.ContainsRune(f.Path, '\n') || !utf8.ValidString(f.Path) {
			continue
		}
		var keys []string
		lines := make(map[string][]string)
		for _, r := range f.Runs {
			if r.Writer.Task == "" {
				continue
			}
			id := sessionID(r.Writer)
			key := id + "::t_" + digest(r.Writer.Commit)
			if lines[key] == nil {
				keys = append(keys, key)
			}
			lines[key] = append(lines[key], span(r.Start, r.End))
			s, ok := meta.Sessions[id]
			if !ok {
				s.Agent = gitAIAgent{Tool: r.Writer.tool(), ID: r.Writer.session(), Model: "unknown"}
			}
			if r.Writer.Model != "" {
				s.Agent.Model = r.Writer.Model // the last one that the session used
			}
			meta.Sessions[id] = s
		}
		if len(keys) == 0 {
			continue
		}
		b.WriteString(gitAIPath(f.Path) + "\n")
		for _, key := range keys {
			b.WriteString("  " + key + " " + strings.Join(lines[key], ",") + "\n")
		}
	}
	b.WriteString("---\n")
	data, err := json.MarshalIndent(meta, "", "  ")
	if err != nil {
		return nil, err
	}
	return append([]byte(b.String()), append(data, '\n')...), nil
}

// sessionID makes an id as section 1.2.3.1 has it: one of a tool's conversation.
func sessionID(w *Writer) string { return "s_" + digest(w.tool()+":"+w.session()) }

// digest returns 14 hexadecimal digits of a text's SHA-256.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:14]
}

func span(start, end int) string {
	if start == end {
		return strconv.Itoa(start)
	}
	return strconv.Itoa(start) + "-" + strconv.Itoa(end)
}

// gitAIPath quotes a path that has white space, or that a reader would take for
// something else without quotes.
func gitAIPath(path string) string {
	if strings.ContainsFunc(path, unicode.IsSpace) || path == "---" || strings.HasPrefix(path, `"`) {
		return `"` + path + `"`
	}
	return path
}

// merge joins runs of one writer that follow each other.
func merge(runs []Run) []Run {
	var out []Run
	for _, r := range runs {
		if k := len(out) - 1; k >= 0 && out[k].Writer == r.Writer && out[k].End+1 == r.Start {
			out[k].End = r.End
			continue
		}
		out = append(out, r)
	}
	return slices.Clip(out)
}
