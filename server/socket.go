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

// ErrSocketInUse says that another process serves on the socket.
var ErrSocketInUse = errors.New("in use by another agent")

// probeTimeout is how long another agent may take to let us connect.
const probeTimeout = time.Second

// ListenUnix listens on a unix socket that only the process's user can open (mode
// 0600). A socket at the path that nobody listens on, as a killed process leaves
// it, is replaced. The errors are [ErrSocketInUse], or those of the system; the
// kernel takes paths of at most 107 bytes, of which 4 are used here.
//
// Two who do this at the same moment are not kept apart: the root directory's lock
// does that for agents.
func ListenUnix(ctx context.Context, path string) (net.Listener, error) {
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("%s is there already and is not a socket", path)
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
	// Made under another name, so that it is there with its mode or not at all.
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

// Close removes the path first: what is there afterwards is another's.
func (s *socket) Close() error {
	err := os.Remove(s.path)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return errors.Join(err, s.Listener.Close())
}
