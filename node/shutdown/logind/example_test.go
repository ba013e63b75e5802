package logind_test

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/kubeletkit/kubeletkit/node/shutdown/logind"
)

// A machine without D-Bus.
func Example() {
	address := "unix:path=" + filepath.Join("testdata", "no-bus")
	_, err := logind.New(logind.Options{Address: address}).Connect(context.Background())
	fmt.Println(strings.HasPrefix(err.Error(), "connecting to the system bus: "))
	// Output: true
}
