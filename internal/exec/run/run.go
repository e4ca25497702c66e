// Package run is umbra exec: a command in a layer, or live, as a call.
package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"umbra/internal/client"
	"umbra/internal/exec"
	"umbra/internal/layer"
)

// Exit statuses of umbra exec itself.
const (
	Unavailable = 69 // EX_UNAVAILABLE (sysexits.h): no server, no such task, no layer
	Conflicts   = 75 // EX_TEMPFAIL
)

// Options are the flags of umbra exec.
type Options struct {
	Task, Subtask  string
	Agent, Session string
	// Call is an open call that the command is a part of: its layer is that call's, and
	// the process that began the call ends it. Where none can be had the command runs without,
	// also if no server runs: a hook must not hold an agent up.
	Call         string
	Dir          string
	Fork         string // run in this fork; Dir is not used
	DryRun, Live bool
	Require      bool // --isolate=require
	JSON         bool
	Command      []string

	Server         string // for UMBRA_SERVER
	Client         *client.Client
	Stdout, Stderr io.Writer
}

type begun struct {
	CallID    string  `json:"call_id"`
	TaskID    string  `json:"task_id"`
	SubtaskID *string `json:"subtask_id"`
	Workspace string  `json:"workspace"`
	Dir       string  `json:"dir"`
	Over      string  `json:"over"`
	Below     string  `json:"below"`
}

type applied struct {
	CallID      string            `json:"call_id"`
	Commit      *string           `json:"commit"`
	Entries     []json.RawMessage `json:"entries"`
	Conflicts   []json.RawMessage `json:"conflicts"`
	ConflictRef *string           `json:"conflicts_ref"`
	NotApplied  []struct {
		Path   string `json:"path"`
		Reason string `json:"reason"`
	} `json:"not_applied"`
	Patch string `json:"patch"`
}

// result is the last line of --json.
type result struct {
	ExitCode  int               `json:"exit_code"`
	CallID    string            `json:"call_id"`
	Commit    *string           `json:"commit"`
	Entries   []json.RawMessage `json:"entries"`
	Conflicts []json.RawMessage `json:"conflicts"`
	Layer     *string           `json:"layer"`
}

func (o *Options) say(format string, args ...any) {
	fmt.Fprintf(o.Stderr, "umbra: exec: "+format+"\n", args...)
}

// Run runs the command and returns the exit status. Whatever the error, the
// status says it too.
func Run(ctx context.Context, o Options) int {
	r := &result{Entries: []json.RawMessage{}, Conflicts: []json.RawMessage{}}
	r.ExitCode = o.run(ctx, r)
	if o.JSON {
		if raw, err := json.Marshal(r); err == nil {
			fmt.Fprintf(o.Stderr, "%s\n", raw)
		}
	}
	return r.ExitCode
}

// In runs the command in a fork, and returns the exit status. Without a task, its
// changes belong to the only one at work in the fork, else to a new one that is
// complete afterwards.
func In(ctx context.Context, o Options) int {
	var list struct {
		Tasks []struct {
			ID string `json:"task_id"`
		} `json:"tasks"`
	}
	own := false
	if o.Task == "" {
		_, err := o.Client.JSON(ctx, client.Request{Path: "/tasks", Query: map[string][]string{"workspace": {o.Fork}, "status": {"executing"}}}, &list)
		if err == nil && len(list.Tasks) == 1 {
			o.Task = list.Tasks[0].ID
		} else if err == nil {
			var made struct {
				ID string `json:"task_id"`
			}
			own = true
			_, err = o.Client.JSON(ctx, client.Request{Method: "POST", Path: "/tasks", Body: map[string]any{"workspace": o.Fork, "goal": "umbra in"}}, &made)
			o.Task = made.ID
		}
		if err != nil {
			o.say("%v", err)
			return Unavailable
		}
	}
	status := Run(ctx, o)
	if own {
		if _, err := o.Client.JSON(ctx, client.Request{Method: "PATCH", Path: client.Path("tasks", o.Task), Body: map[string]any{"status": "completed"}}, nil); err != nil {
			o.say("the task %s is not ended: %v", o.Task, err)
		}
	}
	return status
}

