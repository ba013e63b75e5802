package crilog_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kubeletkit/kubeletkit/runtime/crilog"
)

// writeLog writes a log as a runtime does.
func writeLog(lines ...string) (path string, remove func()) {
	dir, err := os.MkdirTemp("", "crilog")
	if err != nil {
		panic(err)
	}
	path = filepath.Join(dir, "0.log")
	var data []byte
	for _, line := range lines {
		data = append(data, line+"\n"...)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		panic(err)
	}
	return path, func() { _ = os.RemoveAll(dir) }
}

// A reader returns io.EOF at the end of the log. To follow the log, call Next again
// later.
func ExampleReader() {
	path, remove := writeLog(
		"2026-01-02T03:04:05.000000006Z stdout F listening on :80",
		"2026-01-02T03:04:06.000000007Z stderr F disk almost full",
	)
	defer remove()
	r, err := crilog.Open(path, -1)
	if err != nil {
		panic(err)
	}
	defer r.Close()
	for {
		line, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			panic(err)
		}
		fmt.Printf("%s %s: %s\n", line.Time, line.Stream, line.Text)
	}
	// Output:
	// 2026-01-02T03:04:05.000000006Z stdout: listening on :80
	// 2026-01-02T03:04:06.000000007Z stderr: disk almost full
}

// A line with the tag P is continued by the next one.
func ExampleTail() {
	path, remove := writeLog(
		"2026-01-02T03:04:05.000000006Z stdout F one",
		"2026-01-02T03:04:06.000000007Z stdout P a long ",
		"2026-01-02T03:04:06.000000007Z stdout F line",
	)
	defer remove()
	end, err := crilog.Tail(path, 2, 1024)
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s", end)
	// Output: a long line
}
