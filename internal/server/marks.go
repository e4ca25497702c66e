package server

import (
	"log/slog"

	"umbra/gitstore"
	"umbra/gitstore/message"
	"umbra/gitstore/sink"
	"umbra/internal/state"
)

// marks has the marks of idempotency keys written with the commits and tasks of the
// requests that have them, in workspaces whose log is shared with the records.
func marks(db *state.DB, log *slog.Logger, o *gitstore.Options) {
	records := func(rows []state.Row, err error) []sink.Record {
		if err != nil {
			log.Error("an idempotency key is not marked", "error", err)
		}
		out := make([]sink.Record, len(rows))
		for i, r := range rows {
			out[i] = sink.Record{Bucket: r.Bucket, Key: []byte(r.Key), Value: r.Value}
		}
		return out
	}
	o.CommitRecords = func(m *message.Message) []sink.Record {
		switch {
		case m.IdempotencyKey == "":
			return nil
		case m.Source == message.Rollback, m.Source == message.External:
			return records(db.Unmark(m.IdempotencyKey)) // it takes the commit back
		}
		return records(db.Mark(m.IdempotencyKey))
	}
	o.TaskRecords = func(t gitstore.Task) []sink.Record {
		if t.Info.IdempotencyKey == "" {
			return nil
		}
		return records(db.Mark(t.Info.IdempotencyKey))
	}
}