func (o *Options) run(ctx context.Context, r *result) int {
	if o.Call != "" {
		return o.part(ctx, r)
	}
	if !o.Live {
		status, done := o.layered(ctx, r)
		if done {
			return status
		}
	}
	if o.DryRun {
		o.say("--dry-run needs a layer, which is not available here")
		return Unavailable
	}
	return o.live(ctx, r)
}

// layered runs the command in a layer. done is false where there is none.
func (o *Options) layered(ctx context.Context, r *result) (status int, done bool) {
	no := func(err error) (int, bool) {
		if o.Require {
			o.say("%v", err)
			return Unavailable, true
		}
		o.say("%v; the command runs without a layer", err)
		return 0, false
	}
	if err := supported(); err != nil {
		return no(err)
	}
	var b begun
	if err := o.begin(ctx, "/layers", &b); err != nil {
		if client.CodeOf(err) == "no_layer" || o.Call != "" {
			return no(err)
		}
		o.say("%v", err)
		return Unavailable, true
	}
	r.CallID, r.Layer = b.CallID, &b.CallID
	if o.Fork != "" {
		o.Dir = b.Workspace
	}
	release, err := exec.Hold(b.Dir)
	if err == nil {
		defer release()
		stop := o.touch(ctx, b.CallID)
		defer stop()
		var exit layer.Exit
		exit, err = layer.Run(layer.Command{Root: b.Workspace, Over: b.Over, Below: b.Below, Upper: filepath.Join(b.Dir, "upper"), Work: filepath.Join(b.Dir, "work"), Dir: o.Dir,
			Args: o.Command, Env: o.env(&b), Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr},
			Started: func(pid int) {
				if b.Over == "" {
					return
				}
				if err := exec.Began(b.Dir, pid); err != nil {
					o.say("changes of the parent's files may be seen: %v", err)
				}
			}})
		stop()
		release()
		if err == nil {
			return o.finish(ctx, r, &b, exit), true
		}
	}
	if failed := o.drop(ctx, b.CallID); failed != nil {
		o.say("the empty layer %s could not be dropped: %v", b.CallID, failed)
	}
	r.CallID, r.Layer = "", nil
	return no(err)
}

// part runs the command as a part of the call Call.
func (o *Options) part(ctx context.Context, r *result) int {
	if status, done := o.layered(ctx, r); done {
		return status
	}
	r.CallID = o.Call
	exit, err := layer.Run(layer.Command{Dir: o.Dir, Args: o.Command, Env: os.Environ(), Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, Linger: true})
	if err != nil {
		o.say("%v", err)
		return Unavailable
	}
	if exit.Failure != "" {
		o.say("%s", exit.Failure)
	}
	return exit.Status
}

// finish applies the layer, or shows it.
func (o *Options) finish(ctx context.Context, r *result, b *begun, exit layer.Exit) int {
	if exit.Failure != "" {
		o.say("%s", exit.Failure)
	}
	var a applied
	body := map[string]any{"exit_code": exit.Status}
	if o.DryRun {
		body["dry_run"] = true
	}
	_, err := o.Client.JSON(ctx, client.Request{Method: "POST", Path: client.Path("layers", b.CallID, "apply"), Body: body}, &a)
	if err != nil {
		if client.CodeOf(err) != "" {
			o.say("the command's changes are not applied: %v", err)
			o.say("they are kept: umbra exec --apply %s, or --drop %s", b.CallID, b.CallID)
		} else { // the server may have decided it
			o.say("it is not known whether the command's changes are applied: %v", err)
			o.say("if umbra exec --layers lists them, they are kept: umbra exec --apply %s, or --drop %s", b.CallID, b.CallID)
		}
		if exit.Status == 0 {
			return Unavailable
		}
		return exit.Status
	}
	r.Commit, r.Entries, r.Conflicts, r.Layer = a.Commit, a.Entries, a.Conflicts, nil
	if o.DryRun {
		if err := o.drop(ctx, b.CallID); err != nil {
			o.say("the layer %s could not be dropped: %v", b.CallID, err)
			r.Layer = &b.CallID
		}
		if _, err := io.WriteString(o.Stdout, a.Patch); err != nil {
			o.say("%v", err)
		}
		o.say("%d change%s, not applied", len(a.Entries), plural(len(a.Entries)))
	}
	return o.report(&a, exit.Status)
}

