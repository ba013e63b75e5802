package csidriver

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Start runs a driver until the test ends, or until the function is called, which waits for its end. Dir and Socket are
// in temporary directories unless they are set. What is
// mounted when the test ends is unmounted.
func Start(t testing.TB, opts Options) (driver *Driver, stop func()) {
	t.Helper()
	if opts.Dir == "" {
		opts.Dir = t.TempDir()
	}
	if opts.Socket == "" {
		dir, err := os.MkdirTemp("", "csi") // the path of a socket is short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		opts.Socket = filepath.Join(dir, "csi.sock")
	}
	driver, err := New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	var result error
	go func() {
		defer close(ended)
		result = driver.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-ended
	}
	t.Cleanup(func() {
		stop()
		if result != nil && !errors.Is(result, ErrExit) {
			t.Errorf("the driver: %v", result)
		}
		if err := driver.LoseMounts(); err != nil {
			t.Errorf("what the driver has mounted: %v", err)
		}
	})
	select {
	case <-driver.Ready():
	case <-ended:
		t.Fatalf("the driver has not started: %v", result)
	}
	return driver, stop
}
