package js

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"sync"
)

// Between the server and a child go frames over the child's standard input and
// output: one byte that says what it is, four with the payload's length
// (big-endian), the payload. The child is not trusted: the server reads no
// frame longer than maxFrame from it.
const (
	framePrelude = 'p' // server: the prelude's code, the first one
	frameReady   = 'r' // child: it waits for its job
	frameJob     = 'j' // server: the job, as JSON
	frameOut     = 'o' // child: bytes of the program's standard output
	frameErr     = 'e' // child: of its standard error
	frameAsk     = 'q' // child: a request, and the program waits for the reply
	frameReply   = 'a' // server
	frameResult  = 'x' // child: how it ended; the last one
)

const maxFrame = 300 << 20

// task is a job on its way to the child.
type task struct {
	Check  bool              `json:"check,omitempty"` // only look for faults
	Name   string            `json:"name"`            // the program's file, for messages and relative imports
	Code   string            `json:"code"`
	Env    map[string]string `json:"env"`
	Args   []string          `json:"args"`
	File   bool              `json:"file"` // there is file.save
	Memory int64             `json:"memory"`
	Output int64             `json:"output"`
}

// ask is a program's request to the server. Saved content follows the JSON as
// bytes, after a newline.
type ask struct {
	Op   string `json:"op"` // "read", "save"
	Name string `json:"name"`
}

// reply answers; a file's bytes, or a path, follow it after a newline.
type reply struct {
	Fault string `json:"fault,omitempty"` // ENOENT, EISDIR, EACCES; for save a sentence
}

// result is how a job ended.
type result struct {
	Exit        int          `json:"exit"`
	Failure     Failure      `json:"failure,omitempty"`
	Message     string       `json:"message,omitempty"`
	Diagnostics []Diagnostic `json:"diagnostics,omitempty"`
}

// wire writes and reads frames. Writes may be concurrent.
type wire struct {
	mu  sync.Mutex
	out io.Writer
	in  *bufio.Reader
}

func newWire(in io.Reader, out io.Writer) *wire {
	return &wire{in: bufio.NewReaderSize(in, 64<<10), out: out}
}

func (w *wire) write(kind byte, parts ...[]byte) error {
	n := 0
	for _, p := range parts {
		n += len(p)
	}
	buf := make([]byte, 5, 5+n)
	buf[0] = kind
	binary.BigEndian.PutUint32(buf[1:], uint32(n))
	for _, p := range parts {
		buf = append(buf, p...)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	_, err := w.out.Write(buf)
	return err
}

// writeJSON writes v and, after a newline, bytes.
func (w *wire) writeJSON(kind byte, v any, more ...[]byte) error {
	head, err := json.Marshal(v)
	if err != nil {
		return err
	}
	parts := [][]byte{head}
	if len(more) > 0 {
		parts = append(append(parts, []byte("\n")), more...)
	}
	return w.write(kind, parts...)
}

var errFrame = errors.New("js: a frame is malformed")

func (w *wire) read() (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(w.in, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n > maxFrame {
		return 0, nil, errFrame
	}
	payload = make([]byte, n)
	_, err = io.ReadFull(w.in, payload)
	return head[0], payload, err
}

// cutJSON takes the JSON off that a payload begins with.
func cutJSON(payload []byte, v any) (rest []byte, err error) {
	for i, c := range payload {
		if c == '\n' {
			return payload[i+1:], json.Unmarshal(payload[:i], v)
		}
	}
	return nil, json.Unmarshal(payload, v)
}
