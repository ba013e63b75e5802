package streams

import "time"

// CheckEvery changes how often it is looked whether the client is still there.
func (h *Handlers) CheckEvery(d time.Duration) { h.period = d }

// LingerFor changes how long a client that has received all may take to close its connection.
func (h *Handlers) LingerFor(d time.Duration) { h.linger = d }
