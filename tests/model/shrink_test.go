package model

import (
	"slices"
	"time"
)

// play runs a script on a new rig. A broken rule is told with the steps up to
// the one that broke it.
func play(inMemory bool, steps []step) (ran []step, err error) {
	g, err := newRig(inMemory, files())
	if err != nil {
		return nil, err
	}
	defer func() {
		if rerr := g.remove(); err == nil {
			err = rerr
		}
	}()
	for i, s := range steps {
		if err := g.run(s); err != nil {
			return steps[:i+1], err
		}
	}
	return steps, g.checkEnd()
}

// shrink looks for a shorter script that breaks the same rule.
func shrink(inMemory bool, steps []step, err error, until time.Time) ([]step, error) {
	rule := ruleOf(err)
	try := func(cut []step) bool {
		ran, cerr := play(inMemory, cut)
		if cerr == nil || ruleOf(cerr) != rule {
			return false
		}
		steps, err = ran, cerr
		return true
	}
	for again := true; again && time.Now().Before(until); {
		again = false
		for size := len(steps) / 2; size > 0; size /= 2 {
			for at := 0; at+size <= len(steps) && time.Now().Before(until); {
				if try(slices.Concat(steps[:at], steps[at+size:])) {
					again = true
				} else {
					at += size
				}
			}
		}
		for i := 0; i < len(steps); i++ {
			for j := 0; i < len(steps) && j < len(steps[i].ops) && len(steps[i].ops) > 1 && time.Now().Before(until); {
				less := slices.Clone(steps)
				less[i].ops = slices.Concat(steps[i].ops[:j], steps[i].ops[j+1:])
				if try(less) {
					again = true
				} else {
					j++
				}
			}
		}
		for i := 0; i < len(steps) && time.Now().Before(until); i++ {
			for _, plainer := range plainer(steps[i]) {
				less := slices.Clone(steps)
				less[i] = plainer
				if try(less) {
					again = true
					break
				}
			}
		}
	}
	return steps, err
}

// plainer gives simpler forms of a step.
func plainer(s step) (out []step) {
	add := func(change func(*step)) {
		c := s
		c.ops = slices.Clone(s.ops)
		change(&c)
		if c.String() != s.String() {
			out = append(out, c)
		}
	}
	if s.verb == "revert" {
		add(func(c *step) { c.rev = reversal{} })
		add(func(c *step) { c.rev.plan = "" })
		add(func(c *step) { c.rev.mode = "" })
	}
	owned := slices.ContainsFunc(s.ops, func(o op) bool { return slices.Contains(lineFiles, o.path) })
	if s.sub != "" && !owned {
		add(func(c *step) { c.sub = "" })
	}
	for i, o := range s.ops {
		if o.verb == "put" && o.arg != "b\n" && len(o.arg) > 1 {
			add(func(c *step) { c.ops[i].arg = "z" })
		}
		if o.verb == "line" && !owned {
			add(func(c *step) { c.ops[i].n = 0 })
		}
	}
	return out
}
