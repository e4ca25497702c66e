package replay

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// Exec is how a step's command ended.
type Exec struct {
	Status int    `json:"status"`
	Output string `json:"output"` // the end of what it said
	Millis int64  `json:"duration_ms"`
}

// maxSaid bounds what is kept of a command's output.
const maxSaid = 16 << 10

// tail keeps the end of what is written to it.
type tail struct{ b []byte }

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*maxSaid {
		t.b = append(t.b[:0], t.b[len(t.b)-maxSaid:]...)
	}
	return len(p), nil
}

func (t *tail) String() string {
	if len(t.b) > maxSaid {
		return string(t.b[len(t.b)-maxSaid:])
	}
	return string(t.b)
}

// exec runs the command in the checkout.
func (r *run) exec(c *commit, s *Step) (*Exec, error) {
	cmd := exec.CommandContext(r.ctx, "sh", "-c", r.o.Exec)
	cmd.Dir = r.state.disk
	cmd.Env = append(os.Environ(), "UMBRA_STEP="+strconv.Itoa(s.Number), "UMBRA_COMMIT="+s.Commit, "UMBRA_TASK_ID="+r.o.Task,
		"UMBRA_SUBTASK_ID="+c.msg.SubtaskID, "UMBRA_PATH="+strings.Join(s.Paths, "\n"))
	var said tail
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	err := cmd.Run()
	out := &Exec{Output: said.String(), Millis: time.Since(began).Milliseconds()}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if out.Status = exit.ExitCode(); out.Status == 0 {
			out.Status = 1
		}
		return out, r.ctx.Err()
	}
	return out, err
}
