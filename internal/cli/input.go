package cli

import (
	"context"
	"io"
)

// Input returns a reader of a user's answers whose reads end with ctx, as when the
// user interrupts the verb. A read that waits then goes on in the background: what
// it gets is lost.
func Input(ctx context.Context, in io.Reader) io.Reader { return &input{ctx, in} }

type input struct {
	ctx context.Context
	in  io.Reader
}

func (i *input) Read(p []byte) (int, error) {
	type result struct {
		n   int
		err error
	}
	buf, done := make([]byte, len(p)), make(chan result, 1)
	go func() {
		n, err := i.in.Read(buf)
		done <- result{n, err}
	}()
	select {
	case r := <-done:
		return copy(p, buf[:r.n]), r.err
	case <-i.ctx.Done():
		return 0, context.Cause(i.ctx)
	}
}
