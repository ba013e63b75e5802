package streams

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// disconnected reports whether the peer has closed the connection, without reading from it.
func disconnected(conn net.Conn) bool {
	for in := inner(conn); in != nil; in = inner(conn) {
		conn = in
	}
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return false
	}
	gone := false
	_ = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone
}
