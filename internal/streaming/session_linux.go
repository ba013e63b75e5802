package streaming

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// disconnected reports whether the peer has closed the connection, without reading from it.
func disconnected(conn net.Conn) (gone bool) {
	control(conn, func(fd int) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0 && fds[0].Revents&(unix.POLLRDHUP|unix.POLLHUP|unix.POLLERR) != 0
	})
	return gone
}

// unreceived reports whether something that was written has not arrived at the peer's machine. It
// is false if the connection is closed.
func unreceived(conn net.Conn) (some bool) {
	control(conn, func(fd int) {
		n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ)
		some = err == nil && n > 0
	})
	return some
}

// control calls f with the file descriptor of a connection that has one.
func control(conn net.Conn, f func(fd int)) {
	sc, ok := innermost(conn).(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := sc.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { f(int(fd)) })
	}
}