func plural(n int) string {
	if n == 1 {
		return ""
	}
	return "s"
}

// report lists what could not be applied, and returns the exit status.
func (o *Options) report(a *applied, status int) int {
	for _, x := range a.NotApplied {
		o.say("not applied: %q (%s)", x.Path, x.Reason)
	}
	for _, raw := range a.Conflicts {
		var c struct{ Path, Reason string }
		if json.Unmarshal(raw, &c) == nil {
			o.say("conflict: %q (%s)", c.Path, c.Reason)
		}
	}
	if len(a.Conflicts) == 0 {
		return status
	}
	if a.ConflictRef != nil {
		o.say("the command's versions are kept at %s", *a.ConflictRef)
	}
	if status == 0 {
		return Conflicts
	}
	return status
}

// live runs the command as an ordinary call.
func (o *Options) live(ctx context.Context, r *result) int {
	var b begun
	if err := o.begin(ctx, "/calls", &b); err != nil {
		o.say("%v", err)
		return Unavailable
	}
	r.CallID = b.CallID
	stop := o.touch(ctx, b.CallID)
	exit, err := layer.Run(layer.Command{Dir: o.Dir, Args: o.Command, Env: o.env(&b), Files: [3]*os.File{os.Stdin, os.Stdout, os.Stderr}, Linger: true})
	stop()
	state := "ok"
	if err != nil || exit.Status != 0 {
		state = "failed"
	}
	var a struct {
		Commits []string          `json:"commits"`
		Entries []json.RawMessage `json:"entries"`
	}
	_, ended := o.Client.JSON(ctx, client.Request{Method: "POST", Path: client.Path("calls", b.CallID, "end"), Body: map[string]any{"status": state, "exit_code": exit.Status}}, &a)
	if ended != nil {
		o.say("the call could not be ended: %v", ended)
	} else {
		if r.Entries = a.Entries; len(a.Commits) > 0 {
			r.Commit = &a.Commits[len(a.Commits)-1]
		}
	}
	if err != nil {
		o.say("%v", err)
		return Unavailable
	}
	if exit.Failure != "" {
		o.say("%s", exit.Failure)
	}
	return exit.Status
}

func (o *Options) begin(ctx context.Context, path string, b *begun) error {
	sum := sha256.Sum256([]byte(strings.Join(o.Command, "\x00")))
	body := map[string]any{"cwd": o.Dir, "tool": "exec", "command_sha256": hex.EncodeToString(sum[:])}
	if o.Call != "" {
		body = map[string]any{"call_id": o.Call, "begun": true}
	}
	if o.Fork != "" {
		delete(body, "cwd")
		body["workspace_id"] = o.Fork
	}
	for name, value := range map[string]string{"task_id": o.Task, "subtask_id": o.Subtask, "agent": o.Agent, "agent_session": o.Session} {
		if value != "" {
			body[name] = value
		}
	}
	own := o.Call == "" && o.Fork == ""
	if own {
		body["open"] = false
	}
	_, err := o.Client.JSON(ctx, client.Request{Method: "POST", Path: path, Body: body}, b)
	if own && client.CodeOf(err) == "workspace_not_found" {
		delete(body, "open")
		if _, err = o.Client.JSON(ctx, client.Request{Method: "POST", Path: path, Body: body}, b); err == nil {
			o.say("%s was in no workspace; %s is opened as one", o.Dir, b.Workspace)
		}
	}
	if client.CodeOf(err) == "task_other_workspace" && o.virtual(ctx) {
		err = fmt.Errorf("the task %s is virtual: it has no directory to run a command in; POST /tasks/%s/exec gives it one, or make a copy with umbra fork --kind copy", o.Task, o.Task)
	}
	if err == nil && b.CallID == "" {
		err = errors.New("the server's answer has no call_id")
	}
	return err
}

