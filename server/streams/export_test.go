package streams

import "time"

// CheckEvery changes how often it is looked whether the client is still there.
func (h *Handlers) CheckEvery(d time.Duration) { h.period = d }
