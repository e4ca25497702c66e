package model

import (
	"fmt"
	"strconv"
	"strings"
)

// step is one line of a script:
//
//	A/s1: put a "1\n"; mv a b   a request of task A, subtask s1: one change set
//	disk: del a                 what a person does on disk
//	sync
//	alone A                     found changes belong to A ("alone -": to nobody)
//	revert A [sub s|path p|change n] [force|skip] [noext] [plan|stale]
//	unrevert A                  takes the last revert back, change by change
//	restart, cold               cold: nothing that can be computed is left
//	crash n                     a power cut, by the seed n; in memory only
type step struct {
	verb string
	who  string // task
	sub  string
	ops  []op
	rev  reversal
	n    uint64
}

// op is one operation: put path data; line path n text; del path; rmdir path;
// mv path to; mkdir path; +x path; -x path; ln path target; cp path to.
type op struct {
	verb, path, arg string
	n               int
}

type reversal struct {
	scope string // "", "sub", "path", "change"
	arg   string // of sub and path
	n     int    // of change: modulo the number of changes, from 0
	mode  string // "", "force", "skip"
	noext bool
	plan  string // "", "plan", "stale"
}

func (o op) String() string {
	switch o.verb {
	case "line":
		return fmt.Sprintf("line %s %d %s", word(o.path), o.n, word(o.arg))
	case "put", "mv", "ln", "cp":
		return o.verb + " " + word(o.path) + " " + word(o.arg)
	}
	return o.verb + " " + word(o.path)
}

func (s step) String() string {
	switch s.verb {
	case "do", "disk":
		var ops []string
		for _, o := range s.ops {
			ops = append(ops, o.String())
		}
		who := s.who
		if s.verb == "disk" {
			who = "disk"
		} else if s.sub != "" {
			who += "/" + s.sub
		}
		return who + ": " + strings.Join(ops, "; ")
	case "alone":
		if s.who == "" {
			return "alone -"
		}
		return "alone " + s.who
	case "unrevert":
		return "unrevert " + s.who
	case "crash":
		return "crash " + strconv.FormatUint(s.n, 10)
	case "revert":
		out := "revert " + s.who
		r := s.rev
		switch r.scope {
		case "sub", "path":
			out += " " + r.scope + " " + word(r.arg)
		case "change":
			out += " change " + strconv.Itoa(r.n)
		}
		if r.mode != "" {
			out += " " + r.mode
		}
		if r.noext {
			out += " noext"
		}
		if r.plan != "" {
			out += " " + r.plan
		}
		return out
	}
	return s.verb
}

// word quotes what is more than a plain word.
func word(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./-_") == "" {
		return s
	}
	return strconv.Quote(s)
}

func show(steps []step) string {
	var b strings.Builder
	for _, s := range steps {
		b.WriteString("\t" + s.String() + "\n")
	}
	return b.String()
}

// parse reads what show writes.
func parse(text string) ([]step, error) {
	var out []step
	for line := range strings.SplitSeq(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		s, err := parseStep(line)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		out = append(out, s)
	}
	return out, nil
}

func parseStep(line string) (step, error) {
	if who, rest, ok := strings.Cut(line, ": "); ok && !strings.ContainsAny(who, ` "`) {
		s := step{verb: "do", who: who}
		s.who, s.sub, _ = strings.Cut(who, "/")
		if who == "disk" {
			s = step{verb: "disk"}
		}
		words, err := split(rest)
		if err != nil {
			return s, err
		}
		for len(words) > 0 {
			n := 0
			for n < len(words) && words[n] != ";" {
				n++
			}
			o, err := parseOp(words[:n])
			if err != nil {
				return s, err
			}
			s.ops = append(s.ops, o)
			words = words[min(n+1, len(words)):]
		}
		return s, nil
	}
	words, err := split(line)
	if err != nil || len(words) == 0 {
		return step{}, err
	}
	s := step{verb: words[0]}
	if len(words) > 1 {
		s.who = words[1]
	}
	switch s.verb {
	case "sync", "restart", "cold", "unrevert":
	case "alone":
		if s.who == "-" {
			s.who = ""
		}
	case "crash":
		s.n, err = strconv.ParseUint(s.who, 10, 64)
		s.who = ""
	case "revert":
		for i := 2; i < len(words) && err == nil; i++ {
			switch w := words[i]; w {
			case "sub", "path", "change":
				s.rev.scope = w
				if i++; i < len(words) {
					s.rev.arg = words[i]
				}
				if w == "change" {
					s.rev.n, err = strconv.Atoi(s.rev.arg)
					s.rev.arg = ""
				}
			case "force", "skip":
				s.rev.mode = w
			case "noext":
				s.rev.noext = true
			case "plan", "stale":
				s.rev.plan = w
			default:
				err = fmt.Errorf("no such option: %s", w)
			}
		}
	default:
		err = fmt.Errorf("no such step")
	}
	return s, err
}

func parseOp(w []string) (op, error) {
	bad := fmt.Errorf("no operation: %q", w)
	if len(w) < 2 {
		return op{}, bad
	}
	o := op{verb: w[0], path: w[1]}
	var err error
	switch {
	case o.verb == "line" && len(w) == 4:
		o.n, err = strconv.Atoi(w[2])
		o.arg = w[3]
	case len(w) == 3:
		o.arg = w[2]
	case len(w) != 2:
		err = bad
	}
	return o, err
}

// split cuts a line into words; a quoted one is as Go quotes it.
func split(line string) ([]string, error) {
	var out []string
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		if line[0] == '"' {
			q, err := strconv.QuotedPrefix(line)
			if err != nil {
				return nil, err
			}
			w, err := strconv.Unquote(q)
			if err != nil {
				return nil, err
			}
			out, line = append(out, w), line[len(q):]
			continue
		}
		if line[0] == ';' {
			out, line = append(out, ";"), line[1:]
			continue
		}
		n := strings.IndexAny(line, " ;")
		if n < 0 {
			n = len(line)
		}
		out, line = append(out, line[:n]), line[n:]
	}
	return out, nil
}
