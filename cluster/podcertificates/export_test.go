package podcertificates

import "time"

// SetClockAhead has what was issued look as if the wall clock had jumped ahead.
func (c *Certificates) SetClockAhead(jump time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.projections {
		if i := p.issued; i != nil {
			i.refreshAt, i.overdueAt, i.expiredAt = i.refreshAt.Add(-jump), i.overdueAt.Add(-jump),
				i.expiredAt.Add(-jump)
		}
	}
}
