package threads

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if what := os.Getenv(helper); what != "" {
		help(what)
	}
	goleak.VerifyTestMain(m)
}

// helper is the variable that makes the test a process at its limit, and help is that process on Linux.
const helper = "KUBELETKIT_THREADS_HELPER"

var help = func(string) {}
