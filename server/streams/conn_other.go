//go:build !linux

package streams

import "net"

// disconnected is only known on Linux. Elsewhere the idle time ends the session.
func disconnected(net.Conn) bool { return false }
