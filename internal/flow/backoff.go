package flow

import "time"

// Backoff is a delay that doubles with each failure in a row, from Min to Max.
// The zero value means no delay.
type Backoff struct {
	// Min is the delay after the first failure.
	Min time.Duration
	// Max is the longest delay. 0 means Min.
	Max time.Duration
}

// After returns the delay after so many failures in a row; 0 after none.
func (e Backoff) After(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	limit := max(e.Min, e.Max)
	d := e.Min
	for range failures - 1 {
		if d > limit/2 {
			return limit
		}
		d *= 2
	}
	return d
}
