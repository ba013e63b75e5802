package streaming

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestSupports(t *testing.T) {
	for _, c := range []struct {
		forward bool
		upgrade string
		offered []string
		want    bool
	}{
		{false, "SPDY/3.1", []string{"v6.channel.k8s.io"}, true},
		{false, "WebSocket", nil, true},
		{false, "websocket", []string{"v6.channel.k8s.io"}, false},
		{false, "websocket", []string{"v5.channel.k8s.io"}, true},
		{false, "websocket", []string{"v6.channel.k8s.io, v4.channel.k8s.io"}, true},
		{false, "websocket", []string{"v6.channel.k8s.io", "base64.channel.k8s.io"}, true},
		{false, "websocket", []string{"channel.k8s.io"}, true},
		{true, "websocket", []string{"channel.k8s.io"}, false},
		{true, "websocket", []string{"v4.base64.channel.k8s.io"}, true},
		{true, "websocket", []string{"SPDY/3.1+portforward.k8s.io"}, true},
	} {
		r := &http.Request{Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {c.upgrade},
			"Sec-Websocket-Protocol": c.offered}}
		assert.Equal(t, c.want, Supports(r, c.forward), "%v", c)
	}
}
