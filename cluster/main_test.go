package cluster

import (
	"testing"

	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

func TestMain(m *testing.M) {
	// One of them sleeps until a time of the real clock, which is decades later in virtual time.
	utilruntime.ErrorHandlers = nil
	goleak.VerifyTestMain(m)
}
