package main

import (
	"io"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"umbra/internal/term"
)

// progress is a bar on a terminal, and nothing elsewhere.
type progress struct {
	tell func(done, all int) // nil where there is no bar
	done func()              // takes it away
}

func showProgress(what string, stderr io.Writer) progress {
	if !term.IsTerminal(stderr) {
		return progress{done: func() {}}
	}
	p := mpb.New(mpb.WithOutput(stderr), mpb.WithWidth(48))
	bar := p.AddBar(0, mpb.PrependDecorators(decor.Name(what+" "), decor.CountersNoUnit("%d / %d")), mpb.AppendDecorators(decor.Percentage()),
		mpb.BarRemoveOnComplete())
	return progress{
		tell: func(done, all int) {
			bar.SetTotal(int64(all), false)
			bar.SetCurrent(int64(done))
		},
		done: func() {
			bar.Abort(true)
			p.Wait()
		},
	}
}

// counting tells how many there are so far, where nobody knows how many there
// will be.
type counting struct {
	tell func(n int64) // nil where nobody looks
	done func()        // takes it away
}

func showCount(what string, stderr io.Writer) counting {
	if !term.IsTerminal(stderr) {
		return counting{done: func() {}}
	}
	p := mpb.New(mpb.WithOutput(stderr), mpb.WithWidth(8))
	bar := p.AddSpinner(0, mpb.PrependDecorators(decor.Name(what+" "), decor.CurrentNoUnit("%d files ")), mpb.BarRemoveOnComplete())
	return counting{
		tell: bar.SetCurrent,
		done: func() {
			bar.Abort(true)
			p.Wait()
		},
	}
}
