package cli

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestInput(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	line, err := bufio.NewReader(Input(ctx, strings.NewReader("yes\nno\n"))).ReadString('\n')
	if line != "yes\n" || err != nil {
		t.Errorf("%q, %v", line, err)
	}
	silent, _ := io.Pipe()
	stopped := errors.New("interrupted")
	cancel(stopped)
	if _, err := Input(ctx, silent).Read(make([]byte, 1)); !errors.Is(err, stopped) {
		t.Error(err)
	}
}
