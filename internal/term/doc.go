// Package term is how the verbs write for people: colors when they are
// wanted, a pager when a person reads, names and texts of strangers
// made harmless for a terminal.
//
// It follows git where git has a custom (git-config(1): color.ui, core.pager).
package term
