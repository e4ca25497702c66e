// Package progress shows on a terminal how far a long piece of work is.
package progress

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"umbra/internal/term"
)

// Bar is a bar on a terminal, and nothing elsewhere.
type Bar struct {
	Set  func(done, all int) // nil where there is no bar
	Done func()              // takes it away
}

// Show starts a bar on stderr; the caller must call Done.
func Show(what string, stderr io.Writer) Bar {
	if !term.IsTerminal(stderr) {
		return Bar{Done: func() {}}
	}
	p := mpb.New(mpb.WithOutput(stderr), mpb.WithWidth(48))
	bar := p.AddBar(0, mpb.PrependDecorators(decor.Name(what+" "), decor.CountersNoUnit("%d / %d")), mpb.AppendDecorators(decor.Percentage()),
		mpb.BarRemoveOnComplete())
	return Bar{
		Set: func(done, all int) {
			bar.SetTotal(int64(all), false)
			bar.SetCurrent(int64(done))
		},
		Done: func() {
			bar.Abort(true)
			p.Wait()
		},
	}
}

// Counter reports how many there are so far, where it is unknown how many there
// will be.
type Counter struct {
	Set  func(n int64) // may be nil
	Done func()        // takes it away
}

// ShowCount starts a counter on stderr; the caller must call Done.
func ShowCount(what string, stderr io.Writer) Counter {
	if !term.IsTerminal(stderr) {
		return Counter{Done: func() {}}
	}
	p := mpb.New(mpb.WithOutput(stderr), mpb.WithWidth(8))
	bar := p.AddSpinner(0, mpb.PrependDecorators(decor.Name(what+" "), decor.CurrentNoUnit("%d files ")), mpb.BarRemoveOnComplete())
	return Counter{
		Set: bar.SetCurrent,
		Done: func() {
			bar.Abort(true)
			p.Wait()
		},
	}
}
