package runtime

// Entries returns the number of pods that the cache keeps anything about.
func (c *Cache) Entries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pods)
}

// Statuses returns the number of pods that the cache has a status of.
func (c *Cache) Statuses() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.pods {
		if e.status != nil {
			n++
		}
	}
	return n
}
