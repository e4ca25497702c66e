package demo

import (
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"umbra/internal/client"
	"umbra/internal/render"
)

// demoFiles are the project that the demo works on (start), and the files as
// they are after each step, in a folder named after it.
//
//go:embed demo
var demoFiles embed.FS

func demoFile(name string) (string, error) {
	raw, err := demoFiles.ReadFile(path.Join("demo", name))
	return string(raw), err
}

// demoStep is what the demo did, as it is printed.
type demoStep struct {
	Actor   string  `json:"actor"`
	Subtask string  `json:"subtask,omitempty"`
	Does    string  `json:"does"`
	Commit  *string `json:"commit"`
}

// played is what the demo leaves.
type played struct {
	Workspace string     `json:"workspace"`
	Root      string     `json:"root"`
	Task      string     `json:"task_id"`
	Steps     []demoStep `json:"steps"`
	Server    string     `json:"server,omitempty"`
}

// The demo's subtasks. The second is the idea that fails.
const (
	demoTax   = "add-tax"
	demoCache = "cache-totals"
)

// play is one run of the demo. The server sees what it would see of an agent.
type play struct {
	client *client.Client
	pace   time.Duration // between steps
	onStep func(demoStep)
	done   played
}

// makeProject writes the project that the agents find.
func makeProject(root string) error {
	return fs.WalkDir(demoFiles, "demo/start", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(root, strings.TrimPrefix(strings.TrimPrefix(name, "demo/start"), "/"))
		if d.IsDir() {
			return os.MkdirAll(target, 0o777)
		}
		text, err := demoFiles.ReadFile(name)
		if err != nil {
			return err
		}
		return os.WriteFile(target, text, 0o666)
	})
}

// run plays everything on a project.
func (p *play) run(ctx context.Context, root string) error {
	var task client.Task
	body := map[string]any{"goal": "Show prices with tax", "workspace": root, "metadata": map[string]any{demoMark: true}}
	if _, err := p.client.JSON(ctx, client.Request{Method: http.MethodPost, Path: "/tasks", Body: body}, &task); err != nil {
		return err
	}
	p.done.Workspace, p.done.Task, p.done.Root = task.WorkspaceID, task.ID, root
	steps := []func(context.Context) error{
		p.writes("ada", demoTax, "writes src/tax.ts", "tax/src/tax.ts"),
		p.writes("ada", demoTax, "uses it in src/cart.ts", "tax/src/cart.ts"),
		p.renames("ada", demoTax, "src/format.ts", "src/money.ts", "tax/src/receipt.ts"),
		p.writes("bob", demoCache, "keeps totals in a cache, src/cache.ts and src/cart.ts", "cache/src/cache.ts", "cache/src/cart.ts"),
		p.edits("cache/src/cart.ts", "edited/src/cart.ts"),
		p.undoes,
		p.writes("ada", demoTax, "describes it in README.md", "docs/README.md"),
	}
	for i, step := range steps {
		if i > 0 && p.pace > 0 {
			select {
			case <-time.After(p.pace):
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if err := step(ctx); err != nil {
			return err
		}
	}
	_, err := p.client.JSON(ctx, client.Request{Method: http.MethodPatch, Path: client.Path("tasks", task.ID), Body: map[string]any{"status": "completed"}}, &task)
	return err
}

func (p *play) report(s demoStep) {
	p.done.Steps = append(p.done.Steps, s)
	p.onStep(s)
}

// batch does operations as one change set of a subtask.
func (p *play) batch(ctx context.Context, actor, subtask, does string, operations []map[string]any) error {
	var answer struct {
		Commit *string `json:"commit"`
	}
	_, err := p.client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("tasks", p.done.Task, "batch"),
		Body: map[string]any{"operations": operations, "message": does}, Subtask: subtask, Actor: actor}, &answer)
	if err != nil {
		return err
	}
	p.report(demoStep{Actor: actor, Subtask: subtask, Does: does, Commit: answer.Commit})
	return nil
}

