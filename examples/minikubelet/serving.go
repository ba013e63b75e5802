package main

import (
	"net"
	"sync"
	"sync/atomic"
)

// serving waits until everything is served.
type serving struct {
	missing atomic.Int64
	all     chan struct{} // closed then
}

func newServing(n int) *serving {
	s := &serving{all: make(chan struct{})}
	s.missing.Store(int64(n))
	return s
}

// one is called for each thing that is served.
func (s *serving) one() {
	if s.missing.Add(-1) == 0 {
		close(s.all)
	}
}

// when returns a listener that is served with its first call of Accept.
func (s *serving) when(l net.Listener) net.Listener {
	return &servedListener{Listener: l, served: sync.OnceFunc(s.one)}
}

type servedListener struct {
	net.Listener
	served func()
}

func (l *servedListener) Accept() (net.Conn, error) {
	l.served()
	return l.Listener.Accept()
}
