// Command build bundles the web UI and puts it where httpapi/ui embeds it.
//
//	go run ./httpapi/ui/build -src httpapi/ui/web -out httpapi/ui/dist
//
// Every file but the page itself is named by a hash of its content, so that a
// browser may keep it for good. Each file has its gzip form next to it.
package main

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/evanw/esbuild/pkg/api"
)

func main() {
	src := flag.String("src", "", "the UI's sources in `DIR`, with its node_modules")
	out := flag.String("out", "", "write the files to `DIR`")
	flag.Parse()
	log.SetFlags(0)
	if err := run(*src, *out); err != nil {
		log.Fatal("ui: ", err)
	}
}

// built is the UI: files by their names, and the names by what they are made of.
type built struct {
	files map[string][]byte
	names map[string]string // "main.js" → "main-0123456789abcdef.js"
}

func (b *built) add(name string, data []byte) string {
	sum := sha256.Sum256(data)
	ext := filepath.Ext(name)
	hashed := strings.TrimSuffix(name, ext) + "-" + hex.EncodeToString(sum[:8]) + ext
	b.files[hashed], b.names[name] = data, hashed
	return hashed
}

func run(src, out string) error {
	src, err := filepath.Abs(src)
	if err != nil {
		return err
	}
	b := &built{files: map[string][]byte{}, names: map[string]string{}}
	worker, err := bundle(src, "diff/worker.ts", api.FormatIIFE, nil)
	if err != nil {
		return err
	}
	workerURL := "/ui/" + b.add("worker.js", worker)
	for _, part := range []struct {
		entry, name string
		format      api.Format
	}{{"main.tsx", "main.js", api.FormatESModule}, {"theme.ts", "theme.js", api.FormatIIFE}, {"style.css", "style.css", api.FormatDefault}} {
		data, err := bundle(src, part.entry, part.format, map[string]string{"__WORKER__": strconv.Quote(workerURL)})
		if err != nil {
			return err
		}
		b.add(part.name, data)
	}
	icon, err := os.ReadFile(filepath.Join(src, "src", "icon.svg"))
	if err != nil {
		return err
	}
	b.add("icon.svg", icon)
	page, err := b.page(filepath.Join(src, "src", "index.html"))
	if err != nil {
		return err
	}
	b.files["index.html"] = page
	return b.write(out)
}

func bundle(src, entry string, format api.Format, define map[string]string) ([]byte, error) {
	result := api.Build(api.BuildOptions{
		AbsWorkingDir: src,
		EntryPoints:   []string{filepath.Join("src", entry)},
		Outfile:       "out" + filepath.Ext(entry),
		Bundle:        true, Format: format, Platform: api.PlatformBrowser, Target: api.ES2022,
		MinifySyntax: true, MinifyWhitespace: true, MinifyIdentifiers: true,
		JSX: api.JSXAutomatic, JSXImportSource: "preact", Define: define,
		LegalComments: api.LegalCommentsInline, Charset: api.CharsetUTF8,
	})
	if len(result.Errors) > 0 {
		lines := api.FormatMessages(result.Errors, api.FormatMessagesOptions{Kind: api.ErrorMessage})
		return nil, errors.New(strings.Join(lines, ""))
	}
	return result.OutputFiles[0].Contents, nil
}

// page fills the files' names into the page.
func (b *built) page(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var missing error
	text = regexp.MustCompile(`\{\{([a-z.]+)\}\}`).ReplaceAllFunc(text, func(m []byte) []byte {
		name := string(m[2 : len(m)-2])
		hashed, ok := b.names[name]
		if !ok {
			missing = fmt.Errorf("%s names %s, which is not built", file, name)
		}
		return []byte("/ui/" + hashed)
	})
	return text, missing
}

// write puts the files into the folder and removes what an earlier build left
// there. The page comes last: its time says that all is there.
func (b *built) write(out string) error {
	if err := os.MkdirAll(out, 0o777); err != nil {
		return err
	}
	old, err := os.ReadDir(out)
	if err != nil {
		return err
	}
	for _, e := range old {
		name := strings.TrimSuffix(e.Name(), ".gz")
		if _, ok := b.files[name]; !ok && name != "README" {
			if err := os.Remove(filepath.Join(out, e.Name())); err != nil {
				return err
			}
		}
	}
	for name, data := range b.files {
		if name == "index.html" {
			continue
		}
		packed, err := compress(data)
		if err != nil {
			return err
		}
		if err := errors.Join(os.WriteFile(filepath.Join(out, name), data, 0o666), os.WriteFile(filepath.Join(out, name+".gz"), packed, 0o666)); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(out, "index.html"), b.files["index.html"], 0o666)
}

func compress(data []byte) ([]byte, error) {
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err = w.Close()
	return packed.Bytes(), err
}
