//go:build linux

package process

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

// serverEnv makes this binary a server in the directory that it names: tests kill it.
const serverEnv = "PROCESS_TEST_SERVER_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(serverEnv); dir != "" {
		_ = os.Unsetenv(serverEnv)
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		s, err := New(Options{Dir: dir})
		if err == nil {
			err = s.Run(ctx)
		}
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}
