package safefile_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/internal/safefile"
)

func Example() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)

	f, err := safefile.Lock(filepath.Join(dir, "lock"))
	fmt.Println(err)
	_, err = safefile.Lock(filepath.Join(dir, "lock"))
	fmt.Println(errors.Is(err, safefile.ErrLocked))
	safefile.Unlock(f)
	// Output:
	// <nil>
	// true
}
