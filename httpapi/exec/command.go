package exec

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/audit"
	"umbra/internal/errs"
	"umbra/internal/exec/serve"
	"umbra/internal/task"
	"umbra/internal/wspath"
)

// commandLine reads a shell's text, or a list of arguments; nil for neither.
func commandLine(raw json.RawMessage) []string {
	var text string
	if json.Unmarshal(raw, &text) == nil && strings.TrimSpace(text) != "" {
		return []string{"sh", "-c", text}
	}
	var list []string
	if json.Unmarshal(raw, &list) != nil {
		return nil
	}
	return list
}

func badField(field, detail string) error {
	return errs.New(errs.Invalid, "invalid_field", "%s", detail).With("field", field)
}

// command runs a command on a task's workspace.
func (d *Dialect) command(c *gin.Context) error {
	if err := d.commands.Check(); err != nil {
		return err
	}
	if err := httpapi.NeedExec(c); err != nil {
		return err
	}
	i := httpapi.IdempotencyOf(c)
	if i != nil && i.Begun() != "" {
		i.Replayed()
		return d.interrupted(i.Begun(), httpapi.CallerOf(c).Sees)
	}
	req, err := commandOf(c)
	if err != nil {
		return err
	}
	if i != nil {
		req.Once = i
	}
	ref, err := wire.OpenTask(c, d.tasks.Get, true)
	if err != nil {
		return err
	}
	defer ref.Release()
	audit.Allowed(c.Request.Context(), audit.Exec, ref.ID())
	c.Writer.Header().Add("Vary", "Accept")
	if strings.Contains(c.GetHeader("Accept"), "text/event-stream") {
		return d.commandEvents(c, ref, req)
	}
	a, err := d.commands.Do(c.Request.Context(), ref, req, nil)
	if err != nil {
		return busyOr(err)
	}
	httpapi.JSON(c, http.StatusOK, answerOf(a))
	return nil
}

// interrupted is the error of a request whose command was begun by an earlier one and
// was not answered: it may have done anything, so it is not run again.
func (d *Dialect) interrupted(call string, sees task.Sees) error {
	e := errs.New(errs.Conflict, "command_interrupted", "A request with this Idempotency-Key began the command, and its answer is not known; the command is not run again. "+
		"See call_id for what it changed; apply or drop the layer, if it left one. To run the command again, use another key.").With("call_id", call)
	if _, err := d.layers.Get(call, sees); err != nil {
		return e.With("layer", nil)
	}
	return e.With("layer", call)
}

func busyOr(err error) error {
	if errors.Is(err, serve.ErrBusy) {
		return wire.Busy("too_many_commands", "Too many commands are running; try again later.")
	}
	return wire.CallsOr(err)
}

// maxTimeout bounds timeout_ms, in milliseconds.
const maxTimeout = 86_400_000

func commandOf(c *gin.Context) (req serve.Request, err error) {
	var b struct {
		Command   json.RawMessage   `json:"command"`
		SubtaskID *string           `json:"subtask_id"`
		Cwd       *string           `json:"cwd"`
		Env       map[string]string `json:"env"`
		Stdin     *string           `json:"stdin"`
		TimeoutMS *int64            `json:"timeout_ms"`
		Isolate   *string           `json:"isolate"`
		DryRun    bool              `json:"dry_run"`
	}
	if err := httpapi.DecodeJSON(c, &b); err != nil {
		return req, err
	}
	tags := httpapi.TagsOf(c)
	req = serve.Request{Args: commandLine(b.Command), Subtask: tags.SubtaskID, Actor: tags.Actor, Cwd: wspath.Root, Env: b.Env, DryRun: b.DryRun,
		RequestID: httpapi.RequestID(c), Sees: httpapi.CallerOf(c).Sees}
	if len(req.Args) == 0 || req.Args[0] == "" {
		return req, badField("command", "command is required: a text for sh, or a list of arguments.")
	}
	for _, a := range req.Args {
		if strings.IndexByte(a, 0) >= 0 {
			return req, badField("command", "command must not hold a NUL.")
		}
	}
	if b.SubtaskID != nil {
		if !task.ValidID(*b.SubtaskID) {
			return req, badField("subtask_id", "subtask_id is formed as a task id.")
		}
		req.Subtask = *b.SubtaskID
	}
	if b.Cwd != nil && *b.Cwd != "" && *b.Cwd != "/" {
		if req.Cwd, err = wspath.Parse(strings.TrimPrefix(*b.Cwd, "/workspace/"), wspath.AllowRoot, wspath.AllowTrailingSlash); err != nil {
			return req, err
		}
	}
	for name, value := range b.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") || strings.IndexByte(value, 0) >= 0 {
			return req, badField("env", "A name in env must not be empty and not hold = or a NUL, and no value a NUL.")
		}
	}
	if b.Stdin != nil {
		req.Stdin = *b.Stdin
	}
	if b.TimeoutMS != nil {
		if *b.TimeoutMS < 1 || *b.TimeoutMS > maxTimeout {
			return req, badField("timeout_ms", "timeout_ms must be from 1 to 86400000.")
		}
		req.Timeout = time.Duration(*b.TimeoutMS) * time.Millisecond
	}
	if b.Isolate != nil {
		if *b.Isolate != "require" && *b.Isolate != "try" {
			return req, badField("isolate", "isolate must be require or try.")
		}
		req.Require = *b.Isolate == "require"
	}
	return req, nil
}

