package main

import (
	"maps"
	"slices"
	"strings"
	"sync"
)

// Message is the new content of a topic. An empty payload means that it has none any more.
type Message struct {
	Topic   string
	Payload []byte
}

// Broker is the part of an MQTT broker that the example needs, in memory. It keeps the
// last message of each topic for later subscribers.
type Broker struct {
	mu       sync.Mutex
	retained map[string]Message
	// subscribers by number.
	subscribers map[int]func([]Message)
	next        int
}

// NewBroker returns a broker without messages.
func NewBroker() *Broker {
	return &Broker{retained: map[string]Message{}, subscribers: map[int]func([]Message){}}
}

// Publish hands the message to all subscribers and keeps it.
func (b *Broker) Publish(topic, payload string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := Message{topic, []byte(payload)}
	b.retained[topic] = m
	for _, s := range b.subscribers {
		s([]Message{m})
	}
}

// Subscribe calls the function with all messages that were kept, at once and
// together, and then with each that is published, one call after the other.
func (b *Broker) Subscribe(f func([]Message)) (unsubscribe func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f(slices.SortedFunc(maps.Values(b.retained), func(x, y Message) int { return strings.Compare(x.Topic, y.Topic) }))
	b.next++
	n := b.next
	b.subscribers[n] = f
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subscribers, n)
	}
}
