package ui

import (
	"os"
	"testing"

	"github.com/kubeletkit/kubeletkit/kubelet/internal/config"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// program is the program of the tests.
var program = config.Program{Name: "minikubelet", Getenv: os.Getenv}
