package e2e

import (
	"os"
	"testing"

	"github.com/kubeletkit/kubeletkit/runtime/process"
	"github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

func TestMain(m *testing.M) {
	process.Init()
	code := m.Run()
	harness.RemoveBuilt()
	os.Exit(code)
}