// virtual reports whether the task's workspace has no directory.
func (o *Options) virtual(ctx context.Context) bool {
	var t struct {
		Kind string `json:"kind"`
	}
	_, err := o.Client.JSON(ctx, client.Request{Path: client.Path("tasks", o.Task)}, &t)
	return err == nil && t.Kind == "virtual"
}

// touch keeps a call open while its command runs.
func (o *Options) touch(ctx context.Context, id string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		t := time.NewTicker(20 * time.Second) // the least time that a call may have is a minute
		defer t.Stop()
		for {
			select {
			case <-t.C:
				_, _ = o.Client.JSON(ctx, client.Request{Method: "POST", Path: client.Path("calls", id, "touch")}, nil)
			case <-ctx.Done():
				return
			}
		}
	}()
	return cancel
}

// env is this process's environment, and the call's.
func (o *Options) env(b *begun) []string {
	subtask := ""
	if b.SubtaskID != nil {
		subtask = *b.SubtaskID
	}
	own := []string{"UMBRA_CALL=" + b.CallID, "UMBRA_TASK=" + b.TaskID, "UMBRA_SUBTASK=" + subtask, "UMBRA_SERVER=" + o.Server}
	if o.Fork != "" {
		own = append(own, "UMBRA_WORKSPACE="+o.Fork)
	}
	var out []string
next:
	for _, v := range os.Environ() {
		for _, x := range own {
			if strings.HasPrefix(v, x[:strings.IndexByte(x, '=')+1]) {
				continue next
			}
		}
		out = append(out, v)
	}
	return append(out, own...)
}

func (o *Options) drop(ctx context.Context, id string) error {
	res, err := o.Client.Do(ctx, client.Request{Method: "DELETE", Path: client.Path("layers", id)})
	if err != nil {
		return err
	}
	return res.Body.Close()
}

// Drop drops a layer.
func (o *Options) Drop(ctx context.Context, id string) error {
	if err := o.drop(ctx, id); err != nil || !o.JSON {
		return err
	}
	return json.NewEncoder(o.Stdout).Encode(struct {
		Layer   string `json:"layer"`
		Dropped bool   `json:"dropped"`
	}{id, true})
}

// Apply applies a layer that was left.
func (o *Options) Apply(ctx context.Context, id string) (status int, err error) {
	var a applied
	if _, err := o.Client.JSON(ctx, client.Request{Method: "POST", Path: client.Path("layers", id, "apply")}, &a); err != nil {
		return 0, err
	}
	status = o.report(&a, 0)
	if o.JSON {
		raw, err := json.Marshal(&result{ExitCode: status, CallID: a.CallID, Commit: a.Commit, Entries: a.Entries, Conflicts: a.Conflicts})
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(o.Stderr, "%s\n", raw)
	}
	return status, nil
}

// List prints the layers that are not applied.
func (o *Options) List(ctx context.Context) error {
	var list struct {
		Layers []struct {
			Layer, Workspace, Begun string
			TaskID                  string `json:"task_id"`
			Running                 bool
		} `json:"layers"`
	}
	raw, err := o.Client.JSON(ctx, client.Request{Path: "/layers"}, &list)
	if err != nil {
		return err
	}
	if o.JSON {
		_, err := fmt.Fprintf(o.Stdout, "%s\n", strings.TrimSpace(string(raw)))
		return err
	}
	for _, l := range list.Layers {
		state := "left"
		if l.Running {
			state = "running"
		}
		if _, err := fmt.Fprintf(o.Stdout, "%s\t%s\t%s\t%s\t%s\n", l.Layer, state, l.Begun, l.TaskID, l.Workspace); err != nil {
			return err
		}
	}
	return nil
}

// supported reports whether this system has layers at all.
func supported() error { return layer.Supported() }
