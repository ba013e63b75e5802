package cgroup

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
)

// causes are the reasons for which something does not work, so that each is reported once. The zero value is ready to
// use.
type causes struct {
	mu   sync.Mutex
	seen map[string]map[string]bool // by what does not work
}

// first reports whether the error is the first with its cause.
func (c *causes) first(what string, err error) bool {
	cause := fmt.Sprintf("%T", err)
	if errno := syscall.Errno(0); errors.As(err, &errno) {
		cause = errno.Error()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[what][cause] {
		return false
	}
	if c.seen == nil {
		c.seen = map[string]map[string]bool{}
	}
	if c.seen[what] == nil {
		c.seen[what] = map[string]bool{}
	}
	c.seen[what][cause] = true
	return true
}

// forget forgets the causes, since it works, and reports whether there were any.
func (c *causes) forget(what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, any := c.seen[what]
	delete(c.seen, what)
	return any
}
