package credentials

import (
	"crypto/sha256"
	"encoding/binary"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxCached is the number of entries of a cache, maxCachedBytes the sum of their sizes.
	maxCached, maxCachedBytes = 1000, 8 << 20
)

// cache has values with the times at which they expire. It is bounded: what expires first makes room. The zero value is
// empty.
type cache[T any] struct {
	mu      sync.Mutex
	entries map[string]cached[T]
	bytes   int
}

type cached[T any] struct {
	value   T
	size    int
	expires time.Time
}

// expired compares both clocks: a machine that sleeps has a monotonic clock that stands still, and the clock of the
// wall may be set.
func (c *cached[T]) expired(now time.Time) bool {
	return now.After(c.expires) || now.Round(0).After(c.expires.Round(0))
}

// get returns the value of the first key that has one.
func (c *cache[T]) get(keys ...string) (value T, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for _, key := range keys {
		if e, has := c.entries[key]; !has {
			continue
		} else if e.expired(now) {
			c.remove(key)
		} else {
			return e.value, true
		}
	}
	return value, false
}

// put replaces the value of the key. The size is in bytes.
func (c *cache[T]) put(key string, value T, size int, lifetime time.Duration) {
	size += len(key)
	if lifetime <= 0 || size > maxCachedBytes {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.remove(key)
	for k, e := range c.entries {
		if e.expired(now) {
			c.remove(k)
		}
	}
	for len(c.entries) >= maxCached || c.bytes+size > maxCachedBytes {
		c.remove(c.first())
	}
	if c.entries == nil {
		c.entries = map[string]cached[T]{}
	}
	c.entries[key] = cached[T]{value, size, now.Add(lifetime)}
	c.bytes += size
}

// remove removes the entry of the key, if there is one. mu is held.
func (c *cache[T]) remove(key string) {
	c.bytes -= c.entries[key].size
	delete(c.entries, key)
}

// first returns the key of the entry that expires first. mu is held.
func (c *cache[T]) first() (first string) {
	var at time.Time
	for key, e := range c.entries {
		if at.IsZero() || e.expires.Before(at) {
			first, at = key, e.expires
		}
	}
	return first
}

// digest returns a key that is different for different parts. Keys may contain tokens, so that only their hash is kept.
func digest(parts ...string) string {
	hash := sha256.New()
	for _, part := range parts {
		_ = binary.Write(hash, binary.BigEndian, uint64(len(part))) // a hash does not fail
		_, _ = io.WriteString(hash, part)
	}
	return string(hash.Sum(nil))
}

// pairs returns the keys and values, in order of the keys.
func pairs(m map[string]string) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key, m[key])
	}
	return out
}
