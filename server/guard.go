package server

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	// writeTimeout is the time that a client may take to receive what is written at once,
	// such as a list of pods.
	writeTimeout = 30 * time.Second
	// maxConns is the maximum number of connections of a port.
	maxConns = 100
)

// guarded is a listener whose clients are not trusted: they may be slow.
type guarded struct{ net.Listener }

func (g guarded) Accept() (net.Conn, error) {
	c, err := g.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return impatient{c}, nil
}

// impatient is a connection with a deadline for each write.
type impatient struct{ net.Conn }

func (c impatient) Write(data []byte) (int, error) {
	if err := c.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return 0, err
	}
	return c.Conn.Write(data)
}

// localOnly refuses requests whose Host is the name of another machine: a web page whose
// name resolves to the loopback address could read the answers (DNS rebinding). An IP
// address as Host cannot be such a name.
func localOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if !isLocal(req.Host) {
			http.Error(w, "this port is for this machine only: the Host of a request must be localhost or an IP address", http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, req)
	})
}

func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	_, err := netip.ParseAddr(host)
	return err == nil || host == "" || strings.EqualFold(host, "localhost") // "" is HTTP/1.0
}

// isLoopback reports whether only this machine can connect to the address.
func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
