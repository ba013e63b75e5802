package streams

import "time"

// CheckEvery changes how often it is looked whether the client is still there.
func (h *Handlers) CheckEvery(d time.Duration) { h.sessions.CheckPeriod = d }

// MaxForwards changes how many connections a session of port-forward has at once.
func (h *Handlers) MaxForwards(n int) { h.sessions.MaxForwards = n }

// LingerFor changes how long a client that has received all may take to close its connection.
func (h *Handlers) LingerFor(d time.Duration) { h.sessions.Linger = d }
