package streams_test

import (
	"testing"

	"go.uber.org/goleak"
)

// heartbeat is a goroutine of the WebSocket client, which lives until its next ping.
var heartbeat = goleak.IgnoreTopFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, heartbeat) }
