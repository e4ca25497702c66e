package peers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"github.com/gin-gonic/gin"
)

// SafeServer is the program of a peer: a server without history that writes a
// file safely. PUT /?path=P puts the body there by temporary file, fsync,
// rename and fsync of the directory, and answers when all that is done. GET /?path=P
// sends a file, from memory after the first time. It prints where it listens, and
// ends at SIGTERM.
func SafeServer(root string, withGin bool, stdout io.Writer) error {
	var sent kept
	handler := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			sent.send(w, root, r)
			return
		}
		status, answer := safePut(root, r)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		json.NewEncoder(w).Encode(answer)
	}))
	if withGin {
		gin.SetMode(gin.ReleaseMode)
		engine := gin.New()
		engine.Static("/files", root)
		engine.PUT("/", func(c *gin.Context) { c.JSON(safePut(root, c.Request)) })
		handler = engine
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	context.AfterFunc(ctx, func() { server.Close() })
	if _, err := fmt.Fprintf(stdout, "listening on http://%s\n", l.Addr()); err != nil {
		return err
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// kept is what was sent, by path.
type kept struct{ files sync.Map }

// send answers with a file's bytes, as barely as net/http does it.
func (k *kept) send(w http.ResponseWriter, root string, r *http.Request) {
	path := r.URL.Query().Get("path")
	data, ok := k.files.Load(path)
	if !ok {
		if !filepath.IsLocal(path) {
			http.NotFound(w, r)
			return
		}
		read, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			http.NotFound(w, r)
			return
		}
		data, _ = k.files.LoadOrStore(path, read)
	}
	body := data.([]byte)
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.Write(body)
}

type safeAnswer struct {
	Path  string `json:"path,omitempty"`
	Bytes int    `json:"bytes"`
	Error string `json:"error,omitempty"`
}

func safePut(root string, r *http.Request) (int, safeAnswer) {
	path := r.URL.Query().Get("path")
	if !filepath.IsLocal(path) {
		return http.StatusBadRequest, safeAnswer{Error: "bad_path"}
	}
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = safeWrite(filepath.Join(root, path), body)
	}
	if err != nil {
		return http.StatusInternalServerError, safeAnswer{Error: err.Error()}
	}
	return http.StatusOK, safeAnswer{Path: path, Bytes: len(body)}
}

// safeWrite is what a careful program does to replace a file.
func safeWrite(name string, data []byte) error {
	dir := filepath.Dir(name)
	f, err := os.CreateTemp(dir, ".safe-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
