//go:build !linux

package streaming

import "net"

// disconnected is only known on Linux. Elsewhere the idle time ends the session.
func disconnected(net.Conn) bool { return false }

// unreceived is only known on Linux. Elsewhere a client has no more than the time to close its connection.
func unreceived(net.Conn) bool { return false }
