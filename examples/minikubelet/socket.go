package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"

	"github.com/kubeletkit/kubeletkit/server"
)

// listenSocket opens the socket for commands. Where it cannot be had the agent does
// without; but another agent in the same directory is an error.
func listenSocket(ctx context.Context, rootDir string, log logr.Logger) (net.Listener, error) {
	path := filepath.Join(rootDir, socketName)
	if err := os.MkdirAll(rootDir, 0o750); err != nil {
		return nil, fmt.Errorf("making the root directory: %w", err)
	}
	l, err := server.ListenUnix(ctx, path)
	switch {
	case err == nil:
		log.Info("Serving", "address", path, "commands", true)
		return l, nil
	case errors.Is(err, server.ErrSocketInUse), ctx.Err() != nil:
		return nil, fmt.Errorf("opening the socket for commands: %w", err)
	default:
		log.Error(err, "Commands such as minikubelet pods will not find this agent", "socket", path)
		return nil, nil
	}
}
