//go:build unix

package client

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/tools/remotecommand"
)

// watchSize sends the size of the terminal now and after each change, until ctx ends.
func watchSize(ctx context.Context, file *os.File, sizes chan<- remotecommand.TerminalSize) {
	changed := make(chan os.Signal, 1) // one is enough: the size is read after it
	signal.Notify(changed, syscall.SIGWINCH)
	defer signal.Stop(changed)
	for sendSize(ctx, file, sizes) {
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
