package cri

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTargetOf(t *testing.T) {
	for endpoint, want := range map[string]string{
		"unix:///run/containerd/containerd.sock": "unix:///run/containerd/containerd.sock",
		"/run/containerd/containerd.sock":        "unix:///run/containerd/containerd.sock",
		"unix:///run//x/../crio.sock":            "unix:///run/crio.sock",
		"":                                       "",
		"run/containerd.sock":                    "",
		"unix://relative.sock":                   "",
		"tcp://127.0.0.1:1234":                   "",
	} {
		got, err := targetOf(endpoint)
		assert.Equal(t, want, got, endpoint)
		assert.Equal(t, want == "", err != nil, endpoint)
	}
}
