// Package render prints the server's answers for people: changelogs, summaries,
// tables and reports.
package render

import (
	"fmt"

	"umbra/internal/backup"
	"umbra/internal/term"
)

// Copied prints what a backup or a restore copied.
func Copied(o *term.Output, r *backup.Report) {
	o.Printf("%s, %s, %s", Count(r.Workspaces, "workspace", "workspaces"), Count(r.Files, "file", "files"), Bytes(r.Bytes))
	if r.ReusedBytes > 0 {
		o.Printf("; %s new", Bytes(r.Bytes-r.ReusedBytes))
	}
	o.Printf("\n")
	for _, w := range r.Warnings {
		o.Printf("%s %s\n", o.Paint(term.Removed, "warning"), term.Line(w))
	}
}

// Bytes writes a number of bytes for people.
func Bytes(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f, i := float64(n), 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// Collected is the server's report of a garbage collection.
type Collected struct {
	Workspaces []struct {
		Workspace string  `json:"workspace"`
		Root      *string `json:"root"`
		Commits   uint64  `json:"commits_dropped"`
		Tasks     int     `json:"tasks_dropped"`
		Cut       int     `json:"tasks_cut"`
		Freed     int64   `json:"freed_bytes"`
		Waiting   int64   `json:"waiting_bytes"`
		Error     *string `json:"error"`
	} `json:"workspaces"`
	Freed   int64 `json:"freed_bytes"`
	Waiting int64 `json:"waiting_bytes"`
	// Elsewhere are those that other nodes of a cluster have.
	Elsewhere []string `json:"elsewhere,omitempty"`
	DryRun    bool     `json:"dry_run"`
}

// Collection prints the report of a garbage collection.
func Collection(o *term.Output, done *Collected) {
	for _, w := range done.Workspaces {
		name := w.Workspace
		if w.Root != nil {
			name += "  " + term.Name(*w.Root)
		}
		if w.Error != nil {
			o.Printf("%s  %s: %s\n", o.Paint(term.Removed, "bad"), name, *w.Error)
			continue
		}
		would := ""
		if done.DryRun {
			would = " would be"
		}
		o.Printf("%s: %s%s dropped", name, Count(int(w.Commits), "commit", "commits"), would)
		if w.Tasks+w.Cut > 0 {
			o.Printf(" (%s wholly, %s in part)", Count(w.Tasks, "task", "tasks"), Count(w.Cut, "task", "tasks"))
		}
		o.Printf(", %s\n", freedText(w.Freed, w.Waiting, done.DryRun))
	}
	if len(done.Workspaces) != 1 {
		o.Printf("%s in all\n", freedText(done.Freed, done.Waiting, done.DryRun))
	}
}

func freedText(freed, waiting int64, dry bool) string {
	switch {
	case dry:
		return Bytes(waiting) + " would be freed"
	case waiting > 0 && freed == 0:
		return Bytes(waiting) + " of superseded packs go when their grace ends"
	case waiting > 0:
		return Bytes(freed) + " freed, " + Bytes(waiting) + " of superseded packs go when their grace ends"
	}
	return Bytes(freed) + " freed"
}

// DiskUse is the disk usage of workspaces and tasks.
type DiskUse struct {
	Workspaces []struct {
		Workspace string  `json:"workspace"`
		Root      *string `json:"root"`
		DiskBytes int64   `json:"disk_bytes"`
		TaskBytes int64   `json:"task_files_bytes"`
		Other     *int64  `json:"other_bytes"`
		Tasks     []struct {
			TaskID    string `json:"task_id"`
			Bytes     int64  `json:"bytes"`
			Scratch   int64  `json:"scratch_bytes"`
			Artifacts int64  `json:"artifacts_bytes"`
		} `json:"tasks"`
	} `json:"workspaces"`
	DiskBytes int64 `json:"disk_bytes"`
	TaskBytes int64 `json:"task_files_bytes"`
	// Elsewhere are those that other nodes of a cluster have.
	Elsewhere []string `json:"elsewhere,omitempty"`
}

// DiskUsage prints disk usage as a table.
func DiskUsage(o *term.Output, use *DiskUse) {
	rows := [][]string{{"HISTORY", "TASKS' FILES", "WORKSPACE", "ROOT"}}
	for _, w := range use.Workspaces {
		root := "(virtual)"
		if w.Root != nil {
			root = term.Name(*w.Root)
		}
		rows = append(rows, []string{Bytes(w.DiskBytes), Bytes(w.TaskBytes), w.Workspace, root})
		for _, t := range w.Tasks {
			rows = append(rows, []string{"  " + Bytes(t.Bytes), Bytes(t.Scratch + t.Artifacts), "  " + t.TaskID, ""})
		}
		if w.Other != nil {
			rows = append(rows, []string{"  " + Bytes(*w.Other), "", "  (no task)", ""})
		}
	}
	rows = append(rows, []string{Bytes(use.DiskBytes), Bytes(use.TaskBytes), "in all", ""})
	o.Table(rows)
}
