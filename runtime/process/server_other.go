//go:build !linux

package process

import (
	"context"

	"github.com/kubeletkit/kubeletkit/runtime"
)

// Server is a CRI server whose containers are host processes. It needs Linux.
type Server struct{}

// Init returns at once on this operating system.
func Init() {}

// Open returns [ErrNotSupported] on this operating system.
func Open(context.Context, Options) (*Server, error) { return nil, ErrNotSupported }

// Close returns [ErrNotSupported] on this operating system.
func (*Server) Close() error { return ErrNotSupported }

// Endpoint returns "" on this operating system.
func (*Server) Endpoint() string { return "" }

// LimitsPods returns false on this operating system.
func (*Server) LimitsPods() bool { return false }

// Done returns nil on this operating system.
func (*Server) Done() <-chan struct{} { return nil }

// ReadPods returns [ErrNotSupported] on this operating system.
func ReadPods(string) ([]*runtime.PodStatus, error) { return nil, ErrNotSupported }

// CleanUp returns [ErrNotSupported] on this operating system.
func CleanUp(context.Context, Options) (int, error) { return 0, ErrNotSupported }
