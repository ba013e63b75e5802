// Package flow has what goroutines and calls between parts need: waiting for goroutines that end late
// ([Wait]), calls that several callers share ([Shares]), delays after failures ([Backoff], [Sleep],
// [Soonest]), effects that are carried out in order after a lock is released ([Queue]), and calls of
// Metrics whose panics do not end the process ([Guard]).
package flow
