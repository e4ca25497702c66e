package lint

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
	"unicode/utf16"

	"umbra/internal/errs"
	"umbra/internal/sandbox/js"
)

// External is a linter of the machine: it gets the text as a file in a folder
// of its own, away from the workspace, and is killed when its time is over.
type External struct {
	kind string // "deno", "oxlint", "biome"
	path string
}

// Find looks for an engine on the machine.
func Find(kind string) (*External, error) {
	if _, ok := commands[kind]; !ok {
		return nil, fmt.Errorf("%q is not a known engine", kind)
	}
	at, err := exec.LookPath(kind)
	if err != nil {
		return nil, fmt.Errorf("%s is not on this machine", kind)
	}
	return &External{kind: kind, path: at}, nil
}

// commands are the engines' arguments before the file.
var commands = map[string][]string{
	"deno":   {"lint", "--json", "--no-config"},
	"oxlint": {"--format=json"},
	"biome":  {"lint", "--reporter=json"},
}

// maxReport bounds what an engine says.
const maxReport = 32 << 20

// Lint implements Linter.
func (x *External) Lint(ctx context.Context, t Text, timeout time.Duration) (*Report, error) {
	dir, err := os.MkdirTemp("", "umbra-lint-")
	if err != nil {
		return nil, errs.Wrap(err, "")
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, t.Name), []byte(t.Code), 0o600); err != nil {
		return nil, errs.Wrap(err, "")
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, x.path, append(append([]string{}, commands[x.kind]...), t.Name)...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "NO_COLOR=1", "DENO_DIR=" + filepath.Join(dir, ".deno"), "DENO_NO_UPDATE_CHECK=1"}
	cmd.WaitDelay = time.Second
	var out bounded
	cmd.Stdout = &out
	// The status only says whether something was found.
	if err := cmd.Run(); err != nil && out.data.Len() == 0 {
		if limited.Err() != nil && ctx.Err() == nil {
			return nil, errs.New(errs.Unavailable, "check_timeout", "The check timed out")
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, errs.Wrap(err, "")
	}
	found, err := x.parse(out.data.Bytes(), t)
	if err != nil {
		return nil, errs.Wrap(fmt.Errorf("lint: %s: %w", x.kind, err), "")
	}
	return &Report{Diagnostics: found, Checked: []string{t.Name}}, nil
}

// bounded has its buffer by name: an embedded one's ReadFrom would pass Write by.
type bounded struct{ data bytes.Buffer }

// Write fails beyond maxReport, which ends the engine.
func (b *bounded) Write(p []byte) (int, error) {
	if b.data.Len()+len(p) > maxReport {
		return 0, errors.New("the report is too long")
	}
	return b.data.Write(p)
}

func (x *External) parse(data []byte, t Text) ([]js.Diagnostic, error) {
	switch x.kind {
	case "deno":
		return parseDeno(data, t)
	case "oxlint":
		return parseOxlint(data, t)
	}
	return parseBiome(data, t)
}

func parseDeno(data []byte, t Text) ([]js.Diagnostic, error) {
	var r struct {
		Diagnostics []struct {
			Code, Message, Hint string
			Range               js.Range
		}
		Errors []struct{ Message string }
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	out := []js.Diagnostic{}
	for _, d := range r.Diagnostics {
		out = append(out, js.Diagnostic{Code: d.Code, Message: d.Message, Hint: d.Hint, Severity: js.SeverityError, Range: d.Range, Filename: t.Name})
	}
	for _, e := range r.Errors {
		at := js.Position{Line: 1}
		out = append(out, js.Diagnostic{Code: "syntax-error", Message: e.Message, Severity: js.SeverityError, Range: js.Range{Start: at, End: at}, Filename: t.Name})
	}
	return out, nil
}

func parseOxlint(data []byte, t Text) ([]js.Diagnostic, error) {
	var r struct {
		Diagnostics []struct {
			Code, Message, Help, Severity string
			Labels                        []struct {
				Span struct{ Offset, Length int }
			}
		}
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	out := []js.Diagnostic{}
	for _, d := range r.Diagnostics {
		at := js.Diagnostic{Code: d.Code, Message: d.Message, Hint: d.Help, Severity: severity(d.Severity), Filename: t.Name,
			Range: js.Range{Start: js.Position{Line: 1}, End: js.Position{Line: 1}}}
		if at.Code == "" {
			at.Code = "syntax-error"
		}
		if len(d.Labels) > 0 {
			s := d.Labels[0].Span
			at.Range = js.Range{Start: place(t.Code, s.Offset), End: place(t.Code, s.Offset+s.Length)}
		}
		out = append(out, at)
	}
	return out, nil
}

func parseBiome(data []byte, t Text) ([]js.Diagnostic, error) {
	var r struct {
		Diagnostics []struct {
			Category, Severity, Description string
			Message                         json.RawMessage // a text from version 2 on
			Location                        struct {
				Span       []int // offsets, before version 2
				Start, End *struct{ Line, Column int }
			}
		}
	}
	// A first line may say that the form is not stable yet.
	if i := bytes.IndexByte(data, '{'); i > 0 {
		data = data[i:]
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, err
	}
	out := []js.Diagnostic{}
	for _, d := range r.Diagnostics {
		at := js.Diagnostic{Code: d.Category, Message: d.Description, Severity: severity(d.Severity), Filename: t.Name,
			Range: js.Range{Start: js.Position{Line: 1}, End: js.Position{Line: 1}}}
		var text string
		if at.Message == "" && json.Unmarshal(d.Message, &text) == nil {
			at.Message = text
		}
		if s := d.Location.Span; len(s) == 2 {
			at.Range = js.Range{Start: place(t.Code, s[0]), End: place(t.Code, s[1])}
		} else if from, to := d.Location.Start, d.Location.End; from != nil && to != nil {
			at.Range = js.Range{Start: js.Position{Line: max(1, from.Line), Col: max(0, from.Column-1)}, End: js.Position{Line: max(1, to.Line), Col: max(0, to.Column-1)}}
		}
		out = append(out, at)
	}
	return out, nil
}

func severity(s string) js.Severity {
	switch s {
	case "error", "fatal":
		return js.SeverityError
	}
	return js.SeverityWarning
}

// place turns an offset in bytes into line and column.
func place(text string, offset int) js.Position {
	offset = max(0, min(offset, len(text)))
	p := js.Position{Line: 1}
	start := 0
	for i := range offset {
		if text[i] == '\n' {
			p.Line++
			start = i + 1
		}
	}
	p.Col = len(utf16.Encode([]rune(text[start:offset])))
	return p
}
