package kubelet

import (
	"net"
	"sync"
	"sync/atomic"
)

// readiness is when all ports and the socket of the agent are served.
type readiness struct {
	missing atomic.Int64
	ready   chan struct{} // closed when nothing is missing
}

// newReadiness returns the readiness of an agent that serves n listeners.
func newReadiness(n int) *readiness {
	r := &readiness{ready: make(chan struct{})}
	r.missing.Store(int64(n))
	return r
}

// served is called once for each listener that is served, and for one that there will not be.
func (r *readiness) served() {
	if r.missing.Add(-1) == 0 {
		close(r.ready)
	}
}

// listener returns a listener that counts as served from the first call of its method Accept on.
func (r *readiness) listener(l net.Listener) net.Listener {
	return &servedListener{Listener: l, served: sync.OnceFunc(r.served)}
}

type servedListener struct {
	net.Listener
	served func()
}

func (l *servedListener) Accept() (net.Conn, error) {
	l.served()
	return l.Listener.Accept()
}
