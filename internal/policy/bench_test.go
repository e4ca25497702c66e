package policy

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkJudge is what the policy costs of a write of 10 KB of source code: with
// secrets on, and without any rule.
func BenchmarkJudge(b *testing.B) {
	files, err := filepath.Glob("../*/*.go")
	if err != nil {
		b.Fatal(err)
	}
	var texts [][]byte
	for _, name := range files {
		if text, err := os.ReadFile(name); err == nil && len(text) >= 10_000 {
			texts = append(texts, text[:10_000])
		}
	}
	for _, level := range []Level{Off, Refuse} {
		b.Run(string(level), func(b *testing.B) {
			book, err := New(Settings{Secrets: level})
			if err != nil {
				b.Fatal(err)
			}
			r := book.Of(nil, nil)
			for i := 0; b.Loop(); i++ {
				if r.None(Task{}) {
					continue
				}
				text := texts[i%len(texts)]
				if _, err := r.Judge(Task{}, Change{Path: "x.go", Size: int64(len(text)), Content: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