// write is the operation that puts one of the demo's files in its place: the
// first folder of its name is the step's.
func write(name string) (map[string]any, error) {
	text, err := demoFile(name)
	_, place, _ := strings.Cut(name, "/")
	return map[string]any{"op": "write", "path": place, "content": text}, err
}

// writes is a step that writes files.
func (p *play) writes(actor, subtask, does string, names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		var operations []map[string]any
		for _, name := range names {
			op, err := write(name)
			if err != nil {
				return err
			}
			operations = append(operations, op)
		}
		return p.batch(ctx, actor, subtask, does, operations)
	}
}

// renames is a step that renames a file, and writes the one that names it.
func (p *play) renames(actor, subtask, from, to, user string) func(context.Context) error {
	return func(ctx context.Context) error {
		op, err := write(user)
		if err != nil {
			return err
		}
		does := fmt.Sprintf("renames %s to %s", from, to)
		return p.batch(ctx, actor, subtask, does, []map[string]any{{"op": "rename", "path": from, "new_path": to}, op})
	}
}

// edits is a user's edit on disk, not made through the server, of the content that
// is there.
func (p *play) edits(before, after string) func(context.Context) error {
	return func(ctx context.Context) error {
		was, err := demoFile(before)
		if err != nil {
			return err
		}
		is, err := demoFile(after)
		if err != nil {
			return err
		}
		_, place, _ := strings.Cut(after, "/")
		file := filepath.Join(p.done.Root, filepath.FromSlash(place))
		there, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if string(there) != was {
			return fmt.Errorf("%s is not as the demo left it", file)
		}
		if err := os.WriteFile(file, []byte(is), 0o666); err != nil {
			return err
		}
		var answer struct {
			Commit *string `json:"commit"`
		}
		if _, err := p.client.JSON(ctx, client.Request{Method: http.MethodPost, Path: client.Path("workspaces", p.done.Workspace, "sync")}, &answer); err != nil {
			return err
		}
		p.report(demoStep{Actor: "you", Does: "edit " + place + " on disk", Commit: answer.Commit})
		return nil
	}
}

// undoes is the revert of the idea that failed: first as a preview, then as
// that said.
func (p *play) undoes(ctx context.Context) error {
	route := client.Path("tasks", p.done.Task, "subtasks", demoCache, "revert")
	var plan, undone client.Reverted
	if _, err := p.client.JSON(ctx, client.Request{Method: http.MethodPost, Path: route, Body: map[string]any{"dry_run": true}}, &plan); err != nil {
		return err
	}
	var files []string
	for _, f := range plan.Files {
		files = append(files, f.Path+" "+f.Action)
	}
	p.report(demoStep{Actor: "umbra", Subtask: demoCache, Does: "previews the undo: " + strings.Join(files, ", ")})
	if _, err := p.client.JSON(ctx, client.Request{Method: http.MethodPost, Path: route, Body: map[string]any{"plan": plan.Plan}}, &undone); err != nil {
		return err
	}
	p.report(demoStep{Actor: "umbra", Subtask: demoCache, Does: fmt.Sprintf("undoes %s; your edit stays", render.Count(undone.Entries, "change", "changes")), Commit: undone.Commit})
	return nil
}

// demoTasks lists the tasks of demos.
func demoTasks(ctx context.Context, c *client.Client) ([]client.Task, error) {
	var list []client.Task
	for item, err := range client.Pages[client.Task](ctx, c, "/tasks", "tasks", nil, 200) {
		if err != nil {
			return nil, err
		}
		var marked struct {
			Metadata map[string]any `json:"metadata"`
		}
		if err := json.Unmarshal(item.Raw, &marked); err != nil {
			return nil, err
		}
		if marked.Metadata[demoMark] == true {
			list = append(list, item.Value)
		}
	}
	return list, nil
}
