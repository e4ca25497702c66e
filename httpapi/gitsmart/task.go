package gitsmart

import (
	"bytes"
	"errors"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"umbra/gitstore"
	"umbra/httpapi"
	"umbra/internal/errs"
	"umbra/internal/gitcmd"
	"umbra/internal/task"
)

// openTask gives the route's task with everything visible to git. The caller
// releases it.
func (d *Dialect) openTask(c *gin.Context) (*task.Ref, error) {
	id, err := httpapi.Param(c, "id")
	if err != nil {
		return nil, err
	}
	if !task.ValidID(id) {
		return nil, errs.New(errs.NotFound, "task_not_found", "The task does not exist.")
	}
	r, err := d.tasks.Get(c.Request.Context(), id, httpapi.CallerOf(c).Sees)
	if err != nil {
		return nil, err
	}
	err = r.InHistory()
	if err == nil {
		err = r.Store().Publish(c.Request.Context())
	}
	if err != nil {
		r.Release()
		return nil, err
	}
	return r, nil
}

// bundle answers with the history up to the task's head, and the task's refs
// (git-bundle(1)). Where older history was dropped, a bundle of all that is left
// could not be cloned: it is what came after the task's base, for who has that.
func (d *Dialect) bundle(c *gin.Context) error {
	r, err := d.openTask(c)
	if err != nil {
		return err
	}
	defer r.Release()
	if r.Task.BaseDropped() {
		return gitstore.ErrDropped()
	}
	done, err := d.turn(c.Request.Context())
	if err != nil {
		return err
	}
	defer done()
	base := "refs/umbra/tasks/" + r.Task.ID + "/"
	args := []string{"bundle", "create", "--quiet", "-", base + "base", base + "head", base + "info"}
	if !r.Store().Boundary().Whole() {
		args = append(args, "^"+r.Task.Base.String())
	}
	cmd, err := gitcmd.Command(c.Request.Context(), r.GitDir(), args...)
	if err != nil {
		return needGit(err)
	}
	noteClone(c, r.Workspace, "bundle")
	head(c, "application/x-git-bundle")
	c.Header("Content-Disposition", `attachment; filename="`+r.Task.ID+`.bundle"`)
	cmd.Stdout = c.Writer
	return started(c, gitcmd.Run(cmd))
}

func needGit(err error) error {
	if errors.Is(err, gitcmd.ErrMissing) {
		return errs.New(errs.Unavailable, "git_missing", "git is not installed on the server's machine.")
	}
	return err
}

// patches answers with a mailbox of the task's own commits, oldest first, that
// git am takes. Commits that change no file (an empty folder) are left out.
func (d *Dialect) patches(c *gin.Context) error {
	r, err := d.openTask(c)
	if err != nil {
		return err
	}
	defer r.Release()
	st := r.Store()
	recs, err := st.TaskRecords(c.Request.Context(), r.Task.ID)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, rec := range recs {
		changes, err := changesTree(c, st, rec.Commit)
		if err != nil {
			return err
		}
		if changes {
			list.WriteString(rec.Commit.String() + "\n")
		}
	}
	c.Header("Content-Disposition", `attachment; filename="`+r.Task.ID+`.mbox"`)
	if list.Len() == 0 {
		c.Data(http.StatusOK, "application/mbox", nil)
		return nil
	}
	done, err := d.turn(c.Request.Context())
	if err != nil {
		return err
	}
	defer done()
	cmd, err := gitcmd.Command(c.Request.Context(), r.GitDir(), "log", "--no-walk=unsorted", "--pretty=email", "--patch-with-stat",
		"--binary", "--full-index", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color", "--stdin")
	if err != nil {
		return needGit(err)
	}
	noteClone(c, r.Workspace, "patches")
	head(c, "application/mbox")
	cmd.Stdin, cmd.Stdout = strings.NewReader(list.String()), c.Writer
	return started(c, gitcmd.Run(cmd))
}

func changesTree(c *gin.Context, st *gitstore.Store, id gitstore.ID) (bool, error) {
	commit, err := st.ReadCommit(c.Request.Context(), id)
	if err != nil {
		return false, err
	}
	before, err := st.SnapshotOf(c.Request.Context(), commit.Parent)
	return before.Tree() != commit.Tree, err
}
