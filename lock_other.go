//go:build !unix

package kubeletkit

import (
	"fmt"
	"os"
)

// lockRoot makes the root directory; there is no lock on this system.
func lockRoot(dir string) (unlock func(), err error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("making the root directory: %w", err)
	}
	return func() {}, nil
}

func lockLogs(string) (unlock func(), err error) { return func() {}, nil }
