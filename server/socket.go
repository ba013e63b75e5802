package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"syscall"
	"time"
)

// ErrSocketInUse means that another process serves on the socket.
var ErrSocketInUse = errors.New("in use by another agent")

// probeTimeout is the time that another agent may take to accept a connection.
const probeTimeout = time.Second

// ListenUnix listens on a unix socket with mode 0600. It replaces a socket on which no
// process listens, such as that of a process that was killed. The error wraps
// [ErrSocketInUse] if another process listens on it.
//
// The path may have up to 103 bytes: the kernel allows 107, and a temporary name needs 4
// of them. If two processes call ListenUnix for one path at the same time, both may
// succeed; agents are protected by the lock of their root directory.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s exists and is not a socket", path)
	default:
		dctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		conn, err := (&net.Dialer{}).DialContext(dctx, "unix", path)
		switch {
		case err == nil:
			_ = conn.Close()
			return nil, fmt.Errorf("socket %s: %w", path, ErrSocketInUse)
		case !errors.Is(err, syscall.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("finding out whether socket %s is in use: %w", path, err)
		}
	}
	// The socket gets its mode under another name, so that it never exists without it.
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "unix", fresh)
	if err != nil {
		return nil, err
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	err = os.Chmod(fresh, 0o600)
	if err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(fresh), l.Close())
	}
	return &socket{Listener: l, path: path}, nil
}

// socket removes its path when it is closed.
type socket struct {
	net.Listener
	path string
}

// Close removes the path first: later, the socket there may be that of another process.
func (s *socket) Close() error {
	err := os.Remove(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, s.Listener.Close())
}
