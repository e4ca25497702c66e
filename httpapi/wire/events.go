package wire

import (
	"context"
	"encoding/json"
	"strconv"

	"github.com/gin-gonic/gin"

	"umbra/httpapi"
	"umbra/internal/task"
)

// eventData is the data of a change or revert.
type eventData struct {
	Seq       uint64  `json:"seq"`
	Commit    string  `json:"commit"`
	TaskID    *string `json:"task_id"`
	SubtaskID *string `json:"subtask_id"`
	Source    string  `json:"source"`
	RequestID *string `json:"request_id"`
	Entries   []Entry `json:"entries"`
}

// StreamStart reads where a client's stream begins.
func StreamStart(c *gin.Context) (int64, error) {
	after, given, err := httpapi.LastEventID(c)
	if err != nil || given {
		return after, err
	}
	return task.FromNow, nil
}

// Next gives a stream's next event as it goes over the wire.
func Next(ctx context.Context, st *task.Stream) (httpapi.Event, error) {
	ev, err := st.Next(ctx)
	if err != nil {
		return httpapi.Event{}, err
	}
	out := httpapi.Event{Name: string(ev.Kind)}
	var data any
	switch ev.Kind {
	case task.EventTask:
		data = TaskOf(ev.Task)
	case task.EventLagged:
		data = map[string]uint64{"after": ev.After}
	default:
		m := ev.Commit.Message
		out.ID = strconv.FormatUint(ev.Commit.Seq, 10)
		data = eventData{Seq: ev.Commit.Seq, Commit: ev.Commit.ID.String(), TaskID: Text(m.TaskID), SubtaskID: Text(m.SubtaskID),
			Source: string(m.Source), RequestID: Text(m.RequestID), Entries: EntriesOf(ev.Entries)}
	}
	if out.Data, err = json.Marshal(data); err != nil {
		return httpapi.Event{}, err
	}
	return out, nil
}
