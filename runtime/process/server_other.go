//go:build !linux

package process

import "context"

// Server is a CRI server whose containers are host processes. It needs Linux.
type Server struct{}

// Init returns at once on this operating system.
func Init() {}

// New returns [ErrNotSupported] on this operating system.
func New(Options) (*Server, error) { return nil, ErrNotSupported }

// Run returns [ErrNotSupported] on this operating system.
func (*Server) Run(context.Context) error { return ErrNotSupported }

// Endpoint returns "" on this operating system.
func (*Server) Endpoint() string { return "" }

// Ready returns nil on this operating system.
func (*Server) Ready() <-chan struct{} { return nil }