type answerBody struct {
	ExitCode   *int           `json:"exit_code"`
	Stdout     string         `json:"stdout"`
	Stderr     string         `json:"stderr"`
	Truncated  bool           `json:"truncated"`
	TimedOut   bool           `json:"timed_out"`
	Commit     *string        `json:"commit"`
	Entries    []wire.Entry   `json:"entries"`
	Conflicts  []conflictBody `json:"conflicts"`
	NotApplied []skippedBody  `json:"not_applied"`
	CallID     *string        `json:"call_id"`
	Isolated   bool           `json:"isolated"`
	Patch      *string        `json:"patch,omitempty"`
}

func answerOf(a *serve.Answer) answerBody {
	out := answerBody{Stdout: a.Stdout, Stderr: a.Stderr, Truncated: a.Truncated, TimedOut: a.TimedOut, Entries: wire.EntriesOf(a.Entries),
		Conflicts: conflictsOf(a.Conflicts), NotApplied: skippedOf(a.Skipped), CallID: wire.Text(a.CallID), Isolated: a.Isolated}
	if !a.TimedOut {
		out.ExitCode = &a.ExitCode
	}
	if !a.Commit.IsZero() {
		out.Commit = wire.Text(a.Commit.String())
	}
	if a.Patch != nil {
		text := strings.ToValidUTF8(string(a.Patch), "\uFFFD")
		out.Patch = &text
	}
	return out
}

// commandEvents sends the output as it comes, and the answer at the end.
func (d *Dialect) commandEvents(c *gin.Context, ref *task.Ref, req serve.Request) error {
	ctx, cancel := context.WithCancel(c.Request.Context())
	defer cancel()
	events := make(chan httpapi.Event)
	send := func(name string, body any) {
		data, err := json.Marshal(body)
		if err != nil {
			return
		}
		select {
		case events <- httpapi.Event{Name: name, Data: data}:
		case <-ctx.Done():
		}
	}
	type outcome struct {
		a   *serve.Answer
		err error
	}
	begun, done := make(chan struct{}), make(chan outcome, 1)
	first := false // the command runs; set before begun is closed
	req.Started = func() {
		if !first {
			first = true
			close(begun)
		}
	}
	go func() {
		defer close(events)
		a, err := d.commands.Do(ctx, ref, req, func(stream string, text []byte) {
			send(stream, map[string]string{"text": strings.ToValidUTF8(string(text), "\uFFFD")})
		})
		done <- outcome{a, err}
		if !first {
			close(begun)
		}
		if err == nil {
			send("end", answerOf(a))
			return
		}
		if _, out := errors.AsType[*errs.Error](err); out {
			send("error", map[string]string{"error": errs.CodeOf(err), "detail": detailOf(err)})
		} else {
			send("error", map[string]string{"error": "internal", "detail": "The command could not be run."})
		}
	}()
	// A refusal before the command begins is an ordinary answer.
	select {
	case <-begun:
	case <-ctx.Done():
	}
	select {
	case o := <-done:
		if o.err != nil && !first {
			cancel()
			for range events { //nolint:revive // until its sender has ended
			}
			return busyOr(o.err)
		}
	default:
	}
	err := httpapi.StreamEvents(c, func(waiting context.Context) (httpapi.Event, error) {
		select {
		case e, ok := <-events:
			if !ok {
				return httpapi.Event{}, io.EOF
			}
			return e, nil
		case <-waiting.Done():
			return httpapi.Event{}, io.EOF
		}
	})
	cancel()
	for range events { // the task is held until the command has ended
	}
	return err
}

func detailOf(err error) string {
	if e, ok := errors.AsType[*errs.Error](err); ok && e.Kind != errs.Internal {
		return e.Detail
	}
	return "The command could not be run."
}
