package peers

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"strings"

	"umbra/tests/bench/corpus"
	"umbra/tests/bench/measure"
)

// The names of the subjects that run programs.
const (
	NameExecute = "umbra, `POST /execute`"
	NameScript  = "umbra, `POST /scripts/execute`"
	NameNode    = "`node`, started for it"
	NameDeno    = "`deno run`, started for it"
)

// call is a subject that sends one request and looks for a text in the answer.
type call struct {
	name, url string
	body      []byte
	want      string
	client    *http.Client
}

func (k *call) Name() string    { return k.name }
func (k *call) Durable() string { return "–" }

func (k *call) Change(ctx context.Context, _ int, _ corpus.Change) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url, bytes.NewReader(k.body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	return expect(k.client, req, func(answer []byte) error {
		if !bytes.Contains(answer, []byte(k.want)) {
			return fmt.Errorf("%s answered %s", k.name, answer)
		}
		return nil
	}, http.StatusOK)
}

// Execute gives a subject that runs a TypeScript program whose answer has want
// in it.
func (s *Server) Execute(code, want string) (measure.Subject, error) {
	body, err := json.Marshal(map[string]string{"code": code})
	return &call{name: NameExecute, url: s.URL + "/execute", body: body, want: want, client: s.client}, err
}

// Script gives a subject that runs a Luau script.
func (s *Server) Script(script, want string) (measure.Subject, error) {
	body, err := json.Marshal(map[string]string{"script": script})
	return &call{name: NameScript, url: s.URL + "/scripts/execute", body: body, want: want, client: s.client}, err
}

// started is a subject that starts a process for each program.
type started struct {
	name string
	argv []string
	want string
}

// Started makes a subject of a program that is started each time, such as node.
// ErrMissing where the machine does not have it.
func Started(name, want string, argv ...string) (measure.Subject, error) {
	if _, err := exec.LookPath(argv[0]); err != nil {
		return nil, fmt.Errorf("%w: %s", ErrMissing, argv[0])
	}
	return &started{name, argv, want}, nil
}

func (s *started) Name() string    { return s.name }
func (s *started) Durable() string { return "–" }

func (s *started) Change(ctx context.Context, _ int, _ corpus.Change) error {
	out, err := exec.CommandContext(ctx, s.argv[0], s.argv[1:]...).Output()
	if err == nil && !strings.Contains(string(out), s.want) {
		err = fmt.Errorf("%s printed %q", s.name, out)
	}
	return err
}
