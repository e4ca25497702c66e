// Command client lives a task's life by a client that is generated from the
// document: what the compiler accepts here is what the document promises.
//
//	client URL FOLDER
//
// It prints what it saw, as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"

	"client/api"
)

func main() {
	seen, err := run(context.Background(), os.Args[1], os.Args[2])
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(seen)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// must tells what an answer was instead of the wanted one.
func must[T any](what string, wanted *T, status string, body []byte) (*T, error) {
	if wanted == nil {
		return nil, fmt.Errorf("%s: %s %s", what, status, body)
	}
	return wanted, nil
}

func to[T any](v T) *T { return &v }

func run(ctx context.Context, url, folder string) (map[string]any, error) {
	client, err := api.NewClientWithResponses(url)
	if err != nil {
		return nil, err
	}
	created, err := client.CreateTaskWithResponse(ctx, nil, api.TaskCreate{Goal: "try the client", Workspace: folder})
	if err != nil {
		return nil, err
	}
	task, err := must("task", created.JSON201, created.Status(), created.Body)
	if err != nil {
		return nil, err
	}
	seen := map[string]any{}
	put := func(data string) (*api.WriteTaskContentResponse, error) {
		return client.WriteTaskContentWithBodyWithResponse(ctx, task.TaskId,
			&api.WriteTaskContentParams{Path: "src/app.ts", XSubtaskId: to("s1"), IfNoneMatch: to("*")},
			"application/octet-stream", strings.NewReader(data))
	}
	written, err := put("one\n")
	if err != nil {
		return nil, err
	}
	first, err := must("write", written.JSON201, written.Status(), written.Body)
	if err != nil {
		return nil, err
	}
	seen["commit"] = first.Commit
	taken, err := put("two\n")
	if err != nil {
		return nil, err
	}
	refused, err := must("second write", taken.JSON412, taken.Status(), taken.Body)
	if err != nil {
		return nil, err
	}
	seen["refused"] = map[string]any{"status": taken.StatusCode(), "code": refused.Error}

	batch, err := client.BatchTaskContentWithResponse(ctx, task.TaskId, nil, api.BatchTaskContentJSONRequestBody{
		SubtaskId: to("s2"),
		Operations: []api.TaskBatchOperation{
			{Op: "write", Path: to("b.txt"), Content: to("b\n")},
			{Op: "rename", Path: to("b.txt"), NewPath: to("docs/b.txt")},
		},
	})
	if err != nil {
		return nil, err
	}
	made, err := must("batch", batch.JSON200, batch.Status(), batch.Body)
	if err != nil {
		return nil, err
	}
	var operations []string
	for _, entry := range made.Entries {
		operations = append(operations, string(entry.Operation))
	}
	seen["operations"] = operations
	return seen, look(ctx, client, task.TaskId, folder, seen)
}

// look reads the task's work, and undoes a part of it.
func look(ctx context.Context, client *api.ClientWithResponses, id, folder string, seen map[string]any) error {
	files, err := client.ListTaskFilesWithResponse(ctx, id, nil)
	if err != nil {
		return err
	}
	summary, err := must("files", files.JSON200, files.Status(), files.Body)
	if err != nil {
		return err
	}
	var names []string
	for _, f := range summary.Files {
		names = append(names, string(f.Status)+" "+f.Path)
	}
	seen["files"] = names

	asJSON := func(_ context.Context, req *http.Request) error {
		req.Header.Set("Accept", "application/json")
		return nil
	}
	one, err := client.DiffTaskFileWithResponse(ctx, id, "src/app.ts", nil, asJSON)
	if err != nil {
		return err
	}
	diff, err := must("diff", one.JSON200, one.Status(), one.Body)
	if err != nil {
		return err
	}
	seen["additions"] = diff.Additions
	patch, err := client.DiffTaskWithResponse(ctx, id, nil)
	if err != nil {
		return err
	}
	seen["patch"] = string(patch.Body)
	content, err := client.ReadTaskContentWithResponse(ctx, id, &api.ReadTaskContentParams{Path: "src/app.ts"})
	if err != nil {
		return err
	}
	seen["text"] = string(content.Body)

	preview, err := client.RevertSubtaskWithResponse(ctx, id, "s1", nil, api.TaskRevertPartRequest{DryRun: to(true)})
	if err != nil {
		return err
	}
	planned, err := must("preview", preview.JSON200, preview.Status(), preview.Body)
	if err != nil {
		return err
	}
	var plan []string
	for _, f := range planned.Files {
		plan = append(plan, string(f.Action)+" "+f.Path)
	}
	seen["planned"] = plan
	undo, err := client.RevertSubtaskWithResponse(ctx, id, "s1", nil, api.TaskRevertPartRequest{Plan: planned.Plan})
	if err != nil {
		return err
	}
	undone, err := must("revert", undo.JSON200, undo.Status(), undo.Body)
	if err != nil {
		return err
	}
	seen["undone"] = undone.EntriesReverted

	missing, err := client.GetTaskWithResponse(ctx, "no-such-task")
	if err != nil {
		return err
	}
	gone, err := must("missing task", missing.JSON404, missing.Status(), missing.Body)
	if err != nil {
		return err
	}
	seen["missing"] = gone.Error
	patched, err := client.PatchTaskWithResponse(ctx, id, api.PatchTaskJSONRequestBody{Status: to(api.TaskStatus("completed"))})
	if err != nil {
		return err
	}
	ended, err := must("end", patched.JSON200, patched.Status(), patched.Body)
	if err != nil {
		return err
	}
	seen["status"] = ended.Status
	// Another dialect, another shape.
	session, err := client.CreateSessionWithResponse(ctx, nil, api.CreateSessionJSONRequestBody{WorkspaceRoot: folder + "/not-there"})
	if err != nil {
		return err
	}
	refused, err := must("session", session.JSON400, session.Status(), session.Body)
	if err != nil {
		return err
	}
	seen["session"] = fmt.Sprintf("%T", refused.Error)
	return nil
}
