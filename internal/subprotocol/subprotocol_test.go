package subprotocol_test

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
	"go.uber.org/goleak"

	"github.com/kubeletkit/kubeletkit/internal/subprotocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestIsOffered(t *testing.T) {
	for name, tt := range map[string]struct {
		connection, upgrade, protocols []string
		want                           bool
	}{
		"as clients do":        {[]string{"Upgrade"}, []string{"websocket"}, []string{"v5.channel.k8s.io"}, true},
		"one of several":       {[]string{"keep-alive, upgrade"}, []string{"WebSocket"}, []string{"v4.channel.k8s.io, v5.channel.k8s.io"}, true},
		"one of several lines": {[]string{"keep-alive", "Upgrade"}, []string{"websocket"}, []string{"v4.channel.k8s.io", "v5.channel.k8s.io"}, true},
		"another protocol":     {[]string{"Upgrade"}, []string{"websocket"}, []string{"v4.channel.k8s.io"}, false},
		"part of a protocol":   {[]string{"Upgrade"}, []string{"websocket"}, []string{"base64.v5.channel.k8s.io"}, false},
		"no protocol":          {[]string{"Upgrade"}, []string{"websocket"}, nil, false},
		"SPDY":                 {[]string{"Upgrade"}, []string{"SPDY/3.1"}, []string{"v5.channel.k8s.io"}, false},
		"no upgrade":           {[]string{"keep-alive"}, []string{"websocket"}, []string{"v5.channel.k8s.io"}, false},
		"no header Connection": {nil, []string{"websocket"}, []string{"v5.channel.k8s.io"}, false},
	} {
		req := &http.Request{Header: http.Header{"Connection": tt.connection, "Upgrade": tt.upgrade,
			subprotocol.Header: tt.protocols}}
		assert.Equal(t, tt.want, subprotocol.IsOffered(req, subprotocol.V5), name)
	}
}

func TestOffered(t *testing.T) {
	header := http.Header{"Sec-Websocket-Protocol": {"a, b", "c"}}
	assert.Equal(t, []string{"a", "b", "c"}, subprotocol.Offered(header))
	assert.Empty(t, subprotocol.Offered(nil))
}
