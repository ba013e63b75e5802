// Package systemd reports the state of the agent to systemd (sd_notify(3), sd_watchdog_enabled(3)).
package systemd

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// Notifier sends messages to systemd. A Notifier without a socket sends none.
type Notifier struct {
	socket string
	// watchdog is the time within which systemd expects the next message that the agent is healthy. If
	// 0, systemd expects none.
	watchdog time.Duration
}

// FromEnvironment returns the notifier that the environment describes, and removes it from the
// environment, so that child processes send no messages to systemd.
func FromEnvironment() *Notifier {
	n := &Notifier{socket: os.Getenv("NOTIFY_SOCKET")}
	if pid := os.Getenv("WATCHDOG_PID"); pid == "" || pid == strconv.Itoa(os.Getpid()) {
		if usec, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64); err == nil && usec > 0 {
			n.watchdog = time.Duration(usec) * time.Microsecond
		}
	}
	for _, name := range []string{"NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"} {
		_ = os.Unsetenv(name)
	}
	return n
}

// Run reports to systemd that the agent is ready, when the channel is closed. From then on it reports
// that the agent is healthy while healthy returns nil. When ctx ends, it reports that the agent stops,
// and returns nil. failed is called with errors of messages. Until the agent is ready, systemd's TimeoutStartSec bounds
// the start.
func (n *Notifier) Run(ctx context.Context, ready <-chan struct{}, healthy func() error, failed func(error)) error {
	send := func(state string) {
		if err := n.send(ctx, state); err != nil {
			failed(err)
		}
	}
	defer send("STOPPING=1")
	select {
	case <-ready:
		send("READY=1")
	case <-ctx.Done():
		return nil
	}
	if n.watchdog == 0 {
		<-ctx.Done()
		return nil
	}
	ticks := time.NewTicker(n.watchdog / 2) // as sd_watchdog_enabled(3) recommends
	defer ticks.Stop()
	for {
		if err := healthy(); err == nil {
			send("WATCHDOG=1")
		} else {
			failed(fmt.Errorf("systemd may restart the agent: it is not healthy: %w", err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticks.C:
		}
	}
}

// sendTimeout bounds the time in which systemd has to take a message.
const sendTimeout = time.Second

// send sends a message.
func (n *Notifier) send(ctx context.Context, state string) error {
	if n.socket == "" {
		return nil
	}
	name := n.socket
	if rest, ok := strings.CutPrefix(name, "@"); ok {
		name = "\x00" + rest // an abstract socket
	}
	conn, err := (&net.Dialer{Timeout: sendTimeout}).DialContext(context.WithoutCancel(ctx), "unixgram", name)
	if err != nil {
		return fmt.Errorf("telling systemd %s: %w", state, err)
	}
	defer conn.Close()
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	if _, err := conn.Write([]byte(state)); err != nil {
		return fmt.Errorf("telling systemd %s: %w", state, err)
	}
	return nil
}
