package refs

import (
	"fmt"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/vfs"
)

// BenchmarkUpdate is what a publication costs: some tasks' heads, the shadow
// ref and the note, all durable.
func BenchmarkUpdate(b *testing.B) {
	for _, tasks := range []int{1, 16} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			f, err := vfs.OS(b.TempDir())
			need.NoError(b, err)
			defer f.Close()
			need.NoError(b, Init(f, "repo.git"))
			s, err := Open(Options{FS: f, Repo: "repo.git"})
			need.NoError(b, err)
			note, err := OpenNote(f, "refs")
			need.NoError(b, err)
			defer note.Close()
			updates, values := make([]Update, tasks+1), make([]Value, tasks+1)
			for i := range tasks {
				updates[i].Name = fmt.Sprintf("%st%d/head", TasksPrefix, i)
			}
			updates[tasks].Name = ShadowRef
			for n := 1; b.Loop(); n++ {
				for i := range updates {
					updates[i].Before, updates[i].New = was(updates[i].New), object.ID{byte(n), byte(n >> 8), byte(n >> 16), 1}
				}
				for i := range updates {
					values[i] = Value{updates[i].Name, updates[i].New}
				}
				need.NoError(b, note.Append(uint64(n), values...))
				foreign, failed := s.Update(b.Context(), updates)
				if len(failed)+len(foreign) > 0 {
					b.Fatal(failed, foreign)
				}
				for i := range updates {
					note.Moved(updates[i].Name)
				}
			}
		})
	}
}
