// Package flow has what goroutines and calls between parts need: waiting for goroutines that end late ([Wait]), calls
// that several callers share ([Shares]), locks by keys ([Locks]) and calls below them that may never return ([Calls]),
// delays after failures ([Backoff], [Sleep], [Soonest]), writes of a state that has changed ([Saver]), effects that are
// carried out in order after a lock is released ([Queue]), and calls of observers that nothing waits for ([Observer]).
package flow
