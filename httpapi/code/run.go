package code

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/audit"
	"umbra/internal/code"
	"umbra/internal/errs"
	"umbra/internal/lint"
	"umbra/internal/sandbox/js"
)

type runBody struct {
	CodeID  json.RawMessage `json:"codeId"`
	Code    json.RawMessage `json:"code"`
	Timeout json.RawMessage `json:"timeout"`
	Env     json.RawMessage `json:"env"`
	Args    json.RawMessage `json:"args"`
}

// The bounds of a run's time, in milliseconds.
const (
	defaultTimeout = 5000
	maxTimeout     = 300_000
)

// inlineName is the file name of a program given as text.
const inlineName = "main.ts"

// program is what a request names.
type program struct {
	id      string // empty for a text
	name    string
	text    string
	timeout time.Duration
}

func given(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) > 0 && string(raw) != "null"
}

func refuse(field string, raw json.RawMessage, message string) error {
	return code.Fault(field, raw, message, message)
}

// program judges what /execute and /lint have in common. The file is not read
// yet.
func (d *Dialect) program(body *runBody) (p program, err error) {
	switch hasID, hasCode := given(body.CodeID), given(body.Code); {
	case hasID && hasCode:
		return p, refuse("code", body.Code, "exactly one of codeId and code must be given")
	case hasID:
		if p.id, err = code.CheckID("", body.CodeID); err != nil {
			return p, err
		}
		p.name = string(code.Path(p.id))
	case hasCode:
		if p.text, err = code.CheckCode("", body.Code); err != nil {
			return p, err
		}
		p.name = inlineName
	default:
		return p, refuse("codeId", nil, "either codeId or code is required")
	}
	p.timeout, err = checkTimeout(body.Timeout)
	return p, err
}

func checkTimeout(raw json.RawMessage) (time.Duration, error) {
	if !given(raw) {
		return defaultTimeout * time.Millisecond, nil
	}
	var f float64
	if json.Unmarshal(raw, &f) != nil {
		return 0, refuse("timeout", raw, "timeout must be a number")
	}
	if f != float64(int64(f)) || f < 1 || f > maxTimeout {
		return 0, refuse("timeout", raw, fmt.Sprintf("timeout must be an integer between 1 and %d milliseconds", maxTimeout))
	}
	return time.Duration(f) * time.Millisecond, nil
}

// fetch reads the program's text where the request names a file.
func (d *Dialect) fetch(c *gin.Context, p *program) error {
	if p.id == "" {
		return nil
	}
	if !theirs(c) {
		return hidden(p.id)
	}
	got, err := d.o.Programs.Read(c.Request.Context(), p.id, 0)
	if err != nil {
		return notFound(err, p.id)
	}
	if !utf8.Valid(got.Code) {
		return executionError("The file "+p.name+" is not UTF-8", nil, 0)
	}
	p.text = string(got.Code)
	return nil
}

// The bounds of env.
const (
	maxEnv      = 50
	maxEnvValue = 1000
	maxEnvAll   = 10240
	maxArgs     = 1000
	maxArgsAll  = 1 << 20
)

var envName = regexp.MustCompile(`^[A-Z0-9_]+$`)

// envKept are names whose value cannot be set otherwise.
var envKept = map[string]bool{"PATH": true, "HOME": true, "USER": true, "PWD": true, "SHELL": true, "HOSTNAME": true, "TMPDIR": true, "TEMP": true, "TMP": true}

func checkEnv(raw json.RawMessage) (map[string]string, error) {
	if !given(raw) {
		return nil, nil
	}
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil {
		return nil, refuse("env", raw, "env must be an object")
	}
	if len(members) > maxEnv {
		return nil, refuse("env", raw, fmt.Sprintf("env must not have more than %d entries", maxEnv))
	}
	env, all := map[string]string{}, 0
	for name, value := range members {
		field := "env." + name
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, err
		}
		switch {
		case !envName.MatchString(name):
			return nil, refuse("env", quoted, "env keys must contain only uppercase letters, digits, and underscores")
		case envKept[name], strings.HasPrefix(name, "DENO_"), strings.HasPrefix(name, "NODE_"), strings.HasPrefix(name, "UMBRA_"):
			return nil, refuse("env", quoted, "env key "+name+" is reserved and must not be set")
		}
		var s *string
		if json.Unmarshal(value, &s) != nil || s == nil {
			return nil, refuse(field, value, "env values must be strings")
		}
		n := utf8.RuneCountInString(*s)
		if n > maxEnvValue {
			return nil, refuse(field, value, fmt.Sprintf("env values must not exceed %d characters", maxEnvValue))
		}
		all += n + len(name)
		env[name] = *s
	}
	if all > maxEnvAll {
		return nil, refuse("env", raw, fmt.Sprintf("env must not exceed %d characters in all", maxEnvAll))
	}
	return env, nil
}

func checkArgs(raw json.RawMessage) ([]string, error) {
	if !given(raw) {
		return nil, nil
	}
	var items []*string
	if json.Unmarshal(raw, &items) != nil {
		return nil, refuse("args", raw, "args must be an array of strings")
	}
	args, all := []string{}, 0
	for _, s := range items {
		if s == nil {
			return nil, refuse("args", raw, "args must be an array of strings")
		}
		all += len(*s)
		args = append(args, *s)
	}
	if len(args) > maxArgs || all > maxArgsAll {
		return nil, refuse("args", raw, "args are too many or too long")
	}
	return args, nil
}

type ran struct {
	Success       bool          `json:"success"`
	Result        any           `json:"result"`
	ExecutionTime int64         `json:"executionTime"`
	Stdout        string        `json:"stdout,omitempty"`
	Stderr        string        `json:"stderr,omitempty"`
	FilesWritten  []writtenFile `json:"files_written,omitempty"`
	TaskID        *string       `json:"task_id,omitempty"`
}

