package flow

import "time"

// Soonest returns the shorter of two durations until something is due; 0 means never.
func Soonest(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}
