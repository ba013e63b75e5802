package filelock_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/internal/filelock"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	f, err := filelock.Lock(filepath.Join(dir, "lock"))
	fmt.Println(err)
	_, err = filelock.Lock(filepath.Join(dir, "lock"))
	fmt.Println(errors.Is(err, filelock.ErrLocked))
	filelock.Unlock(f)
	// Output:
	// <nil>
	// true
}
