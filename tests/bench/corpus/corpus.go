// Package corpus is the project that every subject of the benchmarks works on:
// text files of a few hundred bytes to four kilobytes in directories of fifty, and
// small edits of them, the same for every subject and in every round.
package corpus

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

const (
	inFolder = 50 // files
	inParent = 20 // folders
	// lineWords and the bounds of lines give files of 1.8 KB on average.
	lineWords          = 6
	minLines, maxLines = 8, 72
)

// words are what lines are made of; text of them compresses about as source
// code does.
var words = [...]string{"return", "func", "context", "error", "nil", "path", "range", "value", "index", "struct",
	"import", "string", "append", "length", "buffer", "reader", "writer", "commit", "branch", "object",
	"tree", "blob", "switch", "default", "package", "const", "result", "handler", "request", "response",
	"client", "server"}

// Path gives the path of the i-th file.
func Path(i int) string {
	folder := i / inFolder
	return fmt.Sprintf("pkg%03d/mod%02d/file%02d.txt", folder/inParent, folder%inParent, i%inFolder)
}

// pool holds the lines that all files are made of. To put a file together from
// lines costs a microsecond; anything dearer would show in the rates of many
// clients, who make their files while others are measured.
var pool = makePool()

const poolLines = 1 << 12

func makePool() [][]byte {
	rng := rand.New(rand.NewPCG(0, 0x756d627261))
	lines := make([][]byte, poolLines)
	for n := range lines {
		var line []byte
		for w := range lineWords {
			if w > 0 {
				line = append(line, ' ')
			}
			line = append(line, words[rng.IntN(len(words))]...)
			if w%3 == 2 {
				line = strconv.AppendUint(line, rng.Uint64N(1000), 10)
			}
		}
		lines[n] = line
	}
	return lines
}

// Content gives the i-th file in a version: version 0 is the baseline's, each
// other differs from it in one line.
func Content(i int, version uint64) []byte {
	var rng rand.PCG
	rng.Seed(uint64(i), 0x756d627261)
	lines := minLines + int(rng.Uint64()%(maxLines-minLines))
	edited := -1
	if version > 0 {
		edited = int(version % uint64(lines))
	}
	text := make([]byte, 0, lines*lineWords*8)
	for n := range lines {
		text = append(text, pool[rng.Uint64()%poolLines]...)
		if n == edited {
			text = strconv.AppendUint(append(text, " edit "...), version, 10)
		}
		text = append(text, '\n')
	}
	return text
}

// Change is one small edit of one file.
type Change struct {
	Path string
	Data []byte // the whole file as it is to be
}

// Sequence gives changes of a project of some files without end. Two of the
// same seed give the same, and clients of one never touch the same file.
type Sequence struct {
	files, clients, client int
	rng                    *rand.Rand
}

// NewSequence is what one of several clients does.
func NewSequence(files, client, clients int, seed uint64) *Sequence {
	return &Sequence{files: files, client: client, clients: clients, rng: rand.New(rand.NewPCG(seed, uint64(client)))}
}

// firstVersion and manyVersions keep the numbers of versions at one length, so
// that every edit writes as many bytes.
const (
	firstVersion = uint64(1e9)
	manyVersions = uint64(8e9)
)

// Next gives the next change. Two changes of one file differ: the number of a
// version is drawn from billions.
func (s *Sequence) Next() Change {
	own := max(1, s.files/s.clients)
	i := (s.rng.IntN(own)*s.clients + s.client) % s.files
	return Change{Path: Path(i), Data: Content(i, firstVersion+s.rng.Uint64N(manyVersions))}
}

// Write lays out a project of some files, version 0, in an existing folder.
func Write(ctx context.Context, dir string, files int) error {
	for folder := 0; folder*inFolder < files; folder++ {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(Path(folder*inFolder))), 0o755); err != nil {
			return err
		}
	}
	var next atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range 2 {
		group.Go(func() error {
			for {
				i := int(next.Add(1)) - 1
				if i >= files {
					return nil
				}
				if err := ctx.Err(); err != nil {
					return context.Cause(ctx)
				}
				if err := os.WriteFile(filepath.Join(dir, Path(i)), Content(i, 0), 0o644); err != nil {
					return err
				}
			}
		})
	}
	return group.Wait()
}
