//go:build linux

package process

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/kubeletkit/kubeletkit/internal/testenv"
	"github.com/kubeletkit/kubeletkit/runtime/process/internal/supervise"
)

// serverEnv makes this binary a server with the directory in it, for tests that kill it.
const serverEnv = "PROCESS_TEST_SERVER_DIR"

// noInitEnv makes this binary a program that does not call Init. Where it is executed as a
// supervisor, it has no environment, and the directory has a file with this name instead.
const noInitEnv = "PROCESS_TEST_NO_INIT"

func TestMain(m *testing.M) {
	if forgetful() {
		_, err := newServer(Options{Dir: "/dir"})
		fmt.Println(err)
		os.Exit(7)
	}
	Init()
	if dir := os.Getenv(serverEnv); dir != "" {
		_ = os.Unsetenv(serverEnv)
		ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
		s, err := Open(ctx, Options{Dir: dir})
		if err == nil {
			select {
			case <-ctx.Done():
			case <-s.Done():
			}
			err = s.Close()
		}
		stop()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	// Parallel tests wait for processes most of the time.
	testenv.Parallel(8)
	goleak.VerifyTestMain(m)
}

func forgetful() bool {
	if len(os.Args) > 1 && os.Args[0] == supervise.Arg0 {
		if _, err := os.Stat(filepath.Join(os.Args[1], noInitEnv)); err == nil {
			fmt.Fprintln(os.Stderr, "no argument was expected")
			return true
		}
	}
	return os.Getenv(noInitEnv) != ""
}
