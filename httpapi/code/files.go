package code

import (
	"context"

	"github.com/gin-gonic/gin"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/httpapi"
	"umbra/httpapi/wire"
	"umbra/internal/task"
	"umbra/internal/workspace"
	"umbra/internal/wspath"
)

// Output is where programs save files (contracts/scripts.md, file.save).
type Output interface {
	// Begin begins one run. Its task, if one is named, must be one that may
	// write now: NotFound "task_not_found", Conflict "task_ended", "task_paused".
	Begin(ctx context.Context, owner Owner) (Saver, error)
}

// Owner says for whom a run saves.
type Owner struct {
	By   workspace.By // without the task
	Task string       // the tag's, "" for none
	Sees task.Sees
	Goal string // of a task that is made for the run
}

// Saver is what one run saves. It is used by one goroutine at a time.
type Saver interface {
	// Save gives the file's absolute path; the program gets its error's text.
	Save(ctx context.Context, name string, content []byte) (string, error)
	Files() []SavedFile
	Task() string // that the saves belong to, "" for none
	End(ctx context.Context, ok bool)
}

// SavedFile is one file, as the run saved it last.
type SavedFile struct {
	Name   string // canonical, any bytes
	Path   string
	Bytes  int64
	Commit object.ID // zero: no save of the run changed it
}

// writtenFile is one file that a run saved.
type writtenFile struct {
	Name         string  `json:"name"`
	PathEncoding string  `json:"path_encoding,omitempty"`
	Path         string  `json:"path"`
	Bytes        int64   `json:"bytes"`
	Commit       *string `json:"commit"`
}

// saves is what a run saved in all; files is nil where programs have no file.
type saves struct {
	files []writtenFile
	task  string
}

// add puts it into a failed run's details.
func (s saves) add(details map[string]any) {
	if s.files != nil {
		details["files_written"] = s.files
	}
	if s.task != "" {
		details["task_id"] = s.task
	}
}

// saver begins what a run saves, nil where programs have no file. A tag's task
// is judged here, before the program runs.
func (d *Dialect) saver(c *gin.Context, p program) (Saver, error) {
	if d.o.Output == nil || !theirs(c) {
		return nil, nil
	}
	// A run may save often, under one idempotency key: only the record of its
	// answer has the key.
	by := wire.By(c, "")
	by.Source = message.Script
	return d.o.Output.Begin(c.Request.Context(), Owner{By: by, Task: httpapi.TagsOf(c).TaskID, Sees: sees(c), Goal: "Run " + p.name})
}

// savedOnce has begin, if it is not nil, called before the first save: a program changes
// nothing else.
func savedOnce(save func(context.Context, string, []byte) (string, error), begin func() error) func(context.Context, string, []byte) (string, error) {
	return func(ctx context.Context, name string, content []byte) (string, error) {
		if begin != nil {
			if err := begin(); err != nil {
				return "", err
			}
			begin = nil
		}
		return save(ctx, name, content)
	}
}

// saved ends it, and returns what was saved.
func (d *Dialect) saved(c *gin.Context, s Saver, ok bool) saves {
	if s == nil {
		return saves{}
	}
	s.End(c.Request.Context(), ok)
	out := saves{files: []writtenFile{}, task: s.Task()}
	for _, f := range s.Files() {
		w := writtenFile{Path: f.Path, Bytes: f.Bytes, Commit: commitText(f.Commit)}
		w.Name, w.PathEncoding = wspath.EncodeJSON(f.Name)
		out.files = append(out.files, w)
	}
	return out
}
