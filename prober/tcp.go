package prober

import (
	"context"
	"net"

	v1 "k8s.io/api/core/v1"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// dial connects such that the socket stays in TIME_WAIT for one second at most.
// Otherwise a node with many probes would run out of ports.
func dial(ctx context.Context, network, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, network, address)
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(1)
	}
	return conn, err
}

// failed makes a failure of an error, unless the check was interrupted.
func failed(ctx context.Context, err error) (Outcome, string, error) {
	if ctx.Err() != nil {
		return Unknown, "", context.Cause(ctx)
	}
	return Failure, err.Error(), nil
}

// tcpHandler opens connections.
type tcpHandler struct{}

func (tcpHandler) Name() string { return "tcpSocket" }

func (tcpHandler) Probe(_ *v1.Pod, c *v1.Container, kind runtime.ProbeKind) *v1.Probe {
	return specProbe(c, kind, func(p *v1.Probe) bool { return p.TCPSocket != nil })
}

func (tcpHandler) Check(ctx context.Context, t Target) (Outcome, string, error) {
	address, err := t.HostPort(t.Probe.TCPSocket.Host, t.Probe.TCPSocket.Port)
	if err != nil {
		return Unknown, "", err
	}
	limited, cancel := context.WithTimeout(ctx, t.Timeout)
	defer cancel()
	conn, err := dial(limited, "tcp", address)
	if err != nil {
		return failed(ctx, err)
	}
	_ = conn.Close()
	return Success, "", nil
}
