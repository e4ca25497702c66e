// Package notes writes which lines of a commit an agent wrote in the formats of
// other tools: the Git AI Standard's authorship log (specs/git_ai_standard_v3.0.0.md
// in github.com/git-ai-project/git-ai) and Agent Trace records (agent-trace.dev,
// 0.1.0).
//
// Both name agents, sessions, tasks and models, and never any text of a prompt.
// The same commit always gives the same bytes, but for the version of the program in a
// record.
//
// It does no I/O.
package notes

import "time"

// Writer is a recorded change that wrote lines.
type Writer struct {
	Commit  string // id of the recorded commit
	Task    string // empty: it belongs to none, and who wrote its lines is not known
	Agent   string // from the task's metadata; empty if it has none
	Session string // the agent's own session id; empty if it has none
	Actor   string
	Model   string
	Call    string
}

// agentic reports whether an agent is known to have written the lines.
func (w *Writer) agentic() bool { return w.Agent != "" || w.Call != "" || w.Model != "" }

// tool returns the agent's name.
func (w *Writer) tool() string {
	switch {
	case w.Agent != "":
		return w.Agent
	case w.Actor != "":
		return w.Actor
	}
	return "umbra"
}

// session returns the id of the conversation.
func (w *Writer) session() string {
	if w.Session != "" {
		return w.Session
	}
	return w.Task
}

// Run is a run of lines with one writer.
type Run struct {
	Start, End int // from 1, both included
	Writer     *Writer
}

// File is a file of a commit with the lines that the commit added, in order.
type File struct {
	Path string
	Runs []Run
}

// Commit is a commit that is annotated. Its files are in the order of their paths.
type Commit struct {
	ID    string
	When  time.Time
	Files []File
}
