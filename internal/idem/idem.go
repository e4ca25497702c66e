// Package idem has the rule for idempotency keys that all services share
// (contracts/README.md): how long a repeated request gets the answer of the first.
package idem

import "time"

// keyLife is how long an idempotency key is remembered.
const keyLife = 24 * time.Hour

// Since returns the time since when a key that was used is remembered.
func Since(now time.Time) time.Time { return now.Add(-keyLife) }

// Remembered reports whether a key that was used then is remembered now.
func Remembered(used, now time.Time) bool { return now.Sub(used) < keyLife }
