package e2e

import (
	"os"
	"testing"

	"github.com/kubeletkit/kubeletkit/test/e2e/harness"
)

func TestMain(m *testing.M) {
	code := m.Run()
	harness.RemoveBuilt()
	os.Exit(code)
}
