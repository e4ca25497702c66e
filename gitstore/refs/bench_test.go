package refs

import (
	"fmt"
	"testing"

	"umbra/gitstore/object"
	"umbra/internal/vfs"
)

// BenchmarkUpdate is what a publication costs: some tasks' heads, the shadow
// ref and the note, all durable.
func BenchmarkUpdate(b *testing.B) {
	for _, tasks := range []int{1, 16} {
		b.Run(fmt.Sprintf("tasks=%d", tasks), func(b *testing.B) {
			f, err := vfs.OS(b.TempDir())
			if err != nil {
				b.Fatal(err)
			}
			defer f.Close()
			if err := Init(f, "repo.git"); err != nil {
				b.Fatal(err)
			}
			s, err := Open(Options{FS: f, Repo: "repo.git"})
			if err != nil {
				b.Fatal(err)
			}
			note, err := OpenNote(f, "refs")
			if err != nil {
				b.Fatal(err)
			}
			defer note.Close()
			updates := make([]Update, tasks+1)
			for i := range tasks {
				updates[i].Name = fmt.Sprintf("%st%d/head", TasksPrefix, i)
			}
			updates[tasks].Name = ShadowRef
			for n := 1; b.Loop(); n++ {
				for i := range updates {
					updates[i].Noted, updates[i].New = updates[i].New, object.ID{byte(n), byte(n >> 8), byte(n >> 16), 1}
				}
				foreign, err := s.Update(b.Context(), updates)
				if err != nil || len(foreign) > 0 {
					b.Fatal(err, foreign)
				}
				if err := note.Append(updates); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