// execute is POST /execute.
func (d *Dialect) execute(c *gin.Context) error {
	var body runBody
	if err := decode(c, &body); err != nil {
		return err
	}
	p, err := d.program(&body)
	if err != nil {
		return err
	}
	job := js.Job{Name: p.name, Timeout: p.timeout, NoFiles: !theirs(c)}
	if job.Env, err = checkEnv(body.Env); err != nil {
		return err
	}
	if job.Args, err = checkArgs(body.Args); err != nil {
		return err
	}
	if err := d.fetch(c, &p); err != nil {
		return err
	}
	job.Code = p.text
	saver, err := d.saver(c, p)
	if err != nil {
		return err
	}
	begin, err := httpapi.Once(c, "program")
	if err != nil {
		return err
	}
	if saver != nil {
		job.Save = savedOnce(saver.Save, begin)
	}
	audit.Allowed(c.Request.Context(), audit.Exec, "", slog.String("language", "typescript"))
	out, err := d.o.Engine.Run(c.Request.Context(), job)
	saved := d.saved(c, saver, err == nil && out.Failure == "")
	if err != nil {
		return err
	}
	d.o.Log.LogAttrs(c.Request.Context(), slog.LevelInfo, "Code execution", slog.String("codeId", p.id), slog.Int("exitCode", out.ExitCode),
		slog.String("failure", string(out.Failure)), slog.Int64("executionTime", ms(out.Took)), slog.String("request_id", httpapi.RequestID(c)))
	if out.Failure != "" {
		if err := httpapi.IdempotencyOf(c).NotBegun(); err != nil { // such an answer is not kept
			return err
		}
		return failed(out, p, saved)
	}
	stdout := whole(out.Stdout)
	httpapi.JSON(c, http.StatusOK, ran{Success: true, Result: parsed(stdout), ExecutionTime: ms(out.Took),
		Stdout: stdout, Stderr: whole(out.Stderr), FilesWritten: saved.files, TaskID: wire.Text(saved.task)})
	return nil
}

// whole makes output fit for JSON.
func whole(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

// parsed is standard output as a value: the JSON that it is, else its text.
func parsed(stdout string) any {
	text := strings.TrimSpace(stdout)
	if text == "" {
		return nil
	}
	// By encoding/json's own scanner; the bytes go out as they came, so that
	// no number loses digits.
	if json.Valid([]byte(text)) {
		return json.RawMessage(text)
	}
	return text
}

// failed makes the answer to a run that did not end well.
func failed(out *js.Outcome, p program, saved saves) error {
	if out.Failure == js.FailedTime {
		n := p.timeout.Milliseconds()
		fields := map[string]any{fieldType: typeTimeout, fieldTook: ms(out.Took), "timeout": n}
		saved.add(fields)
		return &httpapi.Problem{Status: http.StatusRequestTimeout, Kind: errs.Unprocessable, Code: "timeout",
			Detail: fmt.Sprintf("Code execution timed out after %dms", n), Fields: fields}
	}
	message := fmt.Sprintf("Process exited with code %d", out.ExitCode)
	details := map[string]any{"exitCode": out.ExitCode, "stderr": whole(out.Stderr), "stdout": whole(out.Stdout)}
	switch out.Failure {
	case js.FailedCompile:
		message = out.Message
		details["diagnostics"] = out.Diagnostics
	case js.FailedMemory:
		message = "Memory limit exceeded: the program took more memory than it may"
	case js.FailedOutput:
		message = "Output limit exceeded: standard output and error may have 10485760 bytes together"
	}
	saved.add(details)
	return executionError(message, details, ms(out.Took))
}

func executionError(message string, details map[string]any, took int64) error {
	fields := map[string]any{fieldType: typeExecution, fieldTook: took}
	maps.Copy(fields, details)
	return &httpapi.Problem{Status: http.StatusInternalServerError, Kind: errs.Unprocessable, Code: "execution_failed", Detail: message, Fields: fields}
}

type linted struct {
	Version      int             `json:"version"`
	Diagnostics  []js.Diagnostic `json:"diagnostics"`
	Errors       []any           `json:"errors"`
	CheckedFiles []string        `json:"checkedFiles"`
}

// lint is POST /lint.
func (d *Dialect) lint(c *gin.Context) error {
	var body runBody
	if err := decode(c, &body); err != nil {
		return err
	}
	p, err := d.program(&body)
	if err != nil {
		return err
	}
	if err := d.fetch(c, &p); err != nil {
		return err
	}
	start := time.Now()
	report, err := d.o.Linter.Lint(c.Request.Context(), lint.Text{Name: p.name, Code: p.text, NoFiles: !theirs(c)}, p.timeout)
	if errs.CodeOf(err) == "check_timeout" {
		n := p.timeout.Milliseconds()
		return &httpapi.Problem{Status: http.StatusRequestTimeout, Kind: errs.Unprocessable, Code: "timeout", Detail: fmt.Sprintf("Code check timed out after %dms", n),
			Fields: map[string]any{fieldType: typeTimeout, fieldTook: ms(time.Since(start)), "timeout": n}}
	}
	if err != nil {
		return err
	}
	httpapi.JSON(c, http.StatusOK, struct {
		answer
		ExecutionTime int64 `json:"executionTime"`
	}{answer{Success: true, Result: linted{Version: 1, Diagnostics: report.Diagnostics, Errors: []any{}, CheckedFiles: report.Checked}}, ms(time.Since(start))})
	return nil
}
