// Package repository tests what no package of the module can test: its imports, its API, its documents and their
// commands.
package repository_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/runtime/process"
)

// TestMain runs the tests at the root of the repository.
func TestMain(m *testing.M) {
	process.Init()
	if err := os.Chdir("../.."); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}
