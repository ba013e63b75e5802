//go:build !unix

package client

import (
	"context"
	"os"

	"k8s.io/client-go/tools/remotecommand"
)

// watchSize sends the size of the terminal once: there is no signal of changes.
func watchSize(ctx context.Context, file *os.File, sizes chan<- remotecommand.TerminalSize) {
	sendSize(ctx, file, sizes)
	<-ctx.Done()
}
